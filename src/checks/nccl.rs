//! What the NCCL test showed. Quiet where it was not run.

use super::probe::says;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::nccl::{End, Member, Nccl, Op, Run, Setting, Stage, Step, result_name, size};
use crate::facts::observed::{Missing, Observed};
use crate::finding::{Evidence, Finding, Fix, Severity};
use crate::text::{count, join};

pub const CHECKS: &[Check] = &[
    Check { id: NOT_FOUND, run: |case| judge(case, NOT_FOUND) },
    Check { id: IFNAME, run: |case| judge(case, IFNAME) },
    Check { id: COMM_ID, run: |case| judge(case, COMM_ID) },
    Check { id: NO_INTERFACE, run: |case| judge(case, NO_INTERFACE) },
    Check { id: INIT, run: |case| judge(case, INIT) },
    Check { id: CRASHED, run: |case| judge(case, CRASHED) },
    Check { id: HANG, run: |case| judge(case, HANG) },
    Check { id: COLLECTIVE, run: |case| judge(case, COLLECTIVE) },
    Check { id: WRONG, run: |case| judge(case, WRONG) },
];

const NOT_FOUND: &str = "nccl-not-found";
const IFNAME: &str = "nccl-ifname-no-match";
const COMM_ID: &str = "nccl-comm-id-set";
const NO_INTERFACE: &str = "nccl-no-interface";
const INIT: &str = "nccl-init-failed";
const CRASHED: &str = "nccl-crashed";
const HANG: &str = "nccl-hang";
const COLLECTIVE: &str = "nccl-collective-failed";
const WRONG: &str = "nccl-wrong-result";

fn judge(case: &Case<'_>, id: &'static str) -> Judgement {
    let nccl = match &case.facts.nccl {
        Observed::Skipped { why } => return Ok(Verdict::not_applicable(format!("NCCL was not tested: {why}"))),
        Observed::Absent { looked } if id == NOT_FOUND => return Ok(Verdict::found(absent(case, looked))),
        Observed::Absent { .. } => return Ok(Verdict::not_applicable("there is no libnccl")),
        Observed::Failed { why } => return Err(Missing { topic: "nccl", why: why.clone(), failed: true }),
        Observed::Seen { value } => value,
    };
    let members = std::iter::once(&nccl.opening).chain(nccl.run.value().into_iter().flat_map(|run| &run.ranks));
    // The doctor's own failure says nothing of NCCL.
    for member in members {
        let why = match &member.end {
            End::NotStarted { why } => format!("a process of the test could not be started: {why}"),
            End::Garbage { begin } => format!("a process of the test said what is no answer: {begin}"),
            _ => continue,
        };
        return Err(Missing { topic: "nccl", why, failed: true });
    }
    let found = all(case, nccl);
    let clear = found.iter().all(|finding| finding.severity == Severity::Info);
    let own: Vec<Finding> = found.into_iter().filter(|finding| finding.id == id).collect();
    // What was not reached has not been passed.
    if own.is_empty() && !clear {
        return Ok(Verdict::not_applicable("the test did not come to its end"));
    }
    if own.is_empty() && nccl.run.value().is_none() && [INIT, CRASHED, HANG, COLLECTIVE, WRONG].contains(&id) {
        return Ok(Verdict::not_applicable("no communicator was made"));
    }
    Ok(Verdict::of(own))
}

fn absent(case: &Case<'_>, looked: &[String]) -> Finding {
    let torch = case.torch().ok().flatten();
    let then = match torch {
        Some(_) => "`import torch` stops with `ImportError: libnccl.so.2: cannot open shared object file: No such file or directory`",
        None => "a program that opens `libnccl.so.2` stops",
    };
    let mut finding = Finding::error(NOT_FOUND, "no `libnccl.so.2` is found").then(then);
    for place in looked {
        finding = finding.seen(Evidence::new("not there", place.as_str()));
    }
    match torch.and_then(|torch| torch.nccl.as_ref()) {
        Some((package, version)) => {
            let python = case.python().ok().flatten().map_or("python".to_owned(), |python| python.path.to_string());
            let pin = format!("{package}=={version}");
            let argv = [python.as_str(), "-m", "pip", "install", "--force-reinstall", "--no-deps", &pin];
            finding.fix(Fix::run(argv, "the release that torch asks for").curing(NOT_FOUND))
        }
        None => finding.fix(Fix::advice("install torch, whose packages bring NCCL, or your distribution's or NVIDIA's `libnccl2`")),
    }
}

/// Everything that the test showed to be wrong.
fn all(case: &Case<'_>, nccl: &Nccl) -> Vec<Finding> {
    let mut found: Vec<Finding> = fallen(case, nccl, &nccl.opening).into_iter().collect();
    if let Some(run) = nccl.run.value() {
        found.extend(ranks(case, nccl, run));
        found.extend(hang(case, nccl, run));
        found.extend(wrong(nccl, run));
    }
    if found.is_empty() {
        found.extend(left_over(nccl));
    }
    found.into_iter().map(|finding| finding.seen(library(nccl))).collect()
}

fn library(nccl: &Nccl) -> Evidence {
    let version = nccl.version.as_ref().or(nccl.library.release.as_ref());
    let version = version.map_or("of unknown release".to_owned(), ToString::to_string);
    Evidence::new("NCCL", version).at(&nccl.library.path).said_by(nccl.library.why.clone())
}

fn setting<'n>(nccl: &'n Nccl, name: &str) -> Option<&'n Setting> {
    nccl.settings.iter().find(|setting| setting.name == name)
}

/// `rank 1 (GPU 3)`
fn name(member: &Member) -> String {
    match member.device {
        Some(device) => format!("rank {} (GPU {device})", member.rank),
        None => "the process that opened it".to_owned(),
    }
}

fn step(member: &Member) -> String {
    member.last.map_or("its start".to_owned(), |step| step.to_string())
}

/// What one process that did not come to its end shows.
fn fallen(case: &Case<'_>, nccl: &Nccl, member: &Member) -> Option<Finding> {
    let alone = member.device.is_none();
    let finding = match &member.end {
        End::Done | End::NotStarted { .. } | End::Garbage { .. } => return None,
        // Told for all ranks at once.
        End::Stopped if !alone => return None,
        End::Stopped => {
            let title = format!("NCCL did not come back from {} within {} s", step(member), nccl.patience);
            Finding::error(HANG, title).then("programs that use it wait for ever at the same place")
        }
        End::Crashed { signal, words } => {
            let title = format!("{} died in {} (signal {signal}{})", name(member), step(member), signal_name(*signal));
            spoken(Finding::error(CRASHED, title), words).then("training dies in the same call, and the other ranks wait for it")
        }
        End::Ended { code, words } => {
            let code = code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
            let title = format!("{} ended inside {}{code}", name(member), step(member));
            spoken(Finding::error(CRASHED, title), words).then("training ends in the same call, and the other ranks wait for it")
        }
        End::Failed(failure) => match member.last {
            Some(Step::Open) | None => {
                let title = format!("`{}` cannot be loaded", nccl.library.path);
                Finding::error(NOT_FOUND, title)
                    .seen(Evidence::new("loader", failure.why.clone()))
                    .then("`import torch` stops with the loader's message, or training does where it first calls NCCL")
                    .fix(Fix::advice("install torch's own NCCL anew: `python -m pip install --force-reinstall --no-deps` with the `nvidia-nccl` package that `python -m pip show torch` names"))
            }
            // No device is no fault of NCCL's.
            Some(Step::Driver) if failure.code == Some(100) && alone => return None,
            Some(Step::Driver | Step::Context | Step::Memory) => {
                let what =
                    if alone { "no GPU can be used".to_owned() } else { format!("GPU {} cannot be used", member.device.unwrap_or(0)) };
                let finding = Finding::error(INIT, format!("{what}: {failure}")).then("no communicator comes about without it");
                if failure.code == Some(2) {
                    finding.fix(Fix::advice("the GPU's memory is full: `nvidia-smi` shows by whom; wait, or name others with `--devices`"))
                } else {
                    finding.fix(Fix::advice("`ds-doctor check --for run` says what keeps the driver from answering"))
                }
            }
            Some(Step::Collective { op, bytes, .. }) => {
                let title = format!("{} of {} fails on {}: {failure}", op.name(), size(bytes), name(member));
                Finding::error(COLLECTIVE, title).then("training stops with the same error where ranks first exchange gradients")
            }
            Some(Step::Close) => Finding::error(COLLECTIVE, format!("closing the communicator fails on {}: {failure}", name(member))),
            Some(Step::Version | Step::UniqueId | Step::Init) => set_up(nccl, member, &failure.to_string()),
        },
    };
    Some(explained(case, nccl, member, finding))
}

fn spoken(finding: Finding, words: &str) -> Finding {
    if words.is_empty() { finding } else { finding.seen(Evidence::new("last words", words)) }
}

/// Signals that say something. Source: signal(7).
fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => ", SIGILL",
        6 => ", SIGABRT",
        7 => ", SIGBUS: as a rule a full /dev/shm",
        9 => ", SIGKILL: as a rule for want of memory",
        11 => ", SIGSEGV",
        _ => "",
    }
}

/// A unique id or a communicator that did not come about: by which of the known reasons.
fn set_up(nccl: &Nccl, member: &Member, failure: &str) -> Finding {
    let known = member.meaning.as_ref().map(|meaning| meaning.id.as_str());
    let comm_id = setting(nccl, "NCCL_COMM_ID");
    if let Some(setting) = comm_id.filter(|_| known == Some(COMM_ID)) {
        let title = format!("`NCCL_COMM_ID` is `{}`, where NCCL cannot meet: {failure}", setting.value);
        return Finding::error(COMM_ID, title)
            .seen(Evidence::new("NCCL_COMM_ID", setting.value.clone()).said_by(setting.source.clone()))
            .then("every communicator fails so; torch hands its own address round and needs none")
            .fix(without(setting, COMM_ID));
    }
    if known == Some(NO_INTERFACE) {
        if let Some(setting) = setting(nccl, "NCCL_SOCKET_IFNAME").filter(|setting| setting.value.len() > 1) {
            let title = format!("`NCCL_SOCKET_IFNAME` is `{}`, and no network interface matches it: {failure}", setting.value);
            return Finding::error(IFNAME, title)
                .seen(Evidence::new("NCCL_SOCKET_IFNAME", setting.value.clone()).said_by(setting.source.clone()))
                .then("no communicator comes about: torch stops with `ncclInvalidUsage` or `ncclSystemError` and `Bootstrap : no socket interface found`")
                .fix(without(setting, IFNAME))
                .fix(Fix::advice("name one that is there (`ip -br addr`): an entry is the beginning of a name, `=` before it makes it the whole name, `^` excludes").or(1));
        }
        return Finding::error(NO_INTERFACE, format!("NCCL finds no network interface that is up and has an address: {failure}"))
            .then("no communicator comes about, not even between GPUs of one machine: torch stops with `Bootstrap : no socket interface found`")
            .fix(Fix::run_as_root(["ip", "link", "set", "lo", "up"], "enough for one machine").curing(NO_INTERFACE))
            .fix(Fix::advice("start the container with a network: `--network=host` rather than `--network=none`").or(1));
    }
    let what = if member.device.is_none() {
        "NCCL makes no unique id".to_owned()
    } else {
        format!("NCCL makes no communicator on {}", name(member))
    };
    Finding::error(INIT, format!("{what}: {failure}")).then("torch stops with the same error at its first collective")
}

/// Takes a setting away where it was made.
fn without(setting: &Setting, id: &'static str) -> Fix {
    if setting.source == "environment" {
        return Fix::unset(&setting.name, "NCCL finds the way by itself").curing(id);
    }
    Fix::edit(&setting.source.as_str().into(), format!("remove the line `{}=…`", setting.name), "no `env` shows this file").curing(id)
}

/// NCCL's own warning, what it means, and what to do about it.
fn explained(case: &Case<'_>, nccl: &Nccl, member: &Member, mut finding: Finding) -> Finding {
    let last_error = match &member.end {
        End::Failed(failure) => Some(&failure.last_error).filter(|text| !text.is_empty()),
        _ => None,
    };
    if let Some(said) = member.warnings.first().or(last_error) {
        finding = finding.seen(Evidence::new("NCCL says", said.clone()).said_by(name(member)));
    }
    let Some(meaning) = &member.meaning else { return finding };
    // The id is the meaning already.
    if [IFNAME, COMM_ID, NO_INTERFACE].contains(&finding.id) {
        return finding;
    }
    if let Some(says) = says(case, meaning) {
        finding = finding.seen(Evidence::new("which means", says));
    }
    match meaning.signature.as_str() {
        "nccl-shm-full" | "nccl-shm-create" => finding
            .fix(Fix::run_as_root(["mount", "-o", "remount,size=8G", "/dev/shm"], "ranks of one machine exchange data through it"))
            .fix(Fix::advice("in a container: `docker run --shm-size=8g`, or `--ipc=host`").or(1))
            .fix(Fix::set("NCCL_SHM_DISABLE", "1", "slower, and needs no /dev/shm").review().or(2)),
        "nccl-p2p-nvlink" => finding.fix(Fix::advice("look for Xid lines (`sudo dmesg | grep -i xid`) and at `nvidia-smi nvlink -s`; on NVSwitch machines fabric manager and driver must be of one release")),
        "nccl-memlock" => finding.fix(Fix::advice("raise the limit of locked memory: `docker run --ulimit memlock=-1`, or `* - memlock unlimited` in /etc/security/limits.conf")),
        "nccl-duplicate-gpu" => finding.fix(Fix::advice("one rank for each GPU: see which device each process selects")),
        "nccl-version-mismatch" => finding.fix(Fix::advice("the same NCCL for all ranks: compare LD_LIBRARY_PATH and LD_PRELOAD of the processes")),
        "nccl-cuda-memory" => finding.fix(Fix::advice("the GPU's memory is full: `nvidia-smi` shows by whom; wait, or name others with `--devices`")),
        "nccl-driver-too-old" => {
            let cuda = nccl.library.cuda.map(|cuda| format!(" (it is built for CUDA {cuda})")).unwrap_or_default();
            finding.fix(Fix::advice(format!("this NCCL needs a newer driver{cuda}: `ds-doctor explain driver-too-old`")))
        }
        _ => finding.fix(Fix::advice(format!("`ds-doctor explain {}`", meaning.id))),
    }
}

/// Ranks that fell out. What only tells that a peer has gone follows from the peer's end.
fn ranks(case: &Case<'_>, nccl: &Nccl, run: &Run) -> Option<Finding> {
    let remote =
        |member: &&Member| matches!(&member.end, End::Failed(failure) if result_name(failure.code.unwrap_or(0)) == "ncclRemoteError");
    let out = || run.ranks.iter().filter(|member| !matches!(member.end, End::Done | End::Stopped));
    let crashed = out().find(|member| matches!(member.end, End::Crashed { .. } | End::Ended { .. }));
    let first = crashed.or_else(|| out().find(|member| !remote(member))).or_else(|| out().next())?;
    let mut finding = fallen(case, nccl, first)?;
    for other in out().filter(|member| member.rank != first.rank) {
        let how = match &other.end {
            End::Failed(failure) => failure.to_string(),
            End::Crashed { signal, .. } => format!("signal {signal} in {}", step(other)),
            _ => format!("ended in {}", step(other)),
        };
        finding = finding.seen(Evidence::new(name(other), how));
    }
    Some(finding)
}

/// Nothing moved any more: who arrived at the furthest step, and who did not.
fn hang(case: &Case<'_>, nccl: &Nccl, run: &Run) -> Option<Finding> {
    let waited = run.hung?;
    // What one rank's crash or error makes of the others is no hang of its own.
    if run.ranks.iter().any(|member| !matches!(member.end, End::Done | End::Stopped)) {
        return None;
    }
    let furthest = run.ranks.iter().filter_map(|member| member.last).max()?;
    // Writing the values is before the step.
    let arrived = |member: &&Member| member.last.is_some_and(|last| last >= begin(furthest));
    let names = |members: Vec<&Member>| -> Option<String> {
        let all: Vec<String> = members.into_iter().map(name).collect();
        (!all.is_empty()).then(|| join(&all))
    };
    let stopped = || run.ranks.iter().filter(|member| member.end == End::Stopped);
    let missing = stopped().filter(|member| !arrived(member)).collect::<Vec<_>>();
    let in_call = stopped().filter(|member| arrived(member) && matches!(member.last, Some(Step::Collective { stage: Stage::Call, .. })));
    let in_call: Vec<&Member> = in_call.collect();
    let waiting = stopped().filter(|member| arrived(member)).count();
    let title = if let Some(names) = names(missing.clone()) {
        format!("{furthest} did not finish within {waited} s: {names} did not arrive")
    } else if !in_call.is_empty() && in_call.len() < waiting {
        let names = names(in_call).unwrap_or_default();
        format!("{furthest} did not finish within {waited} s: {names} did not come back from the call, and the others wait")
    } else if let [alone] = run.ranks.as_slice() {
        format!("{furthest} did not finish within {waited} s on {}", name(alone))
    } else {
        format!("{furthest} did not finish within {waited} s, though all {} arrived", count(run.ranks.len(), "rank"))
    };
    let mut finding =
        Finding::error(HANG, title).then("training stops moving at its first collective, until torch's time limit of 10 minutes or more");
    for member in stopped() {
        finding = finding.seen(Evidence::new(name(member), format!("last at {}", stage(member))));
    }
    for member in run.ranks.iter().filter(|member| !member.warnings.is_empty()) {
        finding = explained(case, nccl, member, finding);
    }
    if run.ranks.len() > 1 {
        for (variable, means) in [
            (
                "NCCL_P2P_DISABLE",
                "where this passes, the direct path between the GPUs is the cause: PCIe ACS or an IOMMU, or a faulty link",
            ),
            ("NCCL_SHM_DISABLE", "where this passes, /dev/shm is"),
        ] {
            if setting(nccl, variable).is_none() {
                finding = finding.fix(Fix::run(["env", &format!("{variable}=1"), "ds-doctor", "nccl"], means));
            }
        }
    }
    Some(finding)
}

/// The stage of a step from which a rank counts as having arrived.
fn begin(step: Step) -> Step {
    match step {
        Step::Collective { op, bytes, .. } => Step::Collective { op, bytes, stage: Stage::Call },
        step => step,
    }
}

fn stage(member: &Member) -> String {
    let words = match member.last {
        Some(Step::Collective { stage: Stage::Fill, .. }) => "writing the values for ",
        Some(Step::Collective { stage: Stage::Call, .. }) => "in the call for ",
        Some(Step::Collective { stage: Stage::Wait, .. }) => "waiting for the GPU in ",
        Some(Step::Collective { stage: Stage::Measure, .. }) => "repeating ",
        Some(Step::Collective { stage: Stage::Compare, .. }) => "comparing the values of ",
        _ => "",
    };
    format!("{words}{}", step(member))
}

fn wrong(nccl: &Nccl, run: &Run) -> Option<Finding> {
    let bad: Vec<_> = run.rows.iter().filter(|row| !row.wrong.is_empty()).collect();
    let first = bad.first()?;
    let ops: Vec<&str> = Op::ALL.into_iter().filter(|op| bad.iter().any(|row| row.op == *op)).map(Op::name).collect();
    let total: u64 = bad.iter().flat_map(|row| &row.wrong).map(|wrong| wrong.elements).sum();
    let title = format!(
        "{} gave wrong values without an error: {} in {}",
        join(&ops),
        count(usize::try_from(total).unwrap_or(usize::MAX), "element"),
        count(bad.len(), "operation")
    );
    let mut finding = Finding::error(WRONG, title).then("gradients are corrupted silently: NaN, a loss that jumps, ranks that drift apart");
    for wrong in &first.wrong {
        let what = format!("{} of {} on rank {}", first.op.name(), size(first.bytes), wrong.rank);
        let value = format!("element {} is {} instead of {}, {} wrong in all", wrong.first, wrong.got, wrong.expected, wrong.elements);
        finding = finding.seen(Evidence::new(what, value));
    }
    if run.ranks.len() > 1 && setting(nccl, "NCCL_P2P_DISABLE").is_none() {
        finding = finding.fix(Fix::run(
            ["env", "NCCL_P2P_DISABLE=1", "ds-doctor", "nccl"],
            "where this is right, the path between the GPUs corrupts data: PCIe ACS, an IOMMU, or a faulty link",
        ));
    }
    Some(finding.fix(Fix::advice(
        "find the pair with `ds-doctor nccl --devices 0,1` and so on, and look for Xid and AER lines: `sudo dmesg | grep -iE 'xid|aer'`",
    )))
}

/// It works here, and is a trap elsewhere.
fn left_over(nccl: &Nccl) -> Option<Finding> {
    let setting = setting(nccl, "NCCL_COMM_ID").filter(|setting| !setting.value.is_empty())?;
    let finding = Finding::info(COMM_ID, format!("`NCCL_COMM_ID` is `{}`: every communicator meets there", setting.value))
        .seen(Evidence::new("NCCL_COMM_ID", setting.value.clone()).said_by(setting.source.clone()))
        .then("two communicators of one job want the same address, and ranks outside its network do not reach it; torch needs none")
        .fix(without(setting, COMM_ID));
    Some(finding)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::super::sample::machine;
    use super::super::{Purpose, judge as judge_all};
    use super::*;
    use crate::facts::nccl::{Failure, Row, Tested, Wrong};
    use crate::facts::snapshot::Snapshot;
    use crate::finding::Action;
    use crate::knowledge::Knowledge;

    fn member(rank: u32, last: Step, end: End) -> Member {
        Member { rank, device: Some(rank + 4), last: Some(last), end, warnings: Vec::new(), meaning: None }
    }

    fn failed(call: &str, code: u32) -> End {
        End::Failed(Failure {
            call: call.to_owned(),
            code: Some(code),
            why: format!("{} ({code})", result_name(code)),
            last_error: String::new(),
        })
    }

    fn at(stage: Stage) -> Step {
        Step::Collective { op: Op::AllReduce, bytes: 8192, stage }
    }

    fn tested(ranks: Vec<Member>, hung: Option<f64>) -> Nccl {
        Nccl {
            library: Tested { path: "/site/nvidia/nccl/lib/libnccl.so.2".into(), why: "torch loads it".to_owned(), ..Tested::default() },
            patience: 60.0,
            settings: Vec::new(),
            opening: Member { device: None, ..member(0, Step::UniqueId, End::Done) },
            version: "2.28.9".parse().ok(),
            devices: Observed::seen(Vec::new()),
            run: Observed::seen(Run { ranks, rows: Vec::new(), hung }),
        }
    }

    /// Findings of the topic, and what is neither found nor passed.
    fn said(nccl: Observed<Nccl>) -> (Vec<Finding>, Vec<&'static str>) {
        let facts = Snapshot { nccl, ..machine() };
        let know = Knowledge::embedded();
        let case = Case::new(&facts, &know, Purpose::Run, &[]);
        let judged = judge_all(&case, &|id| id.starts_with("nccl-") && CHECKS.iter().any(|check| check.id == id));
        let findings = judged.findings.into_iter().chain(judged.notes).collect();
        (findings, judged.not_applicable.iter().map(|(id, _)| *id).chain(judged.undecided.iter().map(|one| one.id)).collect())
    }

    fn one(nccl: Nccl) -> Finding {
        match said(Observed::seen(nccl)).0.as_slice() {
            [one] => one.clone(),
            other => panic!("{other:#?}"),
        }
    }

    #[test]
    fn what_was_not_tested_is_neither_found_nor_passed() {
        let all: Vec<&str> = CHECKS.iter().map(|check| check.id).collect();
        assert_eq!(said(Observed::default()), (Vec::new(), all.clone()));
        assert_eq!(said(Observed::failed("no such thing")).1, all);
        let opened = Nccl { run: Observed::skipped("no GPU"), ..tested(Vec::new(), None) };
        assert_eq!(said(Observed::seen(opened)).1, [INIT, CRASHED, HANG, COLLECTIVE, WRONG]);
        let whole = tested(vec![member(0, Step::Close, End::Done)], None);
        assert_eq!(said(Observed::seen(whole)), (Vec::new(), Vec::new()));
        assert_eq!(said(Observed::absent(["/x"])).0.iter().map(|finding| finding.id).collect::<Vec<_>>(), [NOT_FOUND]);
    }

    #[test]
    fn a_hang_tells_who_did_not_arrive() {
        let hung = |stages: [Step; 3]| {
            let ranks = (0..).zip(stages).map(|(rank, step)| member(rank, step, End::Stopped)).collect();
            one(tested(ranks, Some(60.0)))
        };
        let finding = hung([at(Stage::Wait), at(Stage::Fill), at(Stage::Call)]);
        assert_eq!(finding.title, "all-reduce of 8 KiB did not finish within 60 s: rank 1 (GPU 5) did not arrive");
        assert!(
            finding.evidence.iter().any(|one| one.what == "rank 2 (GPU 6)" && one.value == "last at in the call for all-reduce of 8 KiB")
        );
        let finding = hung([at(Stage::Wait), at(Stage::Measure), at(Stage::Call)]);
        assert!(finding.title.ends_with("rank 2 (GPU 6) did not come back from the call, and the others wait"), "{}", finding.title);
        let finding = hung([at(Stage::Wait); 3]);
        assert!(finding.title.ends_with("though all 3 ranks arrived"), "{}", finding.title);
        let variables = finding.fixes.iter().filter_map(|fix| match &fix.action {
            Action::Run { argv, .. } => argv.get(1).cloned(),
            _ => None,
        });
        assert_eq!(variables.collect::<Vec<_>>(), ["NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"]);
        let finding = hung([Step::Init, Step::Init, Step::Context]);
        assert_eq!(finding.title, "`ncclCommInitRank` did not finish within 60 s: rank 2 (GPU 6) did not arrive");
    }

    #[test]
    fn the_peer_that_fell_out_is_the_cause() {
        let crash = || End::Crashed { signal: 7, words: String::new() };
        let remote = || failed("ncclAllReduce", 6);
        let finding = one(tested(vec![member(0, at(Stage::Wait), remote()), member(1, at(Stage::Call), crash())], None));
        assert_eq!(finding.title, "rank 1 (GPU 5) died in all-reduce of 8 KiB (signal 7, SIGBUS: as a rule a full /dev/shm)");
        assert!(finding.evidence.iter().any(|one| one.value == "ncclAllReduce answers ncclRemoteError (6)"));
        let ranks = vec![member(0, at(Stage::Wait), remote()), member(1, at(Stage::Wait), failed("ncclAllReduce", 1))];
        let finding = one(tested(ranks, None));
        assert_eq!(finding.title, "all-reduce of 8 KiB fails on rank 1 (GPU 5): ncclAllReduce answers ncclUnhandledCudaError (1)");
        assert_eq!(finding.id, COLLECTIVE);
    }

    #[test]
    fn no_gpu_is_no_fault() {
        let none = |code| {
            let mut nccl = tested(Vec::new(), None);
            nccl.opening.last = Some(Step::Driver);
            nccl.opening.end = failed("cuInit", code);
            nccl.run = Observed::skipped("no GPU");
            said(Observed::seen(nccl)).0
        };
        assert!(none(100).is_empty());
        assert_eq!(none(802).iter().map(|finding| finding.id).collect::<Vec<_>>(), [INIT]);
    }

    #[test]
    fn wrong_values_and_a_left_over_address() {
        let mut nccl = tested(vec![member(0, Step::Close, End::Done), member(1, Step::Close, End::Done)], None);
        nccl.settings =
            vec![Setting { name: "NCCL_COMM_ID".to_owned(), value: "10.0.0.1:9".to_owned(), source: "/etc/nccl.conf".to_owned() }];
        let finding = one(nccl.clone());
        assert_eq!((finding.id, finding.severity), (COMM_ID, Severity::Info));
        assert!(matches!(&finding.fixes[0].action, Action::Edit { file, .. } if file.to_string() == "/etc/nccl.conf"));
        let wrong = Wrong { rank: 1, elements: 2, first: 5, expected: 3.0, got: "NaN".to_owned() };
        nccl.run.value_mut().unwrap().rows = vec![Row { op: Op::AllReduce, bytes: 8, ranks: 2, seconds: 1.0, wrong: vec![wrong] }];
        let finding = one(nccl);
        assert_eq!(finding.title, "all-reduce gave wrong values without an error: 2 elements in 1 operation");
        assert_eq!(finding.evidence[0].value, "element 5 is NaN instead of 3, 2 wrong in all");
    }
}
