//! Everything that touches a GPU library, in a child process of our own binary: a broken driver panics its bindings, crashes, hangs or
//! floods its output, and none of that may reach the doctor.
//!
//! [`client`] starts the child with a time limit, [`worker`] is what runs in it, [`protocol`] is what passes between them. The only
//! unsafe code of the crate is here.

pub mod client;
mod driver;
mod kernels;
mod loader;
pub mod nccl;
mod nvml;
pub mod protocol;
mod run;
pub mod worker;

pub use run::Kernels;
