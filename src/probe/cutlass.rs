//! Where evoformer_attn finds CUTLASS. From `EvoformerAttnBuilder` of DeepSpeed 0.11 to 0.19.8.

use crate::facts::python::Interpreter;
use crate::facts::snapshot::Snapshot;
use crate::host::Host;
use crate::knowledge::schema::ops::CutlassGate;
use std::path::{Path, PathBuf};

const IGNORE: &str = "DS_IGNORE_CUTLASS_DETECTION";
const BINDINGS: &str = "DS_USE_CUTLASS_PYTHON_BINDINGS";
/// Searched in this order, each a list of folders.
const PREFIXES: &[&str] = &["CUTLASS_ROOT", "CUTLASS_HOME", "CONDA_PREFIX", "VIRTUAL_ENV", "CMAKE_PREFIX_PATH", "CUDA_HOME", "CUDA_PATH"];
const INCLUDES: &[&str] = &["CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH"];
const PLACES: &[&str] = &["/usr/local/cutlass", "/opt/cutlass", "/usr/local", "/usr"];
/// Of CHANGELOG.md.
const LOG_CAP: u64 = 4 << 20;

/// The folders of its headers; none where the user says that the compiler finds them by itself.
///
/// # Errors
/// Why DeepSpeed does not take any.
pub fn includes(host: &dyn Host, facts: &Snapshot, python: Option<&Interpreter>, way: CutlassGate) -> Result<Vec<PathBuf>, String> {
    let named = facts.env.filled("CUTLASS_PATH").map(|value| value.to_string_lossy().into_owned());
    let knows_words = !matches!(way, CutlassGate::Log | CutlassGate::Path);
    let packaged = || bindings(python).ok_or("`CUTLASS_PATH` asks for the Python package nvidia-cutlass, which is not installed");
    let places: Vec<PathBuf> = match named.as_deref() {
        Some(IGNORE) if knows_words => return Ok(Vec::new()),
        Some(_) if way == CutlassGate::Word => return Err(format!("this release's builder dies of any `CUTLASS_PATH` but `{IGNORE}`")),
        Some(BINDINGS) if knows_words => packaged()?,
        Some(path) => vec![PathBuf::from(path)],
        None if way == CutlassGate::Search => places(host, facts, python),
        None => return Err("`CUTLASS_PATH` is not set".to_owned()),
    };
    let found = places.iter().find_map(|place| folders(host, place, way).map(|folders| (place, folders)));
    let Some((place, folders)) = found else {
        return Err(match named {
            Some(path) => format!("there are no CUTLASS headers in `{path}`, which `CUTLASS_PATH` names"),
            None => "no CUTLASS is found where DeepSpeed searches".to_owned(),
        });
    };
    // Its test of the version: the text must be somewhere in the file, where there is one.
    match host.read(&place.join("CHANGELOG.md"), LOG_CAP) {
        Ok(log) if !log.windows(5).any(|word| word == b"3.1.0") => Err(format!("`{}` is older than CUTLASS 3.1.0", place.display())),
        _ => Ok(folders),
    }
}

fn bindings(python: Option<&Interpreter>) -> Option<Vec<PathBuf>> {
    let folder = python?.package("nvidia-cutlass")?.site.0.join("cutlass_library");
    Some(vec![folder.join("source"), folder.parent().unwrap_or(&folder).to_owned(), folder])
}

fn places(host: &dyn Host, facts: &Snapshot, python: Option<&Interpreter>) -> Vec<PathBuf> {
    let full = |path: &PathBuf| !path.as_os_str().is_empty();
    let of = |names: &[&'static str]| names.iter().flat_map(|name| facts.env.entries(name)).filter(full).collect::<Vec<PathBuf>>();
    let prefixes = python.into_iter().flat_map(|python| [python.prefix.0.clone(), python.base_prefix.0.clone()]);
    let here = host.cwd().map(|folder| folder.join("cutlass"));
    let root = python.and_then(|python| Some(python.deepspeed.value()?.path.0.join("ops")));
    let beside = root.iter().flat_map(|root| [Some(root.join("cutlass")), root.parent().map(|parent| parent.join("cutlass"))]).flatten();
    bindings(python)
        .into_iter()
        .flatten()
        .chain(of(PREFIXES))
        .chain(prefixes)
        .chain(of(INCLUDES))
        .chain(here)
        .chain(beside)
        .chain(PLACES.iter().map(PathBuf::from))
        .collect()
}

fn folders(host: &dyn Host, place: &Path, way: CutlassGate) -> Option<Vec<PathBuf>> {
    let there = |folder: &PathBuf| host.list(folder).is_ok();
    let (include, utilities) = match way {
        // The header itself is looked for only since the search.
        CutlassGate::Log | CutlassGate::Path | CutlassGate::PathOrWord | CutlassGate::Word => {
            (Some(place.join("include")).filter(there), place.join("tools/util/include"))
        }
        CutlassGate::Search if host.is_file(&place.join("include/cutlass/cutlass.h")) => {
            (Some(place.join("include")), place.join("tools/util/include"))
        }
        CutlassGate::Search if host.is_file(&place.join("cutlass/cutlass.h")) => {
            (Some(place.to_owned()), place.parent()?.join("tools/util/include"))
        }
        CutlassGate::Search => return None,
    };
    let found: Vec<PathBuf> = include.into_iter().chain(Some(utilities).filter(there)).collect();
    if found.is_empty() { None } else { Some(found) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::Rooted;
    use std::fs;

    /// A tree with these files, all empty but a CHANGELOG.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn found(files: &[(&str, &str)], value: Option<&str>, way: CutlassGate) -> Result<Vec<String>, String> {
        let root = tree(files);
        let host = Rooted::new(root.path(), Default::default()).unwrap();
        let mut facts = Snapshot::default();
        if let Some(value) = value {
            facts.env.set("CUTLASS_PATH", value);
        }
        includes(&host, &facts, None, way).map(|folders| folders.iter().map(|folder| folder.display().to_string()).collect())
    }

    #[test]
    fn by_release() {
        let checkout = [("/src/cutlass/include/cutlass/cutlass.h", ""), ("/src/cutlass/tools/util/include/x.h", "")];
        let both = vec!["/src/cutlass/include".to_owned(), "/src/cutlass/tools/util/include".to_owned()];
        for way in [CutlassGate::Path, CutlassGate::PathOrWord, CutlassGate::Search] {
            assert_eq!(found(&checkout, Some("/src/cutlass"), way).unwrap(), both);
            assert!(found(&checkout, Some("/src/other"), way).unwrap_err().contains("/src/other"));
            assert!(found(&checkout, None, way).is_err(), "it lies where nobody looks");
        }
        let installed = [("/opt/cutlass/include/cutlass/cutlass.h", "")];
        assert_eq!(found(&installed, None, CutlassGate::Search).unwrap(), ["/opt/cutlass/include"]);
        assert!(found(&installed, None, CutlassGate::PathOrWord).is_err());
        assert!(found(&installed, Some(IGNORE), CutlassGate::PathOrWord).unwrap().is_empty());
        assert!(found(&checkout, Some("/src/cutlass"), CutlassGate::Word).is_err());
        assert!(found(&checkout, Some(IGNORE), CutlassGate::Word).is_ok());
        assert!(found(&installed, Some(IGNORE), CutlassGate::Path).is_err(), "0.18.4 takes the word for a path");
        assert!(found(&installed, Some(BINDINGS), CutlassGate::Search).unwrap_err().contains("nvidia-cutlass"));
    }

    #[test]
    fn the_changelog_must_name_3_1_0() {
        let with = |log: &'static str| [("/c/include/cutlass/cutlass.h", ""), ("/c/CHANGELOG.md", log)];
        assert!(found(&with("## 4.0\n## 3.1.0\n"), Some("/c"), CutlassGate::Search).is_ok());
        assert!(found(&with("## 2.11\n"), Some("/c"), CutlassGate::Search).unwrap_err().contains("3.1.0"));
    }
}
