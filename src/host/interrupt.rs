//! A run that is interrupted leaves nothing behind: no child, no temporary folder, no file that a child has made.
#![expect(clippy::disallowed_methods, reason = "removes the temporary folders and files of this run")]

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What there is to clear away.
#[derive(Default)]
struct Left {
    /// Process groups, by the id of their leader.
    groups: Vec<u32>,
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
    watching: bool,
}

static LEFT: Mutex<Left> = Mutex::new(Left { groups: Vec::new(), folders: Vec::new(), files: Vec::new(), watching: false });

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child that leads a process group of its own. While one is being started no signal is acted on, so none escapes.
///
/// # Errors
/// As [`Command::spawn`].
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut left = left();
    let child = command.spawn()?;
    left.groups.push(child.id());
    Ok(child)
}

/// The child has ended, and what it started with it.
pub fn forget(child: &Child) {
    left().groups.retain(|group| *group != child.id());
}

/// Makes a folder that goes when the run is interrupted. From here on SIGINT, SIGTERM and SIGHUP clear away and then end the run as they
/// would have done; one that this run was started to ignore (`nohup`) stays ignored.
///
/// # Errors
/// Those of `make`.
pub fn folder(make: impl FnOnce() -> io::Result<PathBuf>) -> io::Result<PathBuf> {
    let mut left = left();
    if !left.watching {
        left.watching = watch();
    }
    let path = make()?;
    left.folders.push(path.clone());
    Ok(path)
}

/// A file, made by a child, that goes likewise.
pub fn file(path: &Path) {
    let mut left = left();
    if !left.watching {
        left.watching = watch();
    }
    if !left.files.iter().any(|known| known == path) {
        left.files.push(path.to_owned());
    }
}

/// The folder or the file stays.
pub fn keep(path: &Path) {
    let mut left = left();
    left.folders.retain(|known| known != path);
    left.files.retain(|known| known != path);
}

fn watch() -> bool {
    let ignored = ignored();
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let Ok(mut signals) = Signals::new(wanted) else { return false };
    std::thread::Builder::new()
        .name("interrupt".to_owned())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // Held to the end: nothing new is started.
                let left = left();
                for group in &left.groups {
                    end_group(*group);
                }
                for folder in &left.folders {
                    remove(folder);
                }
                for file in &left.files {
                    let _ = std::fs::remove_file(file);
                }
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        })
        .is_ok()
}

/// The signals that this process ignores, as a bit mask; none where that cannot be read.
pub fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).unwrap_or(0)
}

fn end_group(leader: u32) {
    if let Some(group) = i32::try_from(leader).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// A killed compiler may still be writing its last file.
pub(super) fn remove(folder: &Path) {
    for _ in 0..20 {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(std::time::Duration::from_millis(10)),
            _ => return,
        }
    }
}
