//! DeepSpeed as it lies in its folder, and what its setup.py wrote down when it was built.

use super::library_facts;
use super::literal::{Binding, Literal, binding};
use super::python::dist::Dist;
use super::python::dist_of;
use super::python::site::{Module, Site};
use crate::facts::observed::Observed;
use crate::facts::torch::{DeepSpeed, InstalledOps, PrebuiltOp};
use crate::host::{Host, Kind};
use crate::version::Dotted;
use std::io;
use std::path::Path;

/// The DeepSpeed that this environment would import.
pub fn collect(host: &dyn Host, site: &Site, dists: &[Dist]) -> Observed<DeepSpeed> {
    let path = match site.module(host, "deepspeed") {
        Some(Module::Package(path)) => path,
        Some(Module::File(path)) => return Observed::failed(format!("`{}` hides the package of that name", path.display())),
        Some(Module::Hollow(path)) => {
            return Observed::failed(format!("`{}` has no `__init__.py`: what a removed DeepSpeed leaves behind", path.display()));
        }
        None => return Observed::absent(site.folders.iter().map(|folder| folder.path.display().to_string())),
    };
    let parent = path.parent().unwrap_or(&path);
    let (version, built) = built(host, &path);
    // The package of an editable install lies in the site folder, its code elsewhere.
    let dist = dist_of(dists, "deepspeed", parent, "")
        .or_else(|| dists.iter().find(|dist| dist.package.name == "deepspeed"))
        .map(|dist| dist.package.version.clone());
    let checkout = || host.read_text(&parent.join("version.txt")).ok()?.trim().parse::<Dotted>().ok();
    match version.or(dist).or_else(checkout) {
        Some(version) => Observed::seen(DeepSpeed {
            editable: is_checkout(host, &path, parent),
            version,
            binaries: binaries(host, &path, &built),
            built,
            path: path.into(),
        }),
        None => {
            let why = if let Observed::Failed { why } = &built { format!(": {why}") } else { String::new() };
            Observed::failed(format!("nothing tells the version of `{}`{why}", path.display()))
        }
    }
}

/// In a checkout these folders are links to the repository's own; a wheel holds copies.
fn is_checkout(host: &dyn Host, path: &Path, parent: &Path) -> bool {
    let linked = host.link_metadata(&path.join("ops/csrc")).is_ok_and(|meta| meta.kind == Kind::Link);
    linked || host.is_file(&parent.join("setup.py")) && host.is_folder(&parent.join("op_builder"))
}

fn built(host: &dyn Host, path: &Path) -> (Option<Dotted>, Observed<InstalledOps>) {
    let file = path.join("git_version_info_installed.py");
    match host.read_text(&file) {
        Ok(text) => match installed(&text) {
            Ok((version, ops)) => (version, Observed::seen(ops)),
            Err(why) => (None, Observed::failed(format!("`{}` {why}", file.display()))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => (None, Observed::absent([file.display().to_string()])),
        Err(error) => (None, Observed::failed(format!("`{}`: {error}", file.display()))),
    }
}

/// The extension modules below `deepspeed/ops` and, since 0.12, `deepspeed/inference/v2`. Listing its folders is spared where setup.py wrote that it built none.
fn binaries(host: &dyn Host, path: &Path, built: &Observed<InstalledOps>) -> Vec<PrebuiltOp> {
    let any = built.value().is_some_and(|built| built.ops.values().any(|op| *op));
    let mut found = Vec::new();
    if any {
        for folder in ["ops", "inference/v2"] {
            below(host, &path.join(folder), 3, &mut found);
        }
    }
    found
}

fn below(host: &dyn Host, folder: &Path, depth: usize, found: &mut Vec<PrebuiltOp>) {
    for entry in host.list(folder).unwrap_or_default() {
        let path = folder.join(&entry.name);
        let Some(name) = entry.name.to_str() else { continue };
        match entry.kind {
            Kind::Folder if depth > 0 && !matches!(name, "csrc" | "op_builder" | "__pycache__") => below(host, &path, depth - 1, found),
            Kind::File if name.ends_with(".so") => {
                let (elf, device) = library_facts(host, &path);
                let module = name.split('.').next().unwrap_or(name).to_owned();
                found.push(PrebuiltOp { module, elf, device, path: path.into() });
            }
            _ => {}
        }
    }
}

/// Source of the form: setup.py of DeepSpeed 0.9 to 0.19, which writes one assignment a line.
pub fn installed(text: &str) -> Result<(Option<Dotted>, InstalledOps), String> {
    let ops = match binding(text, "installed_ops") {
        Binding::Value(ops @ Literal::Dict(_)) => ops,
        Binding::Unbound => return Err("has no `installed_ops`".to_owned()),
        _ => return Err("has `installed_ops` that cannot be read".to_owned()),
    };
    let info = match binding(text, "torch_info") {
        Binding::Value(info) => info,
        _ => Literal::None,
    };
    let word = |key: &str| info.get(key).and_then(Literal::text).map(str::to_owned);
    let ops = ops.pairs().iter().filter_map(|(name, value)| Some((name.text()?.to_owned(), value.truthy()))).collect();
    let accelerator = binding(text, "accelerator_name").text().map(str::to_owned);
    let version = binding(text, "version").text().and_then(|version| version.parse().ok());
    Ok((version, InstalledOps { ops, accelerator, torch: word("version"), cuda: word("cuda_version") }))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_setup_wrote() {
        let text = "version='0.16.9'\ngit_hash='unknown'\ngit_branch='unknown'\ninstalled_ops={'async_io': False, 'fused_adam': 1}\n\
                    accelerator_name='cuda'\ntorch_info={'version': '2.6', 'bf16_support': True, 'cuda_version': '12.4', 'nccl_version': '2.21'}\n";
        let (version, built) = installed(text).unwrap();
        assert_eq!(version.unwrap().text, "0.16.9");
        assert_eq!((built.ops.get("async_io"), built.ops.get("fused_adam")), (Some(&false), Some(&true)));
        assert_eq!(built.accelerator.as_deref(), Some("cuda"));
        assert_eq!((built.torch.as_deref(), built.cuda.as_deref()), (Some("2.6"), Some("12.4")));
        // 0.9 wrote no accelerator.
        let (_, built) = installed("version='0.9.5'\ninstalled_ops={}\ntorch_info={}\n").unwrap();
        assert_eq!((built.accelerator, built.torch, built.ops.len()), (None, None, 0));
        for bad in ["", "installed_ops={'a'\n", "installed_ops=f()\n"] {
            assert!(installed(bad).is_err(), "{bad:?}");
        }
    }
}
