//! What every integration test needs: running the built binary in a clean environment, and skipping by name.

use libtest_mimic::{Arguments, Trial};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_ds-doctor");

const SKIPPED: &str = " (skipped: ";

/// A test that fails by panicking.
pub fn trial(name: &str, run: impl FnOnce() + Send + 'static) -> Trial {
    let told = name.to_owned();
    Trial::test(name, move || {
        let start = Instant::now();
        run();
        TIMES.lock().unwrap().push((start.elapsed(), told));
        Ok(())
    })
}

static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// The tests that took longest, as the gate has a time to keep.
pub fn print_slowest() {
    let mut times = TIMES.lock().unwrap();
    times.sort();
    for (time, name) in times.iter().rev().take(20).take_while(|(time, _)| *time > Duration::from_secs(2)) {
        println!("took {:.1} s: {name}", time.as_secs_f64());
    }
}

/// A test that needs something of this machine; without it the test is skipped under the reason's name.
pub fn trial_with<T: Send + 'static>(name: &str, need: Result<T, String>, run: impl FnOnce(T) + Send + 'static) -> Trial {
    match need {
        Ok(have) => trial(name, move || run(have)),
        Err(why) => skipped(name, &why),
    }
}

/// A test that cannot run here. Forcing it (`--include-ignored`) fails, so that nothing skipped is ever counted as passed.
pub fn skipped(name: &str, why: &str) -> Trial {
    let message = format!("cannot run here: {why}");
    Trial::test(format!("{name}{SKIPPED}{why})"), move || Err(message.into())).with_ignored_flag(true)
}

/// One line on stdout for each skipped test that the filter asks for.
pub fn print_ledger(trials: &[Trial], args: &Arguments) {
    let asked = |name: &str| match &args.filter {
        Some(filter) if args.exact => name == filter,
        Some(filter) => name.contains(filter.as_str()),
        None => true,
    };
    for trial in trials.iter().filter(|t| t.has_ignored_flag() && asked(t.name())) {
        if let Some((name, why)) = trial.name().strip_suffix(')').and_then(|n| n.split_once(SKIPPED)) {
            println!("skipped: {name}: {why}");
        }
    }
}

/// A part of the lab: real toolchains and libraries, unpacked outside the repository under `$DS_DOCTOR_LAB`
/// (default `~/.cache/ds-doctor-lab`).
pub fn lab(part: &str) -> Result<PathBuf, String> {
    let root = std::env::var_os("DS_DOCTOR_LAB")
        .map_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/ds-doctor-lab"), PathBuf::from);
    let path = root.join(part);
    if path.exists() { Ok(path) } else { Err(format!("lab part `{part}` is missing")) }
}

/// A program on PATH.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|p| p.is_file()).ok_or(format!("no program `{name}`"))
}

/// A terminal of 33 lines of 77 columns: the end of who looks at it, and that of the program.
pub fn pty() -> (OwnedFd, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let childs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    tcsetwinsize(&childs, Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (ours, childs)
}

/// One run of the built binary. The environment is empty but for PATH, LC_ALL and a HOME of its own.
pub struct Doctor {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: Option<PathBuf>,
    stdin: Vec<u8>,
    timeout: Duration,
    home: tempfile::TempDir,
}

/// What a run left behind. Streams are decoded loosely: a test about raw bytes writes them to a file.
#[derive(Debug)]
pub struct Output {
    /// The exit code; none when a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub wall: Duration,
}

impl Doctor {
    pub fn new<const N: usize>(args: [&str; N]) -> Self {
        let doctor = Self {
            program: BINARY.into(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
            stdin: Vec::new(),
            timeout: Duration::from_secs(60),
            home: tempfile::tempdir().unwrap(),
        };
        doctor.args(args).env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LC_ALL", "C")
    }

    /// Runs another program instead, such as `unshare` or a shell that starts the binary.
    pub fn program(mut self, program: impl Into<OsString>) -> Self {
        self.program = program.into();
        self
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Sets a variable; the last value given counts.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    pub fn cwd(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cwd = Some(folder.into());
        self
    }

    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// How long it may run before the test fails (default one minute).
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// The folder that HOME names during the run.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Runs to the end; panics, with what was printed, when that takes longer than the time limit. The whole process group goes then.
    pub fn run(self) -> Output {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().env("HOME", self.home.path()).envs(self.env.iter().map(|(k, v)| (k, v)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command.current_dir(self.cwd.as_deref().unwrap_or(self.home.path()));
        let begin = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {}: {e}", self.program.display()));
        let group = rustix::process::Pid::from_child(&child);
        let mut input = child.stdin.take().unwrap();
        let stdin = self.stdin;
        // A child may close its stdin early: not an error of the test.
        let feed = std::thread::spawn(move || drop(input.write_all(&stdin)));
        let stdout = drain(child.stdout.take().unwrap());
        let stderr = drain(child.stderr.take().unwrap());
        let mut pause = Duration::from_millis(1);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if begin.elapsed() > self.timeout {
                break None;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        };
        let wall = begin.elapsed();
        // What the child left running holds the pipes open: a grandchild that outlives it is ended with the group.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = child.wait();
        feed.join().unwrap();
        let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
        let Some(status) = status else {
            panic!("did not end within {:?}: {} {:?}\nstdout: {stdout}\nstderr: {stderr}", self.timeout, self.program.display(), self.args);
        };
        Output { code: status.code(), signal: status.signal(), stdout, stderr, wall }
    }
}

fn drain(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
