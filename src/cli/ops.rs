//! What is typed after `ds-doctor ops`.

use super::{SubjectArgs, TalkArgs};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Say of each op of DeepSpeed whether it is installed, whether it can be built here, and why not
#[derive(Debug, Args)]
#[command(after_help = OPS_AFTER, after_long_help = OPS_EXAMPLES)]
pub struct OpsArgs {
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// The ops of this source tree instead of the installed DeepSpeed's
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
    /// The ops of this release instead of the installed one's
    #[arg(long, value_name = "VERSION")]
    pub deepspeed: Option<String>,
    /// Prove it: compile what each op includes and link what it links, with this machine's compilers
    #[arg(long)]
    pub probe: bool,
    /// The shape of the result; ds-report: the layout that issue templates ask for
    #[arg(long, value_name = "FORMAT", default_value = "human", help_heading = "Output")]
    pub format: OpsFormat,
    #[command(flatten)]
    pub talk: TalkArgs,
}

const OPS_AFTER: &str =
    "Exit codes: 0 no op that is asked for (DS_BUILD_*) or installed has an error, 1 one has, 2 wrong use or no DeepSpeed to judge.";

const OPS_EXAMPLES: &str = "\
Examples:
  ds-doctor ops
  ds-doctor ops --deepspeed 0.16.4 --gpu a100     a release before it is installed, for a GPU that is elsewhere
  ds-doctor ops --source ./DeepSpeed --env DS_ACCELERATOR=cuda
  DS_BUILD_AIO=1 ds-doctor ops                    as its setup.py would take it
  ds-doctor ops --probe                           with a trial of each op's headers and libraries
  ds-doctor ops --format ds-report                for an issue; torch is not imported

Exit codes: 0 no op that is asked for (DS_BUILD_*) or installed has an error, 1 one has, 2 wrong use or no DeepSpeed to judge.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OpsFormat {
    Human,
    Json,
    Markdown,
    DsReport,
}
