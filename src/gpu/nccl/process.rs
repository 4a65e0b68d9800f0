//! The process of one rank: what it says on both streams, and how it ends.

use super::super::client;
use super::client::{Watch, Watched};
use super::protocol::Event;
use crate::facts::nccl::{End, Member};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdout};
use std::time::Duration;

/// A line of the protocol is below 200 bytes, but for the list of devices.
const MOST_LINE: usize = 1 << 20;
/// Of NCCL's warnings the first tell the cause.
const MOST_WARNINGS: usize = 32;
const MOST_TEXT: usize = 4 << 10;

/// A process that runs, or has run.
pub(super) struct Live {
    pub(super) member: Member,
    pub(super) child: Option<Child>,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: Option<ChildStderr>,
    /// Read, and not yet a whole line.
    out: Vec<u8>,
    said: Vec<u8>,
    last_words: String,
    pub(super) end: Option<End>,
}

impl Live {
    pub(super) fn new(rank: u32, device: Option<u32>) -> Self {
        Self {
            member: Member { rank, device, last: None, end: End::Stopped, warnings: Vec::new(), meaning: None },
            child: None,
            stdout: None,
            stderr: None,
            out: Vec::new(),
            said: Vec::new(),
            last_words: String::new(),
            end: None,
        }
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.stdout.iter().map(AsFd::as_fd).chain(self.stderr.iter().map(AsFd::as_fd))
    }

    pub(super) fn finish(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    /// Takes what both streams hold now; a stream at its end is closed.
    pub(super) fn listen(&mut self, watch: Watch<'_>) {
        if let Some(stderr) = &mut self.stderr {
            let open = take(stderr, &mut self.said);
            self.hear_words(watch);
            if !open {
                self.stderr = None;
            }
        }
        if let Some(stdout) = &mut self.stdout
            && !take(stdout, &mut self.out)
        {
            self.stdout = None;
        }
        // A warning is written before the failure that it explains.
        if let Some(stderr) = &mut self.stderr {
            take(stderr, &mut self.said);
            self.hear_words(watch);
        }
    }

    fn hear_words(&mut self, watch: Watch<'_>) {
        while let Some(end) = self.said.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.said.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            self.hear_line(line.trim_end(), watch);
        }
        if self.said.len() > MOST_TEXT {
            let line: Vec<u8> = self.said.drain(..).collect();
            self.hear_line(&String::from_utf8_lossy(&line), watch);
        }
    }

    fn hear_line(&mut self, line: &str, watch: Watch<'_>) {
        if line.trim().is_empty() {
            return;
        }
        watch(Watched::Said { rank: self.member.rank, line });
        if let Some((_, warning)) = line.split_once(" NCCL WARN ")
            && self.member.warnings.len() < MOST_WARNINGS
        {
            self.member.warnings.push(cut(warning.trim()));
        }
        self.last_words = cut(line);
    }

    /// The whole lines of the protocol so far; at the end of the stream, how the process ended.
    pub(super) fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(end) = self.out.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.out.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(event) => {
                    match &event {
                        Event::At(step) => self.member.last = Some(*step),
                        Event::Failed(failure) => self.finish(End::Failed(failure.clone())),
                        Event::Done => self.finish(End::Done),
                        _ => {}
                    }
                    events.push(event);
                }
                Err(_) => self.finish(garbage(&line)),
            }
        }
        if self.out.len() > MOST_LINE {
            let end = garbage(&self.out);
            self.finish(end);
        }
        if self.stdout.is_none() && self.end.is_none() {
            let status = self.child.as_mut().and_then(|child| client::end(child, client::End::Closed));
            // What a crash handler or the loader wrote last.
            self.listen(&mut |_| ());
            let words = self.last_words.clone();
            self.finish(match status.and_then(|status| status.signal()) {
                Some(signal) => End::Crashed { signal, words },
                None => End::Ended { code: status.and_then(|status| status.code()), words },
            });
        }
        events
    }

    /// The process, as long as it has not come to its end.
    pub(super) fn running(&self) -> Option<u32> {
        self.child.as_ref().filter(|_| self.end.is_none()).map(Child::id)
    }

    pub(super) fn end(mut self) -> Member {
        if let Some(child) = &mut self.child {
            client::end(child, client::End::TimeUp);
        }
        Member { end: self.end.unwrap_or(End::Stopped), ..self.member }
    }
}

/// Reads until nothing waits. False at the end of the stream.
fn take<S: std::io::Read + AsFd>(stream: &mut S, into: &mut Vec<u8>) -> bool {
    let mut chunk = [0; 16 << 10];
    // A stream that never pauses must not hold the others up.
    for _ in 0..16 {
        let waits = rustix::event::poll(&mut [PollFd::new(&*stream, PollFlags::IN)], Some(&timespec(Duration::ZERO)));
        if waits != Ok(1) {
            return true;
        }
        match client::read(stream, &mut chunk) {
            0 => return false,
            count => into.extend(chunk.iter().take(count)),
        }
    }
    true
}

fn cut(text: &str) -> String {
    text.chars().take(MOST_TEXT).collect()
}

fn garbage(bytes: &[u8]) -> End {
    let begin = bytes.iter().take(80).copied().collect::<Vec<u8>>();
    End::Garbage { begin: String::from_utf8_lossy(&begin).trim().to_owned() }
}

pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), tv_nsec: duration.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &str) -> Live {
        let mut live = Live::new(1, Some(0));
        live.said = lines.as_bytes().to_vec();
        live.hear_words(&mut |_| ());
        live
    }

    #[test]
    fn warnings_lose_time_host_and_place() {
        let live = said(
            "\n[2026-01-02 03:04:05] node7:11:12 [0] bootstrap.cc:114 NCCL WARN Bootstrap : no socket interface found\n\
             node7:11:12 [0] NCCL INFO cudaDriverVersion 13000\n\
             node7:11:11 [1] misc/shmutils.cc:72 (ncclShmOpen) NCCL WARN Error: failed to extend /dev/shm/nccl-a to 9 bytes\nlast words",
        );
        let expected = ["Bootstrap : no socket interface found", "Error: failed to extend /dev/shm/nccl-a to 9 bytes"];
        assert_eq!(live.member.warnings, expected);
        assert_eq!(live.said, b"last words");
    }
}
