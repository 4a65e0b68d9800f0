//! Starts the processes of the test, hears them all at once, and ends them: always, in time, and nothing is left of them.

use super::super::client::Client;
use super::super::protocol::Request;
use super::process::{Live, timespec};
use super::protocol::{Event, NcclRequest, Part};
use super::segments::Segments;
use crate::facts::nccl::{CudaDevice, End, Member, Op, Row, Run, Step, Wrong, version_of_code};
use crate::facts::raw::HostPath;
use crate::version::Dotted;
use rustix::event::{PollFd, PollFlags};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the others get to say what they know when one has fallen out.
const GRACE: Duration = Duration::from_millis(1500);
/// The whole test may last this many times the limit of a step.
const WHOLE: u32 = 10;
/// How often the watcher is told that time passes.
const TICK: Duration = Duration::from_millis(200);

/// What happens while the test runs.
pub enum Watched<'a> {
    At {
        rank: u32,
        step: Step,
    },
    /// A line that a library wrote.
    Said {
        rank: u32,
        line: &'a str,
    },
    /// Time passes.
    Tick,
}

pub type Watch<'w> = &'w mut dyn FnMut(Watched<'_>);

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    pub library: &'a HostPath,
    pub driver: &'a str,
    /// CUDA's numbers of the GPUs, one for each rank.
    pub devices: &'a [u32],
    /// Bytes, ascending.
    pub sizes: &'a [u64],
    /// The longest time without a step of any rank.
    pub limit: Duration,
}

/// The library without a communicator.
#[derive(Debug, Clone, PartialEq)]
pub struct Opened {
    pub member: Member,
    pub version: Option<Dotted>,
    /// None: they were not asked for, or could not be listed.
    pub devices: Option<Vec<CudaDevice>>,
}

impl Client {
    /// Opens the library, asks for its version and a unique id, and with `driver` for the GPUs.
    pub fn nccl_open(&self, library: &HostPath, driver: Option<&str>, limit: Duration, watch: Watch<'_>) -> Opened {
        let mut herd = Herd::new(self);
        herd.start(0, None, &NcclRequest { library: library.clone(), driver: driver.map(str::to_owned), part: None });
        let (mut version, mut devices) = (None, None);
        herd.hear(limit, watch, &mut |_, _, event| match event {
            Event::Version { code } => version = version_of_code(code),
            Event::Devices { devices: list } => devices = Some(list),
            _ => {}
        });
        let (mut members, _) = herd.end();
        let member = members.pop().unwrap_or_else(|| Live::new(0, None).member);
        Opened { member, version, devices }
    }

    /// The whole test. Rank 0 makes the unique id, and the others start when it is known.
    pub fn nccl_run(&self, plan: &Plan<'_>, watch: Watch<'_>) -> Run {
        let ranks = u32::try_from(plan.devices.len()).unwrap_or(0);
        let request = |rank: u32, device: u32, id: Option<&String>| NcclRequest {
            library: plan.library.clone(),
            driver: Some(plan.driver.to_owned()),
            part: Some(Part { rank, ranks, device, id: id.cloned(), sizes: plan.sizes.to_vec() }),
        };
        let mut herd = Herd::new(self);
        let mut numbered = (0..ranks).zip(plan.devices);
        if let Some((rank, device)) = numbered.next() {
            herd.start(rank, Some(*device), &request(rank, *device, None));
        }
        let mut rows = Rows::default();
        herd.hear(plan.limit, watch, &mut |herd, rank, event| match event {
            Event::UniqueId { id } if rank == 0 => {
                for (rank, device) in numbered.by_ref() {
                    herd.start(rank, Some(*device), &request(rank, *device, Some(&id)));
                }
            }
            Event::Measured { op, bytes, seconds, wrong } => rows.add(op, bytes, seconds, wrong),
            _ => {}
        });
        let (ranks, hung) = herd.end();
        Run { rows: rows.whole(plan.devices.len()), ranks, hung }
    }
}

/// What the ranks measured, by operation and size.
#[derive(Default)]
struct Rows {
    heard: BTreeMap<(Op, u64), (Vec<f64>, Vec<Wrong>)>,
}

impl Rows {
    fn add(&mut self, op: Op, bytes: u64, seconds: f64, wrong: Option<Wrong>) {
        let (times, wrongs) = self.heard.entry((op, bytes)).or_default();
        times.push(seconds);
        wrongs.extend(wrong);
    }

    /// Those that all ranks have told, and those that went wrong anywhere.
    fn whole(self, ranks: usize) -> Vec<Row> {
        let told = self.heard.into_iter().filter(|(_, (times, wrong))| times.len() == ranks || !wrong.is_empty());
        told.map(|((op, bytes), (times, wrong))| {
            let seconds = times.iter().sum::<f64>() / times.len().max(1) as f64;
            Row { op, bytes, ranks, seconds, wrong }
        })
        .collect()
    }
}

/// The processes of one test.
struct Herd<'c> {
    client: &'c Client,
    all: Vec<Live>,
    begun: Instant,
    /// When the last step was heard.
    moved: Instant,
    /// When those that are left are ended, since one fell out.
    closing: Option<Instant>,
    hung: Option<f64>,
    segments: Segments,
}

impl<'c> Herd<'c> {
    fn new(client: &'c Client) -> Self {
        let now = Instant::now();
        Self { client, all: Vec::new(), begun: now, moved: now, closing: None, hung: None, segments: Segments::new() }
    }

    fn start(&mut self, rank: u32, device: Option<u32>, request: &NcclRequest) {
        let mut live = Live::new(rank, device);
        match self.client.start(&Request::Nccl(request.clone()), None) {
            Ok(mut child) => {
                (live.stdout, live.stderr) = (child.stdout.take(), child.stderr.take());
                live.child = Some(child);
            }
            Err(e) => {
                live.finish(End::NotStarted { why: e.to_string() });
                self.closing = self.closing.or(Some(Instant::now()));
            }
        }
        self.all.push(live);
    }

    /// Until all have ended, or one fell out and the others had their time, or nothing moved for `limit`.
    fn hear(&mut self, limit: Duration, watch: Watch<'_>, on: &mut dyn FnMut(&mut Self, u32, Event)) {
        while self.all.iter().any(|live| live.end.is_none()) {
            let now = Instant::now();
            if self.closing.is_some_and(|at| at <= now) {
                return;
            }
            // Steps that come, and come too slowly, are no end either.
            let (step, whole) = (self.moved + limit, self.begun + limit * WHOLE);
            let patience = step.min(whole);
            if self.closing.is_none() && patience <= now {
                let waited = if step <= now { limit } else { limit * WHOLE };
                self.hung = Some(waited.as_secs_f64());
                return;
            }
            let until = self.closing.unwrap_or(patience).min(now + TICK);
            for at in self.ready(until.saturating_duration_since(now)) {
                let Some(live) = self.all.get_mut(at) else { continue };
                let rank = live.member.rank;
                live.listen(watch);
                for event in live.events() {
                    self.moved = Instant::now();
                    if let Event::At(step) = event {
                        watch(Watched::At { rank, step });
                    }
                    on(self, rank, event);
                }
                let fell_out = self.all.get(at).and_then(|live| live.end.as_ref()).is_some_and(|end| *end != End::Done);
                if fell_out && self.closing.is_none() {
                    self.closing = Some(Instant::now() + GRACE);
                }
            }
            if self.segments.is_due() {
                self.note_segments();
            }
            watch(Watched::Tick);
        }
    }

    /// Places of those that have something to say, after `timeout` at most.
    fn ready(&self, timeout: Duration) -> Vec<usize> {
        let mut fds = Vec::new();
        let mut places = Vec::new();
        for (place, live) in self.all.iter().enumerate().filter(|(_, live)| live.end.is_none()) {
            for fd in live.streams() {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                places.push(place);
            }
        }
        if rustix::event::poll(&mut fds, Some(&timespec(timeout))).is_err() {
            return Vec::new();
        }
        let mut ready: Vec<usize> = fds.iter().zip(places).filter(|(fd, _)| !fd.revents().is_empty()).map(|(_, place)| place).collect();
        ready.dedup();
        ready
    }

    fn note_segments(&mut self) {
        for rank in self.all.iter().filter_map(Live::running) {
            self.segments.note(rank);
        }
    }

    /// Ends what still runs. Each member says how it ended; second: the seconds of silence that were too many.
    fn end(mut self) -> (Vec<Member>, Option<f64>) {
        self.note_segments();
        let members: Vec<Member> = self.all.into_iter().map(Live::end).collect();
        if members.iter().any(|member| member.end != End::Done) {
            self.segments.remove();
        }
        (members, self.hung)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_whole_or_wrong() {
        let mut rows = Rows::default();
        rows.add(Op::Broadcast, 8, 1.0, None);
        rows.add(Op::AllReduce, 8, 1.0, None);
        rows.add(Op::AllReduce, 8, 3.0, None);
        let wrong = Wrong { rank: 1, elements: 1, first: 0, expected: 3.0, got: "4".to_owned() };
        rows.add(Op::AllGather, 8, 1.0, Some(wrong.clone()));
        let whole = rows.whole(2);
        let ops: Vec<(Op, f64)> = whole.iter().map(|row| (row.op, row.seconds)).collect();
        assert_eq!(ops, [(Op::AllReduce, 2.0), (Op::AllGather, 1.0)]);
        assert_eq!(whole.last().unwrap().wrong, [wrong]);
    }
}
