//! The management library: every device it lists, and the versions it knows. One device's error never hides another device.
#![expect(unsafe_code, reason = "one function that the wrapper does not offer")]

use super::loader;
use super::protocol::{NvmlAnswer, Trouble};
use crate::facts::gpu::{CallError, ComputeMode, Device, Memory, Mig, MigInstance, Status};
use crate::version::{Capability, CudaVersion};
use nvml_wrapper::enum_wrappers::device::ComputeMode as Mode;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device as Handle, Nvml};
use std::ffi::c_uint;
use std::mem::{ManuallyDrop, MaybeUninit};

/// More devices than any machine has: a count beyond it is rubbish.
const MOST_DEVICES: u32 = 1024;
/// A GPU splits into seven MIG instances; the bound leaves room for what comes.
const MOST_INSTANCES: u32 = 64;

/// Asks the library that the loader finds under `name`.
pub fn ask(name: &str) -> Result<NvmlAnswer, Trouble> {
    let library = loader::open(name, "nvmlInit_v2")?;
    // SAFETY: only looked up. Every driver since 2013 has it; a file without it is no management library.
    unsafe { library.function::<unsafe extern "C" fn() -> c_uint>("nvmlInit_v2") }?;
    let exact = library.path.as_deref().map_or(name.as_ref(), |p| p.as_os_str());
    let mut answer =
        NvmlAnswer { library: library.fact(), init: status(0), driver: None, cuda: None, nvml: None, devices: None, errors: Vec::new() };
    // Never dropped: its drop shuts NVML down and unloads it, with nothing to gain before the process ends.
    let nvml = match Nvml::builder().lib_path(exact).init() {
        Ok(nvml) => ManuallyDrop::new(nvml),
        Err(e) => {
            let fault = fault("nvmlInit_v2", e);
            return match fault.code {
                Some(code) => Ok(NvmlAnswer { init: status(code), ..answer }),
                None => Err(Trouble::Unusable(fault.why)),
            };
        }
    };
    let errors = &mut answer.errors;
    answer.driver = keep(errors, "nvmlSystemGetDriverVersion", nvml.sys_driver_version()).and_then(|v| v.parse().ok());
    answer.nvml = keep(errors, "nvmlSystemGetNVMLVersion", nvml.sys_nvml_version()).and_then(|v| v.parse().ok());
    answer.cuda = keep(errors, "nvmlSystemGetCudaDriverVersion_v2", nvml.sys_cuda_driver_version())
        .and_then(|v| u32::try_from(v).ok())
        .filter(|v| *v > 0)
        .map(CudaVersion::from_macro);
    let count = keep(errors, "nvmlDeviceGetCount_v2", nvml.device_count());
    answer.devices = count.map(|count| (0..count.min(MOST_DEVICES)).map(|index| device(&nvml, index)).collect());
    Ok(answer)
}

fn device(nvml: &Nvml, index: u32) -> Device {
    let mut found = Device { index, ..Device::default() };
    let errors = &mut found.errors;
    let Some(handle) = keep(errors, "nvmlDeviceGetHandleByIndex_v2", nvml.device_by_index(index)) else { return found };
    found.name = keep(errors, "nvmlDeviceGetName", handle.name());
    found.capability = keep(errors, "nvmlDeviceGetCudaComputeCapability", handle.cuda_compute_capability())
        .and_then(|c| Some(Capability::new(u32::try_from(c.major).ok()?, u32::try_from(c.minor).ok()?)))
        .filter(|c| c.major > 0);
    found.memory = keep(errors, "nvmlDeviceGetMemoryInfo_v2", memory(nvml, &handle));
    found.uuid = keep(errors, "nvmlDeviceGetUUID", handle.uuid());
    found.bus = keep(errors, "nvmlDeviceGetPciInfo_v3", handle.pci_info()).map(|p| p.bus_id.to_ascii_lowercase());
    found.minor = keep(errors, "nvmlDeviceGetMinorNumber", handle.minor_number());
    found.compute_mode = keep(errors, "nvmlDeviceGetComputeMode", handle.compute_mode()).map(|mode| match mode {
        Mode::Default => ComputeMode::Default,
        Mode::ExclusiveThread => ComputeMode::ExclusiveThread,
        Mode::Prohibited => ComputeMode::Prohibited,
        Mode::ExclusiveProcess => ComputeMode::ExclusiveProcess,
    });
    found.persistence = keep(errors, "nvmlDeviceGetPersistenceMode", handle.is_in_persistent_mode());
    found.mig = keep(errors, "nvmlDeviceGetMigMode", handle.mig_mode()).map(|mode| Mig {
        enabled: mode.current != 0,
        pending: mode.pending != 0,
        instances: if mode.current == 0 { Vec::new() } else { instances(nvml, &handle, errors) },
    });
    found
}

/// MIG instances sit in numbered places, some of them empty.
fn instances(nvml: &Nvml, parent: &Handle<'_>, errors: &mut Vec<CallError>) -> Vec<MigInstance> {
    let places = keep(errors, "nvmlDeviceGetMaxMigDeviceCount", parent.mig_device_count()).unwrap_or(0);
    let mut found = Vec::new();
    for index in 0..places.min(MOST_INSTANCES) {
        let handle = match parent.mig_device_by_index(index) {
            Err(NvmlError::NotFound) => continue,
            other => keep(errors, "nvmlDeviceGetMigDeviceHandleByIndex", other),
        };
        let Some(handle) = handle else { continue };
        found.push(MigInstance {
            index,
            uuid: keep(errors, "nvmlDeviceGetUUID", handle.uuid()),
            name: keep(errors, "nvmlDeviceGetName", handle.name()),
            memory: keep(errors, "nvmlDeviceGetMemoryInfo_v2", memory(nvml, &handle)),
        });
    }
    found
}

/// Drivers before release 510 have only the first form of the call; the wrapper knows only the second.
fn memory(nvml: &Nvml, handle: &Handle<'_>) -> Result<Memory, NvmlError> {
    match handle.memory_info() {
        Ok(info) => Ok(Memory { total: info.total, free: info.free }),
        Err(NvmlError::FailedToLoadSymbol(why)) => {
            let Ok(function) = nvml.lib().nvmlDeviceGetMemoryInfo.as_ref() else { return Err(NvmlError::FailedToLoadSymbol(why)) };
            let mut info = MaybeUninit::zeroed();
            // SAFETY: the handle lives as long as `nvml`, and the struct is of the type that the function's signature names.
            let code = unsafe { function(handle.handle(), info.as_mut_ptr()) };
            nvml_wrapper::error::nvml_try(code)?;
            // SAFETY: all fields are integers, zeroed before the call.
            let info = unsafe { info.assume_init() };
            Ok(Memory { total: info.total, free: info.free })
        }
        Err(e) => Err(e),
    }
}

/// The value, or a note of what went wrong. That a device lacks a feature (`NOT_SUPPORTED`) is an answer, not a fault.
fn keep<T>(errors: &mut Vec<CallError>, call: &str, result: Result<T, NvmlError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(NvmlError::NotSupported) => None,
        Err(e) => {
            errors.push(fault(call, e));
            None
        }
    }
}

fn fault(call: &str, error: NvmlError) -> CallError {
    let (code, why) = match error {
        // The wrapper's own errors would all become code 999, which NVML itself uses too.
        NvmlError::FailedToLoadSymbol(_) => (None, format!("the library has no function {call}")),
        NvmlError::LibloadingError(_) | NvmlError::Utf8Error(_) | NvmlError::StringTooLong { .. } | NvmlError::IncorrectBits(_) => {
            (None, error.to_string())
        }
        error => {
            let status = status(error.into());
            (Some(status.code), status.to_string())
        }
    };
    CallError { call: call.to_owned(), code, why }
}

/// `nvml.h`, `nvmlReturn_t`.
fn status(code: u32) -> Status {
    let name = match code {
        0 => "NVML_SUCCESS",
        1 => "NVML_ERROR_UNINITIALIZED",
        2 => "NVML_ERROR_INVALID_ARGUMENT",
        3 => "NVML_ERROR_NOT_SUPPORTED",
        4 => "NVML_ERROR_NO_PERMISSION",
        6 => "NVML_ERROR_NOT_FOUND",
        7 => "NVML_ERROR_INSUFFICIENT_SIZE",
        8 => "NVML_ERROR_INSUFFICIENT_POWER",
        9 => "NVML_ERROR_DRIVER_NOT_LOADED",
        10 => "NVML_ERROR_TIMEOUT",
        11 => "NVML_ERROR_IRQ_ISSUE",
        12 => "NVML_ERROR_LIBRARY_NOT_FOUND",
        13 => "NVML_ERROR_FUNCTION_NOT_FOUND",
        14 => "NVML_ERROR_CORRUPTED_INFOROM",
        15 => "NVML_ERROR_GPU_IS_LOST",
        16 => "NVML_ERROR_RESET_REQUIRED",
        17 => "NVML_ERROR_OPERATING_SYSTEM",
        18 => "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        19 => "NVML_ERROR_IN_USE",
        20 => "NVML_ERROR_MEMORY",
        21 => "NVML_ERROR_NO_DATA",
        23 => "NVML_ERROR_INSUFFICIENT_RESOURCES",
        25 => "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
        27 => "NVML_ERROR_NOT_READY",
        28 => "NVML_ERROR_GPU_NOT_FOUND",
        29 => "NVML_ERROR_INVALID_STATE",
        999 => "NVML_ERROR_UNKNOWN",
        _ => "",
    };
    Status { code, name: name.to_owned() }
}
