//! Whether the toolkit that torch picks is whole, of one release, and able to compile.

use super::Check;

pub const CHECKS: &[Check] = &[];
