//! What the system allows: memory and processes for a build, shared memory for a run.

use super::lookup::NOT_ASKED;
use super::ninja::ninja_runs;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::host::FolderPurpose;
use crate::facts::observed::Missing;
use crate::finding::{Evidence, Finding, Fix, Severity};
use crate::text::bytes;

pub const CHECKS: &[Check] = &[
    Check { id: "compile-oom", run: memory },
    Check { id: "pids-limit", run: processes },
    Check { id: "shm-too-small", run: shared_memory },
];

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// What a `.cu` file that includes torch's headers takes at least. Measured with nvcc 13.0 and torch 2.11 on a file with one small kernel:
/// cicc 2.9 GiB, cudafe++ 2.0 GiB, and c++ 1.4 GiB on the host part.
const LEAST_PER_JOB: u64 = 2 * GIB;
const USUAL_PER_JOB: u64 = 3 * GIB;

/// Any op of some size has as many files; so many jobs run side by side whatever is built.
const JOBS_OF_ANY_BUILD: u64 = 4;

/// The jobs that ninja runs side by side, and who says so.
struct Jobs {
    number: u64,
    said_by: &'static str,
}

/// `None` where no ninja runs: one file is compiled after another then. Source of ninja's own number: `GuessParallelism` of its
/// ninja.cc, 1.10 and later.
fn jobs(case: &Case<'_>) -> Result<Result<Jobs, Verdict>, Missing> {
    if !case.purpose.builds() {
        return Ok(Err(Verdict::not_applicable(NOT_ASKED)));
    }
    if case.torch()?.is_none() {
        return Ok(Err(Verdict::not_applicable("no torch")));
    }
    let Some(python) = case.python()? else { return Ok(Err(Verdict::not_applicable("no Python on PATH"))) };
    if !ninja_runs(case, python) {
        return Ok(Err(Verdict::not_applicable("without ninja one file is compiled after another")));
    }
    let said = case.facts.env.text("MAX_JOBS").filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
    if let Some(number) = said.and_then(|value| value.parse().ok()).filter(|number| *number > 0) {
        return Ok(Ok(Jobs { number, said_by: "MAX_JOBS" }));
    }
    let Some(cpu) = case.facts.host.cpu.get("cpu")? else {
        return Ok(Err(Verdict::not_applicable("the number of processors is not known")));
    };
    let number = match cpu.count as u64 {
        0 | 1 => 2,
        2 => 3,
        count => count.saturating_add(2),
    };
    Ok(Ok(Jobs { number, said_by: "ninja's own number" }))
}

/// The least of what holds for this process for good: what is free at this moment is not asked.
fn budget(case: &Case<'_>) -> Result<Option<(u64, &'static str)>, Missing> {
    let Some(memory) = case.facts.host.memory.get("memory")? else { return Ok(None) };
    let mebibytes = |name: &str| case.facts.env.text(name)?.parse::<u64>().ok().filter(|number| *number > 0)?.checked_mul(MIB);
    let cpus = case.facts.env.text("SLURM_CPUS_ON_NODE").and_then(|value| value.parse::<u64>().ok());
    let all = [
        Some((memory.total, "the machine's memory")),
        memory.limit.map(|limit| (limit, "limit of the control group")),
        mebibytes("SLURM_MEM_PER_NODE").map(|limit| (limit, "SLURM_MEM_PER_NODE")),
        mebibytes("SLURM_MEM_PER_CPU").zip(cpus).map(|(each, cpus)| (each.saturating_mul(cpus), "SLURM_MEM_PER_CPU")),
    ];
    Ok(all.into_iter().flatten().filter(|(number, _)| *number > 0).min_by_key(|(number, _)| *number))
}

/// The jobs for which there is memory and room: both checks set the same variable.
fn fitting(case: &Case<'_>, jobs: &Jobs) -> u64 {
    let by_memory = budget(case).ok().flatten().map_or(u64::MAX, |(budget, _)| budget / USUAL_PER_JOB);
    let by_room = room(case).map_or(u64::MAX, |room| room.saturating_sub(TASKS_OF_BUILD) / TASKS_PER_JOB);
    by_memory.min(by_room).clamp(1, jobs.number.saturating_sub(1).max(1))
}

fn memory(case: &Case<'_>) -> Judgement {
    const ID: &str = "compile-oom";
    let jobs = match jobs(case)? {
        Ok(jobs) => jobs,
        Err(verdict) => return Ok(verdict),
    };
    let Some((budget, limit)) = budget(case)? else { return Ok(Verdict::not_applicable("the machine's memory is not known")) };
    if jobs.number.saturating_mul(LEAST_PER_JOB) <= budget || jobs.number == 1 {
        return Ok(Verdict::Pass);
    }
    // How many files are compiled at once depends on what is built: a small op has two.
    let clearly = jobs.number.min(JOBS_OF_ANY_BUILD).saturating_mul(LEAST_PER_JOB) > budget;
    let severity = if clearly { Severity::Warning } else { Severity::Info };
    let finding = Finding::new(
        ID,
        severity,
        format!("up to {} compile jobs run side by side, at 2 to 3 GiB each, and there are {}", jobs.number, bytes(budget)),
    )
    .likely()
    .seen(Evidence::new("jobs", jobs.number.to_string()).said_by(jobs.said_by))
    .seen(Evidence::new("memory", bytes(budget)).said_by(limit))
    .then(
        "the kernel kills compilers: `Killed signal terminated program cc1plus`, `'cicc' died due to signal 9`, or nothing is said at all",
    )
    .fix(Fix::set("MAX_JOBS", fitting(case, &jobs).to_string(), "one job for every 3 GiB"));
    Ok(Verdict::found(finding))
}

/// Tasks of one job: a shell, nvcc, a shell under it, the compiler and its parts.
const TASKS_PER_JOB: u64 = 5;
/// Python, pip and ninja themselves.
const TASKS_OF_BUILD: u64 = 10;

/// The tasks that the control group lets start beside those that run.
fn room(case: &Case<'_>) -> Option<u64> {
    let pids = case.facts.host.pids.value()?;
    Some(pids.limit?.saturating_sub(pids.current.unwrap_or(0)))
}

fn processes(case: &Case<'_>) -> Judgement {
    const ID: &str = "pids-limit";
    let jobs = match jobs(case)? {
        Ok(jobs) => jobs,
        Err(verdict) => return Ok(verdict),
    };
    let Some(pids) = case.facts.host.pids.get("process limit")? else { return Ok(Verdict::not_applicable("no process limit is known")) };
    let (Some(limit), Some(room)) = (pids.limit, room(case)) else { return Ok(Verdict::Pass) };
    let count = |jobs: u64| jobs.saturating_mul(TASKS_PER_JOB).saturating_add(TASKS_OF_BUILD);
    // More files than this are seldom compiled at once.
    let side_by_side = jobs.number.min(16);
    if count(side_by_side) <= room || jobs.number == 1 {
        return Ok(Verdict::Pass);
    }
    let mut finding = Finding::warning(
        ID,
        format!("the control group has room for {room} more tasks, and {} compile jobs take about {}", side_by_side, count(side_by_side)),
    )
    .likely()
    .seen(Evidence::new("pids.max", limit.to_string()).said_by("control group"))
    .seen(Evidence::new("jobs", jobs.number.to_string()).said_by(jobs.said_by));
    if let Some(current) = pids.current {
        finding = finding.seen(Evidence::new("pids.current", current.to_string()).said_by("control group"));
    }
    finding = finding
        .then("`fork` fails in the middle of the build: `Cannot fork`, `Resource temporarily unavailable`, `can't start new thread`");
    let fewer = Fix::set("MAX_JOBS", fitting(case, &jobs).to_string(), "as many jobs as there is room for");
    finding = if count(1) > room { finding.fix(raise(case).curing(ID)) } else { finding.fix(fewer).fix(raise(case).or(1)) };
    Ok(Verdict::found(finding))
}

fn raise(case: &Case<'_>) -> Fix {
    match case.facts.host.container.as_deref() {
        Some("docker" | "podman") => Fix::advice("start the container with a higher limit: `--pids-limit=-1`"),
        Some("kubernetes") => Fix::advice("ask the node's administrator for a higher `podPidsLimit`"),
        _ => Fix::advice("raise the limit of the control group: `TasksMax=infinity` for a unit of systemd"),
    }
}

/// `ds_report` warns below this.
const SHARED_MEMORY: u64 = 512 * MIB;

fn shared_memory(case: &Case<'_>) -> Judgement {
    const ID: &str = "shm-too-small";
    if !case.purpose.runs() {
        return Ok(Verdict::not_applicable("running is not asked for"));
    }
    if case.torch()?.is_none() {
        return Ok(Verdict::not_applicable("no torch"));
    }
    let Some(folder) = case.facts.host.folder(FolderPurpose::SharedMemory).filter(|folder| folder.exists()) else {
        let why = "there is no `/dev/shm` to be looked at".to_owned();
        return Err(Missing { topic: "shared memory", why, failed: false });
    };
    let Some(size) = folder.size else {
        return Err(Missing { topic: "shared memory", why: "only a running machine tells".to_owned(), failed: false });
    };
    if size >= SHARED_MEMORY || size == 0 {
        return Ok(Verdict::Pass);
    }
    let finding = Finding::warning(ID, format!("`/dev/shm` holds {}, less than NCCL and the DataLoader may need", bytes(size)))
        .likely()
        .seen(Evidence::new("/dev/shm", bytes(size)).at(&folder.path).said_by(folder.filesystem.clone().unwrap_or_default()))
        .then("when it is full, `DataLoader worker … is killed by signal: Bus error`, or NCCL says `No space left on device`");
    let fix = match case.facts.host.container.as_deref() {
        Some("docker" | "podman") => Fix::advice("start the container with `--shm-size=8g`, or with `--ipc=host`").curing(ID),
        Some("kubernetes") => Fix::advice("mount an `emptyDir` with `medium: Memory` at `/dev/shm`").curing(ID),
        _ => super::remedy::as_root(case, ["mount", "-o", "remount,size=16G", "/dev/shm"], "until the next boot").curing(ID),
    };
    Ok(Verdict::found(finding.fix(fix)))
}

#[cfg(test)]
mod tests {
    use super::super::Purpose;
    use super::super::sample::{GIB, cured, finding, findings, healthy, judged, place, silent};
    use super::*;
    use crate::facts::host::{Cpu, Memory, Pids};
    use crate::facts::observed::Observed;
    use crate::facts::snapshot::Snapshot;

    fn machine(cpus: usize, memory: u64, limit: Option<u64>) -> Snapshot {
        let mut facts = healthy();
        facts.host.cpu = Observed::seen(Cpu { count: cpus, ..Cpu::default() });
        facts.host.memory = Observed::seen(Memory { total: memory, available: memory, limit });
        facts
    }

    #[test]
    fn a_healthy_machine_is_silent() {
        for purpose in [Purpose::Build, Purpose::Run, Purpose::Both] {
            silent(&healthy(), CHECKS, purpose);
        }
    }

    /// What is said of memory: `-` nothing, `i` a state, `W` a warning.
    fn memory_of(cpus: usize, memory: u64, limit: Option<u64>) -> &'static str {
        let found = findings(&machine(cpus, memory, limit), "compile-oom");
        match found.first().map(|one| one.severity) {
            None => "-",
            Some(Severity::Info) => "i",
            Some(_) => "W",
        }
    }

    #[test]
    fn usual_machines() {
        let gib = |number: f64| (number * GIB as f64) as u64;
        for (what, cpus, memory, limit, expected) in [
            ("a CI runner with 2 processors", 2, gib(6.8), None, "-"),
            ("a CI runner with 4 processors", 4, gib(15.6), None, "-"),
            ("a laptop with 8 threads", 8, gib(15.3), None, "i"),
            ("a workstation", 32, gib(125.0), None, "-"),
            ("a server", 256, gib(2000.0), None, "-"),
            ("a small laptop", 8, gib(7.6), None, "W"),
            ("a container with 4 GiB on a large host", 64, gib(500.0), Some(gib(4.0)), "W"),
            ("a container with 1 processor", 1, gib(500.0), Some(gib(4.0)), "-"),
        ] {
            assert_eq!(memory_of(cpus, memory, limit), expected, "{what}");
        }
    }

    #[test]
    fn fewer_jobs_fit() {
        let facts = machine(64, 500 * GIB, Some(4 * GIB));
        let after = cured(&facts, "compile-oom");
        assert_eq!(after.env.text("MAX_JOBS").as_deref(), Some("1"));
        silent(&after, CHECKS, Purpose::Build);
        let mut said = facts.clone();
        said.env.set("MAX_JOBS", "2");
        silent(&said, CHECKS, Purpose::Build);
        said.env.set("MAX_JOBS", "many");
        assert_eq!(finding(&said, "compile-oom").evidence[0].source, "ninja's own number");
        said.env.set("MAX_JOBS", "16");
        assert_eq!(finding(&said, "compile-oom").evidence[0].source, "MAX_JOBS");
    }

    #[test]
    fn limits_of_a_job() {
        let mut facts = machine(32, 500 * GIB, None);
        facts.env.set("SLURM_MEM_PER_NODE", "6000");
        assert!(finding(&facts, "compile-oom").evidence.iter().any(|seen| seen.source == "SLURM_MEM_PER_NODE"));
        facts.env.set("SLURM_MEM_PER_NODE", "0");
        silent(&facts, CHECKS, Purpose::Build);
        facts.env.unset("SLURM_MEM_PER_NODE");
        facts.env.set("SLURM_MEM_PER_CPU", "500");
        facts.env.set("SLURM_CPUS_ON_NODE", "8");
        assert_eq!(finding(&facts, "compile-oom").severity, Severity::Warning);
    }

    #[test]
    fn process_limits() {
        let mut facts = machine(64, 500 * GIB, None);
        let limited = |limit, current| Observed::seen(Pids { limit: Some(limit), current: Some(current) });
        facts.host.pids = limited(2048, 200);
        silent(&facts, CHECKS, Purpose::Build);
        facts.host.pids = limited(100, 40);
        let after = cured(&facts, "pids-limit");
        assert_eq!(after.env.text("MAX_JOBS").as_deref(), Some("10"));
        facts.host.pids = limited(20, 15);
        assert!(finding(&facts, "pids-limit").fixes[0].variable().is_none(), "not even one job fits");
        facts.host.pids = Observed::seen(Pids { limit: None, current: Some(100_000) });
        silent(&facts, CHECKS, Purpose::Build);
    }

    #[test]
    fn both_limits_agree_on_the_jobs() {
        let mut facts = machine(64, 500 * GIB, Some(4 * GIB));
        facts.host.pids = Observed::seen(Pids { limit: Some(70), current: Some(30) });
        let jobs = |id| finding(&facts, id).fixes[0].action.clone();
        assert_eq!(jobs("compile-oom"), jobs("pids-limit"));
    }

    #[test]
    fn shared_memory_of_containers() {
        let mut facts = healthy();
        place(&mut facts, FolderPurpose::SharedMemory).size = Some(64 * MIB);
        facts.host.container = Some("docker".to_owned());
        assert!(judged(&facts, Purpose::Build, "shm-too-small").findings.is_empty(), "a build needs none");
        let found = finding(&facts, "shm-too-small");
        assert!(format!("{:?}", found.fixes).contains("--shm-size"));
        place(&mut facts, FolderPurpose::SharedMemory).size = None;
        assert_eq!(judged(&facts, Purpose::Run, "shm-too-small").undecided.len(), 1, "a tree does not tell");
    }
}
