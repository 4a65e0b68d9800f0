//! Memory, process limits, temporary folders, shared memory.

use super::Check;

pub const CHECKS: &[Check] = &[];
