//! Files that a person names, looked into: binaries, wheels, folders of them.

mod symbols;

pub use symbols::Symbols;

use super::deepspeed;
use crate::binary::inspect::{Magic, binary, broken};
use crate::binary::read::ReadAt;
use crate::binary::wheel;
use crate::facts::inspect::Inspected;
use crate::facts::observed::Observed;
use crate::host::{Host, Kind};
use std::path::{Path, PathBuf};

/// As deep as a folder is searched: site-packages has packages eight levels deep.
const DEPTH: usize = 32;
/// Endings of files that can hold code. A name with none is looked at too: programs have none.
const ENDINGS: [&str; 6] = ["so", "o", "a", "cubin", "fatbin", "whl"];

/// The files of a folder whose names are those of binaries and wheels, sorted; links are not followed.
pub fn files(host: &dyn Host, folder: &Path) -> Vec<PathBuf> {
    let all = host.walk(folder, DEPTH);
    all.into_iter().filter(|(path, kind)| *kind == Kind::File && may_hold_code(path)).map(|(path, _)| path).collect()
}

fn may_hold_code(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    match name.rsplit_once('.') {
        None => true,
        Some((_, ending)) if ENDINGS.contains(&ending) => true,
        // `libcudart.so.12.4.127`
        Some(_) => name.split_once(".so.").is_some_and(|(_, rest)| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.')),
    }
}

/// Looks into one file. `None`: it is of no form that can be looked into (a text, a picture). `progress` is told what is read.
///
/// # Errors
/// What was tried and why it failed, for a person.
pub fn file(host: &dyn Host, path: &Path, progress: &dyn Fn(&str)) -> Result<Option<Inspected>, String> {
    let open = super::open(host, path).map_err(|error| error.to_string())?;
    let here = path.into();
    match Magic::of_file(&open).map_err(|error| error.to_string())? {
        Some(Magic::Zip) => {
            let (mut wheel, texts) = wheel::wheel(&open, &here, progress).map_err(|error| error.to_string())?;
            wheel.built = match texts.deepspeed.as_deref().map(deepspeed::installed) {
                Some(Ok((_, built))) => Observed::seen(built),
                Some(Err(why)) => Observed::failed(format!("`deepspeed/git_version_info_installed.py` {why}")),
                None => Observed::absent(["deepspeed/git_version_info_installed.py"]),
            };
            Ok(Some(Inspected::Wheel(Box::new(wheel))))
        }
        Some(magic) => {
            let found = binary(&open, &here, None, magic).unwrap_or_else(|error| broken(&here, None, open.len(), &error));
            Ok(Some(Inspected::Binary(Box::new(found))))
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
