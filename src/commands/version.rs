//! `ds-doctor --version`

use crate::exit::Exit;
use crate::knowledge::Knowledge;
use std::io::Write as _;

/// # Errors
/// When nothing can be written.
pub fn run() -> anyhow::Result<Exit> {
    let know = Knowledge::embedded();
    let mut out = std::io::stdout().lock();
    writeln!(out, "ds-doctor {}", env!("CARGO_PKG_VERSION"))?;
    let cuda = know.newest_cuda().map(|cuda| cuda.to_string()).unwrap_or_default();
    let torch = know.newest_torch().map(|torch| torch.to_string()).unwrap_or_default();
    writeln!(out, "tables of {}; newest known: CUDA {cuda}, torch {torch}", know.date())?;
    Ok(Exit::Fine)
}
