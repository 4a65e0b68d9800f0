//! Output of tools to the problem behind it, by the signatures of `rules/signatures`. Used on what a trial build prints, and on logs.

mod errors;
mod normal;
mod read;
mod sieve;
mod source;

pub use read::{Match, Outcome, Reader, Scan, first_error};
pub use source::text;
