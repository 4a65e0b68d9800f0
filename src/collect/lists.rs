//! What an arch list is made from, and nothing beside it: no compilers, no libraries, none of the other Pythons and toolkits.

use super::{Lists, Notes, Options, empty, env, gpu, program, python, toolkit};
use crate::facts::gpu::GpuFacts;
use crate::facts::observed::Observed;
use crate::facts::snapshot::Snapshot;
use crate::host::Host;

const NOT_FOR_LISTS: &str = "an arch list does not need it";

/// Asked for one after the other: what is left to do takes less time than threads do. Only the driver may keep one waiting.
pub fn snapshot(host: &dyn Host, options: &Options, lists: Lists) -> Snapshot {
    let mut notes = Notes::new();
    Snapshot {
        env: env::for_lists(host, &mut notes),
        programs: program::named(host, &["nvcc", "python", "python3", "which"]),
        toolkits: toolkit::for_lists(host, &mut notes),
        pythons: python::for_lists(host, options.python.as_deref(), lists, &mut notes),
        gpu: if options.ask_gpu { gpu::gpu(host, options.timeout) } else { GpuFacts::default() },
        compilers: left_out(),
        loader: left_out(),
        cache: left_out(),
        notes,
        ..empty(host)
    }
}

/// A fact that no list needs.
pub fn left_out<T>() -> Observed<T> {
    Observed::skipped(NOT_FOR_LISTS)
}
