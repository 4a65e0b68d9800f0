//! Repairs that need files: plans of what to make or move, and the one writer that carries them out.
//!
//! A plan is made from facts and from what folders hold, and can be shown without doing it. The writer opens every folder on the way
//! without following links and refuses what is not as it was when it was judged.

pub mod keep;
pub mod manifest;
pub mod overlay;
pub mod plan;
pub mod writer;
