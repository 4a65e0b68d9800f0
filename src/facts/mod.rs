//! What is true of a machine: plain serialisable values, no choices. `collect` fills them, `model` and `checks` read them.

pub mod cache;
pub mod compiler;
pub mod device_code;
pub mod elf;
pub mod env;
pub mod gpu;
pub mod host;
pub mod inspect;
pub mod kernel;
pub mod loader;
pub mod log;
pub mod nccl;
pub mod observed;
pub mod ops;
pub mod probe;
pub mod program;
pub mod python;
pub mod raw;
pub mod redact;
pub mod secret;
pub mod snapshot;
pub mod source;
pub mod toolkit;
pub mod torch;
