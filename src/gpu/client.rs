//! Starts the worker and turns whatever becomes of it into an answer: it always ends, within its time limit.
#![expect(clippy::disallowed_methods, reason = "starts the worker")]

use super::protocol::{Answer, DriverAnswer, NvmlAnswer, Request, STEP, SUBCOMMAND, Trouble};
use crate::facts::kernel::{Fault, Loaded};
use crate::facts::observed::Observed;
use crate::facts::raw::HostPath;
use crate::host::{Scratch, interrupt};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// An answer of 64 devices with MIG is below 100 kB.
const MOST_STDOUT: usize = 4 << 20;
/// Bytes kept of what the libraries say on stderr: the last ones, where the reason stands.
const KEPT_STDERR: usize = 4 << 10;
/// A killed process can stay in the kernel for as long as the driver pleases; it is not waited for longer than this.
const REAP: Duration = Duration::from_millis(500);

/// How to start a worker.
#[derive(Debug, Clone)]
pub struct Client {
    program: PathBuf,
    /// The LD_LIBRARY_PATH of the environment that is judged.
    library_path: Option<OsString>,
    env: Vec<(OsString, OsString)>,
    limit: Duration,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Answered(Answer),
    /// A signal ended it: a crash in a library.
    Died {
        signal: i32,
        stderr: String,
    },
    /// It ended, or closed its output, without an answer.
    Ended {
        code: Option<i32>,
        stderr: String,
    },
    TimedOut {
        limit: Duration,
        stderr: String,
    },
    /// Not a line of the protocol.
    Garbage {
        begin: String,
    },
    NotStarted {
        why: String,
    },
}

impl Client {
    /// The running binary as the worker's program. `limit` is the time for one answer.
    pub fn new(library_path: Option<&OsStr>, limit: Duration) -> Self {
        // Not the path that it resolves to: an update may have replaced that file meanwhile.
        Self { program: "/proc/self/exe".into(), library_path: library_path.map(OsStr::to_owned), env: Vec::new(), limit }
    }

    /// Another program in the worker's place.
    #[must_use]
    pub fn with_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// One more variable for the worker, which gets none of ours.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The devices and versions that NVML (`libnvidia-ml.so.1`) tells.
    pub fn nvml(&self, library: &str) -> Observed<NvmlAnswer> {
        self.ask(&Request::Nvml { library: library.to_owned() }).observe(library, |answer| match answer {
            Answer::Nvml(answer) => Ok(*answer),
            Answer::Trouble(trouble) => Err(Some(trouble)),
            _ => Err(None),
        })
    }

    /// The driver API's version (`libcuda.so.1`), and with `init` what `cuInit` answers.
    pub fn driver(&self, library: &str, init: bool) -> Observed<DriverAnswer> {
        let links = match Scratch::temporary() {
            Ok(links) => links,
            Err(e) => return Observed::failed(format!("no temporary folder: {e}")),
        };
        let request = Request::Driver { library: library.to_owned(), links: Some(HostPath::new(links.path())), init };
        self.ask_with(&request, Some(links.path())).observe(library, |answer| match answer {
            Answer::Driver(answer) => Ok(*answer),
            Answer::Trouble(trouble) => Err(Some(trouble)),
            _ => Err(None),
        })
    }

    /// Loads the probe's `library` in a child, every symbol bound, with the loader's environment of the run. `first` are the libraries that are
    /// in the process already: those that torch loads by their full paths.
    ///
    /// # Errors
    /// The loader's own words, or what became of the child.
    pub fn load(&self, library: &Path, first: &[PathBuf]) -> Result<Loaded, Fault> {
        let request = Request::Load { library: HostPath::new(library), first: first.iter().map(HostPath::new).collect() };
        match self.ask(&request) {
            Reply::Answered(Answer::Load(loaded)) => Ok(loaded),
            reply => Err(reply.fault()),
        }
    }

    pub fn ask(&self, request: &Request) -> Reply {
        self.ask_with(request, None)
    }

    pub(super) fn ask_with(&self, request: &Request, first: Option<&Path>) -> Reply {
        let mut child = match self.start(request, first) {
            Ok(child) => child,
            Err(e) => return Reply::NotStarted { why: e.to_string() },
        };
        let heard = match (child.stdout.take(), child.stderr.take()) {
            (Some(stdout), Some(stderr)) => listen(stdout, stderr, Instant::now() + self.limit),
            _ => Heard::default(),
        };
        let status = end(&mut child, heard.end);
        self.reply(&heard, status)
    }

    /// A worker with this request, its output streams as pipes, in a process group of its own.
    pub(super) fn start(&self, request: &Request, first: Option<&Path>) -> io::Result<Child> {
        let request = serde_json::to_string(request)?;
        let mut command = Command::new(&self.program);
        command.arg0("ds-doctor").arg(SUBCOMMAND).arg(request);
        // Nothing of ours: LD_PRELOAD, CUDA_VISIBLE_DEVICES and the like would change the answer. The cache is not needed and not touched.
        command.env_clear().env("LC_ALL", "C").env("CUDA_CACHE_DISABLE", "1").envs(self.env.iter().map(|(k, v)| (k, v)));
        if let Some(path) = search_path(first, self.library_path.as_deref()) {
            command.env("LD_LIBRARY_PATH", path);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        interrupt::spawn(&mut command)
    }

    fn reply(&self, heard: &Heard, status: Option<ExitStatus>) -> Reply {
        let line = heard.line();
        if let Some(Ok(answer)) = line.map(serde_json::from_slice) {
            return Reply::Answered(answer);
        }
        let stderr = String::from_utf8_lossy(&heard.stderr).trim().to_owned();
        if !heard.stdout.is_empty() && (line.is_some() || heard.end == End::Flooded) {
            let begin = String::from_utf8_lossy(&heard.stdout[..heard.stdout.len().min(80)]).trim().to_owned();
            return Reply::Garbage { begin };
        }
        match (heard.end, status) {
            (End::Closed, status) => match status.and_then(|s| s.signal()) {
                Some(signal) => Reply::Died { signal, stderr },
                None => Reply::Ended { code: status.and_then(|s| s.code()), stderr },
            },
            _ => Reply::TimedOut { limit: self.limit, stderr },
        }
    }
}

impl Reply {
    /// What kept the child from answering; for a reply that is no wanted answer.
    pub(super) fn fault(self) -> Fault {
        // The worker says on stderr what it begins (see `worker::step`); what the libraries say stays.
        let told = |stderr: &str| {
            let (steps, rest): (Vec<&str>, Vec<&str>) = stderr.lines().partition(|line| line.starts_with(STEP));
            (steps.last().and_then(|line| line.strip_prefix(STEP)).map(str::to_owned), rest.join("\n"))
        };
        match self {
            Self::Answered(Answer::Trouble(Trouble::NotFound(words) | Trouble::Unusable(words))) => Fault::NotLoaded { words },
            Self::Answered(Answer::Trouble(Trouble::Panicked(why) | Trouble::Refused(why))) => Fault::Unanswered { why },
            Self::Answered(_) => Fault::Unanswered { why: "the answer to another question".to_owned() },
            Self::Died { signal, stderr } => {
                let (at, stderr) = told(&stderr);
                Fault::Crashed { signal, at, stderr }
            }
            Self::TimedOut { limit, stderr } => {
                let (at, stderr) = told(&stderr);
                Fault::TimedOut { seconds: limit.as_secs_f32(), at, stderr }
            }
            Self::Ended { code, stderr } => {
                let code = code.map(|c| format!("exit code {c}")).unwrap_or_default();
                Fault::Unanswered {
                    why: [code, told(&stderr).1].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": "),
                }
            }
            Self::Garbage { begin } => Fault::Unanswered { why: format!("not an answer: {begin}") },
            Self::NotStarted { why } => Fault::Unanswered { why: format!("no process could be started: {why}") },
        }
    }

    /// In the four answers of a fact. `library` is named in the words; `wanted` gives `Err(None)` for the answer to another question.
    fn observe<T>(self, library: &str, wanted: impl FnOnce(Answer) -> Result<T, Option<Trouble>>) -> Observed<T> {
        let because = |stderr: String| stderr.lines().last().map(|last| format!(": {last}")).unwrap_or_default();
        Observed::failed(match self {
            Self::Answered(answer) => match wanted(answer) {
                Ok(value) => return Observed::seen(value),
                Err(Some(Trouble::NotFound(_))) => return Observed::absent([library]),
                Err(Some(Trouble::Unusable(why))) => why,
                Err(Some(Trouble::Refused(why) | Trouble::Panicked(why))) => format!("asking {library}: {why}"),
                Err(None) => format!("asking {library}: the answer to another question"),
            },
            Self::Died { signal, stderr } => format!("{library} crashed when asked (signal {signal}){}", because(stderr)),
            Self::Ended { code, stderr } => {
                let code = code.map(|c| format!(" (exit code {c})")).unwrap_or_default();
                format!("{library} ended the process that asked{code}{}", because(stderr))
            }
            Self::TimedOut { limit, stderr } => {
                format!("{library} gave no answer within {} s{}", limit.as_secs_f32(), because(stderr))
            }
            Self::Garbage { begin } => format!("asking {library}: not an answer: {begin}"),
            Self::NotStarted { why } => format!("the process to ask {library} could not be started: {why}"),
        })
    }
}

/// The worker's LD_LIBRARY_PATH: the user's own, with its empty items (the current folder) kept, after `first`.
fn search_path(first: Option<&Path>, users: Option<&OsStr>) -> Option<OsString> {
    let users = users.filter(|u| !u.is_empty());
    match (first, users) {
        (None, users) => users.map(OsStr::to_owned),
        (Some(first), None) => Some(first.into()),
        (Some(first), Some(users)) => {
            let mut path = first.as_os_str().to_owned();
            path.push(":");
            path.push(users);
            Some(path)
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum End {
    /// A whole line came; the rest does not matter.
    Line,
    /// The worker closed stdout without one.
    Closed,
    /// More than [`MOST_STDOUT`].
    Flooded,
    #[default]
    TimeUp,
}

#[derive(Debug, Default)]
struct Heard {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    end: End,
}

impl Heard {
    fn line(&self) -> Option<&[u8]> {
        self.stdout.split(|b| *b == b'\n').next().filter(|line| line.len() < self.stdout.len())
    }
}

/// Reads both streams until a whole line, the end of stdout, too much of it, or the deadline.
fn listen(mut stdout: ChildStdout, mut stderr: ChildStderr, deadline: Instant) -> Heard {
    let mut heard = Heard::default();
    let mut chunk = [0; 16 << 10];
    let mut talking = true;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs().min(86_400) as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = vec![PollFd::new(&stdout, PollFlags::IN)];
        if talking {
            fds.push(PollFd::new(&stderr, PollFlags::IN));
        }
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) | Ok(0) => return heard,
            Ok(_) => {}
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        // Even a stream that never pauses does not outlast the deadline.
        if left.is_zero() {
            return heard;
        }
        if ready.get(1) == Some(&true) {
            let count = read(&mut stderr, &mut chunk);
            talking = count > 0;
            heard.stderr.extend_from_slice(&chunk[..count]);
            let over = heard.stderr.len().saturating_sub(KEPT_STDERR);
            heard.stderr.drain(..over);
        }
        if ready.first() == Some(&true) {
            let count = read(&mut stdout, &mut chunk);
            heard.stdout.extend_from_slice(&chunk[..count]);
            heard.end = match count {
                0 => End::Closed,
                _ if heard.line().is_some() => End::Line,
                _ if heard.stdout.len() > MOST_STDOUT => End::Flooded,
                _ => continue,
            };
            if heard.end == End::Closed && talking {
                drain_rest(&mut stderr, &mut heard.stderr);
            }
            return heard;
        }
    }
}

/// What stderr already holds when the worker is gone.
fn drain_rest(stderr: &mut ChildStderr, kept: &mut Vec<u8>) {
    let mut chunk = [0; KEPT_STDERR];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    while kept.len() < 2 * KEPT_STDERR && rustix::event::poll(&mut [PollFd::new(&*stderr, PollFlags::IN)], Some(&now)) == Ok(1) {
        let count = read(stderr, &mut chunk);
        if count == 0 {
            return;
        }
        kept.extend_from_slice(&chunk[..count]);
    }
}

/// 0 at the end, also when that end is an error.
pub(super) fn read(pipe: &mut impl Read, chunk: &mut [u8]) -> usize {
    loop {
        match pipe.read(chunk) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.unwrap_or(0),
        }
    }
}

/// Ends and reaps the worker with everything it started. None: it was killed, or does not die.
pub(super) fn end(child: &mut Child, how: End) -> Option<ExitStatus> {
    let wait = |child: &mut Child, limit: Duration| {
        let deadline = Instant::now() + limit;
        let mut pause = Duration::from_micros(100);
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(pause),
                _ => return None,
            }
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    };
    // Closed stdout means it is ending by itself; how it ends is the answer then. (A library may also close it and go on.)
    let own = if how == End::Closed { wait(child, REAP) } else { None };
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    if own.is_none() {
        wait(child, REAP);
    }
    interrupt::forget(child);
    own
}
