//! This machine.

use super::child::{Invocation, Outcome, run_child};
use super::{Entry, Environment, Host, Kind, Meta, Space, System, files};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Live {
    env: Environment,
}

impl Live {
    /// With the environment of this process.
    pub fn new() -> Self {
        Self { env: files::environment() }
    }

    /// With another environment to be judged; children run with it too.
    pub fn with_env(env: Environment) -> Self {
        Self { env }
    }
}

impl Default for Live {
    fn default() -> Self {
        Self::new()
    }
}

impl Host for Live {
    fn env(&self) -> &Environment {
        &self.env
    }

    fn cwd(&self) -> Option<PathBuf> {
        files::current_dir()
    }

    fn root(&self) -> Option<&Path> {
        None
    }

    fn system(&self) -> Option<&dyn System> {
        Some(self)
    }

    fn read(&self, path: &Path, cap: u64) -> io::Result<Vec<u8>> {
        files::read(path, cap)
    }

    fn open(&self, path: &Path) -> io::Result<(File, u64)> {
        files::open(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        files::list(path)
    }

    fn metadata(&self, path: &Path) -> io::Result<Meta> {
        files::metadata(path)
    }

    fn link_metadata(&self, path: &Path) -> io::Result<Meta> {
        files::link_metadata(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        files::read_link(path)
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        files::canonical(path)
    }

    fn walk(&self, path: &Path, depth: usize) -> Vec<(PathBuf, io::Result<Kind>)> {
        files::walk(path, depth).into_iter().map(|(below, kind)| (path.join(below), kind)).collect()
    }
}

impl System for Live {
    fn uname(&self) -> (String, String) {
        let uname = rustix::system::uname();
        (uname.release().to_string_lossy().into_owned(), uname.machine().to_string_lossy().into_owned())
    }

    fn uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn cpus(&self) -> usize {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(Space { free: stat.f_bavail.saturating_mul(stat.f_frsize), size: stat.f_blocks.saturating_mul(stat.f_frsize) })
    }

    fn may_write(&self, path: &Path) -> bool {
        rustix::fs::access(path, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok()
    }

    fn run(&self, what: &Invocation) -> Outcome {
        run_child(what, &self.env)
    }
}
