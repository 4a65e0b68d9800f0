//! What is typed after `ds-doctor arch-list`.

use super::{SubjectArgs, TalkArgs};
use clap::{Args, ValueEnum};

/// Print the TORCH_CUDA_ARCH_LIST to build with, as one line
#[derive(Debug, Args)]
#[command(after_help = ARCH_AFTER, after_long_help = ARCH_EXAMPLES)]
pub struct ArchListArgs {
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// Take the targets from what torch holds, what nvcc can build, or one per major
    #[arg(long, value_name = "WHICH")]
    pub targets: Option<Targets>,
    /// Who will read the list (repeatable with --validate)
    #[arg(long, value_name = "READER")]
    pub reader: Vec<Reader>,
    /// The shape of the list; with --validate, json alone: the judgement
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<ListFormat>,
    /// Add PTX for GPUs to come: to none, the last, or all items
    #[arg(long, value_name = "WHICH", default_value = "none")]
    pub ptx: Ptx,
    /// Say on standard error where each item came from
    #[arg(long)]
    pub why: bool,
    /// Leave out what cannot be built instead of failing
    #[arg(long)]
    pub allow_drop: bool,
    /// Judge this list instead: every reader must take every item, and the GPUs asked for or seen must be covered
    #[arg(long, value_name = "LIST")]
    pub validate: Option<String>,
    #[command(flatten)]
    pub talk: TalkArgs,
}

const ARCH_AFTER: &str = "Exit codes: 0 the list is complete, 1 it cannot be known or an item had to be dropped (nothing is printed), 2 unknown GPU name or wrong use.";

const ARCH_EXAMPLES: &str = "\
Examples:
  TORCH_CUDA_ARCH_LIST=\"$(ds-doctor arch-list)\" || exit 1; export TORCH_CUDA_ARCH_LIST
  ds-doctor arch-list --gpu a100 --gpu h100*8 --ptx last
  ds-doctor arch-list --targets torch --format cmake
  ds-doctor arch-list --from node1.json --from node2.json
  ds-doctor arch-list --validate \"$TORCH_CUDA_ARCH_LIST\" --reader deepspeed

Exit codes: 0 the list is complete, 1 it cannot be known or an item had to be dropped (nothing is printed), 2 unknown GPU name or wrong use.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Targets {
    Torch,
    Toolkit,
    AllMajor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Reader {
    Deepspeed,
    Torch,
    Nvcc,
    Cmake,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    List,
    Cmake,
    Gencode,
    Sm,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Ptx {
    None,
    Last,
    All,
}
