//! Headers and libraries that builds need from the toolkit, where builds look for them.

use super::Check;

pub const CHECKS: &[Check] = &[];
