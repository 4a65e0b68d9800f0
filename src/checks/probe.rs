//! What a trial build showed, under the ids that the facts alone would have led to.

use super::{Case, kernel, remedy};
use crate::facts::probe::{Command, End, Failure, Meaning, OpTrial, Probe, Step, StepName};
use crate::finding::{Evidence, Finding, Fix, ProblemId, Severity};
use crate::knowledge::host::Wanted;
use crate::knowledge::schema::host::Need;
use crate::text::{clean, count};
use crate::version::Target;

/// One finding for each step that failed.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    let Some(probe) = case.facts.probe.value() else { return Vec::new() };
    // What a single op lacks is a finding only where the environment asks for that op by name.
    let asked = case.asked_ops();
    let by_name = |tried: &&OpTrial| case.know.ops.op.iter().any(|op| op.op == tried.op && asked.contains(&op.variable.as_ref()));
    let ops = probe.ops.value().map_or(&[][..], Vec::as_slice).iter().filter(by_name).flat_map(|tried| &tried.steps);
    let failed = probe.steps.iter().chain(ops).filter_map(|step| Some((step, step.failure()?)));
    let mut all: Vec<Finding> = Vec::new();
    for (step, failure) in failed {
        let finding = of_failure(case, step, failure);
        // Both halves can fail of one cause.
        match all.iter_mut().find(|known| known.id == finding.id) {
            Some(known) => known.evidence.extend(finding.evidence),
            None => all.push(finding),
        }
    }
    all
}

/// The finding behind one failed step.
pub fn of_failure(case: &Case<'_>, step: &Step, failure: &Failure) -> Finding {
    let id = id(case, step, failure);
    // A trial that was not made at all has its reason for a line, and no signature.
    let unmade = failure.meaning.as_ref().filter(|meaning| meaning.signature.is_empty()).map(|_| clean(&failure.line).into_owned());
    let said = failure.meaning.as_ref().and_then(|meaning| says(case, meaning));
    let title = said.or(unmade).unwrap_or_else(|| untold(step, failure));
    let mut finding = Finding::error(id, title).seen(evidence(step, failure)).then(then(step, failure));
    if let Some(command) = &step.command {
        finding = finding.seen(Evidence::new("command", line(command)));
    }
    let wanted = Wanted::default();
    let cures = match id {
        "libaio-missing" => remedy::install(case, Need::Libaio, &wanted, id),
        "nccl-header-missing" => remedy::install(case, Need::NcclHeaders, &wanted, id),
        "ds-kernels-missing" => {
            vec![remedy::pip_install(case, ["deepspeed-kernels"], "install the libraries that these ops link").curing(id)]
        }
        _ => Vec::new(),
    };
    let mut finding = cures.into_iter().fold(finding, Finding::fix);
    if let End::TimedOut { limit } = failure.ended {
        if let Some(load) = case.facts.probe.value().and_then(|probe| probe.load) {
            let cpus = case.facts.host.cpu.value().map(|cpu| format!(" on {}", count(cpu.count, "CPU"))).unwrap_or_default();
            finding = finding.seen(Evidence::new("load average", format!("{load}{cpus}")).said_by("/proc/loadavg, after the trial"));
        }
        if let Some(seconds) = longer(limit) {
            let argv = ["ds-doctor", "probe", "--timeout", &seconds.to_string()].map(str::to_owned);
            return finding.fix(Fix::run(argv, "try again with more time"));
        }
    }
    finding.fix(Fix::advice(format!(
        "`ds-doctor probe --keep -v` leaves the sources and prints each command; `ds-doctor explain {id}` has the cures"
    )))
}

/// Five times the limit, in whole seconds; `None`: more than `--timeout` takes, so that it hangs.
fn longer(limit: f64) -> Option<f64> {
    const MOST: f64 = 3600.0;
    (limit < MOST).then(|| (limit * 5.0).ceil().min(MOST))
}

/// Puts what the trial showed among what the facts showed: the same problem is one finding, with the trial's line as evidence.
pub fn join(found: &mut Vec<Finding>, shown: Vec<Finding>) {
    for finding in shown {
        // The loader's word for a runtime of another release than torch's.
        let same = |known: &&mut Finding| {
            known.id == finding.id || (finding.id == "libcudart-not-found" && known.id == "torch-nvcc-mismatch-major")
        };
        match found.iter_mut().find(same) {
            Some(known) => {
                known.severity = Severity::max(known.severity, finding.severity);
                known.confidence = finding.confidence;
                known.evidence.extend(finding.evidence);
            }
            None => found.push(finding),
        }
    }
}

fn id(case: &Case<'_>, step: &Step, failure: &Failure) -> ProblemId {
    let meant = failure.meaning.as_ref().and_then(|meaning| case.know.problem(&meaning.id)).map(|problem| problem.id);
    match (meant, &failure.ended) {
        (None | Some("missing-cxx-compiler"), End::Exit { .. }) if names_no_compiler(case, step, failure) => "cxx-env-var-malformed",
        (Some("nvcc-dropped-arch"), _) if is_newer_than_nvcc(case, failure) => "nvcc-too-old-for-gpu",
        (Some(id), _) => id,
        (None, End::Signal { .. }) => "probe-crashed",
        (None, End::TimedOut { .. }) => "probe-timeout",
        (None, End::NotStarted { .. }) if step.command.is_some() => match step.name {
            StepName::Compile if case.facts.env.filled("PYTORCH_NVCC").is_some() => "nvcc-wrapper",
            StepName::Compile => "toolkit-incomplete",
            _ if case.facts.env.filled("CXX").is_some() => "cxx-env-var-malformed",
            _ => "missing-cxx-compiler",
        },
        (None, _) => "probe-failed",
    }
}

/// nvcc says that there is no such file, and means the compiler that a variable names.
fn names_no_compiler(case: &Case<'_>, step: &Step, failure: &Failure) -> bool {
    let Some(named) = failure.line.strip_suffix(": No such file or directory").filter(|_| step.name == StepName::Compile) else {
        return false;
    };
    let variables = ["CC", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"];
    variables.iter().filter_map(|name| case.facts.env.text(name)).any(|value| value.contains(named))
}

/// Whether the arch that nvcc refuses is above all that it has, rather than one that it has dropped.
fn is_newer_than_nvcc(case: &Case<'_>, failure: &Failure) -> bool {
    let refused = failure.meaning.as_ref().and_then(|meaning| meaning.captures.get("arch")).and_then(|arch| arch.parse::<Target>().ok());
    let own = case.nvcc().ok().flatten().and_then(|nvcc| nvcc.targets.iter().map(|target| target.capability).max());
    matches!((refused, own), (Some(refused), Some(own)) if refused.capability > own)
}

/// The signature's sentence, filled in.
pub fn says(case: &Case<'_>, meaning: &Meaning) -> Option<String> {
    let signature = case.know.signatures.signature.iter().find(|signature| signature.name == meaning.signature)?;
    let mut text = signature.says.to_string();
    for (name, value) in &meaning.captures {
        text = text.replace(&format!("{{{name}}}"), value);
    }
    // A group that this pattern does not have: the sentence would show a hole.
    (!text.contains('{')).then_some(text)
}

fn untold(step: &Step, failure: &Failure) -> String {
    let what = program(step);
    match (&failure.ended, failure.line.is_empty()) {
        (End::NotStarted { .. }, _) => format!("{what} {}", failure.ended),
        (End::TimedOut { limit }, _) => format!("{what} was not done after {limit} s: it hangs, or this machine is busy"),
        (End::Signal { signal }, _) => format!("{what} was killed by signal {signal}"),
        (End::NoResult, true) => format!("{what} ends well and leaves no result"),
        (ended, true) => format!("{what} ends with {ended} and says nothing"),
        (_, false) => format!("{what} stops with `{}`", clean(&failure.line)),
    }
}

/// `nvcc`, `c++`, `the loader`
fn program(step: &Step) -> String {
    let word = step.command.as_ref().and_then(|command| command.argv.first()).map(ToString::to_string);
    match (step.name, word) {
        (StepName::Load, _) => "loading".to_owned(),
        (_, Some(word)) => format!("`{word}`"),
        (name, None) => format!("the step `{name}`"),
    }
}

fn evidence(step: &Step, failure: &Failure) -> Evidence {
    let line = if failure.line.is_empty() { failure.ended.to_string() } else { failure.line.clone() };
    let by = match step.name {
        StepName::Load => "the loader, in a child process".to_owned(),
        _ => format!("trial build, {}", failure.ended),
    };
    Evidence::new(step.name.to_string(), line).said_by(by)
}

fn then(step: &Step, failure: &Failure) -> String {
    let stops = match step.name {
        StepName::Compile => "every `.cu` file of a build stops there",
        StepName::HostCompile => "every `.cpp` file of a build stops there",
        StepName::Link => "every extension stops there when it is linked",
        StepName::Load => "an extension that was built stops there when it is imported",
    };
    match failure.ended {
        End::TimedOut { .. } => "a build would hang there, or be that slow".to_owned(),
        _ => stops.to_owned(),
    }
}

/// As it is typed: words that a shell would change are quoted. The folder for temporary files is of no interest then.
pub fn line(command: &Command) -> String {
    let env =
        command.env.iter().filter(|(name, _)| *name != "TMPDIR").map(|(name, value)| format!("{name}={}", quoted(&value.to_string())));
    env.chain(command.argv.iter().map(|word| quoted(&word.to_string()))).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+/.,:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// What the steps prove, in words; `None` where one failed. Ops that nothing was learnt of are counted.
pub fn proves(probe: &Probe) -> Option<String> {
    if probe.is_undecided() {
        return Some("toolchain not decided, a step was not done in its time".to_owned());
    }
    let run = probe.execution.value().map_or_else(|| "execution not proven".to_owned(), kernel::proves);
    let undecided = match probe.undecided_ops() {
        0 => String::new(),
        number => format!("; {} not decided, not done in their time", count(number, "op")),
    };
    probe.proven().then(|| format!("toolchain proven, {run}{undecided}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Purpose;
    use crate::facts::observed::Observed;
    use crate::facts::probe::Outcome;
    use crate::facts::snapshot::Snapshot;
    use crate::knowledge::Knowledge;

    fn trial(op: &str, id: &str, line: &str) -> OpTrial {
        let meaning = Meaning { id: id.to_owned(), ..Meaning::default() };
        let failure =
            Failure { ended: End::NotStarted { why: String::new() }, line: line.to_owned(), output: String::new(), meaning: Some(meaning) };
        let step = Step { name: StepName::Compile, command: None, outcome: Outcome::Failed(Box::new(failure)), millis: 0 };
        OpTrial { op: op.to_owned(), steps: vec![step] }
    }

    /// The ids and titles where the environment sets these variables.
    fn found(asked: &[&str]) -> Vec<(String, String)> {
        let mut facts = Snapshot::default();
        for name in asked {
            facts.env.set(name, "1");
        }
        let lacking = vec![
            trial("async_io", "libaio-missing", "/usr/bin/ld: cannot find -laio"),
            trial("cutlass_ops", "ds-kernels-missing", "the Python package deepspeed-kernels is not installed"),
        ];
        facts.probe = Observed::seen(Probe { ops: Observed::seen(lacking), ..Probe::default() });
        let know = Knowledge::embedded();
        let case = Case::new(&facts, &know, Purpose::Both, &[]);
        findings(&case).into_iter().map(|finding| (finding.id.to_owned(), finding.title)).collect()
    }

    #[test]
    fn what_an_op_lacks_is_a_finding_where_that_op_is_asked_for() {
        assert!(found(&[]).is_empty());
        assert!(found(&["DS_BUILD_OPS", "DS_BUILD_UTILS"]).is_empty());
        let lacks = found(&["DS_BUILD_CUTLASS_OPS"]);
        assert_eq!(lacks, [("ds-kernels-missing".to_owned(), "the Python package deepspeed-kernels is not installed".to_owned())]);
        assert_eq!(found(&["DS_BUILD_AIO", "DS_BUILD_CUTLASS_OPS"]).len(), 2);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic)]
mod of_steps {
    use super::super::sample::healthy;
    use super::super::{Judged, Purpose, judge};
    use super::*;
    use crate::facts::observed::Observed;
    use crate::facts::probe::{Outcome, Probe};
    use crate::facts::raw::Raw;
    use crate::facts::snapshot::Snapshot;
    use crate::finding::Action;
    use crate::knowledge::Knowledge;

    /// Id, signature, and what it captured.
    type Meant<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

    fn failing(name: StepName, ended: End, line: &str, meaning: Option<Meant<'_>>) -> Snapshot {
        let meaning = meaning.map(|(id, signature, captures)| Meaning {
            id: id.to_owned(),
            signature: signature.to_owned(),
            captures: captures.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        });
        let argv = ["c++", "it's.o", "-lcudart"].map(Raw::from).to_vec();
        let command = Some(Command {
            argv,
            env: [("LC_ALL".to_owned(), "C".into()), ("TMPDIR".to_owned(), "/x".into())].into(),
            ..Command::default()
        });
        let failure = Failure { ended, line: line.to_owned(), output: line.to_owned(), meaning };
        let step = Step { name, command, outcome: Outcome::Failed(Box::new(failure)), millis: 1 };
        let mut facts = healthy();
        facts.probe = Observed::seen(Probe { steps: vec![step], ..Probe::default() });
        facts
    }

    fn judged(facts: &Snapshot) -> Judged {
        judge(&Case::new(facts, &Knowledge::embedded(), Purpose::Build, &[]), &|_| true)
    }

    fn ids(facts: &Snapshot) -> Vec<&'static str> {
        findings(&Case::new(facts, &Knowledge::embedded(), Purpose::Build, &[])).iter().map(|finding| finding.id).collect()
    }

    #[test]
    fn a_known_failure_says_what_was_caught() {
        let known = ("linker-cannot-find-cuda-lib", "linker-cuda-library", &[("library", "cudart")][..]);
        let facts = failing(StepName::Link, End::Exit { code: 1 }, "ld: cannot find -lcudart", Some(known));
        let judged = judged(&facts);
        // Under its cause: the sample has no toolkit.
        let all = judged.findings.iter().flat_map(|root| [root].into_iter().chain(&root.folded));
        let finding = all.into_iter().find(|finding| finding.id == known.0).unwrap();
        assert_eq!(finding.title, "the linker finds no `libcudart.so`");
        assert!(finding.evidence.iter().any(|one| one.value == "LC_ALL=C c++ 'it'\\''s.o' -lcudart"), "{finding:?}");
        assert!(!judged.passed.contains(&known.0) && judged.not_applicable.iter().all(|(id, _)| *id != known.0));
    }

    #[test]
    fn an_unknown_one_keeps_its_words() {
        let facts = failing(StepName::Compile, End::Exit { code: 2 }, "x.cu(1): error: \u{1b}[2J", None);
        let judged = judged(&facts);
        let finding = judged.findings.iter().find(|finding| finding.id == "probe-failed").unwrap();
        assert!(finding.title.contains("x.cu(1): error: \\u{1b}[2J"), "{}", finding.title);
    }

    #[test]
    fn how_a_program_ended_is_a_problem_of_its_own() {
        let of = |name, ended| ids(&failing(name, ended, "", None));
        assert_eq!(of(StepName::Compile, End::Signal { signal: 11 }), ["probe-crashed"]);
        assert_eq!(of(StepName::Link, End::TimedOut { limit: 1.0 }), ["probe-timeout"]);
        assert_eq!(of(StepName::Compile, End::NotStarted { why: "x".to_owned() }), ["toolkit-incomplete"]);
        assert_eq!(of(StepName::HostCompile, End::NotStarted { why: "x".to_owned() }), ["missing-cxx-compiler"]);
        let mut facts = failing(StepName::HostCompile, End::NotStarted { why: "x".to_owned() }, "", None);
        facts.env.set("CXX", "/none");
        assert_eq!(ids(&facts), ["cxx-env-var-malformed"]);
    }

    #[test]
    fn more_time_is_the_cure_of_too_little() {
        let argv = |limit| {
            let mut facts = failing(StepName::HostCompile, End::TimedOut { limit }, "", None);
            if let Observed::Seen { value } = &mut facts.probe {
                value.load = Some(31.5);
            }
            let found = findings(&Case::new(&facts, &Knowledge::embedded(), Purpose::Build, &[]));
            let [finding] = found.as_slice() else { panic!("{found:?}") };
            assert!(
                finding.title.ends_with(&format!("was not done after {limit} s: it hangs, or this machine is busy")),
                "{}",
                finding.title
            );
            assert!(finding.evidence.iter().any(|one| one.what == "load average" && one.value.starts_with("31.5")), "{finding:?}");
            finding.fixes.iter().find_map(|fix| match &fix.action {
                Action::Run { argv, .. } => Some(argv.join(" ")),
                _ => None,
            })
        };
        assert_eq!(argv(120.0).as_deref(), Some("ds-doctor probe --timeout 600"));
        assert_eq!(argv(0.5).as_deref(), Some("ds-doctor probe --timeout 3"));
        assert_eq!(argv(1800.0).as_deref(), Some("ds-doctor probe --timeout 3600"));
        assert_eq!(argv(3600.0), None);
    }

    #[test]
    fn the_same_problem_is_one_finding() {
        let mut found = vec![Finding::warning("tmp-noexec", "by the facts"), Finding::error("torch-nvcc-mismatch-major", "13 and 12")];
        let shown = |id| Finding::error(id, "by the trial").seen(Evidence::new("load", "words"));
        join(&mut found, vec![shown("tmp-noexec"), shown("libcudart-not-found"), shown("disk-full-tmp")]);
        let summary: Vec<_> =
            found.iter().map(|finding| (finding.id, finding.severity, finding.evidence.len(), finding.title.as_str())).collect();
        assert_eq!(
            summary,
            [
                ("tmp-noexec", Severity::Error, 1, "by the facts"),
                ("torch-nvcc-mismatch-major", Severity::Error, 1, "13 and 12"),
                ("disk-full-tmp", Severity::Error, 1, "by the trial"),
            ]
        );
    }
}
