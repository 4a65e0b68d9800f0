//! Machines for the unit tests of checks, and how a question is put to them.
#![expect(clippy::unwrap_used, clippy::panic)]

mod ask;
mod bare;
mod healthy;

pub use ask::*;
pub use bare::*;
pub use healthy::*;
