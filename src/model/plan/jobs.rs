//! How many compilers run side by side: by processors, memory and the limit on processes.

use super::Line;
use crate::facts::snapshot::Snapshot;
use crate::knowledge::Knowledge;
use crate::knowledge::schema::ops::{Op, OpBuild};
use crate::version::Dotted;

/// MiB of a compiler, where the op was not measured: as the largest that was.
const UNMEASURED: u64 = 2560;
/// Processes that one job starts at most: the shell, nvcc, and what nvcc runs.
const PROCESSES_A_JOB: u64 = 8;
/// MiB that stay free for the rest of the machine.
const SPARE: u64 = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jobs {
    /// MAX_JOBS
    pub jobs: u64,
    /// DS_NVCC_THREADS
    pub threads: u64,
    /// MiB of one compiler process at its peak.
    pub memory: u64,
    pub cpus: u64,
    /// MiB that may be used; `None`: not known.
    pub free: Option<u64>,
    /// Processes that may be started; `None`: no limit is known.
    pub processes: Option<u64>,
}

pub fn jobs(facts: &Snapshot, know: &Knowledge, deepspeed: &Dotted, ops: &[(&Op, &OpBuild)], targets: usize) -> Jobs {
    let cpus = facts.host.cpu.value().map_or(1, |cpu| cpu.count.max(1)) as u64;
    let memory = ops.iter().map(|(op, _)| know.op_cost(&op.op, deepspeed).map_or(UNMEASURED, |cost| u64::from(cost.memory))).max();
    let memory = memory.unwrap_or(UNMEASURED);
    let free = facts.host.memory.value().map(|memory| memory.limit.map_or(memory.available, |limit| limit.min(memory.available)) >> 20);
    let processes = facts.host.pids.value().and_then(|pids| Some(pids.limit?.saturating_sub(pids.current.unwrap_or(0))));
    let by_memory = free.map_or(u64::MAX, |free| free.saturating_sub(SPARE) / memory);
    let by_processes = processes.map_or(u64::MAX, |left| left / PROCESSES_A_JOB);
    // Every compiler counts as one, whether ninja starts it or nvcc for another target.
    let compilers = cpus.min(by_memory).min(by_processes).max(1);
    let sources = ops.iter().map(|(_, build)| u64::from(build.cpp + build.cu)).max().unwrap_or(1);
    let jobs = compilers.min(sources.max(1));
    let targets = (targets.max(1)) as u64;
    let threads = (compilers / jobs).clamp(1, targets);
    Jobs { jobs, threads, memory, cpus, free, processes }
}

impl Jobs {
    fn bounds(&self) -> String {
        let mut parts = vec![format!("{} processors", self.cpus)];
        parts.extend(self.free.map(|free| format!("{:.1} GiB free", free as f64 / 1024.0)));
        parts.extend(self.processes.map(|left| format!("{left} processes left")));
        parts.push(format!("{:.1} GiB for a compiler at its peak", self.memory as f64 / 1024.0));
        parts.join(", ")
    }

    /// The variables. `ninja`: the build may use it, so MAX_JOBS is read.
    pub fn lines(&self, ninja: bool, reads_threads: bool) -> Vec<Line> {
        let mut lines = Vec::new();
        if ninja {
            lines.push(Line::set("DS_ENABLE_NINJA", "1", "one file after another without it"));
            lines.push(Line::set("MAX_JOBS", self.jobs.to_string(), self.bounds()));
        }
        if reads_threads {
            lines.push(Line::set(
                "DS_NVCC_THREADS",
                self.threads.to_string(),
                "targets that one nvcc compiles side by side; each takes the memory of a compiler",
            ));
        }
        lines
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::host::{Cpu, Memory, Pids};
    use crate::facts::observed::Observed;
    use crate::knowledge::schema::deepspeed::AcceleratorKind;

    fn of(cpus: usize, gib: u64, pids: Option<u64>, targets: usize) -> (u64, u64) {
        let know = Knowledge::embedded();
        let deepspeed: Dotted = "0.19.8".parse().unwrap();
        let op = know.deepspeed_ops(&deepspeed, AcceleratorKind::Cuda).find(|op| op.op == "transformer").unwrap();
        let build = know.op_build(op, &deepspeed).unwrap();
        let mut facts = Snapshot::default();
        facts.host.cpu = Observed::seen(Cpu { count: cpus, ..Cpu::default() });
        facts.host.memory = Observed::seen(Memory { total: gib << 30, available: gib << 30, limit: None });
        facts.host.pids = Observed::seen(Pids { limit: pids, current: Some(10) });
        let made = jobs(&facts, &know, &deepspeed, &[(op, build)], targets);
        (made.jobs, made.threads)
    }

    #[test]
    fn the_smallest_of_all_limits() {
        assert_eq!(of(64, 256, None, 2), (8, 2), "as many as the op has sources, the rest for the targets");
        assert_eq!(of(64, 4, None, 2), (1, 1), "memory for one");
        assert_eq!(of(2, 256, None, 4), (2, 1));
        assert_eq!(of(64, 256, Some(30), 2), (2, 1), "20 processes are left");
        assert_eq!(of(64, 1, None, 2), (1, 1), "one always runs");
    }
}
