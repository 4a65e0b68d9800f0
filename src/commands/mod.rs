//! One file per command: opens what the user named, calls the rest, prints.

mod apply;
mod arch_list;
mod check;
mod completions;
mod exec;
mod exec_stream;
mod explain;
mod fix;
mod inspect;
mod list;
mod log_input;
mod nccl;
pub mod nccl_test;
mod op_subject;
mod ops;
mod output;
mod overlay;
mod overlay_draft;
mod plan;
mod plan_refusal;
mod plan_verify;
mod probe;
mod progress;
mod snapshot;
mod subject;
mod triage;
mod version;
mod waiver;

use crate::cli::{Cli, Command};
use crate::exit::Exit;

/// Runs one command.
///
/// # Errors
/// Wrong use, unreadable input, or a failure of our own: all exit 2.
pub fn run(cli: &Cli) -> anyhow::Result<Exit> {
    if cli.version {
        return version::run();
    }
    match &cli.command {
        Some(Command::Check(args)) => check::run(args),
        Some(Command::ArchList(args)) => arch_list::run(args),
        Some(Command::Fix(args)) => fix::run(args),
        Some(Command::Overlay(args)) => overlay::run(args),
        Some(Command::Explain(args)) => explain::run(args),
        Some(Command::Inspect(args)) => inspect::run(args),
        Some(Command::List(args)) => list::run(args),
        Some(Command::Nccl(args)) => nccl::run(args),
        Some(Command::Ops(args)) => ops::run(args),
        Some(Command::Plan(args)) => plan::run(args),
        Some(Command::Probe(args)) => probe::run(args),
        Some(Command::Snapshot(args)) => snapshot::run(args),
        Some(Command::Triage(args)) => triage::run(args),
        Some(Command::Exec(args)) => exec::run(args),
        Some(Command::Completions(args)) => completions::run(args),
        None => check::run(&crate::cli::CheckArgs::default()),
    }
}
