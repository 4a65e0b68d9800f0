//! What the dynamic loader will give torch, its extensions and the interpreter.

use super::Check;

pub const CHECKS: &[Check] = &[];
