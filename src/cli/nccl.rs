//! What is typed after `ds-doctor nccl`.

use super::{TalkArgs, seconds};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Test NCCL, as torch would load it, on the GPUs of this machine
#[derive(Debug, Args)]
#[command(after_help = NCCL_AFTER, after_long_help = NCCL_EXAMPLES)]
pub struct NcclArgs {
    /// Only these GPUs, by CUDA's numbers; default: all that CUDA shows
    #[arg(long, value_name = "N,N…", value_delimiter = ',')]
    pub devices: Vec<u32>,
    /// The Python whose torch is judged; default: the python3, else python, on PATH
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Test with this variable; `KEY=` empties it (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub env: Vec<OsString>,
    /// Test with the variables of this file
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// The longest that a step may take, in seconds; default: 60
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<f64>,
    /// Add or override rows of the knowledge tables with the TOML files of this folder
    #[arg(long, value_name = "DIR")]
    pub rules_dir: Option<PathBuf>,
    /// The shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "human", help_heading = "Output")]
    pub format: NcclFormat,
    #[command(flatten)]
    pub talk: TalkArgs,
}

const NCCL_AFTER: &str =
    "Exit codes: 0 nothing is wrong in what could be tested, 1 something is, 2 wrong use or nothing that could be tested.";

const NCCL_EXAMPLES: &str = "\
Examples:
  ds-doctor nccl
  ds-doctor nccl --devices 0,1
  NCCL_P2P_DISABLE=1 ds-doctor nccl           without the direct path between GPUs
  NCCL_DEBUG=INFO ds-doctor nccl              with NCCL's own log on standard error

Exit codes: 0 nothing is wrong in what could be tested, 1 something is, 2 wrong use or nothing that could be tested.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NcclFormat {
    Human,
    Json,
    Markdown,
}
