//! The Python environment: which one, its headers, what shadows what.

use super::Check;

pub const CHECKS: &[Check] = &[];
