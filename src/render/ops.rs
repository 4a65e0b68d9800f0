//! What becomes of each op: a table for people, and the `result` of the envelope, version 1.

use super::human::fix_line;
use super::probe::outcome;
use crate::checks::Case;
use crate::checks::ops_report::{Came, Reason, Row, Way, compatible};
use crate::facts::probe::{OpTrial, Probe};
use crate::knowledge::schema::deepspeed::AcceleratorKind;
use crate::model::arch_list::{self, Format, Item};
use crate::model::assume::is_assumed;
use crate::model::ops::{Can, Scene, Wish};
use crate::text::{clean, count, join};
use serde::Serialize;

/// Everything that the shapes are made from.
pub struct View<'v, 'c, 'a> {
    pub case: &'v Case<'c>,
    pub scene: &'v Scene<'a>,
    pub rows: &'v [Row<'v, 'a>],
    /// Builders that are not the release's own; `None`: not compared.
    pub changed: Option<&'v [String]>,
    pub probe: Option<&'v Probe>,
}

impl View<'_, '_, '_> {
    fn trial(&self, op: &str) -> Option<&OpTrial> {
        self.probe?.ops.value()?.iter().find(|trial| trial.op == op)
    }

    pub fn accelerator(&self) -> &'static str {
        match self.scene.accelerator {
            AcceleratorKind::Cuda => "cuda",
            AcceleratorKind::Cpu => "cpu",
        }
    }

    fn accelerator_by(&self) -> String {
        let hint = "`DS_ACCELERATOR=cuda` or `--gpu` shows the CUDA ops";
        match (self.scene.said, self.scene.accelerator) {
            (true, _) => "DS_ACCELERATOR".to_owned(),
            (false, AcceleratorKind::Cpu) if self.scene.torch.is_some_and(|torch| torch.cuda.is_some()) => {
                format!("no GPU is seen; {hint}")
            }
            (false, AcceleratorKind::Cpu) => "no CUDA for torch".to_owned(),
            (false, AcceleratorKind::Cuda) if self.scene.gpu() => "a GPU".to_owned(),
            (false, AcceleratorKind::Cuda) => "this release takes it without a GPU too".to_owned(),
        }
    }
}

fn list(items: &[Item]) -> String {
    arch_list::print(items, Format::List)
}

fn installed(row: &Row<'_, '_>) -> &'static str {
    match row.installed {
        Came::No => "no",
        Came::Yes => "yes",
        Came::Invalid => "invalid",
        Came::Unknown => "unknown",
    }
}

fn can(way: &Way) -> &'static str {
    match way.can {
        Can::Yes => "yes",
        Can::No => "no",
        Can::Unknown => "unknown",
    }
}

/// Ids of a row, each once.
fn ids(row: &Row<'_, '_>) -> Vec<&'static str> {
    let mut ids: Vec<&str> = Vec::new();
    for reason in row.invalid.iter().chain(&row.prebuild.why).chain(&row.jit.why) {
        if !ids.contains(&reason.id) {
            ids.push(reason.id);
        }
    }
    ids
}

/// One line an op, then each reason once with the ops that it holds for and what to do.
pub fn table(view: &View<'_, '_, '_>, verbose: bool) -> Vec<String> {
    let mut lines = vec![format!("accelerator {} ({})", view.accelerator(), clean(&view.accelerator_by()))];
    lines.extend(notes(view).iter().map(|note| clean(note).into_owned()));
    lines.push(String::new());
    let cells: Vec<[String; 6]> = view
        .rows
        .iter()
        .map(|row| {
            let archs = &row.state.archs;
            let shown = if row.state.build.is_some_and(|build| build.cu > 0) { list(&archs.kept) } else { String::new() };
            let tried = view.trial(&row.state.op.op).map_or("", |trial| match outcome(trial) {
                "passed" => " (tried)",
                "undecided" => " (tried: not done)",
                _ => " (tried: no)",
            });
            let why = ids(row).join(" ");
            [
                row.state.op.op.to_string(),
                installed(row).to_owned(),
                can(&row.prebuild).to_owned(),
                format!("{}{tried}", can(&row.jit)),
                shown,
                why,
            ]
        })
        .collect();
    let head = ["op", "installed", "pre-build", "first use", "archs", "why not"].map(str::to_owned);
    let width = |column: usize| cells.iter().chain([&head]).map(|row| row[column].chars().count()).filter(|w| *w <= 30).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    for row in [&head].into_iter().chain(&cells) {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).chain(row.last().cloned());
        lines.push(clean(cells.collect::<Vec<_>>().join("  ").trim_end()).into_owned());
    }
    let reasons = reasons(view);
    if !reasons.is_empty() {
        lines.push(String::new());
    }
    for (reason, ops) in reasons {
        let whom = if ops.len() > 4 { count(ops.len(), "op") } else { join(&ops) };
        lines.push(clean(&format!("{}: {} ({whom})", reason.id, reason.says)).into_owned());
        if verbose {
            for one in &reason.evidence {
                let path = one.path.as_ref().map(|path| format!("  {path}")).unwrap_or_default();
                lines.push(clean(&format!("  seen  {} {}{path}  {}", one.what, one.value, one.source)).trim_end().to_owned());
            }
        }
        // Leaving an op out is no cure of the machine.
        let cures = reason.fixes.iter().filter(|fix| !fix.title.starts_with("leave "));
        for fix in cures.take(if verbose { usize::MAX } else { 2 }) {
            lines.push(clean(&format!("  fix   {}", fix_line(fix))).into_owned());
        }
    }
    lines
}

/// Every reason once, with its ops.
fn reasons<'v>(view: &View<'v, '_, '_>) -> Vec<(&'v Reason, Vec<String>)> {
    let mut all: Vec<(&Reason, Vec<String>)> = Vec::new();
    for row in view.rows {
        let op = row.state.op.op.to_string();
        for reason in row.invalid.iter().chain(&row.prebuild.why).chain(&row.jit.why) {
            // An op that misses a library misses it in every way: once is enough.
            if all.iter().any(|(known, ops)| known.id == reason.id && known.says != reason.says && ops.contains(&op)) {
                continue;
            }
            // The same thing is said of each op with the op's name in it.
            let bare = |reason: &Reason, op: &str| reason.says.replace(op, "");
            let same = all.iter_mut().find(|(known, ops)| {
                known.id == reason.id
                    && (known.says == reason.says || bare(known, ops.first().map_or("", String::as_str)) == bare(reason, &op))
            });
            match same {
                Some((_, ops)) if ops.contains(&op) => {}
                Some((_, ops)) => ops.push(op.clone()),
                None => all.push((reason, vec![op.clone()])),
            }
        }
    }
    all
}

/// What holds for the release or the list as a whole.
fn notes(view: &View<'_, '_, '_>) -> Vec<String> {
    let mut notes = Vec::new();
    let version = &view.scene.deepspeed.version;
    if !view.scene.know.deepspeed_known(version)
        && let Some((oldest, newest)) = view.scene.know.deepspeed_covered()
    {
        notes.push(format!("DeepSpeed {version} is not in the tables, which cover {oldest} to {newest}: judged as the nearest of them"));
    }
    match view.changed {
        Some([]) => {}
        Some(changed) => {
            notes.push(format!("builders that differ from DeepSpeed {version}'s own: {}; judged as if they did not", join(changed)))
        }
        None if is_assumed(&view.scene.deepspeed.path) => {}
        None => notes.push(format!("the builders' files were not compared with those of DeepSpeed {version}")),
    }
    let narrowed: Vec<String> = view
        .rows
        .iter()
        .filter(|row| row.state.archs.narrowed_by.is_some() && row.state.build.is_some_and(|build| build.cu > 0))
        .map(|row| row.state.op.op.to_string())
        .collect();
    if !narrowed.is_empty() {
        notes.push(format!("the arch list is narrowed by an op built before: {}", join(&narrowed)));
    }
    let plain: Vec<String> = view
        .rows
        .iter()
        .filter(|row| row.state.archs.bf16 == Some(false) && row.state.archs.kept.iter().any(|item| item.target.capability.major >= 8))
        .map(|row| row.state.op.op.to_string())
        .collect();
    if !plain.is_empty() {
        let whom = if plain.len() > 4 { count(plain.len(), "op") } else { join(&plain) };
        notes.push(format!("an arch below 8.0 beside newer ones turns the BF16 kernels off in {whom}"));
    }
    notes
}

/// `23 ops: 2 installed, 17 can be pre-built, 18 at first use`
pub fn summary(view: &View<'_, '_, '_>) -> String {
    let with = |test: &dyn Fn(&Row<'_, '_>) -> bool| view.rows.iter().filter(|row| test(row)).count();
    format!(
        "{} of DeepSpeed {}: {} installed, {} can be pre-built, {} built at first use",
        count(view.rows.len(), "op"),
        view.scene.deepspeed.version,
        with(&|row| row.installed == Came::Yes),
        with(&|row| row.prebuild.can == Can::Yes),
        with(&|row| row.jit.can == Can::Yes),
    )
}

#[derive(Debug, Serialize)]
pub struct JsonOps {
    pub deepspeed: String,
    pub path: String,
    /// `installed`, `source`, `assumed`
    pub from: &'static str,
    /// The tables were made with this release in sight.
    pub known: bool,
    pub accelerator: &'static str,
    pub accelerator_by: String,
    /// Builders that are not the release's own; `null`: not compared.
    pub changed_builders: Option<Vec<String>>,
    pub ops: Vec<JsonOp>,
}

#[derive(Debug, Serialize)]
pub struct JsonOp {
    pub op: String,
    pub class: String,
    pub variable: String,
    pub module: String,
    /// `no`, `own`, `all`, or the op that needs it.
    pub asked_for: String,
    /// `no`, `yes`, `invalid`, `unknown`
    pub installed: &'static str,
    pub invalid: Vec<JsonReason>,
    /// What the op's `is_compatible` answers; `null` where it fails or cannot be foretold.
    pub compatible: Option<bool>,
    pub prebuild: JsonWay,
    pub jit: JsonWay,
    pub archs: JsonArchs,
    pub flags: JsonFlags,
    /// By the trial; `null` without one.
    pub tried: Option<JsonTried>,
}

#[derive(Debug, Serialize)]
pub struct JsonWay {
    /// `yes`, `no`, `unknown`
    pub can: &'static str,
    pub why: Vec<JsonReason>,
    pub unknown: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct JsonReason {
    pub id: &'static str,
    pub says: String,
    pub fixes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct JsonArchs {
    /// The list that the op meets in a pre-build, and what its filter leaves.
    pub list: Vec<String>,
    pub kept: Vec<String>,
    pub default: bool,
    pub narrowed_by: Option<String>,
    pub bf16: Option<bool>,
}

#[derive(Debug, Serialize)]
pub struct JsonFlags {
    pub cxx: Vec<String>,
    pub nvcc: Vec<String>,
    pub link: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct JsonTried {
    pub passed: bool,
    /// `passed`, `failed`, `undecided`: a program was not done in its time
    pub outcome: &'static str,
    pub id: Option<String>,
    pub line: String,
}

pub fn json(view: &View<'_, '_, '_>) -> JsonOps {
    let deepspeed = view.scene.deepspeed;
    JsonOps {
        deepspeed: deepspeed.version.to_string(),
        path: deepspeed.path.to_string(),
        from: if is_assumed(&deepspeed.path) {
            "assumed"
        } else if deepspeed.editable {
            "source"
        } else {
            "installed"
        },
        known: view.scene.know.deepspeed_known(&deepspeed.version),
        accelerator: view.accelerator(),
        accelerator_by: view.accelerator_by(),
        changed_builders: view.changed.map(<[String]>::to_vec),
        ops: view.rows.iter().map(|row| op_json(view, row)).collect(),
    }
}

fn op_json(view: &View<'_, '_, '_>, row: &Row<'_, '_>) -> JsonOp {
    let state = row.state;
    let words = |items: &[Item]| list(items).split(';').filter(|item| !item.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    JsonOp {
        op: state.op.op.to_string(),
        class: state.op.class.to_string(),
        variable: state.op.variable.to_string(),
        module: state.op.module.to_string(),
        asked_for: match &state.wish {
            Wish::No => "no".to_owned(),
            Wish::Own => "own".to_owned(),
            Wish::All => "all".to_owned(),
            Wish::For(op) => op.clone(),
        },
        installed: installed(row),
        invalid: row.invalid.iter().map(reason_json).collect(),
        compatible: compatible(state.compatible),
        prebuild: way_json(&row.prebuild),
        jit: way_json(&row.jit),
        archs: JsonArchs {
            list: words(&state.archs.list),
            kept: words(&state.archs.kept),
            default: state.archs.default,
            narrowed_by: state.archs.narrowed_by.clone(),
            bf16: state.archs.bf16,
        },
        flags: JsonFlags { cxx: state.flags.cxx.clone(), nvcc: state.flags.nvcc.clone(), link: state.flags.link.clone() },
        tried: view.trial(&state.op.op).map(|trial| {
            let failure = trial.failure().map(|(_, failure)| failure);
            JsonTried {
                passed: trial.passed(),
                outcome: outcome(trial),
                id: failure.and_then(|failure| failure.meaning.as_ref()).map(|meaning| meaning.id.clone()),
                line: failure.map(|failure| failure.line.clone()).unwrap_or_default(),
            }
        }),
    }
}

fn way_json(way: &Way) -> JsonWay {
    JsonWay {
        can: can(way),
        why: way.why.iter().map(reason_json).collect(),
        unknown: way.unknown.iter().map(|missing| format!("{}: {}", missing.topic, missing.why)).collect(),
    }
}

fn reason_json(reason: &Reason) -> JsonReason {
    JsonReason { id: reason.id, says: reason.says.clone(), fixes: reason.fixes.iter().map(fix_line).collect() }
}
