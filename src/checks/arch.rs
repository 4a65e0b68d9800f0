//! TORCH_CUDA_ARCH_LIST: its form, its readers, what it covers.

use super::Check;

pub const CHECKS: &[Check] = &[];
