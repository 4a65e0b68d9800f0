//! The kernels on every GPU: a child for each way on each GPU, so that a crash, a hang or a bad GPU spoils nothing else.

use super::client::{Client, Reply};
use super::protocol::{Answer, DevicesAnswer, Request, RunRequest, RunWay};
use crate::facts::kernel::{DeviceRun, Execution, Fault, Gpu, Listing, Outcome, Way, WayRun};
use crate::facts::raw::HostPath;
use crate::host::Scratch;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const LIBCUDA: &str = "libcuda.so.1";
/// More than any GPU's cache holds, so that the memory itself is timed.
const COPY_BYTES: u64 = 128 << 20;

/// What the probe has built.
#[derive(Debug, Clone, Default)]
pub struct Kernels {
    /// The shared library.
    pub library: PathBuf,
    /// What is in the process already, as for [`Client::load`].
    pub first: Vec<PathBuf>,
    /// The same kernels as cubins, any number, for any GPUs; the driver takes what fits. Without one that way is skipped.
    pub cubins: Vec<PathBuf>,
    /// The same as PTX.
    pub ptx: Vec<PathBuf>,
    /// Of the random input; `None`: from the clock.
    pub seed: Option<u64>,
    /// Bytes of the timed copy; `None`: more than a GPU's cache holds.
    pub copy_bytes: Option<u64>,
}

impl Client {
    /// Runs the kernels on every GPU that the driver shows, all GPUs at once, the three ways one after the other. The driver applies
    /// CUDA_VISIBLE_DEVICES and all else that it reads: give the client the variables of the run that is judged (`with_env`).
    ///
    /// `known` are the visible GPUs by NVML. They are tried one by one when the driver cannot list them, which one bad GPU is enough for.
    ///
    /// To be called only where something shows a driver at work: this makes device nodes and may load the kernel module.
    pub fn run(&self, kernels: &Kernels, known: &[Gpu]) -> Execution {
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let seed = kernels.seed.unwrap_or_else(clock);
        let listing = self.devices();
        let (listing, gpus) = match listing {
            Ok(DevicesAnswer { library, cuda, gpus: Ok(gpus) }) => (Listing::Listed { library, cuda }, gpus),
            Ok(DevicesAnswer { library, cuda, gpus: Err(failed) }) => {
                let hopeless = IN_VAIN.contains(&failed.status.code);
                (Listing::Failed { library, cuda, failed }, if hopeless { Vec::new() } else { known.to_vec() })
            }
            // What cannot be loaded cannot be loaded for one GPU either.
            Err(fault @ Fault::NotLoaded { .. }) => (Listing::Fault(fault), Vec::new()),
            Err(fault) => (Listing::Fault(fault), known.to_vec()),
        };
        let alone = gpus.len() == 1 && matches!(listing, Listing::Listed { .. });
        let devices = std::thread::scope(|scope| {
            let each: Vec<_> = gpus.iter().map(|gpu| (gpu, scope.spawn(|| self.device(kernels, gpu, alone, seed)))).collect();
            let crashed = || vec![lost(Way::Runtime, Fault::Unanswered { why: "the thread that asked crashed".to_owned() })];
            each.into_iter().map(|(gpu, run)| DeviceRun { gpu: gpu.clone(), ways: run.join().unwrap_or_else(|_| crashed()) }).collect()
        });
        Execution { seed, listing, devices }
    }

    /// All ways on one GPU.
    fn device(&self, kernels: &Kernels, gpu: &Gpu, alone: bool, seed: u64) -> Vec<WayRun> {
        // A GPU among several is chosen by its UUID, the only name that no order and no mask changes.
        let (client, ordinal) = match &gpu.uuid {
            Some(uuid) if !alone => (self.clone().with_env("CUDA_VISIBLE_DEVICES", uuid), 0),
            _ => (self.clone(), gpu.ordinal),
        };
        let mut ways: Vec<WayRun> = Vec::new();
        for way in Way::ALL {
            if ways.iter().any(|run| matches!(run.outcome, Outcome::Busy { .. })) {
                break;
            }
            // A GPU that hangs is not hung on to: each further try would take the whole time limit.
            let outcome = match ways.iter().find(|run| matches!(run.outcome, Outcome::Fault(Fault::TimedOut { .. }))) {
                Some(hung) => Outcome::Skipped { why: format!("{} did not end before", hung.way) },
                None => client.way(kernels, way, ordinal, seed),
            };
            ways.push(WayRun { way, outcome });
        }
        ways
    }

    fn way(&self, kernels: &Kernels, way: Way, ordinal: u32, seed: u64) -> Outcome {
        let paths = |paths: &[PathBuf]| paths.iter().map(HostPath::new).collect::<Vec<_>>();
        let images = match way {
            Way::Runtime => {
                let way = RunWay::Runtime { library: HostPath::new(&kernels.library), first: paths(&kernels.first) };
                return self.outcome(way, None, kernels, ordinal, seed);
            }
            Way::Cubin => paths(&kernels.cubins),
            Way::Ptx => paths(&kernels.ptx),
        };
        let links = match Scratch::temporary() {
            Ok(links) => links,
            Err(e) => return Outcome::Fault(Fault::Unanswered { why: format!("no temporary folder: {e}") }),
        };
        let way = RunWay::Images { way, images, driver: LIBCUDA.to_owned(), links: Some(HostPath::new(links.path())) };
        self.outcome(way, Some(links.path()), kernels, ordinal, seed)
    }

    fn outcome(&self, way: RunWay, links: Option<&Path>, kernels: &Kernels, ordinal: u32, seed: u64) -> Outcome {
        let copy_bytes = kernels.copy_bytes.unwrap_or(COPY_BYTES);
        match self.ask_with(&Request::Run(RunRequest { way, ordinal, seed, copy_bytes }), links) {
            Reply::Answered(Answer::Run(outcome)) => *outcome,
            reply => Outcome::Fault(reply.fault()),
        }
    }

    fn devices(&self) -> Result<DevicesAnswer, Fault> {
        let links = Scratch::temporary();
        let links = links.map_err(|e| Fault::Unanswered { why: format!("no temporary folder: {e}") })?;
        let request = Request::Devices { library: LIBCUDA.to_owned(), links: Some(HostPath::new(links.path())) };
        match self.ask_with(&request, Some(links.path())) {
            Reply::Answered(Answer::Devices(answer)) => Ok(*answer),
            reply => Err(reply.fault()),
        }
    }
}

/// Answers of `cuInit` that do not depend on which GPU is asked for: a stub, a driver too old, no device, the wrong user libraries.
const IN_VAIN: [u32; 5] = [34, 35, 100, 803, 804];

fn lost(way: Way, fault: Fault) -> WayRun {
    WayRun { way, outcome: Outcome::Fault(fault) }
}
