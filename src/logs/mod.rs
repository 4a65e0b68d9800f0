//! Output of tools to the problem behind it, by the signatures of `rules/signatures`. Used on what a trial build prints, and on logs.

mod errors;
mod languages;
mod normal;
mod read;
mod scan;
mod sieve;
mod source;

pub use errors::first_error;
pub use read::{Match, Outcome, Reader};
pub use scan::Scan;
pub use source::text;
