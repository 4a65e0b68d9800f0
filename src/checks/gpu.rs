//! The GPUs and what torch and the toolkit can do for them.

use super::Check;

pub const CHECKS: &[Check] = &[];
