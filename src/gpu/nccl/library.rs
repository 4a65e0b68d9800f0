//! NCCL itself: the functions of one file, looked up before any is called.
#![expect(unsafe_code, reason = "foreign functions")]

use super::super::loader::{self, Loaded};
use super::super::protocol::Trouble;
use crate::facts::nccl::{Failure, Op, result_name};
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use cudarc::nccl::sys::{ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

/// Codes are plain numbers: cudarc's result type is a closed enum, and a code that a newer NCCL adds would be undefined behaviour in it.
type Code = u32;
type Send = *const c_void;
type Receive = *mut c_void;

const SUCCESS: Code = 0;
/// Of a communicator that works in the background: no error.
const IN_PROGRESS: Code = 7;
const FLOAT: ncclDataType_t = ncclDataType_t::ncclFloat32;
const SUM: ncclRedOp_t = ncclRedOp_t::ncclSum;

#[derive(Clone, Copy)]
struct Functions {
    version: unsafe extern "C" fn(*mut c_int) -> Code,
    unique_id: unsafe extern "C" fn(*mut ncclUniqueId) -> Code,
    init: unsafe extern "C" fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int) -> Code,
    destroy: unsafe extern "C" fn(ncclComm_t) -> Code,
    async_error: unsafe extern "C" fn(ncclComm_t, *mut Code) -> Code,
    group_start: unsafe extern "C" fn() -> Code,
    group_end: unsafe extern "C" fn() -> Code,
    all_reduce: unsafe extern "C" fn(Send, Receive, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, CUstream) -> Code,
    broadcast: unsafe extern "C" fn(Send, Receive, usize, ncclDataType_t, c_int, ncclComm_t, CUstream) -> Code,
    all_gather: unsafe extern "C" fn(Send, Receive, usize, ncclDataType_t, ncclComm_t, CUstream) -> Code,
    reduce_scatter: unsafe extern "C" fn(Send, Receive, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, CUstream) -> Code,
    send: unsafe extern "C" fn(Send, usize, ncclDataType_t, c_int, ncclComm_t, CUstream) -> Code,
    receive: unsafe extern "C" fn(Receive, usize, ncclDataType_t, c_int, ncclComm_t, CUstream) -> Code,
}

/// An open NCCL. It stays open until the process ends: threads of it may still run.
pub struct Nccl {
    functions: Functions,
    /// Since 2.13.
    last_error: Option<unsafe extern "C" fn(ncclComm_t) -> *const c_char>,
}

/// One rank's end of a communicator.
pub struct Comm<'l> {
    library: &'l Nccl,
    handle: ncclComm_t,
    pub rank: u32,
    pub ranks: u32,
}

pub type UniqueId = ncclUniqueId;

impl Nccl {
    /// Opens this very file. A library without one of the functions is refused here, before the first call.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let refused = |trouble: Trouble| {
            let (Trouble::NotFound(why) | Trouble::Unusable(why) | Trouble::Panicked(why) | Trouble::Refused(why)) = trouble;
            Failure { call: "dlopen".to_owned(), code: None, why, last_error: String::new() }
        };
        let name = path.to_str().ok_or_else(|| refused(Trouble::Refused("its path is not UTF-8".to_owned())))?;
        let library = loader::open(name, "ncclGetVersion").map_err(refused)?;
        Self::of(&library).map_err(refused)
    }

    fn of(library: &Loaded) -> Result<Self, Trouble> {
        // SAFETY: the types are those of nccl.h, unchanged since 2.7, which was the first to have all of these functions.
        unsafe {
            Ok(Self {
                functions: Functions {
                    version: library.function("ncclGetVersion")?,
                    unique_id: library.function("ncclGetUniqueId")?,
                    init: library.function("ncclCommInitRank")?,
                    destroy: library.function("ncclCommDestroy")?,
                    async_error: library.function("ncclCommGetAsyncError")?,
                    group_start: library.function("ncclGroupStart")?,
                    group_end: library.function("ncclGroupEnd")?,
                    all_reduce: library.function("ncclAllReduce")?,
                    broadcast: library.function("ncclBroadcast")?,
                    all_gather: library.function("ncclAllGather")?,
                    reduce_scatter: library.function("ncclReduceScatter")?,
                    send: library.function("ncclSend")?,
                    receive: library.function("ncclRecv")?,
                },
                last_error: library.function("ncclGetLastError").ok(),
            })
        }
    }

    pub fn version(&self) -> Result<u32, Failure> {
        let mut code: c_int = 0;
        // SAFETY: the pointer is valid for the call.
        self.answer("ncclGetVersion", unsafe { (self.functions.version)(&raw mut code) })?;
        u32::try_from(code).map_err(|_| self.failure("ncclGetVersion", None, format!("the version {code}")))
    }

    /// Also makes the thread that the ranks of the communicator meet at: this process must live until they have.
    pub fn unique_id(&self) -> Result<UniqueId, Failure> {
        let mut id = UniqueId { internal: [0; 128] };
        // SAFETY: the pointer is valid for the call.
        self.answer("ncclGetUniqueId", unsafe { (self.functions.unique_id)(&raw mut id) })?;
        Ok(id)
    }

    /// Blocks until all ranks have come. The GPU of this rank must be this thread's current context.
    pub fn init(&self, id: UniqueId, rank: u32, ranks: u32) -> Result<Comm<'_>, Failure> {
        let mut handle: ncclComm_t = std::ptr::null_mut();
        let number = |n: u32| c_int::try_from(n).unwrap_or(c_int::MAX);
        // SAFETY: the pointer is valid for the call; the id is passed by value, as the header has it.
        let code = unsafe { (self.functions.init)(&raw mut handle, number(ranks), id, number(rank)) };
        self.answer("ncclCommInitRank", code)?;
        Ok(Comm { library: self, handle, rank, ranks })
    }

    fn answer(&self, call: &str, code: Code) -> Result<(), Failure> {
        if code == SUCCESS { Ok(()) } else { Err(self.failure(call, Some(code), String::new())) }
    }

    fn failure(&self, call: &str, code: Option<Code>, why: String) -> Failure {
        let last_error = self.last_error.map_or(std::ptr::null(), |function| {
            // SAFETY: the communicator may be null; the answer is a string that NCCL keeps, or null.
            unsafe { function(std::ptr::null_mut()) }
        });
        let last_error = if last_error.is_null() {
            String::new()
        } else {
            // SAFETY: not null, and a C string by the header.
            unsafe { CStr::from_ptr(last_error) }.to_string_lossy().into_owned()
        };
        let why = match code {
            Some(code) if result_name(code).is_empty() => format!("code {code}"),
            Some(code) => format!("{} ({code})", result_name(code)),
            None => why,
        };
        Failure { call: call.to_owned(), code, why, last_error }
    }
}

impl Comm<'_> {
    /// Puts one operation into the stream. `send` and `receive` count elements (32-bit floats).
    pub fn enqueue(&self, op: Op, from: (CUdeviceptr, u64), to: (CUdeviceptr, u64), stream: CUstream) -> Result<(), Failure> {
        let f = &self.library.functions;
        let (source, target) = (from.0 as Send, to.0 as Receive);
        let elements = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let (sent, received) = (elements(from.1), elements(to.1));
        let peer = |n: u32| c_int::try_from(n % self.ranks.max(1)).unwrap_or(0);
        let answer = |call: &str, code| self.library.answer(call, code);
        // SAFETY: both arrays are device memory of this process with room for these counts, and outlive the work in the stream, which is
        // waited for before they are touched again. The communicator and the stream are of this process.
        unsafe {
            match op {
                Op::AllReduce => answer(op.call(), (f.all_reduce)(source, target, sent, FLOAT, SUM, self.handle, stream)),
                Op::Broadcast => answer(op.call(), (f.broadcast)(source, target, sent, FLOAT, 0, self.handle, stream)),
                Op::AllGather => answer(op.call(), (f.all_gather)(source, target, sent, FLOAT, self.handle, stream)),
                Op::ReduceScatter => answer(op.call(), (f.reduce_scatter)(source, target, received, FLOAT, SUM, self.handle, stream)),
                Op::SendReceive => {
                    let (next, before) = (peer(self.rank + 1), peer(self.rank + self.ranks - 1));
                    answer("ncclGroupStart", (f.group_start)())?;
                    answer("ncclSend", (f.send)(source, sent, FLOAT, next, self.handle, stream))?;
                    answer("ncclRecv", (f.receive)(target, received, FLOAT, before, self.handle, stream))?;
                    answer("ncclGroupEnd", (f.group_end)())
                }
            }
        }
    }

    /// What went wrong behind the calls, if anything did.
    pub fn check(&self, op: Op) -> Result<(), Failure> {
        let mut code = SUCCESS;
        // SAFETY: the pointer is valid for the call.
        let asked = unsafe { (self.library.functions.async_error)(self.handle, &raw mut code) };
        self.library.answer("ncclCommGetAsyncError", asked)?;
        match code {
            SUCCESS | IN_PROGRESS => Ok(()),
            code => Err(self.library.failure(op.call(), Some(code), String::new())),
        }
    }

    pub fn close(self) -> Result<(), Failure> {
        // SAFETY: the handle is not used again.
        self.library.answer("ncclCommDestroy", unsafe { (self.library.functions.destroy)(self.handle) })
    }
}
