//! Which toolkit torch finds, and whether it is the one that was meant.

use super::Check;

pub const CHECKS: &[Check] = &[];
