//! Ops that came with the package, and whether they can still be used.

use super::{Obstacle, Scene, Stage};
use crate::facts::observed::Missing;
use crate::knowledge::schema::deepspeed::AcceleratorKind;
use crate::knowledge::schema::ops::{Extension, Op, OpBuild};

/// What setup.py noted of an op.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Installed {
    #[default]
    No,
    Yes,
    /// It is there, and cannot be used: why.
    Invalid(Vec<Obstacle>),
    Unknown(Missing),
}

/// As [`OpBuilder.load`] of op_builder/builder.py decides it.
pub fn installed(scene: &Scene<'_>, op: &Op, build: Option<&OpBuild>) -> Installed {
    let built = match scene.deepspeed.built.get("deepspeed") {
        Ok(Some(built)) => built,
        Ok(None) => return Installed::No,
        Err(missing) => return Installed::Unknown(missing),
    };
    if built.ops.get(op.op.as_ref()) != Some(&true) {
        return Installed::No;
    }
    let mut why = Vec::new();
    let file = scene.deepspeed.path.join("git_version_info_installed.py");
    let name = match scene.accelerator {
        AcceleratorKind::Cuda => "cuda",
        AcceleratorKind::Cpu => "cpu",
    };
    if let Some(accelerator) = built.accelerator.as_deref().filter(|accelerator| *accelerator != name) {
        let says =
            format!("it was built for the accelerator {accelerator}, and DeepSpeed takes {name} here: it is built anew at first use");
        why.push(Obstacle::new("prebuilt-ops-torch-changed", Stage::Dies, says).seen("accelerator_name", accelerator, Some(&file), ""));
    }
    if let Some(torch) = scene.torch {
        let now = torch.version.major_minor();
        if let Some(then) = built.torch.as_deref().filter(|then| *then != now) {
            let says = format!("it was built for torch {then}, and torch is {now}");
            why.push(Obstacle::new("prebuilt-ops-torch-changed", Stage::Dies, says).seen("torch_info", then, Some(&file), ""));
        }
        let cuda_op = build.is_some_and(|build| build.extension == Extension::Cuda);
        let cuda = torch.cuda.map(|cuda| cuda.to_string()).filter(|_| cuda_op);
        if let (Some(now), Some(then)) = (cuda, built.cuda.as_deref())
            && now != then
        {
            let says = format!("it was built for CUDA {then}, and torch's is {now}");
            why.push(Obstacle::new("prebuilt-ops-torch-changed", Stage::Dies, says).seen("torch_info", then, Some(&file), ""));
        }
    }
    why.extend(module(scene, op));
    if why.is_empty() { Installed::Yes } else { Installed::Invalid(why) }
}

/// The extension module itself: there, and for this Python.
fn module(scene: &Scene<'_>, op: &Op) -> Option<Obstacle> {
    let builders = scene.facts.ops.value()?.builders(&scene.deepspeed.path)?;
    let python = scene.python?;
    let tag = python.tag()?;
    // `deepspeed.ops.adam.fused_adam_op`: the package's own folder is the first word.
    let below = op.module.split_once('.').map_or("", |(_, rest)| rest).replace('.', "/");
    let start = scene.deepspeed.path.join(&below).to_string();
    let modules: Vec<_> = builders.modules.iter().filter(|module| module.to_string().starts_with(&format!("{start}."))).collect();
    let fits = |path: &str| match path.rsplit('/').next().unwrap_or(path).split_once(".cpython-") {
        Some((_, rest)) => rest.split('-').next().is_some_and(|built| built == tag),
        // `.abi3.so` and plain `.so` name no release.
        None => true,
    };
    let Some(first) = modules.first() else {
        let says = format!("`{below}.*.so` is not in the package, though setup.py noted that it is");
        return Some(Obstacle::new("prebuilt-binary-torch-mismatch", Stage::Dies, says));
    };
    if modules.iter().any(|module| fits(&module.to_string())) {
        return None;
    }
    let says = format!("it was built for another Python than {}", python.version.as_ref().map(ToString::to_string).unwrap_or_default());
    Some(Obstacle::new("prebuilt-binary-torch-mismatch", Stage::Dies, says).seen("module", "", Some(first), ""))
}
