//! What is typed after `ds-doctor triage` and `ds-doctor exec`.

use super::{FailOn, SubjectArgs, TalkArgs};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Name the root cause in the log of a build or a run
#[derive(Debug, Args)]
#[command(after_help = TRIAGE_AFTER, after_long_help = TRIAGE_EXAMPLES)]
pub struct TriageArgs {
    /// The logs, plain or packed with gzip or zstd; `-` for standard input
    #[arg(value_name = "LOG", required = true)]
    pub logs: Vec<PathBuf>,
    /// Judge them together with this machine, where they were made
    #[arg(long)]
    pub here: bool,
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// Exit with 1 where something of this severity or worse is found; default: exit 0 whatever is found
    #[arg(long, value_name = "SEVERITY")]
    pub fail_on: Option<FailOn>,
    /// The shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "human", help_heading = "Output")]
    pub format: TriageFormat,
    #[command(flatten)]
    pub talk: TalkArgs,
}

const TRIAGE_AFTER: &str = "Exit codes: 0 whatever is found, 1 findings with --fail-on, 2 wrong use or a log that cannot be read.";

const TRIAGE_EXAMPLES: &str = "\
Examples:
  ds-doctor triage build.log
  pip install deepspeed 2>&1 | ds-doctor triage -
  ds-doctor triage build.log --here                  together with this machine's facts
  ds-doctor triage rank*.log --from node17.json      together with another machine's
  ds-doctor triage build.log --format markdown       for an issue
  ds-doctor triage build.log --format github --fail-on error

Exit codes: 0 whatever is found, 1 findings with --fail-on, 2 wrong use or a log that cannot be read.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TriageFormat {
    Human,
    Json,
    Markdown,
    Github,
}

/// Run a command, pass everything through, and name the root cause when it fails
#[derive(Debug, Args)]
#[command(after_help = EXEC_AFTER, after_long_help = EXEC_EXAMPLES)]
pub struct ExecArgs {
    /// Judge the output together with this machine's facts
    #[arg(long)]
    pub here: bool,
    /// The command and its arguments, after `--`
    #[arg(value_name = "COMMAND", required = true, last = true)]
    pub command: Vec<OsString>,
}

const EXEC_AFTER: &str =
    "Exit codes: the command's own; 128+N where signal N ended it, 126 it cannot be run, 127 there is no such command.";

const EXEC_EXAMPLES: &str = "\
Examples:
  ds-doctor exec -- pip install deepspeed
  ds-doctor exec -- python setup.py build_ext -j8 bdist_wheel
  ds-doctor exec --here -- deepspeed train.py 2>errors.log

What the command prints goes where it would go without ds-doctor. When it fails, what its output means follows on standard error.

Exit codes: the command's own; 128+N where signal N ended it, 126 it cannot be run, 127 there is no such command.";
