//! The extension cache: locks, stale objects, permissions.

use super::Check;

pub const CHECKS: &[Check] = &[];
