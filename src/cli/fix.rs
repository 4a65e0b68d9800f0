//! What is typed after `ds-doctor fix`.

use super::{ChoiceArgs, SubjectArgs, TalkArgs};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Say what to do, cause by cause, or print it as shell exports
#[derive(Debug, Args)]
#[command(after_help = FIX_AFTER, after_long_help = FIX_EXAMPLES)]
pub struct FixArgs {
    #[command(flatten)]
    pub subject: SubjectArgs,
    #[command(flatten)]
    pub choice: ChoiceArgs,
    /// Print only shell statements, for eval
    #[arg(long, conflicts_with = "format")]
    pub print_exports: bool,
    /// Do what is your own and can be undone: make the overlay, move stale locks and stale builds of torch's cache out of the way
    #[arg(long, conflicts_with_all = ["print_exports", "overlay", "from", "root", "env", "env_file", "assume"])]
    pub apply: bool,
    /// With --apply: only say what would be done
    #[arg(long, requires = "apply")]
    pub dry_run: bool,
    /// Point to this overlay, where it is whole and healthy (see `ds-doctor overlay`)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["from", "root"])]
    pub overlay: Option<PathBuf>,
    /// The shell that will read the exports of --print-exports; default: sh
    #[arg(long, value_name = "SHELL")]
    pub shell: Option<Shell>,
    /// The shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "human", help_heading = "Output")]
    pub format: FixFormat,
    #[command(flatten)]
    pub talk: TalkArgs,
}

const FIX_AFTER: &str = "Exit codes: 0 nothing is left, 1 something remains (with exports: a command or an edit is still needed), 2 wrong use or nothing that could be judged.";

const FIX_EXAMPLES: &str = "\
Examples:
  ds-doctor fix
  eval \"$(ds-doctor fix --print-exports)\"
  ds-doctor fix --print-exports --shell fish | source
  eval \"$(ds-doctor fix --print-exports --overlay ~/.local/share/ds-doctor/overlay)\"
  ds-doctor fix --apply --dry-run
  ds-doctor fix --format github-env >> \"$GITHUB_ENV\"
  ds-doctor fix --format dockerfile

Exit codes: 0 nothing is left, 1 something remains (with exports: a command or an edit is still needed), 2 wrong use or nothing that could be judged.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Sh,
    Bash,
    Zsh,
    Fish,
    Csh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FixFormat {
    Human,
    Json,
    GithubEnv,
    Dockerfile,
    Dotenv,
}
