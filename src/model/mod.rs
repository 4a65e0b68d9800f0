//! What torch, nvcc, pip, the dynamic loader and DeepSpeed would do on this machine, computed from facts alone.

pub mod arch_list;
pub mod arch_plan;
pub mod assume;
pub mod build;
pub mod build_flags;
pub mod cuda_home;
pub mod device_code;
pub mod gate;
pub mod host_compiler;
pub mod inspect;
pub mod loader;
pub mod ops;
pub mod overlay;
pub mod plan;
pub mod python;
pub mod search;
pub mod symbols;
pub mod torch_cache;
pub mod visible;
