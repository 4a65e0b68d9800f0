//! `exec`: a command that runs in it notices nothing, and what it prints when it fails is read.

use crate::util::{BINARY, Doctor, program, pty, trial, trial_with};
use libtest_mimic::Trial;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("exec::exit_codes_are_the_commands_own", exit_codes),
        trial("exec::output_and_error_stay_apart", apart),
        trial("exec::standard_input_passes", stdin),
        trial("exec::a_verdict_follows_a_failure_and_nothing_else", verdict),
        trial("exec::signals_are_passed_on", signals),
        trial("exec::what_a_command_leaves_running_does_not_hold_it", left_running),
        trial("exec::a_reader_that_goes_away_ends_the_command", reader_gone),
        trial("exec::a_terminal_stays_a_terminal_and_a_pipe_a_pipe", terminals),
        trial("exec::megabytes_come_through_whole", much),
        trial_with("exec::the_size_of_the_window_follows", program("setsid"), |setsid| window_size(&setsid)),
        trial_with("exec::ctrl_z_and_fg", program("setsid"), |setsid| job_control(&setsid)),
        trial_with("exec::ctrl_c_is_the_commands", program("setsid"), |setsid| keys(&setsid)),
        trial_with("exec::the_modes_of_the_terminal_come_back", program("setsid"), |setsid| modes(&setsid)),
    ]
}

fn exec(script: &str) -> Doctor {
    Doctor::new(["exec", "--", "/bin/sh", "-c"]).arg(script)
}

fn exit_codes() {
    assert_eq!(exec("exit 0").run().code, Some(0));
    assert_eq!(exec("exit 1").run().code, Some(1));
    assert_eq!(exec("exit 42").run().code, Some(42));
    assert_eq!(exec("kill -KILL $$").run().code, Some(137));
    assert_eq!(exec("kill -SEGV $$").run().code, Some(139));
    assert_eq!(Doctor::new(["exec", "--", "no-such-command-here"]).run().code, Some(127));
    assert_eq!(Doctor::new(["exec", "--", "/nonexistent/x"]).run().code, Some(127));
    assert_eq!(Doctor::new(["exec", "--", "/etc/passwd"]).run().code, Some(126));
    assert_eq!(Doctor::new(["exec", "--", "/"]).run().code, Some(126));
    assert_eq!(Doctor::new(["exec"]).run().code, Some(2));
}

fn apart() {
    let out = exec("echo one; echo two >&2; echo three").run();
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("one\nthree\n", "two\n"));
    let raw = exec(r"printf 'a\r\033[31m\000\n'").run();
    assert_eq!(raw.stdout.as_bytes(), b"a\r\x1b[31m\0\n");
}

fn stdin() {
    assert_eq!(exec("cat; cat >&2").stdin("through\n").run().stdout, "through\n");
}

fn verdict() {
    let line = "/usr/bin/ld: cannot find -lcudart";
    let failed = exec(&format!("echo '{line}'; echo words >&2; exit 3")).run();
    assert_eq!((failed.code, failed.stdout.as_str()), (Some(3), format!("{line}\n").as_str()));
    assert!(failed.stderr.starts_with("words\n") && failed.stderr.contains("error[linker-cannot-find-cuda-lib]"), "{}", failed.stderr);
    assert!(failed.stderr.contains("ended with exit code 3"), "{}", failed.stderr);
    let fine = exec(&format!("echo '{line}'; exit 0")).run();
    assert_eq!((fine.code, fine.stderr.as_str()), (Some(0), ""));
    assert_eq!(exec("exit 1").run().stderr, "");
}

/// A signal to the doctor alone reaches the command, whose own answer counts. `env`: a shell without job control, or who started these
/// tests, may have it ignore SIGINT, and then the command ignores it too.
fn signals() {
    for (signal, number) in [("TERM", 15), ("HUP", 1), ("USR1", 10), ("INT", 2)] {
        let script = format!(
            "env --default-signal \"$0\" exec -- /bin/sh -c 'trap \"echo got; exit 7\" {signal}; echo ready; while :; do sleep 0.1; done' & p=$!; sleep 1; kill -{number} $p; wait $p"
        );
        let out = Doctor::new([]).program("/bin/bash").args(["-c", &script, BINARY]).run();
        assert_eq!((out.code, out.stdout.as_str()), (Some(7), "ready\ngot\n"), "{signal}: {}", out.stderr);
    }
}

fn left_running() {
    let out = exec("echo said; sleep 50 & exit 5").timeout(Duration::from_secs(20)).run();
    assert_eq!((out.code, out.stdout.as_str()), (Some(5), "said\n"));
    assert!(out.wall < Duration::from_secs(10), "{:?}", out.wall);
}

/// `yes` ends by SIGPIPE, as in a shell's pipeline.
fn reader_gone() {
    let script = "\"$0\" exec -- yes | head -n 3; echo ${PIPESTATUS[0]}";
    let out = Doctor::new([]).program("/bin/bash").args(["-c", script, BINARY]).timeout(Duration::from_secs(20)).run();
    assert_eq!(out.stdout, "y\ny\ny\n141\n", "{}", out.stderr);
}

fn much() {
    let out = exec("head -c 3000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero | tr '\\0' y >&2").run();
    assert_eq!((out.stdout.len(), out.stderr.len()), (3_000_000, 3_000_000));
}

/// What the command finds where standard output is a terminal and standard error is not; and the other way round.
fn terminals() {
    let script = "for n in 1 2; do test -t $n && echo tty$n >&2 || echo pipe$n >&2; done; stty size <&1 >&2";
    let (ours, childs) = pty();
    let child = Command::new(BINARY)
        .args(["exec", "--", "/bin/sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::from(childs))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stderr), "tty1\npipe2\n33 77\n");
    drop(ours);
    let (ours, childs) = pty();
    let script = "test -t 1 || echo pipe1; test -t 2 && echo tty2; printf 'a\\nb\\n' >&2";
    let mut child = Command::new(BINARY);
    child.args(["exec", "--", "/bin/sh", "-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::from(childs));
    let out = child.spawn().unwrap().wait_with_output().unwrap();
    // Ours holds the other end too.
    drop(child);
    // The terminal that we print to turns line ends, once.
    assert_eq!((String::from_utf8_lossy(&out.stdout).as_ref(), seen(ours).as_str()), ("pipe1\ntty2\n", "a\r\nb\r\n"));
}

/// What a terminal got; reading ends with an error once nobody holds the other end.
fn seen(terminal: OwnedFd) -> String {
    let mut bytes = Vec::new();
    let _ = File::from(terminal).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A shell with job control on a terminal of its own.
struct Shell {
    screen: File,
    child: Child,
}

impl Shell {
    fn new(setsid: &PathBuf) -> Self {
        let (ours, childs) = pty();
        let end = || Stdio::from(childs.try_clone().unwrap());
        let mut shell = Command::new(setsid);
        // Who started these tests may have had us ignore Ctrl-C, and then the command would too.
        shell.args(["-c", "-w", "/usr/bin/env", "--default-signal=INT,QUIT", "/bin/bash", "--norc", "--noprofile", "--noediting", "-i"]);
        shell.env_clear().env("PATH", "/usr/bin:/bin").env("PS1", "PROMPT> ").env("TERM", "dumb").env("LC_ALL", "C").env("D", BINARY);
        let child = shell.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let mut shell = Self { screen: File::from(ours), child };
        shell.until("PROMPT> ");
        shell
    }

    fn resize(&self, rows: u16, columns: u16) {
        tcsetwinsize(&self.screen, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    }

    fn keys(&mut self, keys: &str) {
        self.screen.write_all(keys.as_bytes()).unwrap();
    }

    /// What the screen shows up to these words.
    fn until(&mut self, words: &str) -> String {
        let start = Instant::now();
        let (mut text, mut block) = (String::new(), [0; 4096]);
        while !text.contains(words) {
            assert!(start.elapsed() < Duration::from_secs(20), "no `{words}` in {text:?}");
            let mut fds = [PollFd::new(&self.screen, PollFlags::IN)];
            if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })).unwrap_or(0) > 0 {
                let number = self.screen.read(&mut block).unwrap();
                text.push_str(&String::from_utf8_lossy(&block[..number]));
            }
        }
        text
    }

    /// What a line prints; the line itself is shown too.
    fn run(&mut self, line: &str) -> String {
        self.keys(&format!("{line}\n"));
        self.until("PROMPT> ")
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `a''b`: the words of the command line are shown as they are typed, and are no answer.
fn window_size(setsid: &PathBuf) {
    let mut shell = Shell::new(setsid);
    shell.keys(
        "$D exec -- bash -c 'trap \"stty size <&1; echo cha\"\"nged\" WINCH; stty size <&1; echo rea\"\"dy; while :; do sleep 0.1; done'\n",
    );
    assert!(shell.until("ready").contains("33 77"));
    shell.resize(44, 99);
    assert!(shell.until("changed").contains("44 99"));
}

fn job_control(setsid: &PathBuf) {
    let mut shell = Shell::new(setsid);
    shell.keys("$D exec -- bash -c 'echo rea\"\"dy; sleep 2; stty size <&1; exit 3'\n");
    shell.until("ready");
    shell.keys("\x1a");
    assert!(shell.until("PROMPT> ").contains("Stopped"));
    // Nobody tells a stopped job that the window has changed.
    shell.resize(50, 120);
    assert!(shell.run("jobs").contains("Stopped"));
    let on = shell.run("fg");
    assert!(on.contains("50 120"), "{on:?}");
    assert!(shell.run("echo code=$?").contains("code=3"));
}

fn keys(setsid: &PathBuf) {
    let mut shell = Shell::new(setsid);
    shell.keys("$D exec -- bash -c 'trap \"echo g\"\"ot; exit 9\" INT; echo rea\"\"dy; while :; do sleep 0.1; done'\n");
    shell.until("ready");
    shell.keys("\x03");
    let out = shell.until("PROMPT> ");
    // Once: the key reaches the command by itself, and we do not send it again.
    assert_eq!(out.matches("got").count(), 1, "{out:?}");
    assert!(shell.run("echo code=$?").contains("code=9"));
    shell.keys("$D exec -- cat\n");
    shell.keys("through\n");
    shell.until("through\r\nthrough");
    shell.keys("\x04");
    shell.until("PROMPT> ");
    assert!(shell.run("echo code=$?").contains("code=0"));
}

/// A command that is killed leaves the terminal as it found it; what one sets that ends by itself is its own will.
fn modes(setsid: &PathBuf) {
    let mut shell = Shell::new(setsid);
    shell.run("$D exec -- bash -c 'stty raw -echo; kill -KILL $$'");
    let modes = shell.run("stty -a");
    assert!(modes.contains(" icanon") && modes.contains(" echo ") && !modes.contains("-opost"), "{modes:?}");
    shell.run("$D exec -- stty -echonl -echok");
    assert!(shell.run("stty -a").contains("-echok"));
}
