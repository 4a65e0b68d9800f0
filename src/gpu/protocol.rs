//! What passes between the doctor and its worker: one request as an argument, one answer as a line of JSON on stdout.

use super::nccl::protocol::NcclRequest;
use crate::facts::gpu::{CallError, Device, Library, Status};
use crate::facts::kernel::{CallFailed, Gpu, Loaded, Outcome, Way};
use crate::facts::raw::HostPath;
use crate::version::{CudaVersion, Dotted};
use serde::{Deserialize, Serialize};

/// The hidden subcommand that makes the binary a worker: `ds-doctor __worker REQUEST`.
pub const SUBCOMMAND: &str = "__worker";

/// How a line on the worker's stderr begins that says what it is about to do, so that a crash or a hang can be told apart.
pub const STEP: &str = "ds-doctor: now ";

/// What to ask. `library` is a file name, then the dynamic loader searches for it as it would for a CUDA program, or an absolute path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Request {
    /// All devices and versions from the management library. Initialises NVML, which may create device nodes.
    Nvml { library: String },
    /// The driver API's version; with `init` also what `cuInit` answers, which may create device nodes and take seconds.
    /// `links` is an empty folder, the first one of the worker's LD_LIBRARY_PATH, where it may put links.
    Driver { library: String, links: Option<HostPath>, init: bool },
    /// Loads a library with every symbol bound, after the libraries `first` (as a Python that has imported torch has loaded torch's).
    Load { library: HostPath, first: Vec<HostPath> },
    /// A process of the NCCL test. It answers with many lines, see [`crate::gpu::nccl::protocol`].
    Nccl(NcclRequest),
    /// The GPUs that the driver API shows, after `cuInit`. `links` as above.
    Devices { library: String, links: Option<HostPath> },
    /// Runs the probe's kernels in one way on one GPU.
    Run(RunRequest),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    pub way: RunWay,
    /// CUDA's number of the GPU in the worker.
    pub ordinal: u32,
    /// Of the random input.
    pub seed: u64,
    /// At most this is copied, in bytes.
    pub copy_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunWay {
    /// The built library, loaded as for [`Request::Load`].
    Runtime { library: HostPath, first: Vec<HostPath> },
    /// Files of compiled kernels, cubins or PTX, of which one is for this GPU; through the driver API's library `driver`.
    Images { way: Way, images: Vec<HostPath>, driver: String, links: Option<HostPath> },
}

/// What the worker found. Anything that kept it from answering at all (a signal, a hang) is told by the client instead.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    Nvml(Box<NvmlAnswer>),
    Driver(Box<DriverAnswer>),
    Load(Loaded),
    Devices(Box<DevicesAnswer>),
    Run(Box<Outcome>),
    Trouble(Trouble),
}

/// Why the library could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "trouble", content = "why", rename_all = "kebab-case")]
pub enum Trouble {
    /// The loader finds no file of that name; its words.
    NotFound(String),
    /// There is such a file, but it cannot be used; the loader's words, or the function it lacks.
    Unusable(String),
    /// A panic was caught in the bindings.
    Panicked(String),
    /// The request cannot be read or carried out: client and worker are of different releases.
    Refused(String),
}

/// From the management library. Without a successful `init` all but `library` is empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NvmlAnswer {
    pub library: Library,
    pub init: Status,
    pub driver: Option<Dotted>,
    pub cuda: Option<CudaVersion>,
    pub nvml: Option<Dotted>,
    /// None when the number of devices could not be read (see `errors`).
    pub devices: Option<Vec<Device>>,
    pub errors: Vec<CallError>,
}

/// From the driver API library.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriverAnswer {
    pub library: Library,
    /// What `cuDriverGetVersion` answered.
    pub status: Status,
    pub cuda: Option<CudaVersion>,
    /// What `cuInit` answered, if it was asked.
    pub init: Option<Status>,
}

/// The driver API's GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DevicesAnswer {
    pub library: Library,
    /// What the driver serves.
    pub cuda: Option<CudaVersion>,
    /// `Err`: the call that failed.
    pub gpus: Result<Vec<Gpu>, CallFailed>,
}
