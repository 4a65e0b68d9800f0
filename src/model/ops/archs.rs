//! The arch list of a pre-build, what an op leaves of it, and what it leaves to the ops behind it.

use super::{Decision, NvccFound, Obstacle, Scene, Stage, Wish};
use crate::facts::observed::Missing;
use crate::knowledge::schema::deepspeed::{AcceleratorKind, DeepSpeedTrait};
use crate::knowledge::schema::ops::{Extension, Op, OpBuild};
use crate::model::arch_list::{self, Format, Item, Reader, Reading, Refusal, Refuser, Use};
use crate::model::build::BuildPath;
use crate::version::Capability;

pub const LIST: &str = "TORCH_CUDA_ARCH_LIST";

/// What one op is compiled for in a pre-build.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archs {
    /// The list that it meets.
    pub list: Vec<Item>,
    /// What its filter leaves.
    pub kept: Vec<Item>,
    /// DeepSpeed's own list, since none is set.
    pub default: bool,
    /// The list cannot be read.
    pub refusal: Option<Refusal>,
    /// The op before it that took items out of the list for good.
    pub narrowed_by: Option<String>,
    /// Whether the BF16 kernels are compiled; `None` where the op has no CUDA code.
    pub bf16: Option<bool>,
}

/// The list of a pre-build: `TORCH_CUDA_ARCH_LIST`, else DeepSpeed's own; whether it is its own.
///
/// # Errors
/// The item that DeepSpeed or nvcc refuses.
pub fn prebuild_list(scene: &Scene<'_>) -> Result<(Vec<Item>, bool), Refusal> {
    let version = &scene.deepspeed.version;
    let text = scene.facts.env.get(LIST).map(|text| text.to_string_lossy().into_owned());
    let reader = Reader::DeepSpeed(Some(version), Use::Prebuild);
    match arch_list::read(scene.know, &reader, text.as_deref())? {
        Reading::List(items) => Ok((items, false)),
        _ => {
            let nvcc = match scene.nvcc() {
                Ok(NvccFound::Release(release)) => Some(release),
                _ => None,
            };
            Ok((arch_list::default_list(scene.know, version, nvcc), true))
        }
    }
}

/// Of each op, in the order of `ops`.
pub(super) fn prebuild(scene: &Scene<'_>, ops: &[&Op], gates: &[Decision], wishes: &[Wish]) -> Vec<Archs> {
    if scene.accelerator != AcceleratorKind::Cuda {
        return vec![Archs::default(); ops.len()];
    }
    let version = &scene.deepspeed.version;
    let (base, default, refusal) = match prebuild_list(scene) {
        Ok((items, default)) => (items, default, None),
        Err(refusal) => (Vec::new(), false, Some(refusal)),
    };
    let of = |op: &Op, list: &[Item], narrowed_by: Option<&String>| {
        let Some(build) = scene.know.op_build(op, version).filter(|build| build.extension == Extension::Cuda) else {
            return Archs::default();
        };
        let least = scene.know.op_gate(op, version).and_then(|gate| gate.keeps).unwrap_or(0);
        let kept = filter(scene, list, least);
        let bf16 = (build.cu > 0).then(|| !kept.is_empty() && kept.iter().all(|item| item.target.capability.major >= 8));
        Archs { list: list.to_vec(), kept, default, refusal: refusal.clone(), narrowed_by: narrowed_by.cloned(), bf16 }
    };
    let mut all: Vec<Archs> = ops.iter().map(|op| of(op, &base, None)).collect();
    if scene.know.deepspeed_does(DeepSpeedTrait::LeaksArchList, version) != Some(true) {
        return all;
    }
    let (mut current, mut narrowed_by) = (base.clone(), None);
    for name in scene.know.op_order(version, scene.accelerator).unwrap_or_default() {
        let Some(at) = ops.iter().position(|op| op.op == *name) else { continue };
        let fits = gates.get(at).is_some_and(|gate| !gate.obstacles.iter().any(|obstacle| obstacle.stage != Stage::Dies));
        let asked = wishes.get(at).is_some_and(Wish::is_wanted) && fits;
        let (Some(op), Some(slot), true) = (ops.get(at), all.get_mut(at), asked) else { continue };
        let archs = of(op, &current, narrowed_by.as_ref());
        if archs.bf16.is_none() && archs.list.is_empty() {
            continue;
        }
        if !archs.kept.is_empty() && archs.kept.len() < current.len() {
            current.clone_from(&archs.kept);
            narrowed_by = Some(op.op.to_string());
        }
        *slot = archs;
    }
    all
}

/// What the filter of an op leaves. Up to 0.16.3 it looked at the first digit alone, which of 12.0 is 1.
fn filter(scene: &Scene<'_>, items: &[Item], least: u32) -> Vec<Item> {
    let kept = arch_list::filter(items, least);
    if least == 0 || scene.does(DeepSpeedTrait::TwoDigitCapabilities) {
        return kept;
    }
    kept.into_iter().filter(|item| item.target.capability.major < 10).collect()
}

fn text(items: &[Item]) -> String {
    arch_list::print(items, Format::List)
}

/// What of the list keeps an op from being built.
pub(super) fn obstacles(
    scene: &Scene<'_>,
    op: &Op,
    build: &OpBuild,
    path: BuildPath,
    archs: &Archs,
) -> Vec<Result<Option<Obstacle>, Missing>> {
    match path {
        BuildPath::Jit => at_first_use(scene, op, build),
        _ => before(scene, op, build, archs),
    }
}

fn unreadable(build: &OpBuild, refusal: &Refusal) -> Option<Obstacle> {
    if refusal.by == Refuser::Nvcc && build.cu == 0 {
        return None;
    }
    let says = format!("`{LIST}` cannot be read: {}", refusal.message);
    Some(Obstacle::new("arch-list-malformed", Stage::Dies, says).seen(LIST, refusal.item.clone(), None, "environment"))
}

fn before(scene: &Scene<'_>, op: &Op, build: &OpBuild, archs: &Archs) -> Vec<Result<Option<Obstacle>, Missing>> {
    let mut found = Vec::new();
    if let Some(refusal) = &archs.refusal {
        found.push(Ok(unreadable(build, refusal)));
        return found;
    }
    let gate = scene.know.op_gate(op, &scene.deepspeed.version);
    if gate.and_then(|gate| gate.gpu_at_build) == Some(true) && !scene.gpu() {
        let says = format!(
            "{} of DeepSpeed {} reads the capability of GPU 0 while it is built, and there is none",
            op.op, scene.deepspeed.version
        );
        found.push(Ok(Some(Obstacle::new("ds-op-incompatible", Stage::Dies, says))));
    }
    if archs.kept.is_empty() {
        found.push(Ok(Some(nothing_left(scene, op, &archs.list))));
    } else if build.cu > 0 {
        let id = if archs.default { "ds-default-arch-list-rejected" } else { "nvcc-dropped-arch" };
        found.push(nvcc_takes(scene, op, &archs.kept, id));
    }
    found
}

fn nothing_left(scene: &Scene<'_>, op: &Op, list: &[Item]) -> Obstacle {
    let least = scene.know.op_gate(op, &scene.deepspeed.version).and_then(|gate| gate.keeps).unwrap_or(0);
    let says = format!("{} is for capability {least}.0 and newer, which leaves nothing of {}", op.op, text(list));
    Obstacle::new("gpu-too-old-for-software", Stage::Dies, says)
}

/// Whether this nvcc has every target.
fn nvcc_takes(scene: &Scene<'_>, op: &Op, items: &[Item], id: &'static str) -> Result<Option<Obstacle>, Missing> {
    let Some(toolkit) = scene.home.toolkit else { return Ok(None) };
    let Some(nvcc) = toolkit.nvcc.get("nvcc")? else { return Ok(None) };
    if nvcc.targets.is_empty() {
        return Err(Missing { topic: "nvcc", why: "its targets could not be read".to_owned(), failed: false });
    }
    let Some(refused) = items.iter().find(|item| !nvcc.targets.contains(&item.target)) else { return Ok(None) };
    let release = nvcc.version.as_ref().map(ToString::to_string).unwrap_or_default();
    let says = format!("{} would be compiled for {}, and nvcc {release} does not know {}", op.op, text(items), refused.target.compute());
    Ok(Some(Obstacle::new(id, Stage::Dies, says).seen("nvcc", release, Some(&nvcc.path), "")))
}

fn at_first_use(scene: &Scene<'_>, op: &Op, build: &OpBuild) -> Vec<Result<Option<Obstacle>, Missing>> {
    let version = &scene.deepspeed.version;
    let gpus = match &scene.gpus {
        Ok(gpus) => gpus,
        Err(missing) => return vec![Err(missing.clone())],
    };
    let gpu = scene.gpu();
    // fused_adam and its like ask for the archs whether there is a GPU or not; the others are built for the CPU without one, though torch
    // starts nvcc for their `.cu` files all the same.
    let fused = build.nvcc.as_deref() == Some("nvcc-fused");
    if !gpu && build.cu == 0 {
        return Vec::new();
    }
    let list = scene.facts.env.text(LIST);
    let deepspeed = Reader::DeepSpeed(Some(version), Use::Jit);
    let torch = Reader::Torch(scene.torch.map(|torch| &torch.version));
    let ignored = !scene.does(DeepSpeedTrait::JitReadsArchList);
    let reader = if gpu || fused || ignored { &deepspeed } else { &torch };
    let unset = || {
        let why =
            if ignored { "this release does not read `TORCH_CUDA_ARCH_LIST` at first use" } else { "`TORCH_CUDA_ARCH_LIST` is unset" };
        let says = format!("{} has CUDA code, no GPU is seen, and {why}", op.op);
        vec![Ok(Some(Obstacle::new("arch-list-unset-no-gpu", Stage::Dies, says)))]
    };
    let (items, id) = match arch_list::read(scene.know, reader, list.as_deref()) {
        Err(refusal) => return vec![Ok(unreadable(build, &refusal))],
        Ok(Reading::List(items)) => (items, "nvcc-dropped-arch"),
        Ok(_) if !gpu => return unset(),
        Ok(_) => {
            let capabilities: Vec<Capability> = gpus.iter().filter_map(|device| device.capability).collect();
            if capabilities.len() < gpus.len() {
                let why = "the capability of a GPU is not known".to_owned();
                return vec![Err(Missing { topic: "gpu", why, failed: false })];
            }
            match arch_list::for_gpus(scene.know, &deepspeed, &capabilities, &[]) {
                Ok(items) => (items, "nvcc-too-old-for-gpu"),
                Err(refusal) => return vec![Ok(unreadable(build, &refusal))],
            }
        }
    };
    // Without a GPU the filter of the op is not asked.
    let least = scene.know.op_gate(op, version).and_then(|gate| gate.keeps).filter(|_| gpu || fused).unwrap_or(0);
    let kept = filter(scene, &items, least);
    match () {
        () if kept.is_empty() => vec![Ok(Some(nothing_left(scene, op, &items)))],
        () if build.cu > 0 => vec![nvcc_takes(scene, op, &kept, id)],
        () => Vec::new(),
    }
}
