//! A trial build with the programs, flags and order of a torch extension: compile, link, load. Results are facts; `checks` judge them.

mod cache;
mod cutlass;
mod execute;
mod looks;
pub mod ops;
mod remember;
mod steps;
pub mod trial;

pub use steps::{Options, Phase, probe};
pub use trial::{Bench, Link, Program, Trial};

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
