//! What is typed after `ds-doctor probe`.

use super::{Format, SubjectArgs, TalkArgs};
use clap::Args;

/// Compile, link and load small kernels with the toolchain that torch would use
#[derive(Debug, Args)]
#[command(after_help = PROBE_AFTER, after_long_help = PROBE_EXAMPLES)]
pub struct ProbeArgs {
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// Compile and link anew, also where nothing has changed
    #[arg(long)]
    pub no_cache: bool,
    /// Keep the folder of sources and results, and name it
    #[arg(long)]
    pub keep: bool,
    /// Try what each op of DeepSpeed needs; without it, those that a `DS_BUILD_*` variable asks for by name
    #[arg(long)]
    pub ops: bool,
    /// As --ops, and compile torch's own headers too where an op includes them (slow)
    #[arg(long)]
    pub torch: bool,
    /// As --ops, for the ops of this release instead of the installed one's
    #[arg(long, value_name = "VERSION")]
    pub deepspeed: Option<String>,
    /// The shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "human", help_heading = "Output")]
    pub format: Format,
    #[command(flatten)]
    pub talk: TalkArgs,
}

const PROBE_AFTER: &str = "Exit codes: 0 every step that can be done here passed, 1 a step failed, 2 wrong use or nothing to build with.";

const PROBE_EXAMPLES: &str = "\
Examples:
  ds-doctor probe
  CUDA_HOME=/usr/local/cuda-12.4 ds-doctor probe   another toolkit
  ds-doctor probe --keep -v                        leave the sources, print each command

Exit codes: 0 every step that can be done here passed, 1 a step failed, 2 wrong use or nothing to build with.";
