//! `ds-doctor arch-list`

use super::output;
use super::subject::{self, Subject};
use crate::checks::Case;
use crate::cli::{ArchListArgs, ListFormat, Ptx, Reader, Targets};
use crate::exit::Exit;
use crate::facts::gpu::Device;
use crate::model::arch_plan::{self, Item, Limits, Plan, Wish};
use crate::model::visible;
use crate::render::json::TOOL;
use crate::version::{Capability, Target};
use anyhow::bail;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write as _;

/// # Errors
/// Wrong use: an unknown GPU name among them.
pub fn run(args: &ArchListArgs) -> anyhow::Result<Exit> {
    if args.reader.len() > 1 && args.validate.is_none() {
        bail!("one list has one --reader; several are for --validate");
    }
    let subjects = subject::load_all(&args.subject)?;
    if let Some(list) = &args.validate {
        return validate::run(args, &subjects, list);
    }
    let mut wishes = Vec::new();
    for subject in &subjects {
        wishes.extend(wished(args, subject)?);
    }
    if wishes.is_empty() {
        output::note(&args.talk, &advice(&subjects));
        return Ok(Exit::Findings);
    }
    let reader = args.reader.first().copied().unwrap_or(Reader::Deepspeed);
    let first = &subjects[0];
    let ptx = match args.ptx {
        Ptx::None => arch_plan::Ptx::None,
        Ptx::Last => arch_plan::Ptx::Last,
        Ptx::All => arch_plan::Ptx::All,
    };
    let plan = arch_plan::plan(&wishes, &limits(first, reader), ptx, &first.know);
    tell(args, first, &plan);
    if plan.items.is_empty() || (!plan.dropped.is_empty() && !args.allow_drop) {
        return Ok(Exit::Findings);
    }
    let mut out = output::result(&args.talk)?;
    let format = args.format.unwrap_or(if reader == Reader::Cmake { ListFormat::Cmake } else { ListFormat::List });
    writeln!(out, "{}", print(&plan.items, format))?;
    out.flush()?;
    Ok(Exit::Fine)
}

/// What the list must serve: `--gpu` and `--targets` where given (the local GPUs are then not asked), else the GPUs a program would see.
fn wished(args: &ArchListArgs, subject: &Subject) -> anyhow::Result<Vec<Wish>> {
    let mut wishes = Vec::new();
    if !args.subject.gpu.is_empty() || args.targets.is_none() {
        wishes.extend(devices(subject).into_iter().filter_map(|device| {
            let capability = device.capability?;
            Some(Wish { capability, from: device.name.clone().unwrap_or_else(|| format!("GPU {}", device.index)) })
        }));
    }
    if let Some(targets) = args.targets {
        wishes.extend(of_targets(targets, subject)?);
    }
    Ok(wishes)
}

/// The GPUs that a program would see here.
fn devices(subject: &Subject) -> Vec<&Device> {
    let all = subject.facts.gpu.devices.value().map_or(&[][..], Vec::as_slice);
    let env = &subject.facts.env;
    let visible = visible::visible(all, env.get("CUDA_VISIBLE_DEVICES"), env.get("CUDA_DEVICE_ORDER"));
    visible.picks.iter().filter_map(|pick| all.get(pick.device)).collect()
}

fn of_targets(targets: Targets, subject: &Subject) -> anyhow::Result<Vec<Wish>> {
    let case = Case::new(&subject.facts, &subject.know, subject.purpose, &[]);
    let wish = |from: &str| {
        let from = from.to_owned();
        move |capability| Wish { capability, from: from.clone() }
    };
    let nvcc = || case.nvcc().ok().flatten().filter(|nvcc| !nvcc.targets.is_empty());
    match targets {
        Targets::Torch => {
            let Some(torch) = case.torch().ok().flatten() else { bail!("--targets torch: no torch is installed in the interpreter that is judged") };
            let Some(list) = torch.arch_list.value() else { bail!("--targets torch: the arch list of `{}` cannot be read", torch.path) };
            let capabilities: BTreeSet<Capability> =
                list.iter().filter_map(|target| target.parse::<Target>().ok()).map(|target| target.capability).collect();
            if capabilities.is_empty() {
                bail!("--targets torch: `{}` holds no device code", torch.path);
            }
            Ok(capabilities.into_iter().map(wish(&format!("torch {}", torch.version))).collect())
        }
        Targets::Toolkit | Targets::AllMajor => {
            let Some(nvcc) = nvcc() else { bail!("--targets: no nvcc whose targets can be read") };
            let plain: BTreeSet<Capability> = nvcc.targets.iter().filter(|target| target.suffix.is_none()).map(|target| target.capability).collect();
            let lowest = |capability: &Capability| plain.iter().filter(|other| other.major == capability.major).min() == Some(capability);
            let chosen = plain.iter().copied().filter(|capability| targets == Targets::Toolkit || lowest(capability));
            Ok(chosen.map(wish(&format!("{}", nvcc.path))).collect())
        }
    }
}

/// What the nvcc that torch picks can target, and what the reader takes.
fn limits(subject: &Subject, reader: Reader) -> Limits {
    let case = Case::new(&subject.facts, &subject.know, subject.purpose, &[]);
    let nvcc = case.nvcc().ok().flatten();
    let plain = |targets: &[Target]| -> Vec<Capability> {
        targets.iter().filter(|target| target.suffix.is_none()).map(|target| target.capability).collect()
    };
    let cuda = case.toolkit().ok().flatten().and_then(crate::facts::toolkit::Toolkit::release);
    let compiler = nvcc
        .map(|nvcc| plain(&nvcc.targets))
        .filter(|targets| !targets.is_empty())
        .or_else(|| cuda.and_then(|cuda| subject.know.toolkit(cuda)).map(|row| plain(&row.targets)));
    // DeepSpeed hands its list to torch from 0.19 on, so torch's numbers hold for both.
    let torch = case.torch().ok().flatten().filter(|_| matches!(reader, Reader::Torch | Reader::Deepspeed));
    let reader = torch.and_then(|torch| subject.know.torch_arch_values(&torch.version)).map(|row| plain(&row.values));
    Limits { compiler, cuda, reader }
}

fn advice(subjects: &[Subject]) -> String {
    let masked = subjects.iter().any(|subject| subject.facts.gpu.devices.value().is_some_and(|all| !all.is_empty()));
    let why = if masked { "CUDA_VISIBLE_DEVICES hides every GPU" } else { "no GPU is seen" };
    format!("{why}, so the list cannot be known; name the GPUs (`--gpu h100`), or take the targets of torch or nvcc (`--targets torch`)")
}

/// What was dropped and clamped always, where each item came from with `--why`: on standard error.
fn tell(args: &ArchListArgs, subject: &Subject, plan: &Plan) {
    for (wish, why) in &plan.dropped {
        output::note(&args.talk, &format!("{} ({}) is dropped: {why}{}", wish.capability, wish.from, if args.allow_drop { "" } else { "; --allow-drop leaves it out" }));
    }
    for note in &plan.notes {
        output::note(&args.talk, note);
    }
    if !args.why {
        return;
    }
    for item in &plan.items {
        output::note(&args.talk, &format!("{}: {}", text(item), item.from.join(", ")));
    }
    let case = Case::new(&subject.facts, &subject.know, subject.purpose, &[]);
    match case.nvcc().ok().flatten() {
        Some(nvcc) => output::note(&args.talk, &format!("checked against the targets of {}", nvcc.path)),
        None => output::note(&args.talk, "there is no nvcc to check the list against"),
    }
}

fn text(item: &Item) -> String {
    format!("{}{}", item.capability, if item.ptx { "+PTX" } else { "" })
}

fn print(items: &[Item], format: ListFormat) -> String {
    let each = |one: &dyn Fn(&Item) -> String, between: &str| items.iter().map(one).collect::<Vec<_>>().join(between);
    let number = |item: &Item| item.capability.sm();
    match format {
        ListFormat::List => each(&text, ";"),
        ListFormat::Cmake => each(&|item| if item.ptx { format!("{}", number(item)) } else { format!("{}-real", number(item)) }, ";"),
        ListFormat::Sm => each(
            &|item| if item.ptx { format!("sm_{0} compute_{0}", number(item)) } else { format!("sm_{}", number(item)) },
            " ",
        ),
        ListFormat::Gencode => each(
            &|item| {
                let sass = format!("-gencode=arch=compute_{0},code=sm_{0}", number(item));
                if item.ptx { format!("{sass} -gencode=arch=compute_{0},code=compute_{0}", number(item)) } else { sass }
            },
            " ",
        ),
        ListFormat::Json => {
            let rows: Vec<_> = items
                .iter()
                .map(|item| json!({ "sm": number(item).to_string(), "ptx": item.ptx, "from": item.from }))
                .collect();
            let envelope = json!({
                "schema_version": crate::render::json::SCHEMA_VERSION,
                "tool": TOOL,
                "command": "arch-list",
                "verdict": "healthy",
                "complete": true,
                "counts": { "error": 0, "warning": 0, "info": 0, "undecided": 0 },
                "findings": [],
                "undecided": [],
                "result": rows,
            });
            serde_json::to_string_pretty(&envelope).unwrap_or_default()
        }
    }
}
