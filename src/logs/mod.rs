//! Output of tools to the problem behind it, by the signatures of `rules/signatures`. Used on what a trial build prints, and on logs.

mod read;

pub use read::{Match, Reader, first_error};
