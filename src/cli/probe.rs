//! What is typed after `ds-doctor probe`.

use super::{Format, SubjectArgs, TalkArgs};
use clap::Args;

/// Compile, link, load and run small kernels with the toolchain that torch would use, and try what each op of DeepSpeed needs
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
    /// The toolchain alone, without what each op of DeepSpeed needs
    #[arg(long)]
    pub no_ops: bool,
    /// Compile torch's own headers too, where an op includes them (slow)
    #[arg(long, conflicts_with = "no_ops")]
    pub torch: bool,
    /// Take the ops of this release instead of the installed one's
    #[arg(long, value_name = "VERSION", conflicts_with = "no_ops")]
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
  ds-doctor probe --deepspeed 0.16.9               what the ops of this release need, installed or not

Exit codes: 0 every step that can be done here passed, 1 a step failed, 2 wrong use or nothing to build with.";
