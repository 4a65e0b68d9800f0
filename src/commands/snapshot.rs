//! `ds-doctor snapshot`

use super::{output, subject};
use crate::cli::SnapshotArgs;
use crate::exit::Exit;
use crate::facts::redact;
use std::io::Write as _;

/// # Errors
/// Unreadable input, or a result that cannot be written.
pub fn run(args: &SnapshotArgs) -> anyhow::Result<Exit> {
    let mut facts = subject::load(&args.subject)?.facts;
    for note in &facts.notes {
        output::note(&args.talk, note);
    }
    if !args.no_redact && !facts.redacted {
        facts = redact::redact(&facts, &subject::host_name())?;
    }
    let mut out = output::result(&args.talk)?;
    serde_json::to_writer_pretty(&mut out, &facts)?;
    writeln!(out)?;
    out.flush()?;
    Ok(Exit::Fine)
}
