//! As an extension runs: the library that was built, through the CUDA runtime that it is bound to.
#![expect(unsafe_code, reason = "foreign functions")]

use super::suite::{Job, Kernel};
use super::{About, Device, Unready, load};
use crate::facts::gpu::Status;
use crate::facts::kernel::CallFailed;
use crate::facts::raw::HostPath;
use crate::gpu::loader;
use crate::gpu::protocol::Trouble;
use crate::version::{Capability, CudaVersion};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

/// `DS_PROBE_ABI` of kernels/probe.h, whose types stand below.
const ABI: c_int = 1;

#[repr(C)]
struct Failure {
    call: [c_char; 40],
    code: c_int,
    name: [c_char; 60],
}

#[repr(C)]
#[derive(Default)]
struct Described {
    runtime: c_int,
    driver: c_int,
    count: c_int,
    capability: c_int,
    processors: c_int,
    cooperative: c_int,
    free_bytes: u64,
    total_bytes: u64,
}

type AbiFn = unsafe extern "C" fn() -> c_int;
type OpenFn = unsafe extern "C" fn(c_int, *mut Described, *mut Failure) -> c_int;
type RunFn = unsafe extern "C" fn(
    *const c_char,
    *const c_void,
    usize,
    *mut c_void,
    usize,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    *mut f64,
    *mut Failure,
) -> c_int;

pub struct Runtime {
    run: RunFn,
    about: About,
}

pub fn open(library: &HostPath, first: &[HostPath], ordinal: u32) -> Result<Runtime, Unready> {
    let bound = load(library, first)?;
    // Loaded already: this only gives another handle.
    let built = loader::bind(library, false)?;
    // SAFETY: the types are those of kernels/probe.h.
    let abi = unsafe { built.function::<AbiFn>("ds_probe_abi") }?;
    // SAFETY: takes nothing and only returns a number.
    let abi = unsafe { abi() };
    if abi != ABI {
        return Err(Trouble::Refused(format!("{} has the interface {abi}, not {ABI}", library.display())).into());
    }
    // SAFETY: as above; the interface is the one that is written here.
    let (open, run) = unsafe { (built.function::<OpenFn>("ds_probe_open")?, built.function::<RunFn>("ds_probe_run")?) };
    let mut described = Described::default();
    let mut failure = Failure::new();
    let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
    // SAFETY: both pointers are valid for the call.
    if unsafe { open(ordinal, &raw mut described, &raw mut failure) } != 0 {
        return Err(failure.told().into());
    }
    let number = |value: c_int| u32::try_from(value).unwrap_or(0);
    let about = About {
        capability: Capability::from_sm(number(described.capability)),
        processors: number(described.processors),
        cooperative: described.cooperative != 0,
        free: described.free_bytes,
        runtime: Some(number(described.runtime)).filter(|v| *v > 0).map(CudaVersion::from_macro),
        loaded: bound.runtime().cloned(),
    };
    Ok(Runtime { run, about })
}

impl Device for Runtime {
    fn about(&self) -> &About {
        &self.about
    }

    fn run(&mut self, kernel: &Kernel, job: &Job, out: &mut [u8], turns: u32) -> Result<f64, CallFailed> {
        let symbol = CString::new(kernel.symbol).unwrap_or_default();
        let mut seconds = 0.0;
        let mut failure = Failure::new();
        // SAFETY: the buffers are as long as is said, and live through the call; the library copies from and to them and keeps nothing.
        let answer = unsafe {
            (self.run)(
                symbol.as_ptr(),
                job.input.as_ptr().cast(),
                job.input.len(),
                out.as_mut_ptr().cast(),
                out.len(),
                job.n,
                job.blocks,
                job.threads,
                turns,
                &raw mut seconds,
                &raw mut failure,
            )
        };
        if answer == 0 { Ok(seconds) } else { Err(failure.told()) }
    }
}

impl Failure {
    const fn new() -> Self {
        Self { call: [0; 40], code: 0, name: [0; 60] }
    }

    fn told(&self) -> CallFailed {
        let status = Status { code: u32::try_from(self.code).unwrap_or(u32::MAX), name: text(&self.name) };
        CallFailed { call: text(&self.call), status, words: None }
    }
}

/// A C string in a field, which ends with the field if nothing ends it before.
fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|c| c.cast_unsigned()).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}
