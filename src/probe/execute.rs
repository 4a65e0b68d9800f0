//! The last step: the kernels that were built are run on the GPUs, where something shows that there are any.

use crate::facts::kernel::{Execution, Gpu};
use crate::facts::observed::Observed;
use crate::facts::snapshot::Snapshot;
use crate::gpu::Kernels;
use crate::gpu::client::Client;
use crate::host::Host;
use crate::model::visible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where nvcc leaves what it makes on its way: a cubin and PTX for each target.
pub const IMAGES: &str = "images";

/// Whether there is something to run on. Asking a driver where none is at work would load modules and make device nodes.
pub fn wanted(facts: &Snapshot) -> bool {
    facts.gpu.driver.value().is_some()
}

/// nvcc's flags for keeping the cubins and the PTX: what is compiled stays the same.
pub fn flags(facts: &Snapshot) -> Vec<OsString> {
    let flags: &[&str] = if wanted(facts) { &["--keep", "--keep-dir", IMAGES] } else { &[] };
    flags.iter().map(OsString::from).collect()
}

/// The cubins and PTX files of a folder.
pub fn images(host: &dyn Host, folder: &Path) -> Vec<PathBuf> {
    let entries = host.list(folder).unwrap_or_default();
    entries.into_iter().map(|entry| folder.join(entry.name)).filter(|path| is_a(path, "cubin") || is_a(path, "ptx")).collect()
}

fn is_a(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|own| own == ending)
}

/// Runs `library`, and the images, on every GPU that a program of this environment would see. `first` is what torch has loaded before.
pub fn execute(
    host: &dyn Host,
    facts: &Snapshot,
    limit: Duration,
    library: &Path,
    first: &[PathBuf],
    images: &[PathBuf],
) -> Observed<Execution> {
    if !wanted(facts) {
        return Observed::skipped("nothing shows an NVIDIA driver at work");
    }
    let of = |ending| images.iter().filter(|path| is_a(path, ending)).cloned().collect();
    let kernels =
        Kernels { library: library.to_owned(), first: first.to_vec(), cubins: of("cubin"), ptx: of("ptx"), seed: None, copy_bytes: None };
    let mut client = Client::new(facts.env.get("LD_LIBRARY_PATH"), limit);
    // What the driver and the runtime read; their cache is left alone.
    for (name, value) in host.env().iter().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"CUDA_")) {
        client = client.with_env(name, value);
    }
    Observed::seen(client.with_env("CUDA_CACHE_DISABLE", "1").run(&kernels, &known(facts)))
}

/// The visible GPUs by NVML.
fn known(facts: &Snapshot) -> Vec<Gpu> {
    let all = facts.gpu.devices.value().map_or(&[][..], Vec::as_slice);
    let seen = visible::visible(all, facts.env.get("CUDA_VISIBLE_DEVICES"), facts.env.get("CUDA_DEVICE_ORDER"));
    // By numbers that only the driver understands nobody is chosen.
    let picks = if seen.certain { seen.picks.as_slice() } else { &[] };
    let gpu = |(ordinal, pick): (usize, &visible::Pick)| {
        let device = all.get(pick.device)?;
        let uuid = match (&device.mig, pick.instance) {
            (Some(mig), Some(at)) => mig.instances.get(at)?.uuid.clone(),
            _ => device.uuid.clone(),
        };
        let ordinal = u32::try_from(ordinal).ok()?;
        Some(Gpu { ordinal, name: device.name.clone(), uuid, capability: device.capability, bandwidth: None })
    };
    picks.iter().enumerate().filter_map(gpu).collect()
}
