//! What is typed after `ds-doctor snapshot` and `ds-doctor completions`.

use super::{SubjectArgs, TalkArgs};
use clap::Args;
use clap_complete::Shell as CompletionShell;

/// Print the facts as JSON, redacted, for a bug report or another machine
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// Keep names of users, hosts and homes (never secrets): needed where exports are to be made from it
    #[arg(long)]
    pub no_redact: bool,
    #[command(flatten)]
    pub talk: TalkArgs,
}

/// Print a completion script
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    #[arg(value_name = "SHELL")]
    pub shell: CompletionShell,
}
