//! The result of a trial build: a table for people, and the `result` of the envelope, version 1.

use super::kernel::{self, JsonExecution};
use crate::checks::probe::{self as judged, line};
use crate::facts::kernel::DeviceRun;
use crate::facts::observed::Observed;
use crate::facts::probe::{Failure, OpTrial, Outcome, Probe, Step};
use crate::facts::raw::Raw;
use crate::text::clean;
use serde::Serialize;

/// What the machine was shown to be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    Proven,
    Failed,
    /// There is no GPU to run on, the build did not get there, or a program was not done in its time.
    NotProven,
    /// There is nothing to build with.
    Skipped,
}

#[derive(Debug, Serialize)]
pub struct JsonProbe {
    pub subject: Vec<String>,
    pub toolchain: Proof,
    pub execution: Proof,
    /// The two in words.
    pub summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toolkit: Option<String>,
    pub targets: Vec<String>,
    pub targets_from: String,
    pub cached: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    pub notes: Vec<String>,
    pub steps: Vec<JsonStep>,
    /// Where the kernels were run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<JsonExecution>,
    /// What each op of DeepSpeed needs, tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<JsonOp>,
    /// Why no op was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_skipped: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct JsonOp {
    pub op: String,
    /// What it includes compiles, what it links is there.
    pub passed: bool,
    /// `passed`, `failed`, `undecided`: a program was not done in its time
    pub outcome: &'static str,
    /// Of the first step that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub line: String,
    pub steps: Vec<JsonStep>,
}

#[derive(Debug, Serialize)]
pub struct JsonStep {
    pub name: String,
    /// `passed`, `failed`, `undecided`, `not-reached`
    pub outcome: &'static str,
    pub millis: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<Raw>,
    /// The first line that tells of an error; for a step that was not reached, why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub line: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// `toolchain proven, execution not proven`
pub fn summary(probe: &Observed<Probe>) -> String {
    match probe {
        Observed::Seen { value } => judged::proves(value).unwrap_or_else(|| "toolchain fails".to_owned()),
        Observed::Skipped { why } | Observed::Failed { why } => format!("nothing was built: {why}"),
        Observed::Absent { .. } => "nothing was built".to_owned(),
    }
}

pub fn json(probe: &Observed<Probe>, subject: &[String]) -> JsonProbe {
    let skipped = match probe {
        Observed::Skipped { why } | Observed::Failed { why } => Some(why.clone()),
        _ => None,
    };
    let value = probe.value();
    let toolchain = match value {
        Some(probe) if probe.proven() => Proof::Proven,
        Some(probe) if probe.is_undecided() => Proof::NotProven,
        Some(_) => Proof::Failed,
        None => Proof::Skipped,
    };
    JsonProbe {
        subject: subject.to_vec(),
        toolchain,
        execution: value.map_or(Proof::Skipped, ran),
        summary: summary(probe),
        skipped,
        toolkit: value.map(|probe| probe.toolkit.to_string()),
        targets: value.map(|probe| probe.targets.list.clone()).unwrap_or_default(),
        targets_from: value.map(|probe| probe.targets.from.clone()).unwrap_or_default(),
        cached: value.is_some_and(|probe| probe.cached),
        folder: value.and_then(|probe| probe.folder.as_ref()).map(ToString::to_string),
        notes: value.map(|probe| probe.notes.clone()).unwrap_or_default(),
        steps: value.map(|probe| probe.steps.iter().map(step_json).collect()).unwrap_or_default(),
        gpus: value.and_then(|probe| kernel::json(&probe.execution)),
        ops: value.and_then(|probe| probe.ops.value()).map(|ops| ops.iter().map(op_json).collect()).unwrap_or_default(),
        ops_skipped: value.and_then(|probe| match &probe.ops {
            Observed::Skipped { why } | Observed::Failed { why } if !why.is_empty() => Some(why.clone()),
            _ => None,
        }),
    }
}

/// A GPU that was left alone proves nothing either way.
fn ran(probe: &Probe) -> Proof {
    let devices = probe.execution.value().map_or(&[][..], |execution| execution.devices.as_slice());
    match devices {
        [] => Proof::NotProven,
        all if all.iter().all(DeviceRun::proven) => Proof::Proven,
        all if all.iter().all(|run| run.proven() || run.busy().is_some()) => Proof::NotProven,
        _ => Proof::Failed,
    }
}

fn op_json(tried: &OpTrial) -> JsonOp {
    let failed = tried.failure().map(|(step, _)| step_json(step));
    JsonOp {
        op: tried.op.clone(),
        passed: tried.passed(),
        outcome: outcome(tried),
        id: failed.as_ref().and_then(|step| step.id.clone()),
        line: failed.map(|step| step.line).unwrap_or_default(),
        steps: tried.steps.iter().map(step_json).collect(),
    }
}

/// In one word what was learnt of an op.
pub fn outcome(tried: &OpTrial) -> &'static str {
    match () {
        () if tried.passed() => "passed",
        () if tried.is_undecided() => "undecided",
        () => "failed",
    }
}

/// How a program was stopped, with the option that gives it more time; else its line, else how it ended.
fn words(failure: &Failure) -> String {
    match () {
        () if failure.is_undecided() => format!("{} (--timeout)", failure.ended),
        () if failure.line.is_empty() => failure.ended.to_string(),
        () => failure.line.clone(),
    }
}

fn step_json(step: &Step) -> JsonStep {
    let (outcome, line) = match &step.outcome {
        Outcome::Passed => ("passed", String::new()),
        Outcome::Failed(failure) if failure.is_undecided() => ("undecided", words(failure)),
        Outcome::Failed(failure) => ("failed", words(failure)),
        Outcome::NotReached { why } => ("not-reached", why.clone()),
    };
    JsonStep {
        name: step.name.to_string().replace(' ', "-"),
        outcome,
        millis: step.millis,
        argv: step.command.as_ref().map(|command| command.argv.clone()).unwrap_or_default(),
        line,
        id: step.failure().and_then(|failure| failure.meaning.as_ref()).map(|meaning| meaning.id.clone()),
        output: step.failure().map(|failure| failure.output.clone()).unwrap_or_default(),
    }
}

/// One line a step, columns aligned; with `all` the commands too.
pub fn table(probe: &Observed<Probe>, all: bool) -> Vec<String> {
    let Some(probe) = probe.value() else { return Vec::new() };
    let mut lines = Vec::new();
    for step in &probe.steps {
        let (word, time, rest) = match &step.outcome {
            Outcome::Passed => ("ok", seconds(step.millis), String::new()),
            Outcome::Failed(failure) if failure.is_undecided() => ("undecided", seconds(step.millis), words(failure)),
            Outcome::Failed(failure) => ("failed", seconds(step.millis), words(failure)),
            Outcome::NotReached { why } => ("not reached", String::new(), why.clone()),
        };
        lines.push(format!("{:<13} {word:<11} {time:>7}  {}", step.name, clean(&rest)).trim_end().to_owned());
        if let (true, Some(command)) = (all, &step.command) {
            lines.push(format!("              {}", clean(&line(command))));
        }
    }
    lines.extend(kernel::table(&probe.execution, all));
    let targets = if probe.targets.list.is_empty() { String::new() } else { format!("{} by ", probe.targets.list.join(" ")) };
    lines.push(format!("{:<13} {targets}{}", "built for", clean(&probe.targets.from)));
    if probe.cached {
        lines.push(format!("{:<13} compiled and linked before, nothing has changed since (--no-cache does it again)", "cache"));
    }
    if let Some(folder) = &probe.folder {
        lines.push(format!("{:<13} {}", "kept in", clean(&folder.to_string())));
    }
    if let Some(ops) = probe.ops.value() {
        lines.extend(op_lines(ops));
    }
    lines.extend(probe.notes.iter().map(|note| format!("{:<13} {}", "note", clean(note))));
    lines
}

/// The ops that have what they need on one line, each other with its reason.
fn op_lines(ops: &[OpTrial]) -> Vec<String> {
    let (good, bad): (Vec<&OpTrial>, Vec<&OpTrial>) = ops.iter().partition(|tried| tried.passed());
    let names: Vec<&str> = good.iter().map(|tried| tried.op.as_str()).collect();
    let mut lines = Vec::new();
    if !names.is_empty() {
        lines.push(format!("{:<13} {:<11} {}", "ops", "ok", names.join(" ")));
    }
    for tried in bad {
        let Some((_, failure)) = tried.failure() else { continue };
        let id = match &failure.meaning {
            _ if failure.is_undecided() => String::new(),
            Some(meaning) => format!("{}: ", meaning.id),
            None => "failed: ".to_owned(),
        };
        lines.push(format!("{:<13} {:<11} {id}{}", "op", clean(&tried.op), clean(&words(failure))));
    }
    lines
}

fn seconds(millis: u64) -> String {
    if millis < 1000 { format!("{millis} ms") } else { format!("{}.{} s", millis / 1000, millis % 1000 / 100) }
}
