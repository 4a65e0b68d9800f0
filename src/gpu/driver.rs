//! The driver API library, as far as it answers without a device: its version, and what `cuInit` says when asked.
#![expect(clippy::disallowed_methods, reason = "the worker makes the link that the bindings look for")]
#![expect(unsafe_code, reason = "foreign functions")]

use super::loader::{self, Loaded};
use super::protocol::{DriverAnswer, Trouble};
use crate::facts::gpu::Status;
use crate::version::CudaVersion;
use cudarc::driver::sys;
use std::ffi::c_int;
use std::path::Path;

/// Opens the library that the loader finds under `name`, for the bindings too. `links` is the folder in front of this process' LD_LIBRARY_PATH.
pub fn open(name: &str, links: Option<&Path>) -> Result<Loaded, Trouble> {
    let library = loader::open(name, "cuDriverGetVersion")?;
    // cudarc panics over a missing function, so look first.
    // SAFETY: only looked up, never called through this type.
    unsafe { library.function::<unsafe extern "C" fn(*mut c_int) -> c_int>("cuDriverGetVersion") }?;
    // cudarc tries `libcuda.so` (which may be a toolkit's stub) before `libcuda.so.1`, the only name that CUDA programs ask for. A link
    // in the first folder of the search makes both names one file.
    if let Some(links) = links {
        let Some(path) = &library.path else {
            return Err(Trouble::Unusable(format!("{name} was opened, but from which file cannot be told")));
        };
        let link = links.join("libcuda.so");
        if let Err(e) = std::os::unix::fs::symlink(path, &link) {
            return Err(Trouble::Refused(format!("{}: {e}", link.display())));
        }
    }
    // SAFETY: opens the library once more, which is open already, and closes that second handle only.
    if !unsafe { sys::is_culib_present() } {
        return Err(Trouble::Unusable(format!("{name} was opened once and could not be opened again")));
    }
    Ok(library)
}

/// Asks the library that the loader finds under `name`.
pub fn ask(name: &str, links: Option<&Path>, init: bool) -> Result<DriverAnswer, Trouble> {
    let library = open(name, links)?;
    let mut macro_value: c_int = 0;
    // SAFETY: the pointer is valid for the call, and the function was looked up above.
    let answered = unsafe { sys::cuDriverGetVersion(&raw mut macro_value) };
    let status = status(answered as u32);
    let cuda = u32::try_from(macro_value).ok().filter(|v| status.ok() && *v > 0).map(CudaVersion::from_macro);
    // Not through cudarc: its result type is a closed enum, and a code that a newer driver adds would be undefined behaviour.
    let init = if init {
        // SAFETY: the documented type of `cuInit`.
        let function = unsafe { library.function::<unsafe extern "C" fn(u32) -> u32>("cuInit") }?;
        // SAFETY: flags must be 0; callable at any time from any thread.
        Some(self::status(unsafe { function(0) }))
    } else {
        None
    };
    Ok(DriverAnswer { library: library.fact(), status, cuda, init })
}

/// The codes that `cuInit` and `cuDriverGetVersion` are known to answer (`cuda.h`, `CUresult`).
pub(super) fn status(code: u32) -> Status {
    let name = match code {
        0 => "CUDA_SUCCESS",
        1 => "CUDA_ERROR_INVALID_VALUE",
        2 => "CUDA_ERROR_OUT_OF_MEMORY",
        3 => "CUDA_ERROR_NOT_INITIALIZED",
        34 => "CUDA_ERROR_STUB_LIBRARY",
        46 => "CUDA_ERROR_DEVICE_UNAVAILABLE",
        100 => "CUDA_ERROR_NO_DEVICE",
        101 => "CUDA_ERROR_INVALID_DEVICE",
        102 => "CUDA_ERROR_DEVICE_NOT_LICENSED",
        304 => "CUDA_ERROR_OPERATING_SYSTEM",
        800 => "CUDA_ERROR_NOT_PERMITTED",
        801 => "CUDA_ERROR_NOT_SUPPORTED",
        802 => "CUDA_ERROR_SYSTEM_NOT_READY",
        803 => "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        804 => "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        805 => "CUDA_ERROR_MPS_CONNECTION_FAILED",
        999 => "CUDA_ERROR_UNKNOWN",
        _ => "",
    };
    Status { code, name: name.to_owned() }
}
