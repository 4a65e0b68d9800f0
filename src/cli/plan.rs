//! What is typed after `ds-doctor plan`.

use super::{SubjectArgs, TalkArgs};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Print the commands that build DeepSpeed, or its wheel, here
#[derive(Debug, Args)]
#[command(after_help = PLAN_AFTER, after_long_help = PLAN_EXAMPLES)]
pub struct PlanArgs {
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// Build these ops; `all` for every one; default: those that can be built here
    #[arg(long, value_name = "OP,OP…", value_delimiter = ',')]
    pub ops: Vec<String>,
    /// Make a wheel in `dist`, install nothing
    #[arg(long)]
    pub wheel: bool,
    /// Build this source tree instead of a release from the package index
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
    /// Build this release instead of the installed one
    #[arg(long, value_name = "VERSION")]
    pub deepspeed: Option<String>,
    /// After the build: check that this wheel holds the ops and archs asked for, and fits the target
    #[arg(long, value_name = "WHEEL", conflicts_with_all = ["wheel", "source", "deepspeed", "why"])]
    pub verify: Option<PathBuf>,
    /// With --verify: the machine that the wheel is meant for, as its snapshot; default: this one
    #[arg(long, value_name = "SNAPSHOT", requires = "verify")]
    pub target: Option<PathBuf>,
    /// Say on standard error which ops were left out, and the reasons
    #[arg(long)]
    pub why: bool,
    /// The shape of the plan
    #[arg(long, value_name = "FORMAT", default_value = "shell", help_heading = "Output")]
    pub format: PlanFormat,
    #[command(flatten)]
    pub talk: TalkArgs,
}

const PLAN_AFTER: &str = "Exit codes: 0 the plan is printed or the wheel holds, 1 the plan would fail and is refused (the shell form then says so and exits 1) or the wheel falls short, 2 wrong use, an unknown op or release, no wheel.";

const PLAN_EXAMPLES: &str = "\
Examples:
  ds-doctor plan --ops cpu_adam,fused_adam | bash
  ds-doctor plan --wheel --deepspeed 0.16.9 --gpu a100 --gpu h100 > build.sh
  ds-doctor plan --source ./DeepSpeed --ops all --why
  ds-doctor plan --format dockerfile --gpu h100 >> Dockerfile
  ds-doctor plan --verify dist/deepspeed-*.whl --ops cpu_adam,fused_adam --gpu a100 --target node.json

Exit codes: 0 the plan is printed or the wheel holds, 1 the plan would fail and is refused (the shell form then says so and exits 1) or the wheel falls short, 2 wrong use, an unknown op or release, no wheel.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    Shell,
    Dockerfile,
    Json,
}
