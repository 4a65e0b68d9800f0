//! The one integration binary. Each subject is a module with `pub fn trials() -> Vec<Trial>`; add it to the list in [`main`].
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests make files and run programs")]

mod apply;
mod bad_input;
mod binary;
mod collect_cache;
mod collect_host;
mod collect_loader;
mod collect_python;
mod collect_toolkit;
mod commands;
mod device_code;
mod docs;
mod exec;
mod exports;
mod fake;
mod fuzz;
mod gpu;
mod gpu_e2e;
mod harness;
mod house;
mod inspect;
mod kernels;
mod knowledge;
mod live;
mod machines;
mod model;
mod nccl;
mod old_snapshots;
mod ops;
mod ops_plan;
mod overlay;
mod plan;
mod probe;
mod triage;
mod triage_here;
mod triage_score;
mod util;
mod visible;

use libtest_mimic::Arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let mut trials = Vec::new();
    trials.extend(apply::trials());
    trials.extend(bad_input::trials());
    trials.extend(binary::trials());
    trials.extend(collect_cache::trials());
    trials.extend(collect_host::trials());
    trials.extend(collect_loader::trials());
    trials.extend(collect_python::trials());
    trials.extend(collect_toolkit::trials());
    trials.extend(commands::trials());
    trials.extend(device_code::trials());
    trials.extend(docs::trials());
    trials.extend(exec::trials());
    trials.extend(exports::trials());
    trials.extend(fuzz::trials());
    trials.extend(gpu::trials());
    trials.extend(gpu_e2e::trials());
    trials.extend(harness::trials());
    trials.extend(house::trials());
    trials.extend(inspect::trials());
    trials.extend(kernels::trials());
    trials.extend(knowledge::trials());
    trials.extend(live::trials());
    trials.extend(machines::trials());
    trials.extend(model::trials());
    trials.extend(old_snapshots::trials());
    trials.extend(nccl::trials());
    trials.extend(ops::trials());
    trials.extend(ops_plan::trials());
    trials.extend(overlay::trials());
    trials.extend(plan::trials());
    trials.extend(probe::trials());
    trials.extend(triage::trials());
    trials.extend(triage_here::trials());
    trials.extend(triage_score::trials());
    trials.extend(visible::trials());
    if !args.list {
        util::print_ledger(&trials, &args);
    }
    let outcome = libtest_mimic::run(&args, trials);
    util::print_slowest();
    outcome.exit_code()
}
