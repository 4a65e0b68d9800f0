//! What was typed, and nothing else: no environment is read here.

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell as CompletionShell;
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
    List(ListArgs),
    Nccl(NcclArgs),
    Probe(ProbeArgs),
    Snapshot(SnapshotArgs),
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
    /// The shape of the list
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

/// Say what to do, cause by cause, or print it as shell exports
#[derive(Debug, Args)]
#[command(after_help = FIX_AFTER, after_long_help = FIX_EXAMPLES)]
pub struct FixArgs {
    #[command(flatten)]
    pub subject: SubjectArgs,
    #[command(flatten)]
    pub choice: ChoiceArgs,
    /// Print only shell statements, for eval
    #[arg(long, conflicts_with = "format")]
    pub print_exports: bool,
    /// Do what is your own and can be undone: make the overlay, move stale locks and stale builds of torch's cache out of the way
    #[arg(long, conflicts_with_all = ["print_exports", "overlay", "from", "root", "env", "env_file", "assume"])]
    pub apply: bool,
    /// With --apply: only say what would be done
    #[arg(long, requires = "apply")]
    pub dry_run: bool,
    /// Point to this overlay, where it is whole and healthy (see `ds-doctor overlay`)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["from", "root"])]
    pub overlay: Option<PathBuf>,
    /// The shell that will read the exports
    #[arg(long, value_name = "SHELL", default_value = "sh")]
    pub shell: Shell,
    /// The shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "human", help_heading = "Output")]
    pub format: FixFormat,
    #[command(flatten)]
    pub talk: TalkArgs,
}

const FIX_AFTER: &str = "Exit codes: 0 nothing is left, 1 something remains (with exports: a command or an edit is still needed), 2 wrong use or nothing that could be judged.";

const FIX_EXAMPLES: &str = "\
Examples:
  ds-doctor fix
  eval \"$(ds-doctor fix --print-exports)\"
  ds-doctor fix --print-exports --shell fish | source
  eval \"$(ds-doctor fix --print-exports --overlay ~/.local/share/ds-doctor/overlay)\"
  ds-doctor fix --apply --dry-run
  ds-doctor fix --format github-env >> \"$GITHUB_ENV\"
  ds-doctor fix --format dockerfile

Exit codes: 0 nothing is left, 1 something remains (with exports: a command or an edit is still needed), 2 wrong use or nothing that could be judged.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Sh,
    Bash,
    Zsh,
    Fish,
    Csh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FixFormat {
    Human,
    Json,
    GithubEnv,
    Dockerfile,
    Dotenv,
}

/// Make, show or remove a CUDA_HOME of links that repairs a toolkit's layout without root
#[derive(Debug, Args)]
#[command(after_help = OVERLAY_AFTER, after_long_help = OVERLAY_EXAMPLES)]
pub struct OverlayArgs {
    #[command(subcommand)]
    pub action: OverlayAction,
}

#[derive(Debug, Subcommand)]
pub enum OverlayAction {
    Create(OverlayCreateArgs),
    Show(OverlayDirArgs),
    Remove(OverlayDirArgs),
}

/// Make the overlay of the toolkit that torch finds, or follow a change of that toolkit; nothing is done where it is right already
#[derive(Debug, Args)]
pub struct OverlayCreateArgs {
    /// Where; default: ds-doctor/overlay in $XDG_DATA_HOME, else in ~/.local/share
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The toolkit behind it; default: the one that torch finds, else the one that fits torch best
    #[arg(long, value_name = "DIR")]
    pub toolkit: Option<PathBuf>,
    /// The Python whose NVIDIA packages may fill gaps; default: the python3, else python, on PATH
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Only say what would be linked
    #[arg(long)]
    pub dry_run: bool,
    /// The shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "human", help_heading = "Output")]
    pub format: ListingFormat,
    #[command(flatten)]
    pub talk: TalkArgs,
}

/// What an overlay links to, and whether it is whole; or take it away
#[derive(Debug, Args)]
pub struct OverlayDirArgs {
    /// The overlay; default: ds-doctor/overlay in $XDG_DATA_HOME, else in ~/.local/share
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "human", help_heading = "Output")]
    pub format: ListingFormat,
    #[command(flatten)]
    pub talk: TalkArgs,
}

const OVERLAY_AFTER: &str =
    "Exit codes: 0 done (show: whole), 1 show: something in it is not as it was made, 2 nothing was changed, and why.";

const OVERLAY_EXAMPLES: &str = "\
Examples:
  ds-doctor overlay create
  eval \"$(ds-doctor fix --print-exports --overlay ~/.local/share/ds-doctor/overlay)\"
  ds-doctor overlay create ./cuda --toolkit /opt/conda
  ds-doctor overlay show -v
  ds-doctor overlay remove

Exit codes: 0 done (show: whole), 1 show: something in it is not as it was made, 2 nothing was changed, and why.";

/// Print a problem's page
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A problem's id, or the words of an error message
    #[arg(value_name = "ID|TEXT", required = true)]
    pub what: Vec<String>,
    #[command(flatten)]
    pub talk: TalkArgs,
}

/// List all problems
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only those of this topic
    #[arg(value_name = "TOPIC")]
    pub topic: Option<String>,
    /// The shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    pub format: ListingFormat,
    #[command(flatten)]
    pub talk: TalkArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListingFormat {
    Human,
    Json,
}

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

/// Print the facts as JSON, redacted, for a bug report or another machine
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// Keep names of users, hosts and homes (never secrets): needed where exports are to be made from it
    #[arg(long)]
    pub no_redact: bool,
    #[command(flatten)]
    pub talk: TalkArgs,
}

/// Print a completion script
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    #[arg(value_name = "SHELL")]
    pub shell: CompletionShell,
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
