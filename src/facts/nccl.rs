//! What the NCCL test did on this machine, process by process: one that opens the library, then one for each rank.

use super::observed::Observed;
use super::probe::Meaning;
use super::raw::HostPath;
use crate::version::{CudaVersion, Dotted};
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Nccl {
    pub library: Tested,
    /// Seconds without any step after which the test is given up.
    #[serde(default)]
    pub patience: f64,
    /// Variables of NCCL that were in force.
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// The process that opened the library, asked for a unique id and listed the GPUs. Its rank means nothing.
    pub opening: Member,
    /// What `ncclGetVersion` answered.
    #[serde(default)]
    pub version: Option<Dotted>,
    /// The GPUs in CUDA's numbering.
    #[serde(default)]
    pub devices: Observed<Vec<CudaDevice>>,
    #[serde(default)]
    pub run: Observed<Run>,
}

/// The file that was opened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Tested {
    pub path: HostPath,
    /// Why this one: `torch loads it`.
    pub why: String,
    /// The release that the file itself names.
    #[serde(default)]
    pub release: Option<Dotted>,
    /// The CUDA release that it was built with.
    #[serde(default)]
    pub cuda: Option<CudaVersion>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub name: String,
    pub value: String,
    /// `environment`, or the configuration file.
    pub source: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct CudaDevice {
    pub ordinal: u32,
    pub name: Option<String>,
    /// PCI address, `0000:18:00.0`.
    pub bus: Option<String>,
}

/// The ranks' processes and what they measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Run {
    pub ranks: Vec<Member>,
    pub rows: Vec<Row>,
    /// Seconds after which the ranks were ended, since no step came, or far too slowly; none when that was not needed.
    #[serde(default)]
    pub hung: Option<f64>,
}

/// One process of the test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Member {
    pub rank: u32,
    /// CUDA's number of its GPU.
    #[serde(default)]
    pub device: Option<u32>,
    /// The last step that it began.
    #[serde(default)]
    pub last: Option<Step>,
    pub end: End,
    /// NCCL's own warnings, in order, without time, host and place in its source.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What the warnings mean, where a signature knows one of them.
    #[serde(default)]
    pub meaning: Option<Meaning>,
}

/// How a process of the test came to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum End {
    Done,
    /// A call answered with an error, and the process said so.
    Failed(Failure),
    /// A signal ended it.
    Crashed {
        signal: i32,
        words: String,
    },
    /// It ended without saying anything.
    Ended {
        code: Option<i32>,
        words: String,
    },
    /// The doctor ended it: the time was up, or another rank had fallen out.
    Stopped,
    /// What it said cannot be understood.
    Garbage {
        begin: String,
    },
    NotStarted {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Failure {
    /// `ncclCommInitRank`, `dlopen`
    pub call: String,
    /// The code it answered; none when it could not be called.
    #[serde(default)]
    pub code: Option<u32>,
    /// The code's name, or the reason in words.
    pub why: String,
    /// What `ncclGetLastError` said.
    #[serde(default)]
    pub last_error: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(_) => write!(f, "{} answers {}", self.call, self.why),
            None => write!(f, "{}: {}", self.call, self.why),
        }
    }
}

/// What a process of the test is at. In order, so that the rank which is furthest behind can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum Step {
    /// Opening the library and looking up its functions.
    Open,
    Version,
    /// `ncclGetUniqueId`
    UniqueId,
    /// `cuInit` and the list of devices.
    Driver,
    /// The context on the GPU.
    Context,
    Memory,
    /// `ncclCommInitRank`
    Init,
    Collective {
        op: Op,
        /// The size that was asked for; a multiple of the number of ranks may be a little more.
        bytes: u64,
        stage: Stage,
    },
    /// `ncclCommDestroy`
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Writing the values to be sent.
    Fill,
    /// In the call that puts the work into the stream.
    Call,
    /// The call came back; waiting for the GPU.
    Wait,
    /// The same many times, against the clock.
    Measure,
    Compare,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    AllReduce,
    Broadcast,
    AllGather,
    ReduceScatter,
    SendReceive,
}

impl Op {
    pub const ALL: [Self; 5] = [Self::AllReduce, Self::Broadcast, Self::AllGather, Self::ReduceScatter, Self::SendReceive];

    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::Broadcast => "broadcast",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::SendReceive => "send/receive",
        }
    }

    pub const fn call(self) -> &'static str {
        match self {
            Self::AllReduce => "ncclAllReduce",
            Self::Broadcast => "ncclBroadcast",
            Self::AllGather => "ncclAllGather",
            Self::ReduceScatter => "ncclReduceScatter",
            Self::SendReceive => "ncclSend and ncclRecv",
        }
    }

    /// What the algorithm bandwidth is multiplied with, so that the figure can be compared with the links' own whatever the number of
    /// ranks. Source: doc/PERFORMANCE.md of nccl-tests.
    pub fn bus_factor(self, ranks: usize) -> f64 {
        let n = ranks as f64;
        match self {
            _ if ranks == 0 => 0.0,
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::AllGather | Self::ReduceScatter => (n - 1.0) / n,
            Self::Broadcast | Self::SendReceive => 1.0,
        }
    }
}

/// One operation of one size, over all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Row {
    pub op: Op,
    /// Of the whole array, as nccl-tests counts: for all-gather and reduce-scatter the parts of all ranks together.
    pub bytes: u64,
    pub ranks: usize,
    /// Of one operation: the mean of many, and of the ranks.
    pub seconds: f64,
    /// Ranks whose values are not what they must be.
    #[serde(default)]
    pub wrong: Vec<Wrong>,
}

impl Row {
    /// GB/s (10⁹ bytes): the size over the time.
    pub fn algorithm_bandwidth(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / 1e9 / self.seconds } else { 0.0 }
    }

    /// GB/s, see [`Op::bus_factor`].
    pub fn bus_bandwidth(&self) -> f64 {
        self.algorithm_bandwidth() * self.op.bus_factor(self.ranks)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Wrong {
    pub rank: u32,
    pub elements: u64,
    /// The place of the first of them.
    pub first: u64,
    pub expected: f32,
    /// In words, since JSON has no NaN.
    pub got: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("opening the library"),
            Self::Version => f.write_str("`ncclGetVersion`"),
            Self::UniqueId => f.write_str("`ncclGetUniqueId`"),
            Self::Driver => f.write_str("asking the driver for its GPUs"),
            Self::Context => f.write_str("opening the GPU"),
            Self::Memory => f.write_str("allocating GPU memory"),
            Self::Init => f.write_str("`ncclCommInitRank`"),
            Self::Collective { op, bytes, .. } => write!(f, "{} of {}", op.name(), size(*bytes)),
            Self::Close => f.write_str("`ncclCommDestroy`"),
        }
    }
}

/// `8 B`, `256 KiB`: the sizes of the test are powers of two.
pub fn size(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes, 0);
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    while value >= 1024 && value % 1024 == 0 && unit + 1 < UNITS.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value} {}", UNITS.get(unit).unwrap_or(&"B"))
}

/// The release that `ncclGetVersion` codes in a number: until 2.8 as 2804, since 2.9 as 22105. Source: nccl.h.in, NCCL_VERSION.
pub fn version_of_code(code: u32) -> Option<Dotted> {
    let (major, minor, patch) = match code {
        0..1000 => return None,
        1000..10_000 => (code / 1000, code % 1000 / 100, code % 100),
        _ => (code / 10_000, code % 10_000 / 100, code % 100),
    };
    format!("{major}.{minor}.{patch}").parse().ok()
}

/// The name of an `ncclResult_t` and what it means. Source: nccl.h.
pub fn result_name(code: u32) -> &'static str {
    match code {
        0 => "ncclSuccess",
        1 => "ncclUnhandledCudaError",
        2 => "ncclSystemError",
        3 => "ncclInternalError",
        4 => "ncclInvalidArgument",
        5 => "ncclInvalidUsage",
        6 => "ncclRemoteError",
        7 => "ncclInProgress",
        8 => "ncclTimeout",
        _ => "",
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn version_codes() {
        // 2.8.4 and 2.21.5 as their own headers define them.
        for (code, text) in [(2804, "2.8.4"), (2408, "2.4.8"), (21003, "2.10.3"), (22105, "2.21.5"), (23007, "2.30.7")] {
            assert_eq!(version_of_code(code).unwrap().text, text);
        }
        assert_eq!(version_of_code(0), None);
    }

    #[test]
    fn bandwidths_as_nccl_tests_prints_them() {
        // 8 ranks, 128 MiB in 646.25 us: 207.69 and 363.45 GB/s; the factors are 1.75 and 0.875.
        let row = |op, ranks| Row { op, bytes: 134_217_728, ranks, seconds: 646.25e-6, wrong: Vec::new() };
        let shown = |row: Row| format!("{:.2} {:.2}", row.algorithm_bandwidth(), row.bus_bandwidth());
        assert_eq!(shown(row(Op::AllReduce, 8)), "207.69 363.45");
        assert_eq!(shown(row(Op::AllGather, 8)), "207.69 181.73");
        assert_eq!(shown(row(Op::ReduceScatter, 8)), "207.69 181.73");
        assert_eq!(shown(row(Op::Broadcast, 8)), "207.69 207.69");
        assert_eq!(shown(row(Op::SendReceive, 8)), "207.69 207.69");
        assert_eq!(shown(row(Op::AllReduce, 2)), "207.69 207.69");
        assert_eq!(shown(row(Op::AllReduce, 1)), "207.69 0.00");
    }

    #[test]
    fn steps_are_in_order() {
        let at = |op, bytes, stage| Step::Collective { op, bytes, stage };
        let in_order = [
            Step::Open,
            Step::UniqueId,
            Step::Init,
            at(Op::AllReduce, 8, Stage::Fill),
            at(Op::AllReduce, 8, Stage::Wait),
            at(Op::AllReduce, 256, Stage::Fill),
            at(Op::Broadcast, 8, Stage::Call),
            Step::Close,
        ];
        assert!(in_order.is_sorted());
        assert_eq!(at(Op::AllReduce, 256 << 20, Stage::Call).to_string(), "all-reduce of 256 MiB");
        assert_eq!(size(1000), "1000 B");
    }
}
