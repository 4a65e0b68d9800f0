//! What running the kernels showed: wrong values, failed calls, crashes and hangs, each with its GPUs.

use super::Case;
use crate::facts::kernel::{CallFailed, DeviceRun, Execution, Fault, Gpu, KernelVerdict, Listing, Outcome, Ran, Way};
use crate::facts::raw::HostPath;
use crate::finding::{Evidence, Finding, Fix, ProblemId, Severity};
use crate::text::{clean, count};

/// Of more GPUs and ways the first are shown.
const MOST_EVIDENCE: usize = 8;

/// One finding for each thing that is wrong, whatever the number of GPUs and ways that show it.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    case.facts.probe.value().and_then(|probe| probe.execution.value()).map_or_else(Vec::new, |execution| of(case, execution))
}

/// What the runs prove, in words.
pub fn proves(execution: &Execution) -> String {
    let all = execution.devices.len();
    let proven = execution.devices.iter().filter(|run| run.proven()).count();
    match (proven, all) {
        (_, 0) => "execution not proven".to_owned(),
        (0, 1) => "execution not proven on the GPU".to_owned(),
        (0, _) => format!("execution not proven on any of {all} GPUs"),
        (1, 1) => "execution proven on the GPU".to_owned(),
        (some, all) if some == all => format!("execution proven on all {all} GPUs"),
        (some, all) => format!("execution proven on {some} of {all} GPUs"),
    }
}

/// One thing that went wrong in one place.
struct Trouble<'a> {
    id: ProblemId,
    severity: Severity,
    /// A clause, to which the GPUs are added. Troubles of equal words are one finding.
    what: String,
    /// `None`: of the driver as a whole.
    gpu: Option<&'a Gpu>,
    /// `cubin`, `cuInit`
    place: String,
    /// What was answered.
    value: String,
    /// What was loaded or asked.
    path: Option<&'a HostPath>,
}

fn of(case: &Case<'_>, execution: &Execution) -> Vec<Finding> {
    let mut troubles: Vec<Trouble<'_>> = listing(case, &execution.listing).into_iter().collect();
    for run in &execution.devices {
        troubles.extend(device(case, run));
    }
    let mut findings: Vec<Finding> = Vec::new();
    while let Some(first) = troubles.first() {
        let (id, what) = (first.id, first.what.clone());
        let (alike, rest): (Vec<_>, Vec<_>) = troubles.into_iter().partition(|other| other.id == id && other.what == what);
        troubles = rest;
        findings.push(finding(&alike, id, &what, execution.seed));
    }
    findings
}

fn finding(alike: &[Trouble<'_>], id: ProblemId, what: &str, seed: u64) -> Finding {
    let mut gpus: Vec<&Gpu> = alike.iter().filter_map(|trouble| trouble.gpu).collect();
    gpus.dedup_by_key(|gpu| gpu.ordinal);
    let on = if id == "gpu-busy" { ":" } else { " on" };
    let place = match gpus.as_slice() {
        [] => String::new(),
        [gpu] => format!("{on} {}", name(gpu)),
        all => format!("{on} GPUs {}", all.iter().map(|gpu| gpu.ordinal.to_string()).collect::<Vec<_>>().join(", ")),
    };
    let severity = alike.iter().map(|trouble| trouble.severity).max().unwrap_or(Severity::Error);
    let mut finding = Finding::new(id, severity, format!("{what}{place}")).about(what).then(match (severity, id) {
        (Severity::Info, "gpu-busy") | (Severity::Warning | Severity::Error, _) => then(id),
        (Severity::Info, _) => "no harm: what an extension runs, runs; it would matter to code that has nothing better for the GPU",
    });
    for trouble in alike.iter().take(MOST_EVIDENCE) {
        let at = match trouble.gpu {
            Some(gpu) => format!("GPU {}, {}", gpu.ordinal, trouble.place),
            None => trouble.place.clone(),
        };
        let evidence = Evidence::new(at, trouble.value.clone()).said_by("run in a child process");
        finding = finding.seen(match trouble.path {
            Some(path) => evidence.at(path),
            None => evidence,
        });
    }
    if id == "kernel-wrong-result" {
        finding = finding.seen(Evidence::new("seed", seed.to_string()).said_by("of the random input"));
    }
    finding.fix(Fix::advice(format!("`ds-doctor explain {id}` has the cures")))
}

/// `GPU 1 (NVIDIA H100)`
fn name(gpu: &Gpu) -> String {
    match &gpu.name {
        Some(name) => format!("GPU {} ({})", gpu.ordinal, clean(name)),
        None => format!("GPU {}", gpu.ordinal),
    }
}

/// What will happen because of it.
fn then(id: ProblemId) -> &'static str {
    match id {
        "kernel-wrong-result" => "training there goes on with wrong numbers, or stops at a random place",
        "no-kernel-image" => "torch stops with `CUDA error: no kernel image is available for execution on the device`",
        "ptx-newer-than-driver" => "what has only PTX for the GPU stops with `the provided PTX was compiled with an unsupported toolchain`",
        "driver-too-old" => "torch stops with `CUDA driver version is insufficient for CUDA runtime version`",
        "fabric-manager-down" => "torch stops with `CUDA initialization: … system not yet initialized`",
        "gpu-busy" => "nothing is known about it",
        "gpu-lost" => "jobs on it stop, and jobs on other GPUs wait for it",
        "probe-timeout" => "a training run would hang there as well",
        _ => "no CUDA program runs there",
    }
}

/// The id behind a failed call.
fn meaning(case: &Case<'_>, failed: &CallFailed, otherwise: ProblemId) -> (ProblemId, String) {
    let row = case.know.call_status(failed.status.code);
    let id = row.and_then(|row| case.know.problem(&row.id)).map_or(otherwise, |problem| problem.id);
    let answered = format!("`{}` answers `{}`", clean(&failed.call), failed.status);
    (id, row.map_or_else(|| answered.clone(), |row| format!("{}: {answered}", row.says)))
}

fn said(failed: &CallFailed) -> String {
    let words = failed.words.as_deref().map(|words| format!(": {words}")).unwrap_or_default();
    clean(&format!("{failed}{words}")).to_string()
}

fn listing<'a>(case: &Case<'_>, listing: &'a Listing) -> Option<Trouble<'a>> {
    match listing {
        Listing::Listed { .. } => None,
        Listing::Failed { library, failed, .. } => {
            let hidden = failed.status.code == 100 && case.facts.env.get("CUDA_VISIBLE_DEVICES").is_some();
            if hidden && case.facts.gpu.devices.value().is_some_and(|devices| !devices.is_empty()) {
                // The mask is judged by a check of its own.
                return None;
            }
            let (id, what) = meaning(case, failed, "cuda-init-failed");
            let severity = if id == "gpu-busy" { Severity::Info } else { Severity::Error };
            let path = library.path.as_ref();
            Some(Trouble { id, severity, what, gpu: None, place: failed.call.clone(), value: said(failed), path })
        }
        Listing::Fault(fault) => {
            let (id, what, value) = match fault {
                Fault::NotLoaded { words } if words.contains("has no function") => {
                    ("driver-too-old", format!("the driver's library lacks what CUDA 11 needs: {}", clean(words)), words.clone())
                }
                Fault::NotLoaded { words } => {
                    ("libcuda-not-found", format!("the driver's library does not load: {}", clean(words)), words.clone())
                }
                other => of_fault(other, "the driver"),
            };
            Some(Trouble { id, severity: Severity::Error, what, gpu: None, place: "libcuda.so.1".to_owned(), value, path: None })
        }
    }
}

/// Id, clause and evidence of a child that gave no answer. `who` is what it asked.
fn of_fault(fault: &Fault, who: &str) -> (ProblemId, String, String) {
    let doing = |at: &Option<String>| at.as_deref().map(|at| format!(" at `{}`", clean(at))).unwrap_or_default();
    let last = |stderr: &str| stderr.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
    match fault {
        Fault::NotLoaded { words } => ("probe-failed", format!("{who} does not load: {}", clean(words)), words.clone()),
        Fault::Crashed { signal, at, stderr } => {
            let what = format!("{who} crashes{} (signal {signal})", doing(at));
            ("probe-crashed", what, format!("signal {signal}{}", last(stderr)))
        }
        Fault::TimedOut { seconds, at, stderr } => (
            "probe-timeout",
            format!("{who} does not end{} within {seconds} s", doing(at)),
            format!("killed after {seconds} s{}", last(stderr)),
        ),
        Fault::Unanswered { why } => ("probe-failed", format!("{who} gives no answer: {}", clean(why)), why.clone()),
    }
}

fn device<'a>(case: &Case<'_>, run: &'a DeviceRun) -> Vec<Trouble<'a>> {
    let mut troubles = Vec::new();
    // What the extension's own way does is what counts; the other two explain it.
    let works = matches!(run.way(Way::Runtime), Some(Outcome::Ran(ran)) if ran.passed());
    for way in &run.ways {
        let weight = |id: ProblemId| match (id, way.way) {
            ("gpu-busy", _) => Severity::Info,
            (_, Way::Runtime) => Severity::Error,
            // What an extension runs, runs: a driver that is older than the toolkit's PTX is in order then, and so are cubins for others.
            ("ptx-newer-than-driver" | "runtime-lib-not-on-loader-path", Way::Ptx) | ("no-kernel-image", Way::Cubin) if works => {
                Severity::Info
            }
            _ if works => Severity::Warning,
            _ => Severity::Error,
        };
        let place = way.way.to_string();
        let mut add = |id, what: String, value: String, severity, path| {
            troubles.push(Trouble { id, severity, what, gpu: Some(&run.gpu), place: place.clone(), value, path });
        };
        match &way.outcome {
            Outcome::Skipped { .. } => {}
            Outcome::Busy { why } => {
                add("gpu-busy", "in use by others, and left alone".to_owned(), clean(why).to_string(), Severity::Info, None)
            }
            Outcome::Failed { failed } => {
                let (id, what) = meaning(case, failed, "cuda-init-failed");
                add(id, what, said(failed), weight(id), None);
            }
            Outcome::Fault(fault) => {
                let (id, what, value) = of_fault(fault, "running the kernels");
                add(id, what, clean(&value).to_string(), weight(id), None);
            }
            Outcome::Ran(ran) => {
                for (id, what, value, wrong) in kernels(case, ran) {
                    let severity = if wrong { Severity::Error } else { weight(id) };
                    add(id, what, value, severity, ran.loaded.as_ref());
                }
            }
        }
    }
    troubles
}

/// Id, clause and evidence of each kernel that went wrong, and whether its values did.
fn kernels(case: &Case<'_>, ran: &Ran) -> Vec<(ProblemId, String, String, bool)> {
    let told = |kernel: &crate::facts::kernel::KernelResult| match &kernel.verdict {
        KernelVerdict::Passed | KernelVerdict::Skipped { .. } => None,
        KernelVerdict::Wrong { wrong, of, index, expected, got } => {
            let values = count(usize::try_from(*wrong).unwrap_or(usize::MAX), "value");
            let value = format!("{values} of {of} wrong, the first at {index}: {got}, expected {expected}");
            Some(("kernel-wrong-result", format!("the kernel `{}` gives wrong values", kernel.name), value, true))
        }
        KernelVerdict::Failed { failed } => {
            let (id, what) = meaning(case, failed, "kernel-wrong-result");
            Some((id, format!("the kernel `{}` fails: {what}", kernel.name), said(failed), false))
        }
    };
    ran.kernels.iter().filter_map(told).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::checks::Purpose;
    use crate::facts::gpu::{Library, Status};
    use crate::facts::kernel::{KernelResult, WayRun};
    use crate::facts::observed::Observed;
    use crate::facts::probe::Probe;
    use crate::facts::snapshot::Snapshot;
    use crate::knowledge::Knowledge;

    fn failed(call: &str, code: u32) -> CallFailed {
        CallFailed { call: call.to_owned(), status: Status { code, name: "CUDA_ERROR".to_owned() }, words: None }
    }

    fn kernel(name: &str, verdict: KernelVerdict) -> KernelResult {
        KernelResult { name: name.to_owned(), verdict }
    }

    fn passed() -> Outcome {
        Outcome::Ran(Ran { kernels: vec![kernel("reduce", KernelVerdict::Passed)], ..Ran::default() })
    }

    fn run(ordinal: u32, ways: [Outcome; 3]) -> DeviceRun {
        let gpu = Gpu { ordinal, name: Some("NVIDIA H100".to_owned()), ..Gpu::default() };
        let ways = Way::ALL.into_iter().zip(ways).map(|(way, outcome)| WayRun { way, outcome }).collect();
        DeviceRun { gpu, ways }
    }

    fn listed() -> Listing {
        Listing::Listed { library: library(), cuda: None }
    }

    fn library() -> Library {
        Library { asked: "libcuda.so.1".to_owned(), path: None, version: None }
    }

    fn judged(listing: Listing, devices: Vec<DeviceRun>) -> Vec<Finding> {
        let execution = Execution { seed: 7, listing, devices };
        let probe = Probe { execution: Observed::seen(execution), ..Probe::default() };
        let facts = Snapshot { probe: Observed::seen(probe), ..Snapshot::default() };
        findings(&Case::new(&facts, &Knowledge::embedded(), Purpose::Both, &[]))
    }

    fn ids(found: &[Finding]) -> Vec<(ProblemId, Severity)> {
        found.iter().map(|finding| (finding.id, finding.severity)).collect()
    }

    #[test]
    fn right_values_are_no_finding() {
        let skipped = Outcome::Skipped { why: "no PTX was made".to_owned() };
        let devices = vec![run(0, [passed(), passed(), passed()]), run(1, [passed(), passed(), skipped])];
        assert_eq!(proves(&Execution { seed: 1, listing: listed(), devices: devices.clone() }), "execution proven on all 2 GPUs");
        assert!(judged(listed(), devices).is_empty());
    }

    #[test]
    fn wrong_values_name_the_gpu_and_the_first_of_them() {
        let wrong = KernelVerdict::Wrong { wrong: 3, of: 256, index: 9, expected: "1.0".to_owned(), got: "2.0".to_owned() };
        let bad = || Outcome::Ran(Ran { kernels: vec![kernel("tensor", wrong.clone())], ..Ran::default() });
        let found = judged(listed(), vec![run(0, [passed(), passed(), passed()]), run(1, [bad(), bad(), bad()])]);
        assert_eq!(ids(&found), [("kernel-wrong-result", Severity::Error)]);
        assert_eq!(found[0].title, "the kernel `tensor` gives wrong values on GPU 1 (NVIDIA H100)");
        assert_eq!(found[0].evidence[0].value, "3 values of 256 wrong, the first at 9: 2.0, expected 1.0");
        assert_eq!(found[0].evidence.len(), 4, "three ways and the seed");
        // Also where only one of the other ways shows it.
        let found = judged(listed(), vec![run(0, [passed(), passed(), bad()])]);
        assert_eq!(ids(&found), [("kernel-wrong-result", Severity::Error)]);
    }

    #[test]
    fn codes_have_their_ids() {
        let at_start = |code| {
            let refuse = || Outcome::Failed { failed: failed("cuInit", code) };
            ids(&judged(listed(), vec![run(0, [refuse(), refuse(), refuse()])]))
        };
        for (code, id) in [
            (34, "stubs-on-loader-path"),
            (35, "driver-too-old"),
            (100, "no-gpu"),
            (209, "no-kernel-image"),
            (222, "ptx-newer-than-driver"),
            (802, "fabric-manager-down"),
            (803, "cuda-compat-wrong"),
            (804, "cuda-compat-wrong"),
            (214, "gpu-lost"),
            (719, "gpu-lost"),
            (999, "cuda-init-failed"),
            (4711, "cuda-init-failed"),
        ] {
            assert_eq!(at_start(code), [(id, Severity::Error)], "{code}");
            let listing = Listing::Failed { library: library(), cuda: None, failed: failed("cuInit", code) };
            assert_eq!(ids(&judged(listing, Vec::new())), [(id, Severity::Error)], "{code}");
        }
        let know = Knowledge::embedded();
        for row in know.cuda.call_status.iter() {
            let problem = know.problem(&row.id).unwrap();
            assert_eq!(problem.id, row.id, "an alias");
        }
    }

    #[test]
    fn an_unknown_code_of_a_kernel_is_the_kernels() {
        let broken = Outcome::Ran(Ran {
            kernels: vec![kernel("reduce", KernelVerdict::Failed { failed: failed("cuLaunchKernel", 4711) })],
            ..Ran::default()
        });
        let found = judged(listed(), vec![run(0, [broken, passed(), passed()])]);
        assert_eq!(ids(&found), [("kernel-wrong-result", Severity::Error)]);
    }

    #[test]
    fn ptx_that_is_too_new_matters_only_where_nothing_else_runs() {
        let refused = || Outcome::Failed { failed: failed("cuModuleLoadDataEx", 222) };
        assert_eq!(ids(&judged(listed(), vec![run(0, [passed(), passed(), refused()])])), [("ptx-newer-than-driver", Severity::Info)]);
        let none = Outcome::Failed { failed: failed("cudaGetLastError", 222) };
        let found = judged(listed(), vec![run(0, [none, Outcome::Skipped { why: String::new() }, refused()])]);
        assert!(ids(&found).iter().all(|one| *one == ("ptx-newer-than-driver", Severity::Error)), "{found:?}");
    }

    #[test]
    fn a_gpu_in_use_is_information() {
        let busy = Outcome::Busy { why: "only 100 MB of its memory are free".to_owned() };
        let mut run = run(2, [busy.clone(), busy.clone(), busy]);
        run.ways.truncate(1);
        let found = judged(listed(), vec![run]);
        assert_eq!(ids(&found), [("gpu-busy", Severity::Info)]);
        assert_eq!(found[0].title, "in use by others, and left alone: GPU 2 (NVIDIA H100)");
    }

    #[test]
    fn crashes_and_hangs_say_where() {
        let crash = Outcome::Fault(Fault::Crashed { signal: 11, at: Some("tensor".to_owned()), stderr: "x\nlast\x1b[1m".to_owned() });
        let found = judged(listed(), vec![run(0, [crash, passed(), passed()])]);
        assert_eq!(found[0].title, "running the kernels crashes at `tensor` (signal 11) on GPU 0 (NVIDIA H100)");
        assert!(!found[0].evidence[0].value.contains('\x1b'));
        let hang = Outcome::Fault(Fault::TimedOut { seconds: 30.0, at: Some("reduce".to_owned()), stderr: String::new() });
        let rest = || Outcome::Skipped { why: "runtime did not end before".to_owned() };
        let found = judged(listed(), vec![run(0, [hang.clone(), rest(), rest()]), run(3, [hang, rest(), rest()])]);
        assert_eq!(ids(&found), [("probe-timeout", Severity::Error)]);
        assert_eq!(found[0].title, "running the kernels does not end at `reduce` within 30 s on GPUs 0, 3");
        let found = judged(Listing::Fault(Fault::NotLoaded { words: "/x/libcuda.so.1 has no function cuInit".to_owned() }), Vec::new());
        assert_eq!(ids(&found), [("driver-too-old", Severity::Error)]);
    }
}
