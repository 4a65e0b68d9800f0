//! Facts from the host, one file per topic: all candidates, no choices.

pub mod gpu;
