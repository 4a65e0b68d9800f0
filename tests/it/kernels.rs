//! The probe's kernels: loaded and run in a child process, against fake libraries at the operating system's boundary.

mod command;
mod cuda118;
mod load;
mod run;
mod script;
mod sources;

use crate::fake::compiler;
use crate::util::{BINARY, trial_with};
use ds_doctor::gpu::client::Client;
use libtest_mimic::Trial;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

/// A worker of the built binary with this LD_LIBRARY_PATH.
fn client(library_path: Option<&Path>, limit: Duration) -> Client {
    Client::new(library_path.map(Path::as_os_str).filter(|path| *path != OsStr::new("")), limit).with_program(BINARY)
}

/// A trial that needs a C compiler.
fn faked(name: &str, run: impl FnOnce() + Send + 'static) -> Trial {
    trial_with(name, compiler(), move |()| run())
}

pub fn trials() -> Vec<Trial> {
    [load::trials(), run::trials(), command::trials(), cuda118::trials(), script::trials(), sources::trials()]
        .into_iter()
        .flatten()
        .collect()
}
