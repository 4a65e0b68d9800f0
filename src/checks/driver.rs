//! The NVIDIA driver: kernel module, libraries, device nodes, releases.

use super::Check;

pub const CHECKS: &[Check] = &[];
