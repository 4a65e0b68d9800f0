//! `ds-doctor inspect`

mod files;
mod view;

use super::progress::Progress;
use super::subject::{self, Subject};
use super::{output, waiver};
use crate::checks::gate::{self, Gate};
use crate::checks::inspect::{self as load_checks, Looked};
use crate::checks::{Case, Judged, inspect_cache, summary};
use crate::cli::{ExpectFrom, Format, InspectArgs, InspectGateArgs, SubjectArgs};
use crate::collect::Lists;
use crate::collect::inspect::{Depth, Symbols};
use crate::collect::loader::needs;
use crate::exit::Exit;
use crate::facts::device_code::DeviceCode;
use crate::facts::elf::ElfFacts;
use crate::facts::inspect::Inspected;
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::finding::{Finding, Severity};
use crate::host::Host;
use crate::knowledge::Knowledge;
use crate::model::arch_list::{Format as ListFormat, print};
use crate::model::inspect::{Loads, NotHere, fits_python, installed_at, needs_torch, planned};
use crate::model::{assume, gate as expected};
use crate::render::{self, Report, Verdict};
use crate::text::{clean, count};
use anyhow::{Context as _, anyhow, bail};
use files::Files;
use std::io::Write as _;

/// # Errors
/// Wrong use, or a result that cannot be written.
pub fn run(args: &InspectArgs) -> anyhow::Result<Exit> {
    let host = subject::host(&args.subject)?;
    let read = |depth| files::read(&*host, args, depth, &Progress::new(args.talk.quiet));
    // What lies in a file is the same on every machine.
    if args.list {
        return list(args, &read(Depth::Headers));
    }
    let gated = is_gated(&args.gate);
    let Subject { mut facts, know, purpose } = machine(args, gated)?;
    let gate = gate_of(&args.gate, &facts, &know)?;
    // A gate asks for no symbols; programs are told of them all the same.
    let told = args.format == Format::Json || args.talk.verbose;
    let files = read(if gated && !told { Depth::Headers } else { Depth::Symbols });
    // A snapshot's machine is not here: its files cannot be asked.
    let here = args.subject.from.is_empty();
    if !gated && here {
        widen(&*host, &mut facts, &know, &files);
    }
    let case = Case::new(&facts, &know, purpose, &[]);
    let mut found: Vec<Finding> = Vec::new();
    let python = case.python().ok().flatten();
    let torch = case.torch().ok().flatten();
    let loads = if gated {
        Err("a gate judges the files, not this machine".to_owned())
    } else {
        Loads::new(&facts, python, torch).map_err(|missing| missing.why)
    };
    let gpus = view::gpus(&case, !args.subject.gpu.is_empty());
    let mut views = Vec::new();
    let mut symbols = Symbols::new(&*host);
    for (inspected, named) in files.read.iter().zip(&files.named) {
        found.extend(gate::findings(&gate, &know, inspected));
        let fits = match inspected {
            Inspected::Wheel(wheel) => {
                let fits = python.and_then(|python| fits_python(wheel, python)) != Some(false);
                if !gated {
                    found.extend(load_checks::of_wheel(torch.filter(|_| fits), wheel));
                }
                fits
            }
            Inspected::Binary(_) => true,
        };
        for binary in inspected.binaries() {
            if let Some(member) = &binary.member {
                symbols.plan(installed_at(python, member), &binary.exports);
            }
        }
        for binary in inspected.binaries() {
            let in_use = *named || binary.module || binary.elf.value().is_some_and(needs_torch);
            let path = binary.member.as_deref().map_or_else(|| binary.path.clone(), |member| installed_at(python, member));
            let load = match &loads {
                Err(why) => Err(why.clone()),
                Ok(_) if !fits => Err("the wheel is for another Python".to_owned()),
                Ok(loads) => match inspect_cache::of_others(&case, &path).filter(|_| !*named) {
                    Some(why) => Err(why),
                    None => loads.load(binary, &path).map_err(|why| not_here(&why)),
                },
            };
            let mut missing = None;
            if let (Ok(load), Ok(loads), true) = (&load, &loads, in_use) {
                let answer = if here {
                    view::missing(&mut symbols, loads, binary, load)
                } else {
                    Err("the files are on another machine".to_owned())
                };
                found.extend(load_checks::findings(&case, loads, &Looked { binary, load, missing: answer.clone(), named: *named }));
                missing = Some(answer);
            }
            if in_use && (!gated || !args.subject.gpu.is_empty()) && gpus.asked {
                found.extend(gpus.all.iter().filter_map(|(name, capability)| gate::on_gpu(&know, binary, name, *capability, gpus.driver)));
            }
            views.push(view::view(&know, binary, load.as_ref(), missing, &gpus));
        }
    }
    let unreadable = files.unreadable();
    let mut judged = judged(found);
    let (waived, expired) = waiver::apply(&mut judged, &waiver::load(&know, &args.talk)?, facts.taken);
    for note in expired.iter().chain(&facts.notes) {
        output::note(&args.talk, note);
    }
    for (path, why) in &unreadable {
        output::note(&args.talk, &format!("cannot read `{path}`: {why}"));
    }
    let verdict = match judged.findings.iter().map(Finding::weight).max() {
        Some(Severity::Error) => Verdict::Broken,
        _ if !unreadable.is_empty() => Verdict::Unknown,
        Some(_) => Verdict::Warnings,
        None => Verdict::Healthy,
    };
    let report = Report {
        command: "inspect",
        subject: subject_of(&case, &gate, &files, gated),
        body: if gated && !args.talk.verbose { Vec::new() } else { body(&files, &views, args.talk.verbose) },
        judged,
        verdict,
        complete: unreadable.is_empty(),
        waived,
        proves: proves(&gate, &views, &unreadable, gated),
    };
    write(args, &report, &files, &views, &unreadable, &know)?;
    Ok(match (unreadable.is_empty(), verdict) {
        (false, _) => Exit::Unable,
        (true, Verdict::Broken) => Exit::Findings,
        (true, Verdict::Unknown) => Exit::Unable,
        (true, Verdict::Healthy | Verdict::Warnings) => Exit::Fine,
    })
}

fn is_gated(gate: &InspectGateArgs) -> bool {
    gate.expect.is_some() || gate.expect_from.is_some() || !gate.expect_runs.is_empty() || gate.max_glibc.is_some() || gate.no_rpath_outside
}

/// The machine, or only what a gate needs of it.
fn machine(args: &InspectArgs, gated: bool) -> anyhow::Result<Subject> {
    if !gated || !args.subject.from.is_empty() {
        return subject::load(&args.subject);
    }
    let lists = Lists { torch_targets: args.gate.expect_from == Some(ExpectFrom::Torch) };
    // No GPU of this machine matters to a gate: the driver is not asked.
    let named = SubjectArgs {
        gpu: if args.subject.gpu.is_empty() { vec!["9.0".to_owned()] } else { args.subject.gpu.clone() },
        ..args.subject.clone()
    };
    let mut all = subject::load_all(&named, lists)?;
    all.pop().context("there is no machine to judge")
}

fn gate_of(args: &InspectGateArgs, facts: &Snapshot, know: &Knowledge) -> anyhow::Result<Gate> {
    let mut gate = Gate { no_rpath_outside: args.no_rpath_outside, ..Gate::default() };
    if let Some(list) = &args.expect {
        gate.expect = expected::expected(list).map_err(|why| anyhow!("--expect: {why}"))?;
        gate.expect_from = "--expect".to_owned();
    }
    match args.expect_from {
        Some(ExpectFrom::Env) => {
            const NAME: &str = "TORCH_CUDA_ARCH_LIST";
            let list =
                facts.env.text(NAME).filter(|list| !list.is_empty()).with_context(|| format!("--expect-from env: {NAME} is not set"))?;
            gate.expect = expected::expected(&list).map_err(|why| anyhow!("--expect-from env: {NAME}: {why}"))?;
            gate.expect_from = NAME.to_owned();
        }
        Some(ExpectFrom::Torch) => {
            let case = Case::new(facts, know, crate::checks::Purpose::Build, &[]);
            let torch = case.torch().map_err(|missing| anyhow!("--expect-from torch: {}", missing.why))?;
            let torch = torch.context("--expect-from torch: there is no torch in the Python that is judged (`--python` picks another)")?;
            gate.expect = expected::of_torch(torch)
                .with_context(|| format!("--expect-from torch: the targets of torch {} cannot be read", torch.version))?;
            gate.expect_from = format!("torch {}", torch.version);
        }
        None => {}
    }
    for name in args.expect_runs.iter().flat_map(|list| list.split(';')).map(str::trim).filter(|name| !name.is_empty()) {
        let (name, capability, _) = assume::gpu(name, know).map_err(|why| anyhow!("{}", why.replace("--gpu", "--expect-runs")))?;
        gate.runs.push((name, capability));
    }
    if let Some(version) = &args.max_glibc {
        let digits = !version.is_empty() && version.chars().all(|c| c.is_ascii_digit() || c == '.');
        gate.max_glibc = version.parse().ok().filter(|_| digits);
        if gate.max_glibc.is_none() {
            bail!("--max-glibc `{version}` is no version like 2.28");
        }
    }
    if is_gated(args) && gate.is_open() {
        bail!("the gate asks for nothing: the list is empty");
    }
    Ok(gate)
}

/// What these files need, looked for on the machine.
fn widen(host: &dyn Host, facts: &mut Snapshot, know: &Knowledge, files: &Files) {
    let (start, plans) = {
        let case = Case::new(facts, know, crate::checks::Purpose::Both, &[]);
        let (python, torch) = (case.python().ok().flatten(), case.torch().ok().flatten());
        let mut start: Vec<(HostPath, ElfFacts)> = Vec::new();
        if let Some(python) = python {
            start.extend(python.elf.value().map(|elf| (python.real.clone(), elf.clone())));
        }
        start.extend(torch.iter().flat_map(|torch| torch.libs.iter().map(|(name, elf)| (torch.path.join("lib").join(name), elf.clone()))));
        let mut plans = Vec::new();
        for inspected in &files.read {
            for binary in inspected.binaries().iter().filter(|binary| binary.is_loaded()) {
                let path = binary.member.as_deref().map_or_else(|| binary.path.clone(), |member| installed_at(python, member));
                start.extend(binary.elf.value().map(|elf| (path, elf.clone())));
            }
            if let Inspected::Wheel(wheel) = inspected {
                plans.extend(planned(wheel, python));
            }
        }
        (start, plans)
    };
    if let Some(loader) = facts.loader.value_mut() {
        needs::widen(host, loader, &start, &plans);
    }
}

fn not_here(why: &NotHere) -> String {
    match why {
        NotHere::NotLoaded => "no program loads such a file".to_owned(),
        NotHere::Machine { file, here } => format!("it is for {file}, and this machine is {here}"),
        NotHere::Python { wants, here } => format!("it is for {wants}, and this Python is {here}"),
        NotHere::Unknown(missing) => missing.why.clone(),
    }
}

/// In order: root causes are not sought, since each finding is about one file.
fn judged(found: Vec<Finding>) -> Judged {
    let (notes, findings) = found.into_iter().partition(|finding| finding.severity == Severity::Info);
    Judged { findings, notes, ..Judged::default() }
}

fn subject_of(case: &Case<'_>, gate: &Gate, files: &Files, gated: bool) -> Vec<String> {
    let binaries = files.read.iter().map(|inspected| inspected.binaries().len()).sum();
    let wheels = files.read.iter().filter(|inspected| matches!(inspected, Inspected::Wheel(_))).count();
    let mut parts = vec![count(binaries, "binary file")];
    if wheels > 0 {
        parts.push(format!("in {}", count(wheels, "wheel")));
        parts = vec![parts.join(" ")];
    }
    if gated {
        if !gate.expect.is_empty() {
            parts.push(format!("expected {} ({})", print(&gate.expect, ListFormat::Sm), gate.expect_from));
        }
        if !gate.runs.is_empty() {
            parts.push(format!("to run on {}", gate.runs.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")));
        }
        parts.extend(gate.max_glibc.as_ref().map(|version| format!("glibc {version} at most")));
        if gate.no_rpath_outside {
            parts.push("no RPATH outside".to_owned());
        }
    } else {
        parts.extend(summary::subject(case));
    }
    parts
}

/// More files than this, and each has one line, unless `-v`.
const IN_FULL: usize = 12;

fn body(files: &Files, views: &[render::inspect::View<'_>], verbose: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = views;
    let full = verbose || views.len() <= IN_FULL;
    for inspected in &files.read {
        let (own, others) = rest.split_at_checked(inspected.binaries().len()).unwrap_or((rest, &[]));
        rest = others;
        if let Inspected::Wheel(wheel) = inspected {
            lines.extend(render::inspect::wheel_lines(wheel));
        }
        for view in own {
            if full {
                lines.extend(render::inspect::lines(view, verbose));
            } else if view.binary.device_code.value().is_some() || view.binary.elf.is_failed() {
                let below = match &view.binary.member {
                    Some(_) => Some(view.binary.path.to_string()),
                    None => {
                        files.folders.iter().find(|folder| view.binary.path.starts_with(folder)).map(|folder| folder.display().to_string())
                    }
                };
                lines.push(render::inspect::short_line(view.binary, &below.unwrap_or_default()));
            }
        }
    }
    let mut sum = DeviceCode::default();
    let with_code: Vec<&DeviceCode> = views.iter().filter_map(|view| view.binary.device_code.value()).collect();
    if with_code.len() > 1 {
        for code in &with_code {
            sum.absorb(code);
        }
        lines.push(render::inspect::sum_line(with_code.len(), &sum));
    }
    lines
}

fn proves(gate: &Gate, views: &[render::inspect::View<'_>], unreadable: &[(HostPath, String)], gated: bool) -> String {
    if let Some((path, why)) = unreadable.first() {
        let more = if unreadable.len() > 1 { format!(", and {} more", count(unreadable.len() - 1, "file")) } else { String::new() };
        return format!("`{path}` cannot be read: {why}{more}");
    }
    let with_code = views.iter().filter(|view| view.binary.device_code.value().is_some()).count();
    if gated {
        let mut parts = Vec::new();
        if gate.asks_for_code() {
            parts.push(format!("{} with device code: all that was expected is there", count(with_code, "file")));
        }
        if gate.max_glibc.is_some() || gate.no_rpath_outside {
            parts.push(format!("{} within the limits", count(views.len(), "file")));
        }
        return parts.join("; ");
    }
    let loads = views.iter().filter(|view| view.judged.is_ok()).count();
    let code = if with_code == 0 { "no device code".to_owned() } else { format!("device code in {}", count(with_code, "file")) };
    let load = if loads == 0 {
        "not judged whether anything loads here".to_owned()
    } else {
        format!("{} judged for loading here", count(loads, "file"))
    };
    format!("{code}; {load}")
}

fn list(args: &InspectArgs, files: &Files) -> anyhow::Result<Exit> {
    let mut out = output::result(&args.talk)?;
    for binary in files.read.iter().flat_map(Inspected::binaries) {
        writeln!(out, "{}", render::inspect::list_line(binary))?;
    }
    out.flush()?;
    let unreadable = files.unreadable();
    for (path, why) in &unreadable {
        output::note(&args.talk, &format!("cannot read `{path}`: {why}"));
    }
    Ok(if unreadable.is_empty() { Exit::Fine } else { Exit::Unable })
}

fn write(
    args: &InspectArgs,
    report: &Report,
    files: &Files,
    views: &[render::inspect::View<'_>],
    unreadable: &[(HostPath, String)],
    know: &Knowledge,
) -> anyhow::Result<()> {
    let mut out = output::result(&args.talk)?;
    match args.format {
        Format::Human => render::human::render(report, output::detail(&args.talk), &mut out)?,
        Format::Json => {
            let wheels: Vec<_> = files
                .read
                .iter()
                .filter_map(|inspected| match inspected {
                    Inspected::Wheel(wheel) => Some(render::inspect::json_wheel(wheel)),
                    Inspected::Binary(_) => None,
                })
                .collect();
            let unreadable: Vec<_> = unreadable.iter().map(|(path, why)| serde_json::json!({ "path": path, "why": clean(why) })).collect();
            let result = serde_json::json!({
                "subject": report.subject,
                "files": views.iter().map(render::inspect::json_file).collect::<Vec<_>>(),
                "wheels": wheels,
                "unreadable": unreadable,
            });
            out.write_all(render::json::Envelope::new(report, result).text().as_bytes())?;
        }
        Format::Markdown => render::markdown::render(report, &mut out)?,
        Format::Github => render::github::render(report, &mut out)?,
        Format::Sarif => out.write_all(render::sarif::text(report, know).as_bytes())?,
    }
    out.flush()?;
    Ok(())
}
