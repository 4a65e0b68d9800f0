//! The NCCL test: one process opens the library, then one process for each rank talks to the others through it.
//!
//! A process a rank, so that a crash or a hang is seen by the name of its rank. [`client`] starts them, hears each step from each of them,
//! and ends them all when one falls out or nothing moves any more.

pub mod client;
mod collectives;
mod cuda;
mod library;
mod process;
pub mod protocol;
mod segments;
mod values;
pub(super) mod worker;
