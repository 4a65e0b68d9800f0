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
