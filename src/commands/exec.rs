//! `ds-doctor exec`
//!
//! The command stays in our process group and keeps our standard input, so the terminal's own Ctrl-C, Ctrl-Z and job control reach it as
//! if we were not there. Only what it prints goes through us: by a pseudo-terminal where we print to a terminal, else by a pipe.
#![expect(clippy::disallowed_methods, reason = "runs the command that the command line names")]

use super::{exec_stream, subject, triage};
use crate::checks::Purpose;
use crate::cli::{ExecArgs, SubjectArgs};
use crate::exit::Exit;
use crate::facts::log::Log;
use crate::facts::snapshot::Snapshot;
use crate::host::interrupt::ignored;
use crate::knowledge::Knowledge;
use anstream::AutoStream;
use exec_stream::{Channel, Stream};
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a shell answers.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
const KILLED: i32 = 128;

/// # Errors
/// A pipe that cannot be made, or a child that cannot be waited for.
pub fn run(args: &ExecArgs) -> anyhow::Result<Exit> {
    let Some((program, rest)) = args.command.split_first() else { anyhow::bail!("no command was named") };
    let (out, err) = (Channel::new(Stream::Output)?, Channel::new(Stream::Error)?);
    let terminal = Terminal::now();
    // Before the child is there, so that no signal is missed; what this run was started to ignore (`nohup`) stays ignored.
    let wanted = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT];
    let mut signals = Signals::new(wanted.into_iter().filter(|signal| ignored() & (1 << (signal - 1)) == 0))?;
    let mut command = Command::new(program);
    command.args(rest).stdout(out.child()?).stderr(err.child()?);
    let spawned = command.spawn();
    // Our copies of the child's ends would keep the channels open.
    drop(command);
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return Ok(not_started(program, &error)),
    };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let know = Knowledge::embedded();
    let handle = signals.handle();
    let ended = AtomicBool::new(false);
    let (status, logs) = std::thread::scope(|scope| {
        let (know, ended) = (&know, &ended);
        let sizes = [out.size_follower(), err.size_follower()];
        scope.spawn(move || {
            for signal in signals.forever() {
                // While we were stopped the terminal told its new size to others.
                if [SIGWINCH, SIGCONT].contains(&signal) {
                    sizes.iter().flatten().for_each(exec_stream::SizeFollower::follow);
                }
                pass_on(pid, signal);
            }
        });
        let readers = [out, err].map(|channel| scope.spawn(move || channel.copy(know, ended)));
        let status = child.wait();
        ended.store(true, Ordering::Release);
        let logs: Vec<Log> = readers.into_iter().filter_map(|reader| reader.join().ok()).collect();
        handle.close();
        (status, logs)
    });
    let status = status?;
    if status.signal().is_some() {
        terminal.restore();
    }
    if !status.success() {
        // The command's exit code counts, whatever becomes of our words.
        let _ = tell(args, program, logs, &know, status);
    }
    Ok(Exit::Command(code(status)))
}

fn not_started(program: &OsStr, error: &io::Error) -> Exit {
    let _ = writeln!(io::stderr(), "ds-doctor: cannot run `{}`: {error}", crate::text::clean(&program.to_string_lossy()));
    Exit::Command(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| KILLED + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// A key of the terminal has reached the child already, since it is in our process group; what was sent to us alone has not.
fn pass_on(pid: Option<Pid>, signal: i32) {
    let by_key = [SIGINT, SIGQUIT].contains(&signal) && tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
    if let (false, Some(pid), Some(signal)) = (by_key, pid, Signal::from_named_raw(signal)) {
        let _ = kill_process(pid, signal);
    }
}

/// The terminal's modes, to be put back where the command was killed before it could.
struct Terminal {
    modes: Option<Termios>,
}

impl Terminal {
    fn now() -> Self {
        Self { modes: tcgetattr(io::stdin()).ok() }
    }

    fn restore(&self) {
        // In the background, setting them would stop us.
        let ours = tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
        if let (true, Some(modes)) = (ours, &self.modes) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, modes);
        }
    }
}

fn tell(args: &ExecArgs, program: &OsStr, logs: Vec<Log>, know: &Knowledge, status: ExitStatus) -> anyhow::Result<()> {
    let (mut facts, purpose) = match args.here {
        true => subject::load(&SubjectArgs::default()).map(|subject| (subject.facts, subject.purpose))?,
        false => (Snapshot::default(), Purpose::Both),
    };
    facts.logs = logs.into_iter().filter(|log| log.lines > 0).collect();
    let report = triage::report("exec", &facts, know, purpose, args.here);
    // Whoever pressed Ctrl-C knows why it ended.
    let stopped = [SIGINT, SIGTERM, SIGHUP].map(Some).contains(&status.signal());
    if report.judged.findings.is_empty() && (stopped || report.body.is_empty()) {
        return Ok(());
    }
    let mut err = AutoStream::auto(io::stderr());
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (_, Some(signal)) => format!("was killed by signal {signal}"),
        _ => "ended".to_owned(),
    };
    if io::stderr().is_terminal() {
        writeln!(err)?;
    }
    writeln!(err, "ds-doctor: `{}` {how}", crate::text::clean(&program.to_string_lossy()))?;
    triage::tell(&report, &mut err)?;
    Ok(err.flush()?)
}
