//! torch against the toolkit: no torch, a torch without CUDA, versions that do not go together.

use super::Check;

pub const CHECKS: &[Check] = &[];
