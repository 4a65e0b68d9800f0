//! The probe's kernels in the worker: the library that was built for them is loaded; each way of running them is tried by a worker of its own.

mod module;
mod reference;
mod runtime;
mod suite;

pub use module::list;

use super::loader;
use super::protocol::{RunRequest, RunWay, Trouble};
use crate::facts::kernel::{CallFailed, KernelResult, KernelVerdict, Loaded, Outcome, Ran};
use crate::facts::raw::HostPath;
use crate::version::{Capability, CudaVersion};
use suite::{Job, Kernel};

/// Free memory, in bytes, below which a GPU counts as full: the runs need a few hundred MB for the context and the copy at most.
const LEAST_FREE: u64 = 512 << 20;
const COPY_TURNS: u32 = 20;

/// Loads `library` after the libraries `first`, and says what the loader took for both.
pub fn load(library: &HostPath, first: &[HostPath]) -> Result<Loaded, Trouble> {
    let before = loader::mapped();
    for path in first {
        loader::bind(path, true)?;
    }
    loader::bind(library, false)?;
    let taken = loader::mapped().into_iter().filter(|path| !before.contains(path));
    Ok(Loaded { libraries: taken.map(HostPath::from).collect() })
}

/// Runs all kernels in one way on one GPU.
pub fn run(request: &RunRequest) -> Result<Outcome, Trouble> {
    let ordinal = request.ordinal;
    match &request.way {
        RunWay::Runtime { library, first } => whole(request, || runtime::open(library, first, ordinal)),
        RunWay::Images { way, images, driver, links } => whole(request, || module::open(*way, images, driver, links.as_deref(), ordinal)),
    }
}

/// A GPU that is ready to run the kernels in one way.
trait Device {
    fn about(&self) -> &About;

    /// Runs the kernel once, on a copy of the job's input; the result goes to `out`. With `turns` it is then run as often again: the seconds
    /// that this took.
    fn run(&mut self, kernel: &Kernel, job: &Job, out: &mut [u8], turns: u32) -> Result<f64, CallFailed>;
}

#[derive(Debug, Clone)]
struct About {
    capability: Capability,
    /// Multiprocessors.
    processors: u32,
    cooperative: bool,
    /// Bytes.
    free: u64,
    runtime: Option<CudaVersion>,
    loaded: Option<HostPath>,
}

/// Why a GPU could not be made ready.
enum Unready {
    Failed(CallFailed),
    Skipped(String),
    Trouble(Trouble),
}

impl From<Trouble> for Unready {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<CallFailed> for Unready {
    fn from(failed: CallFailed) -> Self {
        Self::Failed(failed)
    }
}

fn whole<D: Device>(request: &RunRequest, open: impl FnOnce() -> Result<D, Unready>) -> Result<Outcome, Trouble> {
    step("opening the GPU");
    let mut device = match open() {
        Ok(device) => device,
        Err(Unready::Failed(failed)) => {
            // The two answers of a GPU that others use: held in an exclusive mode, and no memory left for a context.
            let busy = match failed.status.code {
                46 => Some("another program holds it, or its compute mode forbids programs"),
                2 => Some("its memory is full"),
                _ => None,
            };
            return Ok(match busy {
                Some(why) => Outcome::Busy { why: format!("{why}: {failed}") },
                None => Outcome::Failed { failed },
            });
        }
        Err(Unready::Skipped(why)) => return Ok(Outcome::Skipped { why }),
        Err(Unready::Trouble(trouble)) => return Err(trouble),
    };
    let about = device.about().clone();
    if about.free < LEAST_FREE {
        return Ok(Outcome::Busy { why: format!("only {} MB of its memory are free", about.free >> 20) });
    }
    let mut ran = Ran { runtime: about.runtime, loaded: about.loaded.clone(), ..Ran::default() };
    let mut broken: Option<&str> = None;
    for kernel in suite::KERNELS {
        let verdict = if let Some(before) = broken {
            // An error of a kernel spoils the context: whatever is called afterwards answers with it.
            KernelVerdict::Skipped { why: format!("{before} failed before") }
        } else if let Some(why) = kernel.lacking(&about) {
            KernelVerdict::Skipped { why }
        } else {
            step(kernel.name);
            one(&mut device, kernel, request, &mut ran.bandwidth)
        };
        if matches!(verdict, KernelVerdict::Failed { .. }) {
            broken = Some(kernel.name);
        }
        ran.kernels.push(KernelResult { name: kernel.name.to_owned(), verdict });
    }
    step("ending");
    Ok(Outcome::Ran(ran))
}

fn one(device: &mut impl Device, kernel: &Kernel, request: &RunRequest, bandwidth: &mut Option<f64>) -> KernelVerdict {
    let about = device.about().clone();
    let copies = kernel.name == suite::COPY;
    let job = (kernel.job)(request.seed, &about, request.copy_bytes);
    let mut out = vec![0; job.output];
    match device.run(kernel, &job, &mut out, if copies { COPY_TURNS } else { 0 }) {
        Err(failed) => KernelVerdict::Failed { failed },
        Ok(seconds) => {
            // Each turn reads every byte and writes it.
            if copies && seconds > 0.0 {
                *bandwidth = Some(2.0 * job.input.len() as f64 * f64::from(COPY_TURNS) / seconds / 1e9);
            }
            job.judge(&out)
        }
    }
}

/// Says on stderr what is begun, so that the parent knows where a crash or a hang was.
fn step(what: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{}{what}", super::protocol::STEP);
}
