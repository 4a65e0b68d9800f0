//! DeepSpeed: its accelerator, its default list, its variables.

use super::lookup::NOT_ASKED;
use super::torch::shown;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::observed::Missing;
use crate::facts::torch::DeepSpeed;
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::schema::deepspeed::{AcceleratorKind, DeepSpeedTrait};
use crate::model::arch_list::{self, Item, Reading, Use};
use crate::model::build::{self, Accelerator};
use crate::text::join;
use crate::version::{Capability, Target};

pub const CHECKS: &[Check] = &[
    Check { id: "ds-import-needs-gpu", run: import_needs_gpu },
    Check { id: "ds-accelerator-cpu", run: accelerator_cpu },
    Check { id: "ds-default-arch-list-rejected", run: default_list_rejected },
    Check { id: "ds-bf16-disabled", run: bf16 },
    Check { id: "ds-skip-check-in-force", run: skip_in_force },
];

/// DeepSpeed as installed, where building matters.
fn installed<'a>(case: &Case<'a>) -> Result<Result<&'a DeepSpeed, Verdict>, Missing> {
    if !case.purpose.builds() {
        return Ok(Err(Verdict::not_applicable(NOT_ASKED)));
    }
    Ok(case.deepspeed()?.ok_or_else(|| Verdict::not_applicable("no DeepSpeed")))
}

fn seen(deepspeed: &DeepSpeed) -> Evidence {
    Evidence::new("deepspeed", deepspeed.version.to_string()).at(&deepspeed.path)
}

fn import_needs_gpu(case: &Case<'_>) -> Judgement {
    let Some(deepspeed) = case.deepspeed()? else { return Ok(Verdict::not_applicable("no DeepSpeed")) };
    if case.know.deepspeed_does(DeepSpeedTrait::ImportNeedsGpu, &deepspeed.version) != Some(true)
        || case.facts.env.text("DS_ACCELERATOR").as_deref() != Some("cuda")
    {
        return Ok(Verdict::Pass);
    }
    let Some(triton) = case.python()?.and_then(|python| python.package("triton")) else { return Ok(Verdict::Pass) };
    if !case.gpus()?.is_empty() {
        return Ok(Verdict::Pass);
    }
    let finding = Finding::error(
        "ds-import-needs-gpu",
        format!("DeepSpeed {} with `DS_ACCELERATOR=cuda` and triton asks for a GPU at import, and none is seen", deepspeed.version),
    )
    .seen(seen(deepspeed))
    .seen(Evidence::new("triton", triton.version.to_string()).at(&triton.site))
    .seen(Evidence::new("DS_ACCELERATOR", "cuda").said_by("environment"))
    .then("`import deepspeed` and its setup.py stop with `Found no NVIDIA driver on your system` or `No CUDA GPUs are available`")
    .fix(Fix::unset("DS_ACCELERATOR", "it imports then; CUDA ops are pre-built only without triton or with another release").review())
    .fix(Fix::advice("build in an environment without triton, or with DeepSpeed 0.14.5 or 0.19.8, which do not ask").or(1));
    Ok(Verdict::found(finding))
}

fn accelerator_cpu(case: &Case<'_>) -> Judgement {
    let deepspeed = match installed(case)? {
        Ok(deepspeed) => deepspeed,
        Err(verdict) => return Ok(verdict),
    };
    let Some(torch) = case.torch()?.filter(|torch| torch.cuda.is_some()) else { return Ok(Verdict::not_applicable("no torch for CUDA")) };
    // Without a wish for CUDA ops, the CPU op set is what a machine without GPU should get.
    let cuda_op = |name: &&str| {
        let in_set = |kind| case.know.deepspeed_ops(&deepspeed.version, kind).any(|op| op.variable == **name);
        *name == "DS_BUILD_OPS" || (in_set(AcceleratorKind::Cuda) && !in_set(AcceleratorKind::Cpu))
    };
    let asked: Vec<&str> = case.asked_ops().into_iter().filter(cuda_op).collect();
    if asked.is_empty() {
        return Ok(Verdict::not_applicable("no CUDA op is asked for"));
    }
    let gpu = !case.gpus()?.is_empty();
    let picked = build::accelerator(case.facts, case.know, &deepspeed.version, Some(torch), gpu);
    let Some((accelerator, said)) = picked else {
        return Err(Missing { topic: "deepspeed", why: "how this release picks its accelerator is not known".to_owned(), failed: false });
    };
    if accelerator != Accelerator::Cpu || said {
        return Ok(Verdict::Pass);
    }
    let mut finding = Finding::error(
        "ds-accelerator-cpu",
        format!("`{}` asks for CUDA ops, and DeepSpeed {} sees no GPU and takes its CPU op set", asked.join("` and `"), deepspeed.version),
    )
    .seen(seen(deepspeed))
    .then("the wheel is built without a CUDA op and without a word, and says `accelerator_name='cpu'`");
    for name in &asked {
        finding = finding.seen(Evidence::new(*name, case.facts.env.text(name).unwrap_or_default()).said_by("environment"));
    }
    let advice = if case.know.deepspeed_does(DeepSpeedTrait::ImportNeedsGpu, &deepspeed.version) == Some(true) {
        "put `DS_ACCELERATOR=cuda` in front of the build command, in an environment without triton (this release dies of the two together)"
    } else {
        "put `DS_ACCELERATOR=cuda` in front of the build command; not in the shell, where it would break imports on other machines"
    };
    Ok(Verdict::found(finding.fix(Fix::advice(advice).curing("ds-accelerator-cpu"))))
}

/// The list that covers everything torch and nvcc know together: right for a builder, longer than one machine needs.
fn everything(case: &Case<'_>) -> Option<String> {
    let torch = case.torch().ok().flatten()?;
    let targets = &case.nvcc().ok().flatten()?.targets;
    let mut both: Vec<Capability> = torch
        .arch_list
        .value()?
        .iter()
        .filter_map(|target| target.parse::<Target>().ok())
        .filter(|target| target.suffix.is_none() && targets.contains(target))
        .map(|target| target.capability)
        .collect();
    both.sort_unstable();
    both.dedup();
    // One item below 8.0 would turn DeepSpeed's BF16 kernels off.
    if case.deepspeed().ok().flatten().is_some() && both.iter().any(|capability| capability.major >= 8) {
        both.retain(|capability| capability.major >= 8);
    }
    let items: Vec<Item> = both.into_iter().map(|capability| Item::sass(Target::plain(capability))).collect();
    (!items.is_empty()).then(|| arch_list::print(&items, arch_list::Format::List))
}

/// The steps towards a TORCH_CUDA_ARCH_LIST: that of the GPUs where they are known, else a proposal to be looked at.
pub fn set_list(case: &Case<'_>, id: &'static str) -> Vec<Fix> {
    let gpus = case.gpus().unwrap_or_default();
    let mut seen: Vec<Capability> = gpus.iter().filter_map(|device| device.capability).collect();
    seen.sort_unstable();
    seen.dedup();
    if !seen.is_empty() {
        let items: Vec<Item> = seen.into_iter().map(|capability| Item::sass(Target::plain(capability))).collect();
        return vec![Fix::set("TORCH_CUDA_ARCH_LIST", arch_list::print(&items, arch_list::Format::List), "the GPUs of this machine")];
    }
    let mut fixes = Vec::new();
    if let Some(list) = everything(case) {
        fixes.push(
            Fix::set(
                "TORCH_CUDA_ARCH_LIST",
                list,
                "what torch and this nvcc know, from 8.0 on for DeepSpeed; a shorter list builds faster",
            )
            .review(),
        );
    }
    let next = u8::from(!fixes.is_empty());
    fixes.push(Fix::advice("for known GPUs: `TORCH_CUDA_ARCH_LIST=\"$(ds-doctor arch-list --gpu h100 --gpu a100)\" || exit 1; export TORCH_CUDA_ARCH_LIST`").curing(id).or(next));
    fixes
}

fn default_list_rejected(case: &Case<'_>) -> Judgement {
    const ID: &str = "ds-default-arch-list-rejected";
    let deepspeed = match installed(case)? {
        Ok(deepspeed) => deepspeed,
        Err(verdict) => return Ok(verdict),
    };
    if case.facts.env.get("TORCH_CUDA_ARCH_LIST").is_some() {
        return Ok(Verdict::not_applicable("TORCH_CUDA_ARCH_LIST is set"));
    }
    let reads = case.know.deepspeed_does(DeepSpeedTrait::ReadsAccelerator, &deepspeed.version) == Some(true);
    if reads && case.facts.env.get("DS_ACCELERATOR").is_some_and(|name| name == "cpu") {
        return Ok(Verdict::not_applicable("`DS_ACCELERATOR` names the CPU, for which nvcc compiles nothing"));
    }
    // With a GPU, JIT builds ask that; only a pre-build takes the default.
    if case.asked_ops().is_empty() && !case.gpus()?.is_empty() {
        return Ok(Verdict::not_applicable("no pre-build is asked for, and JIT asks the GPUs"));
    }
    let Some(toolkit) = case.toolkit()? else { return Ok(Verdict::not_applicable("torch finds no toolkit")) };
    let Some(nvcc) = toolkit.nvcc.get("nvcc")? else { return Ok(Verdict::not_applicable("no nvcc")) };
    if nvcc.targets.is_empty() {
        return Err(Missing { topic: "nvcc", why: "its targets could not be read".to_owned(), failed: false });
    }
    let release = toolkit.release();
    let default = arch_list::default_list(case.know, &deepspeed.version, release);
    let refused: Vec<String> =
        default.iter().filter(|item| !nvcc.targets.contains(&item.target)).map(|item| item.target.to_string()).collect();
    let Some(first) = refused.first() else { return Ok(Verdict::Pass) };
    let all = arch_list::print(&default, arch_list::Format::List);
    let number = first.replace('.', "");
    let finding = Finding::error(
        ID,
        format!(
            "TORCH_CUDA_ARCH_LIST is unset, DeepSpeed {} then builds for {all}, and nvcc {} has dropped {}",
            deepspeed.version,
            release.map(|r| r.to_string()).unwrap_or_default(),
            join(&refused)
        ),
    )
    .seen(seen(deepspeed))
    .seen(Evidence::new("nvcc", nvcc.version.as_ref().map(ToString::to_string).unwrap_or_default()).at(&nvcc.path))
    .then(format!("the pre-build stops with `nvcc fatal : Unsupported gpu architecture 'compute_{number}'`"));
    Ok(Verdict::found(set_list(case, ID).into_iter().fold(finding, Finding::fix)))
}

/// One old item in the list turns BF16 kernels off in every op.
fn bf16(case: &Case<'_>) -> Judgement {
    let deepspeed = match installed(case)? {
        Ok(deepspeed) => deepspeed,
        Err(verdict) => return Ok(verdict),
    };
    let Some(list) = case.facts.env.text("TORCH_CUDA_ARCH_LIST") else {
        return Ok(Verdict::not_applicable("TORCH_CUDA_ARCH_LIST is unset"));
    };
    let jit_reads = case.know.deepspeed_does(DeepSpeedTrait::JitReadsArchList, &deepspeed.version).unwrap_or(true);
    if !jit_reads && case.asked_ops().is_empty() {
        return Ok(Verdict::not_applicable("JIT builds of this release do not read the list"));
    }
    let read = arch_list::read(case.know, &arch_list::Reader::DeepSpeed(Some(&deepspeed.version), Use::Prebuild), Some(&list));
    let Ok(Reading::List(items)) = read else { return Ok(Verdict::not_applicable("DeepSpeed does not read the list")) };
    let (old, new): (Vec<&Item>, Vec<&Item>) = items.iter().partition(|item| item.target.capability.major < 8);
    if old.is_empty() || new.is_empty() {
        return Ok(Verdict::Pass);
    }
    let names: Vec<String> = old.iter().map(|item| item.target.to_string()).collect();
    let kept: Vec<Item> = new.into_iter().copied().collect();
    let gpus = case.gpus().unwrap_or_default();
    let needed = gpus.iter().any(|device| device.capability.is_some_and(|capability| capability.major < 8));
    let mut finding =
        Finding::warning("ds-bf16-disabled", format!("{} in TORCH_CUDA_ARCH_LIST turns the BF16 kernels off in every op", join(&names)))
            .seen(Evidence::new("TORCH_CUDA_ARCH_LIST", list).said_by("environment"))
            .seen(seen(deepspeed))
            .seen(shown_torch(case))
            .then("DeepSpeed defines BF16_AVAILABLE only where every item is 8.0 or newer; bfloat16 then fails or runs in another type");
    finding.evidence.retain(|one| !one.what.is_empty());
    finding = if needed {
        finding.fix(Fix::advice("build the ops for the old and the new GPUs apart, each with its own list"))
    } else {
        finding.fix(
            Fix::set(
                "TORCH_CUDA_ARCH_LIST",
                arch_list::print(&kept, arch_list::Format::List),
                "without the old ones, where no such GPU is meant",
            )
            .review(),
        )
    };
    Ok(Verdict::found(finding))
}

fn shown_torch(case: &Case<'_>) -> Evidence {
    case.torch().ok().flatten().map_or_else(|| Evidence::new("", ""), shown)
}

/// A state: the check that would stop this pair is switched off.
fn skip_in_force(case: &Case<'_>) -> Judgement {
    let deepspeed = match installed(case)? {
        Ok(deepspeed) => deepspeed,
        Err(verdict) => return Ok(verdict),
    };
    let mut findings = Vec::new();
    for (name, on) in [
        ("DS_SKIP_CUDA_CHECK", case.facts.env.text("DS_SKIP_CUDA_CHECK").as_deref() == Some("1")),
        ("DS_IGNORE_CUDA_DETECTION", case.facts.env.filled("DS_IGNORE_CUDA_DETECTION").is_some()),
    ] {
        if !on {
            continue;
        }
        findings.push(
            Finding::info("ds-skip-check-in-force", format!("`{name}` switches a check of DeepSpeed's off"))
                .about(name)
                .seen(Evidence::new(name, case.facts.env.text(name).unwrap_or_default()).said_by("environment"))
                .seen(seen(deepspeed))
                .then("a pair of nvcc and torch that does not fit goes further and fails later; torch's own check of majors stays"),
        );
    }
    Ok(Verdict::of(findings))
}
