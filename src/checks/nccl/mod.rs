//! What the NCCL test showed. Quiet where it was not run. What a single rank shows is told in [`rank`], what all together show in [`run`].

mod rank;
mod run;

use self::rank::{fallen, without};
use super::{Case, Check, Judgement, Verdict};
use crate::facts::nccl::{End, Member, Nccl, Setting};
use crate::facts::observed::{Missing, Observed};
use crate::finding::{Evidence, Finding, Fix, Severity};

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
        found.extend(run::ranks(case, nccl, run));
        found.extend(run::hang(case, nccl, run));
        found.extend(run::wrong(nccl, run));
    }
    if found.is_empty() {
        found.extend(left_over(nccl));
    }
    found.into_iter().map(|finding| finding.seen(library(nccl))).collect()
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

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::super::sample::machine;
    use super::super::{Purpose, judge as judge_all};
    use super::*;
    use crate::facts::nccl::{Failure, Op, Row, Run, Stage, Step, Tested, Wrong, result_name};
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
