//! What is typed after `ds-doctor check`.

use super::{ChoiceArgs, SubjectArgs, TalkArgs};
use clap::{Args, ValueEnum};

/// Judge a machine: what is wrong, how it is known, and a fix that can be pasted
#[derive(Debug, Args, Default)]
#[command(after_help = CHECK_AFTER, after_long_help = CHECK_EXAMPLES)]
pub struct CheckArgs {
    #[command(flatten)]
    pub subject: SubjectArgs,
    #[command(flatten)]
    pub choice: ChoiceArgs,
    /// Files, version queries and, where a driver is loaded, NVML; nothing else
    #[arg(long = "static")]
    pub only_static: bool,
    /// The lowest severity that makes the exit code 1
    #[arg(long, value_name = "SEVERITY", default_value = "error")]
    pub fail_on: FailOn,
    /// Like --fail-on warning, and a topic that could not be read counts too
    #[arg(long)]
    pub strict: bool,
    /// Make the absence of these an error: torch, nvcc, gpu, deepspeed
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub require: Vec<Required>,
    /// Report only: exit 0 whatever is found
    #[arg(long)]
    pub exit_zero: bool,
    /// The shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "human", help_heading = "Output")]
    pub format: Format,
    #[command(flatten)]
    pub talk: TalkArgs,
}

const CHECK_AFTER: &str = "Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 wrong use or nothing that could be judged.";

const CHECK_EXAMPLES: &str = "\
Examples:
  ds-doctor check --for build                 a builder without GPU
  ds-doctor check --require torch,nvcc        fail where one of them is absent
  ds-doctor check --root ./rootfs --env-file <(docker inspect IMAGE)
  ds-doctor check --from node17.json --format markdown

Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 wrong use or nothing that could be judged.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum FailOn {
    Info,
    Warning,
    #[default]
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Required {
    Torch,
    Nvcc,
    Gpu,
    Deepspeed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    #[default]
    Human,
    Json,
    Markdown,
    Github,
    Sarif,
}
