//! DeepSpeed: its accelerator, its default list, its variables.

use super::Check;

pub const CHECKS: &[Check] = &[];
