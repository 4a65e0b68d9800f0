//! The values that are sent, and what must arrive: whole numbers that 32-bit floats add without rounding in any order, so that every
//! comparison is exact.

use crate::facts::nccl::{Op, Wrong};

/// The most ranks for which no sum leaves the 24 bits in which a float counts by ones: 1000 · n(n+1)/2.
pub const MOST_RANKS: u32 = 64;
/// Base values are 1 to this.
const RANGE: u64 = 1000;

/// One operation of one size among so many ranks, all in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub op: Op,
    pub ranks: u64,
    pub send: u64,
    pub receive: u64,
    /// Of the whole array, as nccl-tests counts it.
    pub total: u64,
}

impl Shape {
    /// At least one element for each rank that must get one.
    pub fn new(op: Op, ranks: u64, bytes: u64) -> Self {
        let all = (bytes / 4).max(1);
        let part = (all / ranks.max(1)).max(1);
        match op {
            Op::AllReduce | Op::Broadcast | Op::SendReceive => Self { op, ranks, send: all, receive: all, total: all },
            Op::AllGather => Self { op, ranks, send: part, receive: part * ranks, total: part * ranks },
            Op::ReduceScatter => Self { op, ranks, send: part * ranks, receive: part, total: part * ranks },
        }
    }

    /// What tells this operation's values from those of the one before, so that stale memory does not pass.
    fn salt(&self) -> u64 {
        (self.op as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.total.rotate_left(32)
    }

    fn base(&self, index: u64) -> u64 {
        // The finaliser of MurmurHash3: each bit of the place changes the value.
        let mut h = index ^ self.salt();
        h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        1 + (h >> 33) % RANGE
    }

    fn of_rank(&self, rank: u64, index: u64) -> f32 {
        (self.base(index) * (rank + 1)) as f32
    }

    /// What this rank sends at this place.
    pub fn sent(&self, rank: u64, index: u64) -> f32 {
        self.of_rank(rank, index)
    }

    /// What this rank must have received at this place.
    pub fn expected(&self, rank: u64, index: u64) -> f32 {
        let sum = |index| (self.base(index) * (self.ranks * (self.ranks + 1) / 2)) as f32;
        match self.op {
            Op::AllReduce => sum(index),
            Op::Broadcast => self.of_rank(0, index),
            Op::AllGather => self.of_rank(index / self.send, index % self.send),
            Op::ReduceScatter => sum(rank * self.receive + index),
            Op::SendReceive => self.of_rank((rank + self.ranks - 1) % self.ranks, index),
        }
    }

    /// Times the operation is repeated against the clock: the same on every rank, so it follows from the size alone.
    pub fn repeats(&self) -> u32 {
        match self.total * 4 {
            0..=1_048_576 => 20,
            1_048_577..=67_108_864 => 10,
            _ => 4,
        }
    }
}

/// Compares what came, piece by piece.
#[derive(Debug, Default)]
pub struct Comparison {
    place: u64,
    wrong: Option<Wrong>,
}

impl Comparison {
    pub fn next(&mut self, shape: &Shape, rank: u32, piece: &[f32]) {
        for got in piece {
            let expected = shape.expected(rank.into(), self.place);
            // Also true for what is no number.
            if *got != expected {
                let wrong =
                    self.wrong.get_or_insert_with(|| Wrong { rank, elements: 0, first: self.place, expected, got: got.to_string() });
                wrong.elements += 1;
            }
            self.place += 1;
        }
    }

    pub fn result(self) -> Option<Wrong> {
        self.wrong
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn arrays_as_nccl_tests_counts_them() {
        let sizes = |op, ranks, bytes| {
            let shape = Shape::new(op, ranks, bytes);
            (shape.send, shape.receive, shape.total)
        };
        assert_eq!(sizes(Op::AllReduce, 4, 1024), (256, 256, 256));
        assert_eq!(sizes(Op::AllGather, 4, 1024), (64, 256, 256));
        assert_eq!(sizes(Op::ReduceScatter, 4, 1024), (256, 64, 256));
        assert_eq!(sizes(Op::AllGather, 8, 8), (1, 8, 8), "an element for each rank");
        assert_eq!(sizes(Op::SendReceive, 1, 8), (2, 2, 2));
    }

    #[test]
    fn what_is_expected_is_what_the_operation_means() {
        for op in Op::ALL {
            let shape = Shape::new(op, 3, 96);
            let sent: Vec<Vec<f32>> = (0..3).map(|rank| (0..shape.send).map(|i| shape.sent(rank, i)).collect()).collect();
            for rank in 0..3_usize {
                let sum = |i: usize| sent.iter().map(|of_rank| of_rank[i]).sum::<f32>();
                let received: Vec<f32> = match op {
                    Op::AllReduce => (0..24).map(sum).collect(),
                    Op::Broadcast => sent[0].clone(),
                    Op::AllGather => sent.concat(),
                    Op::ReduceScatter => (rank * 8..rank * 8 + 8).map(sum).collect(),
                    Op::SendReceive => sent[(rank + 2) % 3].clone(),
                };
                let mut comparison = Comparison::default();
                comparison.next(&shape, rank as u32, &received[..5]);
                comparison.next(&shape, rank as u32, &received[5..]);
                assert_eq!((comparison.place, comparison.wrong), (shape.receive, None), "{op:?}");
            }
        }
    }

    #[test]
    fn faults_are_counted_and_the_first_is_kept() {
        let shape = Shape::new(Op::AllReduce, 2, 64);
        let mut came: Vec<f32> = (0..16).map(|i| shape.expected(0, i)).collect();
        came.swap(3, 4);
        came[9] = f32::NAN;
        let mut comparison = Comparison::default();
        comparison.next(&shape, 1, &came);
        let wrong = comparison.result().unwrap();
        assert_eq!((wrong.rank, wrong.elements, wrong.first, wrong.expected), (1, 3, 3, shape.expected(0, 3)));
        // A rank left out, or one counted for another, shows everywhere.
        for other in [shape.sent(0, 0), shape.sent(1, 0), 2.0 * shape.sent(1, 0)] {
            assert!(other < shape.expected(0, 0) || other > shape.expected(0, 0));
        }
    }

    #[test]
    fn the_largest_sum_is_exact() {
        let ranks = u64::from(MOST_RANKS);
        assert!(RANGE * ranks * (ranks + 1) / 2 < 1 << 24);
    }
}
