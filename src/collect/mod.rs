//! Facts from the host, one file per topic: all candidates, no choices.

pub mod cache;
mod cgroup;
pub mod compiler;
pub mod deepspeed;
pub mod env;
pub mod gpu;
pub mod host;
pub mod inspect;
mod lists;
mod literal;
pub mod loader;
mod lock;
mod mount;
pub mod ops;
mod place;
pub mod program;
pub mod python;
pub mod search;
pub mod toolkit;
pub mod torch;

use crate::binary::elf::summarise;
use crate::binary::{FileAt, fatbin};
use crate::facts::device_code::DeviceCode;
use crate::facts::elf::ElfFacts;
use crate::facts::gpu::GpuFacts;
use crate::facts::observed::Observed;
use crate::facts::snapshot::{SCHEMA, Snapshot, Subject};
use crate::host::{Host, Remembered};
use std::any::Any;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a collector met that is no fact of its topic, one sentence each.
pub type Notes = Vec<String>;

#[derive(Debug, Clone)]
pub struct Options {
    /// Time limit of each child.
    pub timeout: Duration,
    /// The interpreter asked for (`--python`), a candidate beside those that are found.
    pub python: Option<PathBuf>,
    /// A folder that is asked about (`--overlay`), a candidate for a toolkit beside those that are found.
    pub toolkit: Option<PathBuf>,
    /// Ask the driver, where there are signs of one.
    pub ask_gpu: bool,
    /// Only what an arch list is made from.
    pub for_lists: Option<Lists>,
}

/// An arch list needs the toolkit that torch would find, the interpreter that would run, and the versions of its torch and DeepSpeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lists {
    /// What the installed torch holds is read too (`--targets torch`).
    pub torch_targets: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), python: None, toolkit: None, ask_gpu: true, for_lists: None }
    }
}

/// Everything about the machine, the topics gathered side by side. A collector that panics leaves a `Failed` topic; those of the
/// environment, of the machine and of programs have no such answer, and nothing could be judged without them: their panic goes on.
pub fn snapshot(host: &dyn Host, options: &Options) -> Snapshot {
    let host: &dyn Host = &Remembered::new(host);
    if let Some(lists) = options.for_lists {
        return lists::snapshot(host, options, lists);
    }
    // Cheap, and both programs and toolkits start from it.
    let roots = toolkit::roots(host, options.python.as_deref(), options.toolkit.as_deref());
    let root_paths: Vec<PathBuf> = roots.iter().map(|root| root.path.clone()).collect();
    thread::scope(|scope| {
        let env = topic(scope, |notes| env::collect(host, notes));
        // Compilers are programs looked at more closely.
        let programs = topic(scope, |notes| {
            let programs = program::collect(host, &root_paths, notes);
            let compilers = catch_unwind(AssertUnwindSafe(|| compiler::collect(host, &programs, options.timeout)));
            (programs, compilers.unwrap_or_else(|panic| Observed::failed(panicked(&*panic))))
        });
        let toolkits = topic(scope, |notes| toolkit::collect(host, &roots, notes));
        let about = topic(scope, |_| host::collect(host));
        let pythons = topic(scope, |notes| python::collect(host, options.python.as_deref(), notes));
        let cache = topic(scope, |notes| cache::collect(host, notes));
        let gpu = topic(scope, |_| if options.ask_gpu { gpu::gpu(host, options.timeout) } else { GpuFacts::default() });

        let mut notes = Notes::new();
        let pythons = or(pythons, &mut notes, |why| Observed::failed(why));
        // Python packages bring most of the libraries.
        let found = pythons.value().map(Vec::as_slice).unwrap_or_default();
        let (loader, ops) = thread::scope(|scope| {
            let loader = topic(scope, |notes| loader::collect(host, &root_paths, found, notes));
            let ops = topic(scope, |_| Observed::seen(ops::collect(host, found)));
            (or(loader, &mut notes, |why| Observed::failed(why)), or(ops, &mut notes, |why| Observed::failed(why)))
        });
        let env = whole(env, &mut notes);
        let (programs, compilers) = whole(programs, &mut notes);
        let toolkits = or(toolkits, &mut notes, |why| Observed::failed(why));
        let about = whole(about, &mut notes);
        let cache = or(cache, &mut notes, |why| Observed::failed(why));
        let gpu = or(gpu, &mut notes, |why| GpuFacts {
            devices: Observed::failed(why),
            driver: Observed::failed(why),
            pci: Observed::failed(why),
            nodes: Vec::new(),
        });
        Snapshot { env, host: about, programs, toolkits, loader, compilers, pythons, cache, ops, gpu, notes, ..empty(host) }
    })
}

/// A snapshot of now, with nothing in it yet.
fn empty(host: &dyn Host) -> Snapshot {
    Snapshot {
        schema: SCHEMA,
        tool: format!("{} {}", env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")),
        taken: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX)),
        subject: host.root().map_or(Subject::Machine, |root| Subject::Tree { root: root.into() }),
        ..Snapshot::default()
    }
}

type Running<'s, T> = ScopedJoinHandle<'s, (T, Notes)>;

fn topic<'s, T: Send + 's>(scope: &'s Scope<'s, '_>, collect: impl FnOnce(&mut Notes) -> T + Send + 's) -> Running<'s, T> {
    scope.spawn(move || {
        let mut notes = Notes::new();
        (collect(&mut notes), notes)
    })
}

/// The facts; a panic of the collector goes on.
fn whole<T>(running: Running<'_, T>, notes: &mut Notes) -> T {
    match running.join() {
        Ok((facts, said)) => {
            notes.extend(said);
            facts
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The facts, or after a panic of the collector what `failed` makes of it.
fn or<T>(running: Running<'_, T>, notes: &mut Notes, failed: impl FnOnce(&str) -> T) -> T {
    match running.join() {
        Ok((facts, said)) => {
            notes.extend(said);
            facts
        }
        Err(panic) => failed(&panicked(&*panic)),
    }
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the collector panicked: {}", words.unwrap_or("no message"))
}

/// A regular file for the binary readers.
///
/// # Errors
/// As [`Host::open`].
pub fn open(host: &dyn Host, path: &Path) -> io::Result<FileAt<File>> {
    let (file, length) = host.open(path)?;
    Ok(FileAt::new(file, length))
}

/// What the loader and what the driver would learn of a library.
fn library_facts(host: &dyn Host, path: &Path) -> (Observed<ElfFacts>, Observed<DeviceCode>) {
    let file = match open(host, path) {
        Ok(file) => file,
        Err(error) => return (Observed::failed(error.to_string()), Observed::failed(error.to_string())),
    };
    let elf = summarise(&file).map_or_else(|error| Observed::failed(error.to_string()), Observed::seen);
    let device = match fatbin::device_code(&file) {
        Ok(Some(code)) => Observed::seen(code),
        Ok(None) => Observed::absent([path.display().to_string()]),
        Err(error) => Observed::failed(error.to_string()),
    };
    (elf, device)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::{Environment, Rooted};

    #[test]
    fn an_empty_tree_gives_a_snapshot() {
        let dir = tempfile::tempdir().unwrap();
        let host = Rooted::new(dir.path(), Environment::new()).unwrap();
        let snapshot = snapshot(&host, &Options::default());
        assert_eq!(snapshot.schema, SCHEMA);
        assert!(matches!(&snapshot.subject, Subject::Tree { root } if **root == *dir.path().canonicalize().unwrap()));
        assert!(snapshot.taken > 1_700_000_000);
        assert_eq!((snapshot.programs.len(), snapshot.env.vars.len()), (0, 0));
        assert!(snapshot.notes.is_empty(), "{:?}", snapshot.notes);
    }

    #[test]
    fn a_panic_becomes_failed() {
        let mut notes = Notes::new();
        let facts: Observed<()> =
            thread::scope(|scope| or(topic(scope, |_| panic!("broken {}", 1)), &mut notes, |why| Observed::failed(why)));
        assert_eq!(facts, Observed::failed("the collector panicked: broken 1"));
    }
}
