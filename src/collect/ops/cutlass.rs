//! What lies in the folders in which DeepSpeed looks for CUTLASS.

use super::super::search;
use crate::facts::ops::{CUTLASS_INCLUDES, CUTLASS_PLACES, CUTLASS_PREFIXES, CutlassPlace};
use crate::facts::python::Interpreter;
use crate::host::Host;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Of CHANGELOG.md.
const LOG_CAP: u64 = 4 << 20;

pub fn collect(host: &dyn Host, pythons: &[Interpreter]) -> Vec<CutlassPlace> {
    let mut places: BTreeSet<PathBuf> = CUTLASS_PLACES.iter().map(PathBuf::from).collect();
    places.extend(search::variable(host, "CUTLASS_PATH"));
    for name in CUTLASS_PREFIXES.iter().chain(CUTLASS_INCLUDES) {
        places.extend(search::entries(host, name).into_iter().map(|entry| entry.path));
    }
    places.extend(host.cwd().map(|folder| folder.join("cutlass")));
    for python in pythons {
        places.extend([python.prefix.0.clone(), python.base_prefix.0.clone()]);
        if let Some(package) = python.package("nvidia-cutlass") {
            let folder = package.site.join("cutlass_library").0;
            places.extend([folder.join("source"), package.site.0.clone(), folder]);
        }
        if let Some(deepspeed) = python.deepspeed.value() {
            places.extend(["cutlass", "ops/cutlass"].map(|name| deepspeed.path.join(name).0));
        }
    }
    places.iter().filter_map(|path| place(host, path)).collect()
}

/// `None` where nothing of CUTLASS is there.
pub fn place(host: &dyn Host, path: &Path) -> Option<CutlassPlace> {
    if path.as_os_str().is_empty() || !host.is_folder(path) {
        return None;
    }
    let found = CutlassPlace {
        path: path.into(),
        include: host.is_folder(&path.join("include")),
        header_in_include: host.is_file(&path.join("include/cutlass/cutlass.h")),
        header: host.is_file(&path.join("cutlass/cutlass.h")),
        utilities: host.is_folder(&path.join("tools/util/include")),
        utilities_beside: path.parent().is_some_and(|parent| host.is_folder(&parent.join("tools/util/include"))),
        log_names_3_1_0: host.read(&path.join("CHANGELOG.md"), LOG_CAP).ok().map(|log| log.windows(5).any(|word| word == b"3.1.0")),
    };
    // A plain prefix has an `include` too, which the older releases take on trust where CUTLASS_PATH names it.
    (found.include || found.header || found.utilities).then_some(found)
}
