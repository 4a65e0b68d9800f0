//! `ds-doctor arch-list`

use super::output;
use super::subject::{self, Subject};
use crate::checks::Case;
use crate::cli::{ArchListArgs, ListFormat, Ptx, Reader, Targets};
use crate::collect::Lists;
use crate::exit::Exit;
use crate::facts::gpu::Device;
use crate::facts::toolkit::Toolkit;
use crate::model::arch_plan::{self, Item, Limits, Plan, Wish};
use crate::model::{arch_list, visible};
use crate::render::json::Envelope;
use crate::text::clean;
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
    let lists = Lists { torch_targets: args.targets == Some(Targets::Torch) };
    let subjects = subject::load_all(&args.subject, lists)?;
    if let Some(list) = &args.validate {
        if args.format.is_some_and(|format| !matches!(format, ListFormat::List | ListFormat::Json)) {
            bail!("--validate judges a list and prints none: of --format it takes json alone");
        }
        return validate(args, &subjects, list);
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
            let Some(torch) = case.torch().ok().flatten() else {
                bail!("--targets torch: no torch is installed in the interpreter that is judged")
            };
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
            let plain: BTreeSet<Capability> =
                nvcc.targets.iter().filter(|target| target.suffix.is_none()).map(|target| target.capability).collect();
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
    let reader = torch.and_then(|torch| subject.know.torch_arch_values(&torch.version)).map(|row| plain(&row.row.values));
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
        output::note(
            &args.talk,
            &format!(
                "{} ({}) is dropped: {why}{}",
                wish.capability,
                wish.from,
                if args.allow_drop { "" } else { "; --allow-drop leaves it out" }
            ),
        );
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
    let plain: Vec<arch_list::Item> =
        items.iter().map(|item| arch_list::Item { target: Target::plain(item.capability), sass: true, ptx: item.ptx }).collect();
    match format {
        ListFormat::List => arch_list::print(&plain, arch_list::Format::List),
        ListFormat::Cmake => arch_list::print(&plain, arch_list::Format::Cmake),
        ListFormat::Sm => arch_list::print(&plain, arch_list::Format::Sm),
        ListFormat::Gencode => arch_list::print(&plain, arch_list::Format::Gencode),
        ListFormat::Json => {
            let rows: Vec<_> =
                items.iter().map(|item| json!({ "sm": item.capability.sm().to_string(), "ptx": item.ptx, "from": item.from })).collect();
            Envelope::bare("arch-list", json!(rows)).text().trim_end().to_owned()
        }
    }
}

/// `--validate LIST`: every reader takes every item, and the GPUs asked for or seen are covered.
fn validate(args: &ArchListArgs, subjects: &[Subject], list: &str) -> anyhow::Result<Exit> {
    let first = &subjects[0];
    let case = Case::new(&first.facts, &first.know, first.purpose, &[]);
    let torch = case.torch().ok().flatten().map(|torch| &torch.version);
    let deepspeed = case.deepspeed().ok().flatten().map(|deepspeed| &deepspeed.version);
    let nvcc = case.nvcc().ok().flatten().map(|nvcc| nvcc.targets.as_slice()).filter(|targets| !targets.is_empty());
    let asked = |reader: Reader, present: bool| if args.reader.is_empty() { present } else { args.reader.contains(&reader) };
    let mut readers: Vec<(&str, arch_list::Reader<'_>)> = Vec::new();
    // The grammar of DeepSpeed's newest release where none is installed: it is the strictest, and what a wheel builder will meet.
    if asked(Reader::Deepspeed, deepspeed.is_some() || (torch.is_none() && nvcc.is_none())) {
        readers.push(("DeepSpeed's pre-build", arch_list::Reader::DeepSpeed(deepspeed, arch_list::Use::Prebuild)));
        readers.push(("DeepSpeed's JIT", arch_list::Reader::DeepSpeed(deepspeed, arch_list::Use::Jit)));
    }
    if asked(Reader::Torch, torch.is_some()) {
        readers.push(("torch", arch_list::Reader::Torch(torch)));
    }
    if asked(Reader::Cmake, false) {
        readers.push(("CMake", arch_list::Reader::Cmake));
    }
    match nvcc {
        Some(targets) if asked(Reader::Nvcc, true) => readers.push(("nvcc", arch_list::Reader::Nvcc(targets))),
        None if args.reader.contains(&Reader::Nvcc) => bail!("--reader nvcc: no nvcc whose targets can be read"),
        _ => {}
    }
    let cuda = case.toolkit().ok().flatten().and_then(Toolkit::release);
    let mut told = Vec::new();
    let mut read: Option<Vec<arch_list::Item>> = None;
    for (name, reader) in &readers {
        let (fine, says) = match arch_list::read(&first.know, reader, Some(list)) {
            Ok(arch_list::Reading::List(items)) => {
                let says = format!("takes {}", arch_list::print(&items, arch_list::Format::Sm));
                read.get_or_insert(items);
                (true, says)
            }
            Ok(arch_list::Reading::Ignored) => (true, "ignores the list and asks the GPUs".to_owned()),
            Ok(arch_list::Reading::All { .. }) => (true, "builds for every target".to_owned()),
            Ok(arch_list::Reading::VisibleGpus) => (false, "takes this as no list and asks the GPUs".to_owned()),
            Ok(arch_list::Reading::Default) => (false, "takes this as no list and uses its default".to_owned()),
            Err(refusal) => (false, format!("refuses `{}`: {}", refusal.item, refusal.message)),
        };
        told.push(Judgement { who: (*name).to_owned(), fine, says });
    }
    for subject in subjects {
        for device in devices(subject) {
            let Some(capability) = device.capability else { continue };
            let uncovered = read.as_deref().is_some_and(|items| !arch_list::cover(&subject.know, items, capability, cuda));
            if uncovered {
                let who = format!("{} ({capability})", device.name.as_deref().unwrap_or("GPU"));
                told.push(Judgement { who, fine: false, says: "no item has code for it".to_owned() });
            }
        }
    }
    let fine = told.iter().all(|one| one.fine);
    let mut out = output::result(&args.talk)?;
    if args.format == Some(ListFormat::Json) {
        let result = json!({ "list": list, "fine": fine, "judged": told });
        out.write_all(Envelope::bare("arch-list", result).broken_if(!fine).text().as_bytes())?;
    } else {
        for one in &told {
            writeln!(out, "{}: {}", clean(&one.who), clean(&one.says))?;
        }
    }
    out.flush()?;
    Ok(if fine { Exit::Fine } else { Exit::Findings })
}

/// What a reader makes of a list, or that a GPU is not covered by it.
#[derive(serde::Serialize)]
struct Judgement {
    who: String,
    fine: bool,
    says: String,
}
