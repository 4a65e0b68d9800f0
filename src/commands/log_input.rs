//! Logs as they are named on the command line: files, standard input, Ctrl-C while it flows, progress on a terminal.
#![expect(clippy::disallowed_methods, reason = "opens the logs that the command line names")]

use crate::facts::log::Log;
use crate::facts::raw::HostPath;
use crate::logs::{self, Reader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub enum Read {
    Whole(Log),
    /// Up to where it could not be read, and why.
    Part(Log, String),
    Nothing(String),
}

/// Reads one log. Ctrl-C ends the reading, and what was read is judged; a second one ends the program.
pub fn read(reader: &Reader<'_>, path: &Path, quiet: bool) -> Read {
    let shown = if path == Path::new("-") { "standard input".to_owned() } else { format!("`{}`", path.display()) };
    let stopped = match interrupt() {
        Ok(stopped) => stopped,
        Err(error) => return Read::Nothing(format!("cannot watch for Ctrl-C: {error}")),
    };
    let consumed = AtomicU64::new(0);
    let (input, size): (Box<dyn io::Read>, u64) = if path == Path::new("-") {
        let input = io::stdin();
        (Box::new(Interruptible { inner: input.lock(), ready: io::stdin(), stopped: Arc::clone(&stopped), consumed: &consumed }), 0)
    } else {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (about, file) = match opened {
            Ok(opened) => opened,
            Err(error) => return Read::Nothing(format!("cannot read {shown}: {error}")),
        };
        if about.is_dir() {
            return Read::Nothing(format!("{shown} is a folder: name the logs in it"));
        }
        // A file that grows is judged as it is now. A length of 0 may be a pipe or a file of /proc.
        let most = if about.is_file() && about.len() > 0 { about.len() } else { u64::MAX };
        let ready = match file.try_clone() {
            Ok(ready) => ready,
            Err(error) => return Read::Nothing(format!("cannot read {shown}: {error}")),
        };
        let size = if most == u64::MAX { 0 } else { most };
        (Box::new(Interruptible { inner: file.take(most), ready, stopped: Arc::clone(&stopped), consumed: &consumed }), size)
    };
    let mut text = match logs::text(input) {
        Ok(text) => text,
        Err(error) => return Read::Nothing(format!("cannot read {shown}: {error}")),
    };
    let mut scan = reader.scan();
    let mut progress = Progress::new(quiet, &shown, size);
    let failed = loop {
        if stopped.load(Ordering::Relaxed) {
            break None;
        }
        match text.read(scan.space()) {
            Ok(0) => break None,
            Ok(number) => scan.advance(number),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Some(error),
        }
        progress.show(consumed.load(Ordering::Relaxed));
    };
    drop(progress);
    let name = HostPath::new(path);
    let outcome = scan.finish();
    match failed {
        Some(error) if outcome.bytes == 0 => Read::Nothing(format!("cannot read {shown}: {error}")),
        Some(error) => {
            let why = format!("{shown} cannot be read beyond line {}: {error}", outcome.lines);
            Read::Part(outcome.log(name, Some("broken off".to_owned())), why)
        }
        None if stopped.load(Ordering::Relaxed) => Read::Whole(outcome.log(name, Some("interrupted".to_owned()))),
        None => Read::Whole(outcome.log(name, None)),
    }
}

/// Set by the first Ctrl-C; the second is deadly as ever.
fn interrupt() -> io::Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, Arc::clone(&stopped))?;
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stopped))?;
    Ok(stopped)
}

/// Ends where Ctrl-C was pressed, also while it waits for input.
struct Interruptible<'c, R, F> {
    inner: R,
    ready: F,
    stopped: Arc<AtomicBool>,
    consumed: &'c AtomicU64,
}

impl<R: io::Read, F: AsFd> io::Read for Interruptible<'_, R, F> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        const SHORT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            if self.stopped.load(Ordering::Relaxed) {
                return Ok(0);
            }
            let mut fds = [PollFd::new(&self.ready, PollFlags::IN)];
            match poll(&mut fds, Some(&SHORT)) {
                Ok(0) => {}
                Err(rustix::io::Errno::INTR) => {}
                // What cannot be waited for can be read.
                Ok(_) | Err(_) => break,
            }
        }
        let number = self.inner.read(out)?;
        self.consumed.fetch_add(number as u64, Ordering::Relaxed);
        Ok(number)
    }
}

/// One line on a terminal, after a second.
struct Progress {
    name: String,
    /// Bytes; 0: not known.
    size: u64,
    next: Option<Instant>,
    shown: bool,
}

impl Progress {
    fn new(quiet: bool, name: &str, size: u64) -> Self {
        let wanted = !quiet && io::stderr().is_terminal();
        let name = crate::text::clean(name).into_owned();
        Self { name, size, next: wanted.then(|| Instant::now() + Duration::from_secs(1)), shown: false }
    }

    fn show(&mut self, done: u64) {
        if self.next.is_none_or(|next| Instant::now() < next) {
            return;
        }
        let part = match done.saturating_mul(100).checked_div(self.size) {
            Some(percent) => format!("{} %", percent.min(100)),
            None => crate::text::bytes(done),
        };
        let _ = write!(io::stderr(), "\r\x1b[Kds-doctor: reading {}, {part}", self.name);
        self.next = Some(Instant::now() + Duration::from_millis(300));
        self.shown = true;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
