//! The mount table: which file system a folder lies on.

use crate::host::Host;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The folder of the file system that is mounted; not `/` for bind mounts.
    pub root: PathBuf,
    pub point: PathBuf,
    pub filesystem: String,
    /// Those of the mount, then those of the file system.
    pub options: Vec<String>,
}

/// Longer tables have been seen on nodes with thousands of containers; there the rest is not needed.
const CAP: u64 = 4 << 20;

/// All mounts, later ones over earlier ones. Source of the format: proc_pid_mountinfo(5).
///
/// # Errors
/// When the table cannot be read, as under a root.
pub fn mounts(host: &dyn Host) -> io::Result<Vec<Mount>> {
    let text = host.read(Path::new("/proc/self/mountinfo"), CAP)?;
    Ok(text.split(|b| *b == b'\n').filter_map(parse).collect())
}

fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let root = path(fields.nth(3)?);
    let point = path(fields.next()?);
    let mut options = words(fields.next()?);
    // Optional fields end with a lone `-`.
    fields.find(|field| *field == b"-")?;
    let filesystem = String::from_utf8_lossy(fields.next()?).into_owned();
    for option in fields.nth(1).map(words).unwrap_or_default() {
        if !options.contains(&option) {
            options.push(option);
        }
    }
    Some(Mount { root, point, filesystem, options })
}

fn words(field: &[u8]) -> Vec<String> {
    field.split(|b| *b == b',').map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Blanks and backslashes are written as octal escapes.
fn path(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|d| byte == b'\\' && d.iter().all(|b| matches!(b, b'0'..=b'7')));
        match digits {
            Some(digits) => {
                out.push(digits.iter().fold(0_u8, |value, b| value.wrapping_mul(8).wrapping_add(b - b'0')));
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

/// The mount a path (with all links resolved) lies on: the deepest, and of several on one point the last.
pub fn of<'m>(mounts: &'m [Mount], real: &Path) -> Option<&'m Mount> {
    mounts.iter().filter(|mount| real.starts_with(&mount.point)).max_by_key(|mount| mount.point.components().count())
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo() {
        let line = br"36 35 98:0 /mnt1 /mnt2\040x\134 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!(mount.root, Path::new("/mnt1"));
        assert_eq!(mount.point, Path::new(r"/mnt2 x\"));
        assert_eq!(mount.filesystem, "ext3");
        assert_eq!(mount.options, ["rw", "noatime", "errors=continue"]);
        for broken in [&b""[..], b"36 35", b"36 35 98:0 / / rw", b"1 2 3 4 5 6 - "] {
            assert!(parse(broken).is_none_or(|mount| mount.filesystem.is_empty()));
        }
    }

    #[test]
    fn the_deepest_and_last_mount_counts() {
        let mount = |point: &str, filesystem: &str| Mount {
            root: "/".into(),
            point: point.into(),
            filesystem: filesystem.into(),
            options: Vec::new(),
        };
        let table = [mount("/", "ext4"), mount("/home", "nfs4"), mount("/home/me", "xfs"), mount("/home", "autofs")];
        let at = |path: &str| of(&table, Path::new(path)).unwrap().filesystem.as_str();
        assert_eq!((at("/usr"), at("/home/you"), at("/home/me/x"), at("/homes")), ("ext4", "autofs", "xfs", "ext4"));
    }
}
