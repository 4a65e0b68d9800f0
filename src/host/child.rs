//! A child process with a time limit, its output bounded, always reaped, its helpers ended with it.
#![expect(clippy::disallowed_methods, reason = "the one place that starts programs")]

use super::{Environment, interrupt};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[derive(Debug, Clone)]
pub struct Invocation {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// On top of the environment that is judged.
    pub env: Vec<(OsString, OsString)>,
    /// The folder it runs in; `None`: ours.
    pub cwd: Option<PathBuf>,
    pub limit: Duration,
    /// Bytes kept of each stream; the rest is read and dropped.
    pub keep: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Exit(i32),
    Signal(i32),
    TimedOut,
    NotStarted(String),
}

#[derive(Debug, Clone)]
pub struct Outcome {
    pub ended: Ended,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Outcome {
    /// In words, for a `Failed` fact.
    pub fn trouble(&self, limit: Duration) -> Option<String> {
        match &self.ended {
            Ended::Exit(0) => None,
            Ended::Exit(code) => Some(format!("exit code {code}")),
            Ended::Signal(signal) => Some(format!("killed by signal {signal}")),
            Ended::TimedOut => Some(format!("no answer in {} s", limit.as_secs_f32())),
            Ended::NotStarted(why) => Some(format!("could not be started: {why}")),
        }
    }
}

/// Runs it to its end or to the limit, in a process group of its own, with nothing on standard input.
pub fn run_child(what: &Invocation, env: &Environment) -> Outcome {
    let mut command = Command::new(&what.program);
    command.args(&what.args).env_clear().envs(env).envs(what.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    if let Some(cwd) = &what.cwd {
        command.current_dir(cwd);
    }
    let mut child = match interrupt::spawn(&mut command) {
        Ok(child) => child,
        Err(error) => return Outcome { ended: Ended::NotStarted(error.to_string()), stdout: Vec::new(), stderr: Vec::new() },
    };
    let deadline = Instant::now() + what.limit;
    let out = child.stdout.take().map(|pipe| drain(pipe, what.keep));
    let err = child.stderr.take().map(|pipe| drain(pipe, what.keep));
    let status = wait(&mut child, deadline);
    // Whatever it started goes too: a helper that holds the pipe open must not hold us.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    interrupt::forget(&child);
    let ended = match status {
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Exit(code),
            (None, signal) => Ended::Signal(signal.unwrap_or(0)),
        },
        None => {
            let _ = child.wait();
            Ended::TimedOut
        }
    };
    let collect = |stream: Option<mpsc::Receiver<Vec<u8>>>| {
        stream.and_then(|stream| stream.recv_timeout(Duration::from_millis(500)).ok()).unwrap_or_default()
    };
    Outcome { ended, stdout: collect(out), stderr: collect(err) }
}

/// `None` when the time is up; the child may still run then.
fn wait(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    let mut pause = Duration::from_micros(200);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Err(_) => return None,
            Ok(None) => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

fn drain(mut pipe: impl Read + Send + 'static, keep: usize) -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let mut chunk = [0; 16 << 10];
        while let Ok(count @ 1..) = pipe.read(&mut chunk) {
            let room = keep.saturating_sub(kept.len()).min(count);
            kept.extend_from_slice(&chunk[..room]);
        }
        let _ = send.send(kept);
    });
    receive
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, millis: u64) -> Outcome {
        let env: Environment = [("PATH".into(), "/usr/bin:/bin".into())].into();
        let what = Invocation {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![],
            cwd: None,
            limit: Duration::from_millis(millis),
            keep: 100,
        };
        run_child(&what, &env)
    }

    #[test]
    fn answers_signals_and_missing_programs() {
        let fine = sh("echo out; echo err >&2; exit 3", 5000);
        assert_eq!((fine.ended, fine.stdout, fine.stderr), (Ended::Exit(3), b"out\n".to_vec(), b"err\n".to_vec()));
        assert_eq!(sh("kill -SEGV $$", 5000).ended, Ended::Signal(11));
        let none = Invocation { program: "/none".into(), args: vec![], env: vec![], cwd: None, limit: Duration::from_secs(1), keep: 1 };
        assert!(matches!(run_child(&none, &Environment::new()).ended, Ended::NotStarted(_)));
    }

    #[test]
    fn a_hang_and_a_flood_end_in_time() {
        let start = Instant::now();
        assert_eq!(sh("sleep 60 & sleep 60", 200).ended, Ended::TimedOut);
        let flood = sh("yes", 200);
        assert_eq!((flood.ended, flood.stdout.len()), (Ended::TimedOut, 100));
        // A helper left in the background holds the pipe open.
        assert_eq!(sh("sleep 60 & echo done", 5000).ended, Ended::Exit(0));
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    }
}
