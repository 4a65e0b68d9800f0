//! Programs and modules that builds call: ninja, setuptools, pip, and the variables that steer them.

use super::Check;

pub const CHECKS: &[Check] = &[];
