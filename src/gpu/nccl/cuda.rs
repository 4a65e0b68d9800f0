//! The driver API, as far as the NCCL test needs it: GPUs, a context, a stream, memory and copies.
#![expect(unsafe_code, reason = "foreign functions")]

use super::super::protocol::Trouble;
use super::super::{driver, loader};
use crate::facts::nccl::{CudaDevice, Failure};
use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUstream};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// A plain number, as in `library.rs`.
type Code = u32;

const NOT_READY: Code = 600;
/// More devices than any machine has: a count beyond it is rubbish.
const MOST_DEVICES: c_int = 1024;

#[derive(Clone, Copy)]
struct Functions {
    init: unsafe extern "C" fn(c_uint) -> Code,
    count: unsafe extern "C" fn(*mut c_int) -> Code,
    get: unsafe extern "C" fn(*mut CUdevice, c_int) -> Code,
    name: unsafe extern "C" fn(*mut c_char, c_int, CUdevice) -> Code,
    bus: unsafe extern "C" fn(*mut c_char, c_int, CUdevice) -> Code,
    retain: unsafe extern "C" fn(*mut CUcontext, CUdevice) -> Code,
    set_current: unsafe extern "C" fn(CUcontext) -> Code,
    stream_create: unsafe extern "C" fn(*mut CUstream, c_uint) -> Code,
    stream_query: unsafe extern "C" fn(CUstream) -> Code,
    alloc: unsafe extern "C" fn(*mut CUdeviceptr, usize) -> Code,
    to_device: unsafe extern "C" fn(CUdeviceptr, *const c_void, usize) -> Code,
    to_host: unsafe extern "C" fn(*mut c_void, CUdeviceptr, usize) -> Code,
    set_bytes: unsafe extern "C" fn(CUdeviceptr, u8, usize) -> Code,
}

/// An initialised driver; open until the process ends.
pub struct Cuda {
    functions: Functions,
}

/// One GPU in use by this thread, with a stream. Nothing is given back: the process ends.
pub struct Gpu {
    functions: Functions,
    pub stream: CUstream,
}

/// Device memory, of `bytes`.
#[derive(Clone, Copy)]
pub struct Array {
    pub at: CUdeviceptr,
    bytes: usize,
}

fn answer(call: &str, code: Code) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        code => Err(Failure { call: call.to_owned(), code: Some(code), why: driver::status(code).to_string(), last_error: String::new() }),
    }
}

impl Cuda {
    pub fn open(library: &str) -> Result<Self, Failure> {
        let refused = |trouble: Trouble| {
            let (Trouble::NotFound(why) | Trouble::Unusable(why) | Trouble::Panicked(why) | Trouble::Refused(why)) = trouble;
            Failure { call: "dlopen".to_owned(), code: None, why, last_error: String::new() }
        };
        let library = loader::open(library, "cuInit").map_err(refused)?;
        // SAFETY: the types are those of cuda.h for these names; `_v2` is what its macros have chosen since CUDA 3.2.
        let functions = unsafe {
            (|| {
                Ok(Functions {
                    init: library.function("cuInit")?,
                    count: library.function("cuDeviceGetCount")?,
                    get: library.function("cuDeviceGet")?,
                    name: library.function("cuDeviceGetName")?,
                    bus: library.function("cuDeviceGetPCIBusId")?,
                    retain: library.function("cuDevicePrimaryCtxRetain")?,
                    set_current: library.function("cuCtxSetCurrent")?,
                    stream_create: library.function("cuStreamCreate")?,
                    stream_query: library.function("cuStreamQuery")?,
                    alloc: library.function("cuMemAlloc_v2")?,
                    to_device: library.function("cuMemcpyHtoD_v2")?,
                    to_host: library.function("cuMemcpyDtoH_v2")?,
                    set_bytes: library.function("cuMemsetD8_v2")?,
                })
            })()
        };
        let cuda = Self { functions: functions.map_err(refused)? };
        // SAFETY: flags must be 0.
        answer("cuInit", unsafe { (cuda.functions.init)(0) })?;
        Ok(cuda)
    }

    /// In CUDA's numbering, the mask applied. What a device does not tell of itself stays empty.
    pub fn devices(&self) -> Result<Vec<CudaDevice>, Failure> {
        let mut count: c_int = 0;
        // SAFETY: the pointer is valid for the call.
        answer("cuDeviceGetCount", unsafe { (self.functions.count)(&raw mut count) })?;
        let text = |function: unsafe extern "C" fn(*mut c_char, c_int, CUdevice) -> Code, device| {
            let mut buffer = [0_u8; 128];
            // SAFETY: one byte less than the buffer is offered, so that a string always ends in it.
            let code = unsafe { function(buffer.as_mut_ptr().cast(), 127, device) };
            let text = CStr::from_bytes_until_nul(&buffer).ok()?.to_string_lossy().into_owned();
            (code == 0 && !text.is_empty()).then_some(text)
        };
        (0..count.clamp(0, MOST_DEVICES))
            .map(|ordinal| {
                let device = self.device(ordinal)?;
                Ok(CudaDevice {
                    ordinal: u32::try_from(ordinal).unwrap_or(0),
                    name: text(self.functions.name, device),
                    bus: text(self.functions.bus, device).map(|bus| bus.to_ascii_lowercase()),
                })
            })
            .collect()
    }

    fn device(&self, ordinal: c_int) -> Result<CUdevice, Failure> {
        let mut device: CUdevice = 0;
        // SAFETY: the pointer is valid for the call.
        answer("cuDeviceGet", unsafe { (self.functions.get)(&raw mut device, ordinal) })?;
        Ok(device)
    }

    /// Makes the device's primary context, the one that NCCL's own runtime takes, current in this thread.
    pub fn gpu(&self, ordinal: u32) -> Result<Gpu, Failure> {
        let device = self.device(c_int::try_from(ordinal).unwrap_or(c_int::MAX))?;
        let mut context: CUcontext = std::ptr::null_mut();
        let mut stream: CUstream = std::ptr::null_mut();
        let f = self.functions;
        // SAFETY: the pointers are valid for the calls, and the context lives until the process ends.
        unsafe {
            answer("cuDevicePrimaryCtxRetain", (f.retain)(&raw mut context, device))?;
            answer("cuCtxSetCurrent", (f.set_current)(context))?;
            // Flags 0: it waits for the copies, which go through the default stream.
            answer("cuStreamCreate", (f.stream_create)(&raw mut stream, 0))?;
        }
        Ok(Gpu { functions: f, stream })
    }
}

impl Gpu {
    pub fn array(&self, bytes: u64) -> Result<Array, Failure> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut at: CUdeviceptr = 0;
        // SAFETY: the pointer is valid for the call.
        answer("cuMemAlloc", unsafe { (self.functions.alloc)(&raw mut at, bytes) })?;
        Ok(Array { at, bytes })
    }

    /// Copies into the array from byte `offset` on; what would not fit is left out.
    pub fn write(&self, array: Array, offset: u64, values: &[f32]) -> Result<(), Failure> {
        let Some((at, bytes)) = array.part(offset, size_of_val(values)) else { return Ok(()) };
        // SAFETY: both ends hold this many bytes.
        answer("cuMemcpyHtoD", unsafe { (self.functions.to_device)(at, values.as_ptr().cast(), bytes) })
    }

    /// The other way.
    pub fn read(&self, array: Array, offset: u64, values: &mut [f32]) -> Result<(), Failure> {
        let Some((at, bytes)) = array.part(offset, size_of_val(values)) else { return Ok(()) };
        // SAFETY: both ends hold this many bytes, and any bits are a float.
        answer("cuMemcpyDtoH", unsafe { (self.functions.to_host)(values.as_mut_ptr().cast(), at, bytes) })
    }

    /// Fills the beginning of the array with bytes that make no number.
    pub fn blot(&self, array: Array, bytes: u64) -> Result<(), Failure> {
        let Some((at, bytes)) = array.part(0, usize::try_from(bytes).unwrap_or(usize::MAX)) else { return Ok(()) };
        // SAFETY: the array holds this many bytes.
        answer("cuMemsetD8", unsafe { (self.functions.set_bytes)(at, 0xff, bytes) })
    }

    /// Whether the stream has done all that was put into it.
    pub fn is_done(&self) -> Result<bool, Failure> {
        // SAFETY: the stream lives until the process ends.
        match unsafe { (self.functions.stream_query)(self.stream) } {
            NOT_READY => Ok(false),
            code => answer("cuStreamQuery", code).map(|()| true),
        }
    }
}

impl Array {
    fn part(self, offset: u64, bytes: usize) -> Option<(CUdeviceptr, usize)> {
        let room = self.bytes.checked_sub(usize::try_from(offset).ok()?)?;
        Some((self.at + offset, bytes.min(room)))
    }
}
