//! What was collected of the parts that a manifest names, against the manifest.

use super::Built;
use super::manifest::{Layout, Part, Toolkit};
use ds_doctor::facts::snapshot::Snapshot;
use ds_doctor::facts::toolkit;
use ds_doctor::knowledge::Knowledge;
use ds_doctor::version::{CudaVersion, Dotted};
use std::path::Path;

pub fn agree(built: &Built) {
    let text = std::fs::read(built.whole()).unwrap();
    let facts: Snapshot = serde_json::from_slice(&text).unwrap();
    let manifest = &built.manifest;
    let mut wrong: Vec<String> = Vec::new();
    for kit in &manifest.toolkit {
        wrong.extend(toolkit_agrees(built, &facts, kit).into_iter().map(|why| format!("toolkit {}: {why}", kit.root)));
    }
    for gcc in &manifest.gcc {
        let found = facts
            .compilers
            .value()
            .into_iter()
            .flatten()
            .any(|one| one.version.as_ref().is_some_and(|version| version.text == gcc.version));
        if !found {
            wrong.push(format!("gcc {} was not found: {:?}", gcc.version, facts.compilers));
        }
    }
    for torch in &manifest.torch {
        let pythons = facts.pythons.value().map_or(&[][..], Vec::as_slice);
        let found = pythons.iter().filter_map(|python| python.torch.value()).find(|one| one.version.text == torch.version);
        let Some(found) = found else {
            wrong.push(format!("torch {} was not found", torch.version));
            continue;
        };
        let version: Dotted = torch.version.parse().unwrap();
        let cuda = torch.cuda.clone().or_else(|| Some(CudaVersion::from_tag(version.local()?)?.to_string()));
        if found.cuda.map(|cuda| cuda.to_string()) != cuda {
            wrong.push(format!("torch was built for CUDA {cuda:?}, found {:?}", found.cuda));
        }
        if let (Some(wanted), Some(_)) = (&torch.arch_list, &cuda)
            && found.arch_list.value() != Some(wanted)
        {
            wrong.push(format!("torch's targets are {wanted:?}, found {:?}", found.arch_list));
        }
        if cuda.is_some() && found.arch_list.value().is_none() {
            wrong.push(format!("torch's targets: {:?}", found.arch_list));
        }
        if cuda.is_some() && found.cudart.is_none() {
            wrong.push("torch needs no libcudart".to_owned());
        }
        if found.cxx11_abi.value().is_none() {
            wrong.push(format!("torch's ABI: {:?}", found.cxx11_abi));
        }
    }
    for python in &manifest.python {
        let all = facts.pythons.value().map_or(&[][..], Vec::as_slice);
        let Some(found) = all.iter().find(|one| one.prefix.to_string() == python.prefix) else {
            // Only what something leads to is collected.
            if python.activate != Some(false) {
                wrong.push(format!("python {} was not found", python.prefix));
            }
            continue;
        };
        if python.version.is_some() && found.version.as_ref().map(|version| &version.text) != python.version.as_ref() {
            wrong.push(format!("python {}: version {:?}", python.prefix, found.version));
        }
    }
    if manifest.gcc.is_empty() && manifest.system != "alpine" && facts.host.glibc.value().is_none() {
        wrong.push(format!("glibc: {:?}", facts.host.glibc));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn toolkit_agrees(built: &Built, facts: &Snapshot, kit: &Toolkit) -> Vec<String> {
    let mut wrong = Vec::new();
    let all = facts.toolkits.value().map_or(&[][..], Vec::as_slice);
    let Some(found) = all.iter().find(|one| *one.root == *Path::new(&kit.root)) else {
        let roots: Vec<String> = all.iter().map(|one| one.root.to_string()).collect();
        // Without nvcc it is one only as long as something of it can be told.
        let whole = kit.parts.as_ref().is_none_or(|parts| parts.contains(&Part::Compiler));
        return if whole || kit.without.is_empty() { vec![format!("not among {roots:?}")] } else { Vec::new() };
    };
    let touched = |start: &str| kit.without.iter().any(|path| path.starts_with(start)) || !changed_by_hand(built, &kit.root).is_empty();
    let compiler = kit.parts.as_ref().is_none_or(|parts| parts.contains(&Part::Compiler));
    let layout = match kit.layout {
        Layout::Nvidia => toolkit::Layout::Nvidia,
        Layout::Distribution => toolkit::Layout::Distribution,
        Layout::Conda | Layout::CondaTargets => toolkit::Layout::Conda,
        Layout::HpcSdk => toolkit::Layout::HpcSdk,
        Layout::Pip => toolkit::Layout::Pip,
    };
    if found.layout != layout && !touched("") {
        wrong.push(format!("layout {:?}", found.layout));
    }
    if compiler && !touched("bin/nvcc") {
        match found.nvcc.value() {
            Some(nvcc) => {
                if nvcc.version.as_ref().map(|version| version.text.as_str()) != Some(&kit.release) {
                    wrong.push(format!("nvcc is {:?}", nvcc.version));
                }
                let cuda: CudaVersion = kit.release.rsplit_once('.').unwrap().0.parse().unwrap();
                let know = Knowledge::embedded();
                let targets: Option<Vec<String>> = kit
                    .targets
                    .clone()
                    .or_else(|| Some(know.toolkit(cuda)?.targets.iter().map(|target| target.sm()[3..].to_owned()).collect()));
                let found: Vec<String> = nvcc.targets.iter().map(|target| target.sm()[3..].to_owned()).collect();
                if targets.as_ref() != Some(&found) {
                    wrong.push(format!("targets {found:?}"));
                }
            }
            None => wrong.push(format!("nvcc: {:?}", found.nvcc)),
        }
        let missing: Vec<&str> = found.parts.iter().filter(|part| part.path.is_none()).map(|part| part.name.as_str()).collect();
        if kit.without.is_empty() && !missing.is_empty() && !touched("") {
            wrong.push(format!("parts missing: {missing:?}"));
        }
        if !touched("include/crt") && !touched("") && found.host_limits.value().and_then(|limits| limits.gcc_max).is_none() {
            wrong.push(format!("host_config.h: {:?}", found.host_limits));
        }
    }
    wrong
}

/// Files that the manifest changes below a folder after the parts are made.
fn changed_by_hand(built: &Built, root: &str) -> Vec<String> {
    let m = &built.manifest;
    let all = m
        .files
        .keys()
        .chain(m.programs.keys())
        .chain(m.links.keys())
        .chain(&m.remove)
        .chain(&m.empty)
        .chain(&m.truncated)
        .chain(m.modes.keys());
    all.filter(|path| path.starts_with(&format!("{root}/"))).cloned().collect()
}
