//! One operation of one size on one rank: values written, sent around, timed, and compared.

use super::cuda::{Array, Gpu};
use super::library::Comm;
use super::values::{Comparison, Shape};
use crate::facts::nccl::{Failure, Op, Stage, Wrong};
use std::time::Instant;

/// Elements that are copied at a time.
const PIECE: usize = 1 << 20;

/// A rank's means: its end of the communicator, its GPU, and memory for the largest size.
pub struct Rank<'l> {
    comm: Comm<'l>,
    gpu: Gpu,
    send: Array,
    receive: Array,
    /// Of the small all-reduce at which ranks wait for each other.
    meeting: Array,
}

impl<'l> Rank<'l> {
    /// Room for arrays of this many bytes, rounded up to an element for each rank. The communicator comes afterwards, so that a full GPU is
    /// told before NCCL takes what is left.
    pub fn memory(gpu: &Gpu, bytes: u64, ranks: u32) -> Result<[Array; 3], Failure> {
        let most = bytes.max(4 * u64::from(ranks)) + 4;
        Ok([gpu.array(most)?, gpu.array(most)?, gpu.array(8)?])
    }

    pub fn new(comm: Comm<'l>, gpu: Gpu, [send, receive, meeting]: [Array; 3]) -> Self {
        Self { comm, gpu, send, receive, meeting }
    }

    /// Seconds of one operation, and what arrived wrong. `at` hears each stage before it begins.
    pub fn measure(&self, shape: &Shape, at: &mut dyn FnMut(Stage) -> Result<(), Failure>) -> Result<(f64, Option<Wrong>), Failure> {
        at(Stage::Fill)?;
        self.fill(shape)?;
        at(Stage::Call)?;
        self.enqueue(shape)?;
        at(Stage::Wait)?;
        self.wait(shape.op)?;
        at(Stage::Measure)?;
        // What is compared came under load, not in the quiet of the first time.
        self.gpu.blot(self.receive, shape.receive * 4)?;
        self.meet()?;
        let begin = Instant::now();
        for _ in 0..shape.repeats() {
            self.enqueue(shape)?;
        }
        self.wait(shape.op)?;
        let seconds = begin.elapsed().as_secs_f64() / f64::from(shape.repeats());
        at(Stage::Compare)?;
        Ok((seconds, self.compare(shape)?))
    }

    pub fn close(self) -> Result<(), Failure> {
        self.comm.close()
    }

    fn fill(&self, shape: &Shape) -> Result<(), Failure> {
        let mut piece = Vec::with_capacity(PIECE);
        let mut place = 0;
        while place < shape.send {
            let end = shape.send.min(place + PIECE as u64);
            piece.clear();
            piece.extend((place..end).map(|index| shape.sent(self.comm.rank.into(), index)));
            self.gpu.write(self.send, place * 4, &piece)?;
            place = end;
        }
        self.gpu.blot(self.receive, shape.receive * 4)
    }

    fn enqueue(&self, shape: &Shape) -> Result<(), Failure> {
        self.comm.enqueue(shape.op, (self.send.at, shape.send), (self.receive.at, shape.receive), self.gpu.stream)
    }

    /// Polls, as nccl-tests does: a wait in the driver would never learn that a peer has gone.
    fn wait(&self, op: Op) -> Result<(), Failure> {
        loop {
            self.comm.check(op)?;
            if self.gpu.is_done()? {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    /// All ranks are here: no clock runs while a late one is waited for.
    fn meet(&self) -> Result<(), Failure> {
        self.comm.enqueue(Op::AllReduce, (self.meeting.at, 1), (self.meeting.at + 4, 1), self.gpu.stream)?;
        self.wait(Op::AllReduce)
    }

    fn compare(&self, shape: &Shape) -> Result<Option<Wrong>, Failure> {
        let mut comparison = Comparison::default();
        let mut piece = vec![0.0; PIECE.min(usize::try_from(shape.receive).unwrap_or(PIECE))];
        let mut place = 0;
        while place < shape.receive {
            let end = shape.receive.min(place + PIECE as u64);
            let part = usize::try_from(end - place).unwrap_or(0);
            let Some(part) = piece.get_mut(..part) else { break };
            self.gpu.read(self.receive, place * 4, part)?;
            comparison.next(shape, self.comm.rank, part);
            place = end;
        }
        Ok(comparison.result())
    }
}
