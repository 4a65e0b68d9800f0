//! What was typed, and nothing else: no environment is read here.

mod arch_list;
mod check;
mod fix;
mod inspect;
mod machine;
mod nccl;
mod ops;
mod overlay;
mod plan;
mod probe;
mod problems;
mod triage;

pub use arch_list::*;
pub use check::*;
pub use fix::*;
pub use inspect::*;
pub use machine::*;
pub use nccl::*;
pub use ops::*;
pub use overlay::*;
pub use plan::*;
pub use probe::*;
pub use problems::*;
pub use triage::*;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Without a command, `ds-doctor` is `ds-doctor check`. Options follow the command.

Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 wrong use or nothing that could be judged.";

const EXAMPLES: &str = "\
Examples:
  ds-doctor                                   judge this machine
  ds-doctor check --root /mnt/image           judge a container's file system, executing nothing in it
  ds-doctor check --assume torch=2.6.0+cu124  judge before installing
  ds-doctor arch-list --gpu h100 --gpu a100   the TORCH_CUDA_ARCH_LIST for these GPUs
  eval \"$(ds-doctor fix --print-exports)\"     repair this shell's environment
  ds-doctor explain torch-nvcc-mismatch-major

Without a command, `ds-doctor` is `ds-doctor check`. Options follow the command.

Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 wrong use or nothing that could be judged.
Environment: NO_COLOR, CLICOLOR and CLICOLOR_FORCE decide on colour where --color is auto.";

/// The build-environment doctor for DeepSpeed and other PyTorch CUDA extensions.
///
/// Reads PATH and LD_LIBRARY_PATH, CUDA toolkits, compilers, shared libraries, torch and DeepSpeed (without importing them) and GPUs,
/// and says what is wrong, how it knows, and a fix that can be pasted.
#[derive(Debug, Parser)]
#[command(name = "ds-doctor", disable_version_flag = true, disable_help_subcommand = true, after_help = AFTER_HELP, after_long_help = EXAMPLES, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Print the version, the date of the tables, and the newest CUDA and torch they know
    #[arg(short = 'V', long)]
    pub version: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Check(CheckArgs),
    ArchList(ArchListArgs),
    Fix(FixArgs),
    Overlay(OverlayArgs),
    Explain(ExplainArgs),
    Inspect(InspectArgs),
    List(ListArgs),
    Nccl(NcclArgs),
    Ops(OpsArgs),
    Plan(PlanArgs),
    Probe(ProbeArgs),
    Snapshot(SnapshotArgs),
    Triage(TriageArgs),
    Exec(ExecArgs),
    Completions(CompletionsArgs),
}

/// Where the facts come from.
#[derive(Debug, Clone, Args, Default)]
#[command(next_help_heading = "What is judged")]
pub struct SubjectArgs {
    /// A snapshot made by `ds-doctor snapshot`; `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    pub from: Vec<PathBuf>,
    /// A file tree instead of this machine; nothing in it is executed
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Judge with this variable; `KEY=` empties it (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub env: Vec<OsString>,
    /// Judge with the variables of this file: KEY=VALUE lines, the output of `env -0`, or the JSON of `docker inspect`
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// The Python interpreter to judge; default: the python3, else python, on PATH
    #[arg(long, value_name = "PATH", conflicts_with = "from")]
    pub python: Option<PathBuf>,
    /// Assume this GPU: a name (h100, "RTX 4090"), a capability (9.0, sm_90), with `*COUNT` for several (repeatable)
    #[arg(long, value_name = "NAME|CC")]
    pub gpu: Vec<String>,
    /// Judge what is not installed yet: torch=2.6.0+cu124,deepspeed=0.16.9,cuda=12.4
    #[arg(long, value_name = "NAME=VERSION", value_delimiter = ',')]
    pub assume: Vec<String>,
    /// What the machine is for; default: both where a driver is seen, else build
    #[arg(long = "for", value_name = "PURPOSE")]
    pub purpose: Option<PurposeArg>,
    /// Time limit for each child process, in seconds; default: 5 for a question, 120 for a compiler
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<f64>,
    /// Add or override rows of the knowledge tables with the TOML files of this folder
    #[arg(long, value_name = "DIR")]
    pub rules_dir: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 3600.0 => Ok(value),
        _ => Err("a number of seconds above 0, 3600 at most".to_owned()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PurposeArg {
    Build,
    Run,
    Both,
}

/// How much is said.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Output")]
pub struct TalkArgs {
    /// Write the result to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Say less: no notes on standard error; of findings, one line each
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more: what passed, what was not judged and why, states worth knowing
    #[arg(short, long)]
    pub verbose: bool,
    /// When to use colour
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// Which problems are looked for.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Which problems")]
pub struct ChoiceArgs {
    /// Only these problems or topics (repeatable; see `ds-doctor list`)
    #[arg(long, value_name = "ID|TOPIC", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Not these problems or topics (repeatable)
    #[arg(long, value_name = "ID|TOPIC", value_delimiter = ',')]
    pub skip: Vec<String>,
}

/// The command line with `check` put in where no command was typed.
pub fn with_default_command(mut args: Vec<OsString>) -> Vec<OsString> {
    let of_the_program = ["-h", "--help", "-V", "--version"];
    match args.get(1).and_then(|arg| arg.to_str()) {
        Some(first) if !first.starts_with('-') || of_the_program.contains(&first) => {}
        None if args.len() > 1 => {}
        _ => args.insert(1.min(args.len()), "check".into()),
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn bare_is_check() {
        let with = |args: &[&str]| {
            let args = args.iter().map(OsString::from).collect();
            with_default_command(args).into_iter().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(with(&["x"]), "x check");
        assert_eq!(with(&["x", "--for", "run"]), "x check --for run");
        assert_eq!(with(&["x", "fix", "-q"]), "x fix -q");
        assert_eq!(with(&["x", "-V"]), "x -V");
        assert_eq!(with(&["x", "chek"]), "x chek");
    }
}
