//! TORCH_CUDA_ARCH_LIST: its form, its readers, what it covers.

use super::deepspeed::set_list;
use super::lookup::NOT_ASKED;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::observed::Missing;
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::schema::deepspeed::DeepSpeedTrait;
use crate::model::arch_list::{self, Format, Item, Reader, Reading, Refusal, Use};
use crate::model::arch_plan::{self, Limits, Wish};
use crate::text::join;
use crate::version::{Capability, Target};

pub const CHECKS: &[Check] = &[
    Check { id: "arch-list-malformed", run: malformed },
    Check { id: "nvcc-dropped-arch", run: dropped },
    Check { id: "arch-list-wrong", run: wrong },
    Check { id: "arch-list-unset-no-gpu", run: unset },
];

const LIST: &str = "TORCH_CUDA_ARCH_LIST";

/// The list, and what each of its readers makes of it.
struct Readings {
    text: String,
    refused: Vec<(&'static str, Refusal)>,
    items: Option<Vec<Item>>,
}

fn readings(case: &Case<'_>) -> Result<Result<Readings, Verdict>, Missing> {
    if !case.purpose.builds() {
        return Ok(Err(Verdict::not_applicable(NOT_ASKED)));
    }
    let Some(text) = case.facts.env.text(LIST) else { return Ok(Err(Verdict::not_applicable("TORCH_CUDA_ARCH_LIST is unset"))) };
    let torch = case.torch()?.filter(|torch| torch.cuda.is_some());
    let deepspeed = case.deepspeed()?;
    let mut readers: Vec<(&'static str, Reader<'_>)> = Vec::new();
    if let Some(torch) = torch {
        readers.push(("torch", Reader::Torch(Some(&torch.version))));
    }
    if let Some(deepspeed) = deepspeed {
        if case.know.deepspeed_does(DeepSpeedTrait::JitReadsArchList, &deepspeed.version).unwrap_or(true) {
            readers.push(("DeepSpeed's JIT", Reader::DeepSpeed(Some(&deepspeed.version), Use::Jit)));
        }
        if !case.asked_ops().is_empty() {
            readers.push(("DeepSpeed's pre-build", Reader::DeepSpeed(Some(&deepspeed.version), Use::Prebuild)));
        }
    }
    if readers.is_empty() {
        return Ok(Err(Verdict::not_applicable("neither torch for CUDA nor DeepSpeed is there to read it")));
    }
    let (mut refused, mut items) = (Vec::new(), None);
    for (name, reader) in readers {
        match arch_list::read(case.know, &reader, Some(&text)) {
            Ok(Reading::List(read)) => items = items.or(Some(read)),
            Ok(_) => {}
            Err(refusal) => refused.push((name, refusal)),
        }
    }
    Ok(Ok(Readings { text, refused, items }))
}

/// An item that is a capability in good form, whatever a reader says to its number.
fn in_good_form(item: &str) -> bool {
    let number = item.strip_suffix("+PTX").unwrap_or(item);
    number.contains('.') && number.parse::<Target>().is_ok()
}

/// Whether a reader refuses the form. Only torch has a table of numbers; what DeepSpeed refuses it cannot read, `9.0a` among it.
fn is_form(who: &str, refusal: &Refusal) -> bool {
    who != "torch" || !in_good_form(&refusal.item)
}

/// The same list in the form that all readers take: names expanded, one `;` between items, nothing empty. `None` where an item is no
/// capability in any form.
fn repaired(case: &Case<'_>, text: &str) -> Option<String> {
    let half: String = text
        .chars()
        .map(|c| match c {
            // Full-width forms, as some input methods give them.
            '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
            '\u{3000}' | '\u{a0}' => ' ',
            c => c,
        })
        .collect();
    let expanded = match case.torch().ok().flatten() {
        Some(torch) => case.know.expand_torch_arch_names(&torch.version, &half),
        None => half,
    };
    let mut items: Vec<Item> = Vec::new();
    for word in expanded.split(|c: char| c == ';' || c == ',' || c.is_whitespace()).filter(|word| !word.is_empty()) {
        let (number, ptx) = match word.len().checked_sub(4).map(|at| word.split_at_checked(at)) {
            Some(Some((number, end))) if end.eq_ignore_ascii_case("+ptx") => (number, true),
            _ => (word, false),
        };
        let target: Target = number.trim_matches(|c| c == '"' || c == '\'').parse().ok()?;
        // Plain numbers are what every reader takes.
        let target = Target::plain(target.capability);
        match items.iter_mut().find(|item| item.target == target) {
            Some(item) => item.ptx |= ptx,
            None => items.push(Item { target, sass: true, ptx }),
        }
    }
    items.sort_by_key(|item| item.target);
    (!items.is_empty()).then(|| arch_list::print(&items, Format::List))
}

fn malformed(case: &Case<'_>) -> Judgement {
    let readings = match readings(case)? {
        Ok(readings) => readings,
        Err(verdict) => return Ok(verdict),
    };
    let bad: Vec<&(&str, Refusal)> = readings.refused.iter().filter(|(who, refusal)| is_form(who, refusal)).collect();
    let Some((_, first)) = bad.first() else { return Ok(Verdict::Pass) };
    let mut who: Vec<&str> = bad.iter().map(|(name, _)| *name).collect();
    who.dedup();
    let verb = if who.len() == 1 { "does" } else { "do" };
    let item = if first.item.is_empty() { "an empty item".to_owned() } else { format!("`{}`", first.item) };
    let mut finding = Finding::error("arch-list-malformed", format!("`{LIST}` has {item}, which {} {verb} not read", join(&who)))
        .seen(Evidence::new(LIST, readings.text.clone()).said_by("environment"));
    let words: Vec<String> = bad.iter().map(|(name, refusal)| format!("{name} stops with `{}`", refusal.message)).collect();
    finding = finding.then(words.join("; "));
    finding = match repaired(case, &readings.text) {
        Some(list) => finding.fix(Fix::set(LIST, list, "the same items in the form that all readers take")),
        None => set_list(case, "arch-list-malformed").into_iter().fold(finding, Finding::fix),
    };
    Ok(Verdict::found(finding))
}

/// What the nvcc that torch picks can target.
fn targets<'a>(case: &Case<'a>) -> Result<Option<&'a [Target]>, Missing> {
    case.toolkit()?;
    let targets = case.nvcc()?.map(|nvcc| nvcc.targets.as_slice());
    match targets {
        Some([]) => Err(Missing { topic: "nvcc", why: "its targets could not be read".to_owned(), failed: false }),
        targets => Ok(targets),
    }
}

fn without(items: &[Item], out: &[Target]) -> Option<String> {
    let kept: Vec<Item> = items.iter().copied().filter(|item| !out.contains(&item.target)).collect();
    (!kept.is_empty()).then(|| arch_list::print(&kept, Format::List))
}

fn dropped(case: &Case<'_>) -> Judgement {
    let readings = match readings(case)? {
        Ok(readings) => readings,
        Err(verdict) => return Ok(verdict),
    };
    let Some(items) = readings.items else { return Ok(Verdict::not_applicable("no reader reads the list")) };
    let Some(targets) = targets(case)? else { return Ok(Verdict::not_applicable("no nvcc")) };
    let lowest = targets.iter().map(|target| target.capability).min().unwrap_or(Capability::new(0, 0));
    let gone: Vec<Target> =
        items.iter().map(|item| item.target).filter(|target| target.capability < lowest && !targets.contains(target)).collect();
    let Some(first) = gone.first() else { return Ok(Verdict::Pass) };
    let names: Vec<String> = gone.iter().map(ToString::to_string).collect();
    let nvcc = case.nvcc()?;
    let release =
        case.toolkit()?.and_then(crate::facts::toolkit::Toolkit::release).map(|release| format!(" {release}")).unwrap_or_default();
    let mut finding =
        Finding::error("nvcc-dropped-arch", format!("`{LIST}` asks for {}, and nvcc{release} starts at {lowest}", join(&names)))
            .seen(Evidence::new(LIST, readings.text.clone()).said_by("environment"))
            .then(format!("nvcc stops with `nvcc fatal : Unsupported gpu architecture '{}'`", first.compute()));
    if let Some(nvcc) = nvcc {
        finding = finding.seen(Evidence::new("nvcc", nvcc.version.as_ref().map(ToString::to_string).unwrap_or_default()).at(&nvcc.path));
    }
    let gpus = case.gpus().unwrap_or_default();
    let needs_old = gpus.iter().any(|device| device.capability.is_some_and(|capability| capability < lowest));
    finding = match without(&items, &gone) {
        Some(list) if !needs_old => {
            let fix = Fix::set(LIST, list, "without what this nvcc has dropped");
            finding.fix(if gpus.is_empty() { fix.review() } else { fix })
        }
        // Nothing is left of it, and the GPUs are known.
        None if !needs_old && !gpus.is_empty() => set_list(case, "nvcc-dropped-arch").into_iter().fold(finding, Finding::fix),
        _ => finding.fix(Fix::advice(format!("build for {} with an older toolkit and a torch for it", join(&names)))),
    };
    Ok(Verdict::found(finding))
}

fn wrong(case: &Case<'_>) -> Judgement {
    let readings = match readings(case)? {
        Ok(readings) => readings,
        Err(verdict) => return Ok(verdict),
    };
    let mut findings = Vec::new();
    if let Some((_, refusal)) = readings.refused.iter().find(|(who, refusal)| !is_form(who, refusal)) {
        findings.push(refused_number(case, &readings, refusal));
    }
    let Some(items) = &readings.items else { return Ok(Verdict::of(findings)) };
    if let Some(finding) = too_new_for_nvcc(case, &readings, items)? {
        findings.push(finding);
    }
    if let Some(finding) = uncovered(case, &readings, items)? {
        findings.push(finding);
    }
    Ok(Verdict::of(findings))
}

fn start(readings: &Readings, subject: &str, title: String) -> Finding {
    Finding::error("arch-list-wrong", title).about(subject).seen(Evidence::new(LIST, readings.text.clone()).said_by("environment"))
}

/// Well formed, and a number that this torch does not know.
fn refused_number(case: &Case<'_>, readings: &Readings, refusal: &Refusal) -> Finding {
    let torch = case.torch().ok().flatten();
    let version = torch.map(|torch| torch.version.to_string()).unwrap_or_default();
    let finding = start(readings, "torch", format!("`{LIST}` has `{}`, which torch {version} does not know", refusal.item))
        .then(format!("torch stops with `{}`", refusal.message));
    let known: Vec<Target> =
        torch.and_then(|torch| case.know.torch_arch_values(&torch.version)).map(|row| row.row.values.to_vec()).unwrap_or_default();
    let kept = repaired(case, &readings.text).map(|list| {
        let words = list
            .split(';')
            .filter(|word| word.strip_suffix("+PTX").unwrap_or(word).parse().is_ok_and(|target: Target| known.contains(&target)));
        words.collect::<Vec<_>>().join(";")
    });
    match kept.filter(|list| !list.is_empty()) {
        Some(list) => finding.fix(Fix::set(LIST, list, "what this torch knows of it").review()),
        None => set_list(case, "arch-list-wrong").into_iter().fold(finding, Finding::fix),
    }
}

fn too_new_for_nvcc(case: &Case<'_>, readings: &Readings, items: &[Item]) -> Result<Option<Finding>, Missing> {
    let Some(targets) = targets(case)? else { return Ok(None) };
    let highest = targets.iter().map(|target| target.capability).max().unwrap_or(Capability::new(0, 0));
    let lowest = targets.iter().map(|target| target.capability).min().unwrap_or(highest);
    let unknown: Vec<Target> =
        items.iter().map(|item| item.target).filter(|target| !targets.contains(target) && target.capability >= lowest).collect();
    let Some(first) = unknown.first() else { return Ok(None) };
    let names: Vec<String> = unknown.iter().map(ToString::to_string).collect();
    let release =
        case.toolkit()?.and_then(crate::facts::toolkit::Toolkit::release).map(|release| format!(" {release}")).unwrap_or_default();
    let finding =
        start(readings, "nvcc", format!("`{LIST}` asks for {}, which nvcc{release} does not know (its newest is {highest})", join(&names)))
            .then(format!("nvcc stops with `nvcc fatal : Unsupported gpu architecture '{}'`", first.compute()));
    Ok(Some(match without(items, &unknown) {
        Some(list) => finding.fix(Fix::set(LIST, list, "what this nvcc knows of it").review()),
        None => finding.fix(Fix::advice("build with a newer toolkit and a torch for it")),
    }))
}

/// GPUs of this machine for which the list gives no code.
fn uncovered(case: &Case<'_>, readings: &Readings, items: &[Item]) -> Result<Option<Finding>, Missing> {
    let cuda = case.toolkit()?.and_then(crate::facts::toolkit::Toolkit::release);
    let mut bare: Vec<(String, Capability)> = Vec::new();
    let gpus = case.gpus()?;
    for device in &gpus {
        let Some(capability) = device.capability else { continue };
        if !arch_list::cover(case.know, items, capability, cuda) && !bare.iter().any(|(_, known)| *known == capability) {
            bare.push((device.name.clone().unwrap_or_else(|| format!("GPU {}", device.index)), capability));
        }
    }
    let Some((name, capability)) = bare.first() else { return Ok(None) };
    let mut finding = start(readings, "gpu", format!("`{LIST}` has no code for {name} ({capability})"))
        .then("the build succeeds, and the first kernel stops with `no kernel image is available for execution on the device`");
    for (name, capability) in &bare {
        finding = finding.seen(Evidence::new("GPU", format!("{name}, {capability}")));
    }
    // The list and the GPUs together, in what nvcc can build.
    let wishes: Vec<Wish> = gpus
        .iter()
        .filter_map(|device| device.capability)
        .chain(items.iter().filter(|item| item.sass).map(|item| item.target.capability))
        .map(|capability| Wish { capability, from: String::new() })
        .collect();
    let compiler = targets(case)?.map(|targets| targets.iter().map(|target| target.capability).collect());
    let plan = arch_plan::plan(&wishes, &Limits { compiler, cuda, reader: None }, arch_plan::Ptx::None, case.know);
    let list: Vec<Item> =
        plan.items.iter().map(|item| Item { target: Target::plain(item.capability), sass: true, ptx: item.ptx }).collect();
    Ok(Some(if plan.dropped.is_empty() && arch_list::cover(case.know, &list, *capability, cuda) {
        finding.fix(Fix::set(LIST, arch_list::print(&list, Format::List), "with the GPUs of this machine"))
    } else {
        finding.fix(Fix::advice("this nvcc cannot build for that GPU: take a toolkit that can, and a torch for it"))
    }))
}

fn unset(case: &Case<'_>) -> Judgement {
    const ID: &str = "arch-list-unset-no-gpu";
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(NOT_ASKED));
    }
    if case.facts.env.text(LIST).is_some() {
        return Ok(Verdict::Pass);
    }
    let Some(torch) = case.torch()?.filter(|torch| torch.cuda.is_some()) else { return Ok(Verdict::not_applicable("no torch for CUDA")) };
    if case.nvcc()?.is_none() {
        return Ok(Verdict::not_applicable("torch finds no nvcc"));
    }
    if !case.gpus()?.is_empty() {
        return Ok(Verdict::Pass);
    }
    let finding = Finding::error(ID, format!("`{LIST}` is unset and there is no GPU to ask, so torch does not know what to build for"))
        .seen(super::torch::shown(torch))
        .seen(Evidence::new("GPU", "none seen"))
        .then("CUDA extensions stop with `IndexError: list index out of range`; DeepSpeed 0.19 with `found no CUDA devices. Set TORCH_CUDA_ARCH_LIST or make GPUs visible.`");
    Ok(Verdict::found(set_list(case, ID).into_iter().fold(finding, Finding::fix)))
}
