//! The builders of a DeepSpeed, installed or as a source tree.

use crate::facts::observed::Observed;
use crate::facts::ops::{Builders, digest};
use crate::facts::torch::DeepSpeed;
use crate::host::{Host, Kind};
use crate::version::Dotted;
use std::path::Path;

/// `deepspeed/ops/adam/fused_adam_op.cpython-311-x86_64-linux-gnu.so`
const DEPTH: usize = 6;

pub fn of_package(host: &dyn Host, deepspeed: &DeepSpeed) -> Option<Builders> {
    let mut builders = read(host, &deepspeed.path, &deepspeed.path.join("ops/op_builder"))?;
    if deepspeed.built.value().is_some_and(|built| built.ops.values().any(|built| *built)) {
        let modules = host.walk(&deepspeed.path, DEPTH).into_iter().filter(|(path, kind)| {
            matches!(kind, Ok(kind) if *kind != Kind::Folder) && path.extension().is_some_and(|ending| ending == "so")
        });
        builders.modules = modules.map(|(path, _)| path.into()).collect();
    }
    Some(builders)
}

/// A source tree as if it were installed.
///
/// # Errors
/// That it is none, and why.
pub fn source(host: &dyn Host, folder: &Path) -> Result<(DeepSpeed, Builders), String> {
    let shown = folder.display();
    if !host.is_folder(folder) {
        return Err(format!("`{shown}` is no folder"));
    }
    let text = host
        .read_text(&folder.join("version.txt"))
        .map_err(|error| format!("`{shown}` is no source tree of DeepSpeed: its `version.txt` cannot be read ({error})"))?;
    let text = text.trim();
    let version: Dotted = text.parse().map_err(|_| format!("`{shown}/version.txt` holds no version: `{text}`"))?;
    if !host.is_file(&folder.join("op_builder/builder.py")) {
        return Err(format!("`{shown}` is no source tree of DeepSpeed: it has no `op_builder/builder.py`"));
    }
    let path = folder.join("deepspeed");
    let builders = read(host, &path, &folder.join("op_builder")).ok_or_else(|| format!("`{shown}/op_builder` cannot be listed"))?;
    let built = Observed::absent(["a source tree"]);
    Ok((DeepSpeed { path: path.into(), version, built, editable: true, binaries: Vec::new() }, builders))
}

fn read(host: &dyn Host, deepspeed: &Path, folder: &Path) -> Option<Builders> {
    let mut builders = Builders { deepspeed: deepspeed.into(), folder: folder.into(), ..Builders::default() };
    for below in ["", "cpu"] {
        let list = match host.list(&folder.join(below)) {
            Ok(list) => list,
            Err(_) if below.is_empty() => return None,
            Err(_) => continue,
        };
        for name in list.iter().filter_map(|entry| entry.name.to_str()).filter(|name| name.ends_with(".py")) {
            let name = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            if let Ok(bytes) = host.read(&folder.join(&name), 1 << 20) {
                builders.files.insert(name, digest(&bytes));
            }
        }
    }
    Some(builders)
}
