//! `ds-doctor completions`

use crate::cli::{Cli, CompletionsArgs};
use crate::exit::Exit;
use clap::CommandFactory as _;

/// # Errors
/// None of its own.
pub fn run(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ds-doctor", &mut script);
    std::io::Write::write_all(&mut std::io::stdout().lock(), &script)?;
    Ok(Exit::Fine)
}
