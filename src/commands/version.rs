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
    writeln!(out, "tables of {}; newest known: CUDA {}, torch {}", know.date(), know.newest_cuda(), know.newest_torch())?;
    Ok(Exit::Fine)
}
