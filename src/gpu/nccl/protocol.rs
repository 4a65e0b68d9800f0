//! What passes between the doctor and a process of the NCCL test: one request as an argument, then a line of JSON on stdout for each
//! step, so that the last one is known when no more come.

use crate::facts::nccl::{CudaDevice, Failure, Op, Step, Wrong};
use crate::facts::raw::HostPath;
use serde::{Deserialize, Serialize};

/// What a process of the test is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclRequest {
    /// The very file.
    pub library: HostPath,
    /// The driver API library, where GPUs are to be used.
    pub driver: Option<String>,
    /// None: only open the library, ask for a unique id, and list the GPUs.
    pub part: Option<Part>,
}

/// One rank of a communicator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub rank: u32,
    pub ranks: u32,
    /// CUDA's number of the GPU.
    pub device: u32,
    /// The unique id in hexadecimal; none: this rank makes it and says it.
    pub id: Option<String>,
    /// Bytes of each array, ascending.
    pub sizes: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// This step begins.
    At(Step),
    /// What `ncclGetVersion` answered.
    Version {
        code: u32,
    },
    /// What `ncclGetUniqueId` gave, in hexadecimal.
    UniqueId {
        id: String,
    },
    Devices {
        devices: Vec<CudaDevice>,
    },
    /// One operation of one size is through on this rank.
    Measured {
        op: Op,
        /// Of the whole array.
        bytes: u64,
        /// Of one operation.
        seconds: f64,
        wrong: Option<Wrong>,
    },
    /// It cannot go on, and ends.
    Failed(Failure),
    /// It has done all that was asked, and ends.
    Done,
}
