//! One of a command's two outputs: a pseudo-terminal or a pipe, copied to ours as it comes and read for signatures on the way.

use crate::facts::log::Log;
use crate::facts::raw::HostPath;
use crate::knowledge::Knowledge;
use crate::logs::Reader;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BLOCK: usize = 64 << 10;
/// How long is waited for more once the command has ended, where a process that it left behind still holds the other end.
const QUIET: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Output,
    Error,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Output => "stdout",
            Self::Error => "stderr",
        }
    }

    fn with<T>(self, use_it: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        match self {
            Self::Output => use_it(io::stdout().as_fd()),
            Self::Error => use_it(io::stderr().as_fd()),
        }
    }
}

/// Our end and the child's.
pub struct Channel {
    stream: Stream,
    ours: OwnedFd,
    childs: Cell<Option<OwnedFd>>,
    terminal: bool,
}

impl Channel {
    /// # Errors
    /// No pipe can be made.
    pub fn new(stream: Stream) -> io::Result<Self> {
        // A system without pseudo-terminals still has pipes.
        let made = if stream.with(|fd| isatty(fd)) { terminal(stream).ok().map(|ends| (ends, true)) } else { None };
        let ((ours, childs), terminal) = match made {
            Some(made) => made,
            None => (rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?, false),
        };
        Ok(Self { stream, ours, childs: Cell::new(Some(childs)), terminal })
    }

    /// The child's end, once.
    ///
    /// # Errors
    /// It was taken already.
    pub fn child(&self) -> io::Result<Stdio> {
        self.childs.take().map(Stdio::from).ok_or_else(|| io::Error::other("the end of the child was given away"))
    }

    /// Carries changes of our terminal's size to the child's.
    pub fn size_follower(&self) -> Option<SizeFollower> {
        let ours = self.ours.try_clone().ok().filter(|_| self.terminal)?;
        Some(SizeFollower { stream: self.stream, ours })
    }

    /// Copies until the other end is closed, or, once `ended`, nothing more comes. What was read.
    pub fn copy(self, know: &Knowledge, ended: &AtomicBool) -> Log {
        let reader = Reader::new(know);
        let mut scan = reader.scan();
        let mut ours = File::from(self.ours);
        let mut block = vec![0; BLOCK];
        let mut over: Option<Instant> = None;
        loop {
            if ended.load(Ordering::Acquire) {
                over.get_or_insert_with(Instant::now);
            }
            if over.is_some_and(|since| since.elapsed() > LONGEST) {
                break;
            }
            match readable(&ours) {
                Ok(true) => {}
                Ok(false) if over.is_some() => break,
                Ok(false) => continue,
                Err(_) => break,
            }
            let number = match ours.read(&mut block) {
                // Closed; a pseudo-terminal says so by an error.
                Ok(0) => break,
                Ok(number) => number,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let new = block.get(..number).unwrap_or_default();
            let written = match self.stream {
                Stream::Output => write(&mut io::stdout().lock(), new),
                Stream::Error => write(&mut io::stderr().lock(), new),
            };
            scan.feed(new);
            // Nobody reads ours any more: the child is told as it would have been, by the end of the channel.
            if written.is_err() {
                break;
            }
        }
        scan.finish().log(HostPath::new(self.stream.name()), None)
    }
}

fn write(to: &mut impl io::Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

fn readable(file: &File) -> io::Result<bool> {
    let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(QUIET.subsec_nanos()) };
    let mut fds = [PollFd::new(file, PollFlags::IN)];
    match poll(&mut fds, Some(&wait)) {
        Ok(number) => Ok(number > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A pseudo-terminal of the size of ours, which leaves what is written as it is: our own terminal does the rest.
fn terminal(stream: Stream) -> io::Result<(OwnedFd, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let childs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    let mut modes = tcgetattr(&childs)?;
    modes.output_modes.remove(rustix::termios::OutputModes::OPOST);
    modes.local_modes.remove(rustix::termios::LocalModes::ECHO);
    tcsetattr(&childs, OptionalActions::Now, &modes)?;
    if let Ok(size) = stream.with(|fd| tcgetwinsize(fd)) {
        tcsetwinsize(&childs, size)?;
    }
    Ok((ours, childs))
}

pub struct SizeFollower {
    stream: Stream,
    ours: OwnedFd,
}

impl SizeFollower {
    pub fn follow(&self) {
        if let Ok(size) = self.stream.with(|fd| tcgetwinsize(fd)) {
            let _ = tcsetwinsize(&self.ours, size);
        }
    }
}
