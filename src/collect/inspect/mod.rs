//! Files that a person names, looked into: binaries, wheels, folders of them.

mod symbols;

pub use symbols::Symbols;

use super::deepspeed;
pub use crate::binary::inspect::Depth;
use crate::binary::inspect::{Magic, binary, broken, is_library, no_library};
use crate::binary::read::{ReadAt, read_up_to};
use crate::binary::wheel;
use crate::facts::inspect::Inspected;
use crate::facts::observed::Observed;
use crate::host::{Host, Kind};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

/// Endings of files that can hold code. A name with none is looked at too: programs have none.
const ENDINGS: [&str; 6] = ["so", "o", "a", "cubin", "fatbin", "whl"];

/// What a folder holds.
#[derive(Debug, Default)]
pub struct Contents {
    /// Files whose names are those of binaries and wheels, sorted. Links to folders are not followed; a link to a file counts where the
    /// file itself is not among these: some installers make folders of links.
    pub files: Vec<PathBuf>,
    /// Folders that cannot be listed: nobody knows what they hold.
    pub closed: Vec<(PathBuf, io::Error)>,
}

pub fn contents(host: &dyn Host, folder: &Path) -> Contents {
    let (mut found, mut links) = (Contents::default(), Vec::new());
    for (path, kind) in host.walk(folder, usize::MAX) {
        match kind {
            Ok(Kind::File) if may_hold_code(&path) => found.files.push(path),
            Ok(Kind::Link) if may_hold_code(&path) && host.is_file(&path) => links.push(path),
            Ok(_) => {}
            // Gone since its folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => found.closed.push((path, error)),
        }
    }
    if !links.is_empty() {
        let identity = |path: &PathBuf| host.metadata(path).map(|meta| (meta.device, meta.inode)).ok();
        let mut seen: HashSet<_> = found.files.iter().filter_map(identity).collect();
        links.retain(|link| identity(link).is_some_and(|target| seen.insert(target)));
        found.files.extend(links);
        found.files.sort();
    }
    found
}

fn may_hold_code(path: &Path) -> bool {
    let Some(name) = path.file_name().map(|name| name.to_string_lossy()) else { return false };
    match name.rsplit_once('.') {
        None => true,
        Some((_, ending)) => ENDINGS.contains(&ending) || is_library(&name),
    }
}

/// Looks into one file. `None`: it is of no form that can be looked into (a text, a picture). `progress` is told what is read.
///
/// # Errors
/// What was tried and why it failed, for a person.
pub fn file(host: &dyn Host, path: &Path, depth: Depth, progress: &dyn Fn(&str)) -> Result<Option<Inspected>, String> {
    let open = super::open(host, path).map_err(|error| error.to_string())?;
    let here = path.into();
    match Magic::of_file(&open).map_err(|error| error.to_string())? {
        Some(Magic::Zip) => {
            let (mut wheel, texts) = wheel::wheel(&open, &here, depth, progress).map_err(|error| error.to_string())?;
            wheel.built = match texts.deepspeed.as_deref().map(deepspeed::installed) {
                Some(Ok((_, built))) => Observed::seen(built),
                Some(Err(why)) => Observed::failed(format!("`deepspeed/git_version_info_installed.py` {why}")),
                None => Observed::absent(["deepspeed/git_version_info_installed.py"]),
            };
            Ok(Some(Inspected::Wheel(Box::new(wheel))))
        }
        Some(magic) => {
            let found = binary(&open, &here, None, magic, depth).unwrap_or_else(|error| broken(&here, None, open.len(), &error));
            Ok(Some(Inspected::Binary(Box::new(found))))
        }
        None if is_library(&path.file_name().unwrap_or_default().to_string_lossy()) => {
            let start = read_up_to(&open, 0, 64).map_err(|error| error.to_string())?;
            Ok(no_library(&start).map(|why| Inspected::Binary(Box::new(broken(&here, None, open.len(), &why)))))
        }
        None if path.extension().is_some_and(|ending| ending == "whl") => Err("not a zip file".to_owned()),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_binaries() {
        for name in ["a/libcudart.so.12.4.127", "_C.cpython-311-x86_64-linux-gnu.so", "x.cubin", "bin/nvcc", "x.whl", "k.o"] {
            assert!(may_hold_code(Path::new(name)), "{name}");
        }
        for name in ["x.py", "x.so.bak", "libc.so.6.py", "README.md", ".gitignore"] {
            assert!(!may_hold_code(Path::new(name)), "{name}");
        }
    }
}
