//! The NCCL test as lines for people, and as values for programs.

use crate::facts::nccl::{End, Member, Nccl, Row, size};
use crate::facts::observed::Observed;
use crate::facts::torch::Torch;
use crate::text::{clean, count};
use serde_json::{Value, json};

/// The library, what was set, the ranks, and the table. `torch`: to name the release that it asks for.
pub fn lines(nccl: &Observed<Nccl>, torch: Option<&Torch>) -> Vec<String> {
    let Some(nccl) = nccl.value() else { return Vec::new() };
    let mut lines = Vec::from(library(nccl, torch));
    for setting in &nccl.settings {
        lines.push(line("set", &format!("{}={}  {}", setting.name, setting.value, setting.source)));
    }
    let Some(run) = nccl.run.value() else { return lines };
    for member in &run.ranks {
        lines.push(line(&format!("rank {}", member.rank), &gpu(nccl, member)));
    }
    if !run.rows.is_empty() {
        lines.push(String::new());
        lines.extend(table(&run.rows));
    }
    lines
}

fn line(label: &str, text: &str) -> String {
    format!("{label:<8}  {}", clean(text))
}

fn library(nccl: &Nccl, torch: Option<&Torch>) -> [String; 2] {
    let version = nccl.version.as_ref().or(nccl.library.release.as_ref());
    let version = version.map_or("of unknown release".to_owned(), ToString::to_string);
    let cuda = nccl.library.cuda.map(|cuda| format!(", built for CUDA {cuda}")).unwrap_or_default();
    let asked = torch.and_then(|torch| torch.nccl.as_ref()).map(|(_, asked)| format!("; torch asks for {asked}")).unwrap_or_default();
    let file = format!("{}  {}", nccl.library.path, nccl.library.why);
    [line("NCCL", &format!("{version}{cuda}{asked}")), line("file", &file)]
}

fn gpu(nccl: &Nccl, member: &Member) -> String {
    let number = member.device.unwrap_or(0);
    let device = nccl.devices.value().and_then(|all| all.iter().find(|device| device.ordinal == number));
    let name = device.and_then(|device| device.name.clone()).unwrap_or_else(|| "GPU of unknown name".to_owned());
    let bus = device.and_then(|device| device.bus.as_ref()).map(|bus| format!(" ({bus})")).unwrap_or_default();
    let end = match (&member.end, member.last) {
        (End::Done, _) => String::new(),
        (end, last) => format!("  {}{}", word(end), last.map(|step| format!(" in {step}")).unwrap_or_default()),
    };
    format!("GPU {number} {name}{bus}{end}")
}

const fn word(end: &End) -> &'static str {
    match end {
        End::Done => "done",
        End::Failed(_) => "failed",
        End::Crashed { .. } => "crashed",
        End::Ended { .. } => "ended",
        End::Stopped => "stopped",
        End::Garbage { .. } => "garbage",
        End::NotStarted { .. } => "not-started",
    }
}

/// In the columns and units of nccl-tests.
fn table(rows: &[Row]) -> Vec<String> {
    let head =
        format!("{:<14}  {:>8}  {:>10}  {:>12}  {:>12}  {:>8}", "operation", "size", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "wrong");
    let body = rows.iter().map(|row| {
        let wrong: u64 = row.wrong.iter().map(|wrong| wrong.elements).sum();
        format!(
            "{:<14}  {:>8}  {:>10.1}  {:>12.2}  {:>12.2}  {:>8}",
            row.op.name(),
            size(row.bytes),
            row.seconds * 1e6,
            row.algorithm_bandwidth(),
            row.bus_bandwidth(),
            wrong
        )
    });
    std::iter::once(head).chain(body).collect()
}

/// What the test shows where nothing is wrong, and what it does not.
pub fn proves(nccl: &Observed<Nccl>) -> String {
    let nccl = match nccl {
        Observed::Seen { value } => value,
        Observed::Absent { .. } => return "there is no libnccl".to_owned(),
        Observed::Failed { why } => return format!("NCCL could not be tested: {why}"),
        Observed::Skipped { why } => return format!("NCCL was not tested: {why}"),
    };
    let version = nccl.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    let found = format!("NCCL{version} found and answers");
    match &nccl.run {
        Observed::Seen { value } => {
            let (ranks, rows) = (value.ranks.len(), value.rows.len());
            let right = format!("{} right", count(rows, "operation"));
            match ranks {
                1 => format!("{found}; on one GPU: {right}; between GPUs: not proven, only one was used"),
                ranks => format!("{found}; communication between {ranks} GPUs: {right}"),
            }
        }
        _ => match &nccl.devices {
            Observed::Seen { value } if !value.is_empty() => format!("{found}; no GPU is idle: communication not proven"),
            Observed::Failed { why } => format!("{found}; communication not proven: {why}"),
            _ => format!("{found}; no GPU: communication not proven"),
        },
    }
}

/// Versioned with the envelope.
pub fn result(nccl: &Observed<Nccl>) -> Value {
    let nccl = match nccl {
        Observed::Seen { value } => value,
        Observed::Absent { looked } => return json!({ "tested": false, "why": "there is no libnccl", "looked": looked }),
        Observed::Failed { why } | Observed::Skipped { why } => return json!({ "tested": false, "why": why }),
    };
    let run = nccl.run.value();
    let ranks: Vec<Value> = run.into_iter().flat_map(|run| &run.ranks).map(member).collect();
    let rows: Vec<Value> = run.into_iter().flat_map(|run| &run.rows).map(row).collect();
    let why = match &nccl.run {
        Observed::Skipped { why } | Observed::Failed { why } => Some(why),
        _ => None,
    };
    json!({
        "tested": true,
        "library": { "path": nccl.library.path, "chosen": nccl.library.why, "release": nccl.library.release, "cuda": nccl.library.cuda },
        "version": nccl.version,
        "unique_id": unique_id(nccl),
        "settings": nccl.settings,
        "gpus": nccl.devices.value(),
        "ranks": ranks,
        "not_run": why,
        "hung_after": run.and_then(|run| run.hung),
        "bandwidths": rows,
    })
}

fn unique_id(nccl: &Nccl) -> bool {
    nccl.opening.end == End::Done || nccl.opening.last > Some(crate::facts::nccl::Step::UniqueId)
}

fn member(member: &Member) -> Value {
    let failure = match &member.end {
        End::Failed(failure) => {
            Some(json!({ "call": failure.call, "code": failure.code, "why": failure.why, "last_error": failure.last_error }))
        }
        _ => None,
    };
    json!({
        "rank": member.rank,
        "gpu": member.device,
        "end": word(&member.end),
        "last_step": member.last.map(|step| step.to_string()),
        "failure": failure,
        "warnings": member.warnings,
    })
}

fn row(row: &Row) -> Value {
    json!({
        "operation": row.op,
        "bytes": row.bytes,
        "ranks": row.ranks,
        "time_us": row.seconds * 1e6,
        "algbw_gbs": row.algorithm_bandwidth(),
        "busbw_gbs": row.bus_bandwidth(),
        "wrong": row.wrong,
    })
}
