//! What is typed after `ds-doctor inspect`.

use super::{Format, SubjectArgs, TalkArgs};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Say what is inside libraries, objects, cubins and wheels, whether they load and run here, and gate a release
#[derive(Debug, Args)]
#[command(after_help = INSPECT_AFTER, after_long_help = INSPECT_EXAMPLES)]
pub struct InspectArgs {
    /// Libraries, programs, objects, .a, .cubin, .fatbin, wheels, or folders of them (with --root: in the tree, else on this machine)
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// One line a file, for scripts: name, form, targets, targets of some containers only, glibc; separated by tabs
    #[arg(long, conflicts_with_all = ["format", "expect", "expect_runs", "expect_from", "max_glibc", "no_rpath_outside"])]
    pub list: bool,
    #[command(flatten)]
    pub gate: InspectGateArgs,
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// The shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "human", help_heading = "Output")]
    pub format: Format,
    #[command(flatten)]
    pub talk: TalkArgs,
}

/// What a release must hold. A gate judges the files, not this machine: whether they load here is left out.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Gate")]
pub struct InspectGateArgs {
    /// Every file with device code must have these targets in every container: "8.0;9.0+PTX", also 9.0a, 10.0f, sm_90, compute_90
    #[arg(long, value_name = "LIST", conflicts_with = "expect_from")]
    pub expect: Option<String>,
    /// As --expect, with the list of the installed torch, or of TORCH_CUDA_ARCH_LIST
    #[arg(long, value_name = "WHAT")]
    pub expect_from: Option<ExpectFrom>,
    /// Every file with device code must run on these GPUs, by whichever of its targets (repeatable)
    #[arg(long, value_name = "NAME|CC", value_delimiter = ',')]
    pub expect_runs: Vec<String>,
    /// No file may need a newer glibc than this
    #[arg(long, value_name = "VERSION")]
    pub max_glibc: Option<String>,
    /// No RPATH or RUNPATH may name a folder of the build machine, or one outside the wheel's packages
    #[arg(long)]
    pub no_rpath_outside: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExpectFrom {
    Torch,
    Env,
}

const INSPECT_AFTER: &str = "Exit codes: 0 nothing is wrong, 1 a finding, or the gate is closed, 2 a file cannot be read, or wrong use.";

const INSPECT_EXAMPLES: &str = "\
Examples:
  ds-doctor inspect build/lib/my_ext.so                     what it holds and needs, and whether it loads here
  ds-doctor inspect --gpu h100 --gpu 'rtx 4090' dist/*.whl  on which of these it runs
  ds-doctor inspect ~/.cache/torch_extensions               every op built by JIT
  ds-doctor inspect --expect \"8.0;9.0+PTX\" --max-glibc 2.28 --no-rpath-outside dist/*.whl
  ds-doctor inspect --expect-from torch op.so               the targets of the installed torch
  ds-doctor inspect --list site-packages/torch | cut -f1,3

Exit codes: 0 nothing is wrong, 1 a finding, or the gate is closed, 2 a file cannot be read, or wrong use.";
