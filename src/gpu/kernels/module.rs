//! Without the CUDA runtime: compiled kernels handed to the driver through its own interface.
//!
//! The types and names are cudarc's, and so is the library that it opens. Its functions are looked up here once more, as functions that answer
//! with a number: the bindings panic over a function that an old driver lacks, and their enum of answers is closed, while a newer driver has
//! more.
#![expect(unsafe_code, reason = "foreign functions")]
#![expect(clippy::disallowed_methods, reason = "runs in the worker, which reads the files that it was given")]

use super::suite::{Job, Kernel};
use super::{About, Device, Unready};
use crate::facts::gpu::Status;
use crate::facts::kernel::{CallFailed, Gpu, Way};
use crate::facts::raw::HostPath;
use crate::gpu::driver;
use crate::gpu::protocol::{DevicesAnswer, Trouble};
use crate::version::{Capability, CudaVersion};
use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute as Attribute, CUdeviceptr, CUfunction, CUmodule, CUstream};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::Instant;

/// More devices than any machine has.
const MOST_DEVICES: c_int = 1024;
/// An image of the kernels is a few hundred kB.
const MOST_IMAGE: u64 = 64 << 20;
/// What the driver's PTX compiler may say.
const LOG_BYTES: usize = 4096;

/// A table of the driver's functions. All of them are in every driver since CUDA 11.0.
macro_rules! functions {
    ($($name:ident: $symbol:literal ($($type:ty),*);)*) => {
        struct Driver { $($name: unsafe extern "C" fn($($type),*) -> c_uint,)* }

        impl Driver {
            /// # Errors
            /// The function that the library lacks.
            fn new(shown: &str) -> Result<Self, Trouble> {
                // SAFETY: `driver::open` has seen that the library can be opened.
                let library = unsafe { sys::culib() };
                Ok(Self {
                    $($name: {
                        // SAFETY: the types are those of the bindings, but for the answer: an integer of the same width.
                        let found = unsafe { library.get::<unsafe extern "C" fn($($type),*) -> c_uint>($symbol.as_bytes()) };
                        *found.map_err(|_| Trouble::Unusable(format!("{shown} has no function {}", $symbol)))?
                    },)*
                })
            }
        }
    };
}

functions! {
    init: "cuInit" (c_uint);
    version: "cuDriverGetVersion" (*mut c_int);
    count: "cuDeviceGetCount" (*mut c_int);
    device: "cuDeviceGet" (*mut CUdevice, c_int);
    name: "cuDeviceGetName" (*mut c_char, c_int, CUdevice);
    uuid: "cuDeviceGetUuid" (*mut [u8; 16], CUdevice);
    attribute: "cuDeviceGetAttribute" (*mut c_int, Attribute, CUdevice);
    error_name: "cuGetErrorName" (c_uint, *mut *const c_char);
    retain: "cuDevicePrimaryCtxRetain" (*mut CUcontext, CUdevice);
    current: "cuCtxSetCurrent" (CUcontext);
    wait: "cuCtxSynchronize" ();
    memory: "cuMemGetInfo_v2" (*mut usize, *mut usize);
    load: "cuModuleLoadDataEx" (*mut CUmodule, *const c_void, c_uint, *mut sys::CUjit_option, *mut *mut c_void);
    unload: "cuModuleUnload" (CUmodule);
    function: "cuModuleGetFunction" (*mut CUfunction, CUmodule, *const c_char);
    function_attribute: "cuFuncGetAttribute" (*mut c_int, sys::CUfunction_attribute, CUfunction);
    allocate: "cuMemAlloc_v2" (*mut CUdeviceptr, usize);
    free: "cuMemFree_v2" (CUdeviceptr);
    set: "cuMemsetD8_v2" (CUdeviceptr, u8, usize);
    copy_in: "cuMemcpyHtoD_v2" (CUdeviceptr, *const c_void, usize);
    copy_out: "cuMemcpyDtoH_v2" (*mut c_void, CUdeviceptr, usize);
    launch: "cuLaunchKernel"
        (CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void);
    launch_cooperative: "cuLaunchCooperativeKernel"
        (CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void);
}

/// Calls a function of the driver; what it answers other than success is returned as the failed call.
macro_rules! call {
    ($driver:expr, $name:literal, $field:ident($($argument:expr),*)) => {{
        // SAFETY: every pointer is to a live variable or buffer of the type and length that the function asks for.
        let code = unsafe { ($driver.$field)($($argument),*) };
        if code != 0 {
            return Err($driver.failed($name, code).into());
        }
    }};
}

impl Driver {
    fn failed(&self, call: &str, code: u32) -> CallFailed {
        let mut name: *const c_char = null();
        // SAFETY: the pointer is valid for the call; the name lives as long as the library.
        let known = unsafe { (self.error_name)(code, &raw mut name) } == 0 && !name.is_null();
        // SAFETY: just checked; the driver gives a terminated string.
        let name = if known { unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned() } else { String::new() };
        CallFailed { call: call.to_owned(), status: Status { code, name }, words: None }
    }

    fn number(&self, attribute: Attribute, device: CUdevice) -> Result<u32, CallFailed> {
        let mut value = 0;
        call!(self, "cuDeviceGetAttribute", attribute(&raw mut value, attribute, device));
        Ok(u32::try_from(value).unwrap_or(0))
    }

    fn device(&self, ordinal: u32) -> Result<CUdevice, CallFailed> {
        let mut device = 0;
        call!(self, "cuDeviceGet", device(&raw mut device, c_int::try_from(ordinal).unwrap_or(c_int::MAX)));
        Ok(device)
    }

    fn capability(&self, device: CUdevice) -> Result<Capability, CallFailed> {
        let major = self.number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)?;
        Ok(Capability::new(major, self.number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)?))
    }

    fn gpus(&self) -> Result<Vec<Gpu>, CallFailed> {
        call!(self, "cuInit", init(0));
        let mut count = 0;
        call!(self, "cuDeviceGetCount", count(&raw mut count));
        (0..count.clamp(0, MOST_DEVICES)).map(|ordinal| Ok(self.gpu(ordinal.unsigned_abs()))).collect()
    }

    /// What cannot be told about one GPU is left out: trying it will say why.
    fn gpu(&self, ordinal: u32) -> Gpu {
        let mut gpu = Gpu { ordinal, ..Gpu::default() };
        let Ok(device) = self.device(ordinal) else { return gpu };
        gpu.name = self.named(device).ok();
        gpu.uuid = self.uuid(device).ok();
        gpu.capability = self.capability(device).ok();
        // kHz and bits.
        let clock = self.number(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device).unwrap_or(0);
        let width = self.number(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device).unwrap_or(0);
        gpu.bandwidth = (clock > 0 && width > 0).then(|| 2.0 * f64::from(clock) * 1e3 * f64::from(width) / 8.0 / 1e9);
        gpu
    }

    fn named(&self, device: CUdevice) -> Result<String, CallFailed> {
        let mut name = [0u8; 256];
        call!(self, "cuDeviceGetName", name(name.as_mut_ptr().cast(), 255, device));
        Ok(CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
    }

    /// As CUDA_VISIBLE_DEVICES takes it. A MIG instance has a UUID of its own, which only the second form of the call (11.4) tells.
    fn uuid(&self, device: CUdevice) -> Result<String, CallFailed> {
        let mut uuid = [0; 16];
        call!(self, "cuDeviceGetUuid", uuid(&raw mut uuid, device));
        let mut own = uuid;
        // SAFETY: the library is open; the type is that of the first form.
        if let Ok(second) = unsafe { sys::culib().get::<unsafe extern "C" fn(*mut [u8; 16], CUdevice) -> c_uint>(b"cuDeviceGetUuid_v2") } {
            let mut told = [0; 16];
            // SAFETY: the pointer is valid for the call.
            if unsafe { second(&raw mut told, device) } == 0 {
                own = told;
            }
        }
        Ok(format!("{}-{}", if own == uuid { "GPU" } else { "MIG" }, dashed(own)))
    }
}

/// `0123abcd-…`, as NVML and nvidia-smi write it.
fn dashed(uuid: [u8; 16]) -> String {
    let digits =
        |range: std::ops::Range<usize>| -> String { uuid.iter().take(range.end).skip(range.start).map(|b| format!("{b:02x}")).collect() };
    [digits(0..4), digits(4..6), digits(6..8), digits(8..10), digits(10..16)].join("-")
}

/// The GPUs that the driver shows to this process.
pub fn list(name: &str, links: Option<&Path>) -> Result<DevicesAnswer, Trouble> {
    super::step("asking the driver for its GPUs");
    let library = driver::open(name, links)?;
    let driver = Driver::new(&library.shown())?;
    let mut version = 0;
    // SAFETY: the pointer is valid for the call.
    let told = unsafe { (driver.version)(&raw mut version) } == 0;
    let cuda = u32::try_from(version).ok().filter(|v| told && *v > 0).map(CudaVersion::from_macro);
    Ok(DevicesAnswer { library: library.fact(), cuda, gpus: driver.gpus() })
}

pub struct Module {
    driver: Driver,
    module: CUmodule,
    about: About,
}

pub fn open(way: Way, images: &[HostPath], name: &str, links: Option<&Path>, ordinal: u32) -> Result<Module, Unready> {
    if images.is_empty() {
        return Err(Unready::Skipped(format!("no {way} was made")));
    }
    let library = driver::open(name, links)?;
    let driver = Driver::new(&library.shown())?;
    call!(driver, "cuInit", init(0));
    let device = driver.device(ordinal)?;
    let capability = driver.capability(device)?;
    let mut context: CUcontext = null_mut();
    call!(driver, "cuDevicePrimaryCtxRetain", retain(&raw mut context, device));
    call!(driver, "cuCtxSetCurrent", current(context));
    let (mut free, mut total) = (0, 0);
    call!(driver, "cuMemGetInfo_v2", memory(&raw mut free, &raw mut total));
    let mut about = About {
        capability,
        processors: driver.number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)?,
        cooperative: driver.number(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, device)? != 0,
        free: free as u64,
        runtime: None,
        loaded: None,
    };
    let (module, path) = match way {
        Way::Ptx => best_ptx(&driver, images, capability)?,
        Way::Cubin | Way::Runtime => best_cubin(&driver, images)?,
    };
    about.loaded = Some(path);
    Ok(Module { driver, module, about })
}

/// Of the cubins that the driver takes for this GPU the one for the newest. Which fit is the driver's to say.
fn best_cubin(driver: &Driver, images: &[HostPath]) -> Result<(CUmodule, HostPath), Unready> {
    let mut best: Option<(i32, CUmodule, HostPath)> = None;
    let mut refused = None;
    for path in images {
        match load_image(driver, &read(path)?) {
            Ok(module) => {
                let made_for = binary_version(driver, module).unwrap_or(0);
                if best.as_ref().is_none_or(|(version, ..)| made_for > *version) {
                    best = Some((made_for, module, path.clone()));
                } else {
                    // SAFETY: loaded just now, and nothing of it is in use.
                    unsafe { (driver.unload)(module) };
                }
            }
            // An image for another GPU (209) hides no other failure.
            Err(failed) if refused.is_none() || failed.status.code != 209 => refused = Some(failed),
            Err(_) => {}
        }
    }
    match (best, refused) {
        (Some((_, module, path)), _) => Ok((module, path)),
        (None, Some(failed)) => Err(failed.into()),
        (None, None) => Err(Unready::Skipped("no cubin was made".to_owned())),
    }
}

/// The compute capability that the code of a module was made for.
fn binary_version(driver: &Driver, module: CUmodule) -> Result<i32, CallFailed> {
    let (mut function, mut version): (CUfunction, c_int) = (null_mut(), 0);
    call!(driver, "cuModuleGetFunction", function(&raw mut function, module, c"ds_vector_add".as_ptr()));
    call!(
        driver,
        "cuFuncGetAttribute",
        function_attribute(&raw mut version, sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION, function)
    );
    Ok(version)
}

/// The PTX for the newest GPU that is not newer than this one.
fn best_ptx(driver: &Driver, images: &[HostPath], capability: Capability) -> Result<(CUmodule, HostPath), Unready> {
    let mut best: Option<(Capability, Vec<u8>, &HostPath)> = None;
    for path in images {
        let text = read(path)?;
        if let Some(target) = ptx_target(&text).filter(|target| *target <= capability)
            && best.as_ref().is_none_or(|(before, ..)| target > *before)
        {
            best = Some((target, text, path));
        }
    }
    let Some((_, text, path)) = best else {
        return Err(Unready::Skipped(format!("no PTX was made that compute capability {capability} can take")));
    };
    Ok((load_image(driver, &text)?, path.clone()))
}

/// The number in `.target sm_90`. PTX for `sm_90a` serves that very GPU; a wrong choice among such is told by the driver.
fn ptx_target(text: &[u8]) -> Option<Capability> {
    let text = String::from_utf8_lossy(text.get(..4096).unwrap_or(text));
    let line = text.lines().find_map(|line| line.trim().strip_prefix(".target sm_"))?;
    let digits: String = line.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().map(Capability::from_sm)
}

fn read(path: &HostPath) -> Result<Vec<u8>, Trouble> {
    let refused = |why: String| Trouble::Refused(format!("{}: {why}", path.display()));
    let length = std::fs::metadata(path).map_err(|e| refused(e.to_string()))?.len();
    if length > MOST_IMAGE {
        return Err(refused("too long for the kernels".to_owned()));
    }
    let mut bytes = std::fs::read(path).map_err(|e| refused(e.to_string()))?;
    // PTX is handed over as a C string.
    bytes.push(0);
    Ok(bytes)
}

fn load_image(driver: &Driver, image: &[u8]) -> Result<CUmodule, CallFailed> {
    let mut module: CUmodule = null_mut();
    let mut log = vec![0u8; LOG_BYTES];
    let mut options = [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The driver takes a number in the place of the pointer.
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG_BYTES - 1)];
    // SAFETY: the image ends with a zero byte, and the options with their values are two each; all live through the call.
    let code = unsafe { (driver.load)(&raw mut module, image.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()) };
    if code == 0 {
        return Ok(module);
    }
    let mut failed = driver.failed("cuModuleLoadDataEx", code);
    let words = CStr::from_bytes_until_nul(&log).map(|words| words.to_string_lossy().trim().to_owned()).unwrap_or_default();
    failed.words = Some(words).filter(|words| !words.is_empty());
    Err(failed)
}

/// Memory of the GPU, given back when it is no longer needed.
struct Buffer<'a> {
    driver: &'a Driver,
    at: CUdeviceptr,
}

impl<'a> Buffer<'a> {
    fn new(driver: &'a Driver, bytes: usize) -> Result<Self, CallFailed> {
        let mut at = 0;
        call!(driver, "cuMemAlloc_v2", allocate(&raw mut at, bytes));
        Ok(Self { driver, at })
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated by the same driver, and given back once. An error here repeats an earlier one.
        unsafe { (self.driver.free)(self.at) };
    }
}

impl Device for Module {
    fn about(&self) -> &About {
        &self.about
    }

    fn run(&mut self, kernel: &Kernel, job: &Job, out: &mut [u8], turns: u32) -> Result<f64, CallFailed> {
        let driver = &self.driver;
        let mut function: CUfunction = null_mut();
        let symbol = CString::new(kernel.symbol).unwrap_or_default();
        call!(driver, "cuModuleGetFunction", function(&raw mut function, self.module, symbol.as_ptr()));
        let from = Buffer::new(driver, job.input.len())?;
        let to = Buffer::new(driver, out.len())?;
        call!(driver, "cuMemcpyHtoD_v2", copy_in(from.at, job.input.as_ptr().cast(), job.input.len()));
        call!(driver, "cuMemsetD8_v2", set(to.at, 0, out.len()));
        let start = || -> Result<(), CallFailed> {
            let (mut a, mut b, mut n) = (from.at, to.at, job.n);
            let mut arguments: [*mut c_void; 3] = [(&raw mut a).cast(), (&raw mut b).cast(), (&raw mut n).cast()];
            let (blocks, threads, arguments) = (job.blocks, job.threads, arguments.as_mut_ptr());
            if kernel.cooperative {
                call!(
                    driver,
                    "cuLaunchCooperativeKernel",
                    launch_cooperative(function, blocks, 1, 1, threads, 1, 1, 0, null_mut(), arguments)
                );
            } else {
                call!(driver, "cuLaunchKernel", launch(function, blocks, 1, 1, threads, 1, 1, 0, null_mut(), arguments, null_mut()));
            }
            Ok(())
        };
        start()?;
        call!(driver, "cuCtxSynchronize", wait());
        call!(driver, "cuMemcpyDtoH_v2", copy_out(out.as_mut_ptr().cast(), to.at, out.len()));
        let begin = Instant::now();
        for _ in 0..turns {
            start()?;
        }
        call!(driver, "cuCtxSynchronize", wait());
        Ok(if turns > 0 { begin.elapsed().as_secs_f64() } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_ptx() {
        let ptx =
            |target: &str| format!("//\n// Generated by NVIDIA NVVM Compiler\n//\n\n.version 9.0\n.target {target}\n.address_size 64\n");
        for (target, found) in [("sm_90", Some(90)), ("sm_90a", Some(90)), ("sm_103f, debug", Some(103)), ("compute", None)] {
            assert_eq!(ptx_target(ptx(target).as_bytes()), found.map(Capability::from_sm), "{target}");
        }
        assert_eq!(ptx_target(b"\x7fELF"), None);
    }

    #[test]
    fn a_uuid_as_it_is_written() {
        let uuid = std::array::from_fn(|at| at as u8 * 17);
        assert_eq!(dashed(uuid), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
