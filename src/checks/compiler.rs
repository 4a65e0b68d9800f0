//! Host compilers: what nvcc and torch accept, and which one they will run.

use super::Check;

pub const CHECKS: &[Check] = &[];
