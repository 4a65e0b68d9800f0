//! What runs in the child process: one question, one line of answer.

use super::protocol::{Answer, Request, SUBCOMMAND, Trouble};
use super::{driver, kernels, nccl, nvml};
use rustix::process::{Resource, Rlimit, Signal};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

/// The exit code of a call that could not be understood.
const WRONG_USE: u8 = 2;

/// The worker's whole run, when this process was started as one; `None` for any other command line.
///
/// Called before everything else in `main`: no logger, no option, no configuration may matter here.
pub fn entry() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != SUBCOMMAND {
        return None;
    }
    Some(match run(args.next()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stderr(), "{SUBCOMMAND} is for the doctor's own use: {why}");
            ExitCode::from(WRONG_USE)
        }
    })
}

fn run(request: Option<OsString>) -> Result<(), String> {
    if io::stdout().is_terminal() {
        return Err("it asks GPU libraries on the doctor's behalf and answers in JSON".to_owned());
    }
    let request = request.and_then(|r| r.into_string().ok()).ok_or("no request")?;
    let mut out = private_stdout().map_err(|e| format!("stdout: {e}"))?;
    leave_no_trace();
    let answer = match serde_json::from_str(&request) {
        Ok(Request::Nccl(request)) => {
            nccl::worker::run(&request, out);
            return Ok(());
        }
        Ok(request) => answer(&request),
        Err(e) => Answer::Trouble(Trouble::Refused(e.to_string())),
    };
    let mut line = serde_json::to_vec(&answer).map_err(|e| e.to_string())?;
    line.push(b'\n');
    // One write: the parent acts on the first whole line.
    out.write_all(&line).map_err(|e| format!("stdout: {e}"))
}

/// The answer's own way out. Whatever a library prints on stdout (a toolkit's stub does) goes to stderr from here on.
fn private_stdout() -> io::Result<File> {
    let out = rustix::io::fcntl_dupfd_cloexec(io::stdout(), 3)?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(out.into())
}

fn leave_no_trace() {
    // A crash is expected and reported: no core file. 1 rather than 0, because 0 does not stop a dump that goes to a program (core(5)).
    let _ = rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(1), maximum: Some(1) });
    // A doctor that is killed takes a hanging worker with it.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// The bindings panic over what they do not find; the hook's own message would only be noise on stderr.
fn answer(request: &Request) -> Answer {
    panic::set_hook(Box::new(|_| ()));
    let caught = panic::catch_unwind(AssertUnwindSafe(|| match request {
        Request::Nvml { library } => nvml::ask(library).map(|a| Answer::Nvml(Box::new(a))),
        Request::Load { library, first } => kernels::load(library, first).map(Answer::Load),
        Request::Devices { library, links } => kernels::list(library, links.as_deref()).map(|a| Answer::Devices(Box::new(a))),
        Request::Run(request) => kernels::run(request).map(|a| Answer::Run(Box::new(a))),
        Request::Driver { library, links, init } => driver::ask(library, links.as_deref(), *init).map(|a| Answer::Driver(Box::new(a))),
        Request::Nccl(_) => Err(Trouble::Refused("it has more than one answer".to_owned())),
    }));
    match caught {
        Ok(answered) => answered.unwrap_or_else(Answer::Trouble),
        Err(payload) => Answer::Trouble(Trouble::Panicked(panic_text(&*payload))),
    }
}

pub(super) fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
