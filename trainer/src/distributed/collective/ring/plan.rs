//! Schedule of a call: every rank sends to the next and receives from the previous, piece by piece. A piece is sent on
//! as soon as it has arrived, so that all links are busy at the same time.

use std::ops::Range;

/// Most bytes of a piece: they are summed, checked and sent on while they are in the cache.
pub(super) const PIECE_BYTES: usize = 128 << 10;

/// Least pieces of a fold, so that the last rank soon has work; smaller pieces than `FOLD_PIECE_BYTES` cost more than the
/// wait.
const FOLD_PIECES: usize = 16;
const FOLD_PIECE_BYTES: usize = 32 << 10;

/// A piece of the buffer to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Send {
    pub(super) range: Range<usize>,
    /// Number of pieces that must have arrived before.
    pub(super) waits_for: usize,
    /// True if it is sent on as received, not as a sum.
    pub(super) is_passed_on: bool,
}

/// A piece of the buffer that arrives.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Receive {
    pub(super) range: Range<usize>,
    /// True if it is added to the buffer as floats; otherwise it replaces the content.
    pub(super) is_added: bool,
}

/// Sends and receives of one rank in one call.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RingPlan<'a> {
    pub(super) sends: Vec<Send>,
    pub(super) receives: Vec<Receive>,
    /// Tensors of this rank, each as long as the buffer, which are added in this order: to a piece that was added to the
    /// buffer when it arrived, and to a piece that waits for none before it is sent.
    pub(super) summands: &'a [&'a [f32]],
}

impl<'a> RingPlan<'a> {
    /// All-reduce of `n_numbers` floats: each rank's part goes around the ring to be summed, then around again to be
    /// copied. One rank adds the last summand of each part, so that all ranks get the same bits.
    pub(super) fn reduce(rank: usize, n_ranks: usize, n_numbers: usize) -> Self {
        let part = |k: usize| 4 * (n_numbers * k / n_ranks)..4 * (n_numbers * (k + 1) / n_ranks);
        let rounds = 2 * (n_ranks - 1);
        let around = |round: usize| (rank + 2 * n_ranks - round % n_ranks) % n_ranks;
        let sends = (0..rounds).map(|round| part(around(round)));
        let receives = (0..rounds).map(|round| (part(around(round + 1)), round < n_ranks - 1));
        RingPlan::in_rounds(sends, receives)
    }

    /// The rows of all ranks, which stand one after the other in the buffer, from those who have them to all.
    pub(super) fn gather(rank: usize, row_bytes: &[usize]) -> Self {
        let n_ranks = row_bytes.len();
        let row = |k: usize| {
            let start: usize = row_bytes[..k].iter().sum();
            start..start + row_bytes[k]
        };
        let sends = (0..n_ranks - 1).map(|round| row((rank + n_ranks - round) % n_ranks));
        let receives = (0..n_ranks - 1).map(|round| (row((rank + 2 * n_ranks - round - 1) % n_ranks), false));
        RingPlan::in_rounds(sends, receives)
    }

    /// The whole buffer, from rank 0 along the ring to the last rank.
    pub(super) fn broadcast(rank: usize, n_ranks: usize, n_bytes: usize) -> Self {
        let mut plan = RingPlan::default();
        for (place, range) in pieces(0..n_bytes).enumerate() {
            if rank + 1 < n_ranks {
                let waits_for = if rank == 0 { 0 } else { place + 1 };
                plan.sends.push(Send { range: range.clone(), waits_for, is_passed_on: rank != 0 });
            }
            if rank > 0 {
                plan.receives.push(Receive { range, is_added: false });
            }
        }
        plan
    }

    /// Ordered sum of the buffer and of `summands`. Partial sums go from rank 0 to the last rank, and each rank adds its own
    /// tensors to them; the sums go from the last rank on around the ring.
    pub(super) fn fold(rank: usize, n_ranks: usize, n_bytes: usize, summands: &'a [&'a [f32]]) -> Self {
        let piece_bytes = (n_bytes / FOLD_PIECES).clamp(FOLD_PIECE_BYTES, PIECE_BYTES) / 4 * 4;
        let mut plan = RingPlan { summands, ..RingPlan::default() };
        for (place, range) in pieces_of(piece_bytes, 0..n_bytes).enumerate() {
            let waits_for = if rank == 0 { 0 } else { place + 1 };
            plan.sends.push(Send { range: range.clone(), waits_for, is_passed_on: false });
            if rank > 0 {
                plan.receives.push(Receive { range, is_added: true });
            }
        }
        let n_added = plan.receives.len();
        for (place, range) in pieces_of(piece_bytes, 0..n_bytes).enumerate() {
            if rank + 2 < n_ranks {
                let waits_for = n_added + place + 1;
                plan.sends.push(Send { range: range.clone(), waits_for, is_passed_on: true });
            }
            if rank + 1 < n_ranks {
                plan.receives.push(Receive { range, is_added: false });
            }
        }
        plan
    }

    /// Plan in rounds: each round sends the data that arrived in the round before.
    fn in_rounds(
        sends: impl Iterator<Item = Range<usize>>,
        receives: impl Iterator<Item = (Range<usize>, bool)>,
    ) -> Self {
        let mut plan = RingPlan::default();
        // First piece that arrived in the round before, and whether its pieces were added to something.
        let (mut arrived, mut were_added) = (0, true);
        for (round, (send, (receive, is_added))) in sends.zip(receives).enumerate() {
            for (place, range) in pieces(send).enumerate() {
                let waits_for = if round == 0 { 0 } else { arrived + place + 1 };
                plan.sends.push(Send { range, waits_for, is_passed_on: !were_added && round > 0 });
            }
            (arrived, were_added) = (plan.receives.len(), is_added);
            plan.receives.extend(pieces(receive).map(|range| Receive { range, is_added }));
        }
        plan
    }
}

/// A range in pieces of the usual size.
fn pieces(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    pieces_of(PIECE_BYTES, range)
}

/// A range in pieces; an empty range is one empty piece, so that every rank takes part in every round.
fn pieces_of(piece_bytes: usize, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let n_pieces = range.len().div_ceil(piece_bytes).max(1);
    (0..n_pieces).map(move |k| {
        let start = range.start + k * piece_bytes;
        start..range.end.min(start + piece_bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rank_sends_is_what_the_next_one_receives() {
        for n_ranks in 2..7 {
            let long = 3 * PIECE_BYTES / 4 * n_ranks + 1;
            let rows: Vec<usize> = (0..n_ranks).map(|k| k * PIECE_BYTES * 2 / 3).collect();
            let plans: [&dyn Fn(usize) -> RingPlan<'static>; 6] = [
                &|rank| RingPlan::reduce(rank, n_ranks, long),
                &|rank| RingPlan::reduce(rank, n_ranks, 1),
                &|rank| RingPlan::gather(rank, &rows),
                &|rank| RingPlan::broadcast(rank, n_ranks, long),
                &|rank| RingPlan::fold(rank, n_ranks, 4 * long, &[]),
                &|rank| RingPlan::fold(rank, n_ranks, 0, &[]),
            ];
            for plan in plans {
                for rank in 0..n_ranks {
                    let sends: Vec<_> = plan(rank).sends.into_iter().map(|send| send.range).collect();
                    let next = plan((rank + 1) % n_ranks);
                    let receives: Vec<_> = next.receives.into_iter().map(|receive| receive.range).collect();
                    assert_eq!(sends, receives, "rank {rank} of {n_ranks}");
                }
            }
        }
    }

    #[test]
    fn what_is_sent_on_has_arrived() {
        for n_ranks in 2..7 {
            for rank in 0..n_ranks {
                let n = PIECE_BYTES * n_ranks + 3;
                let plan = RingPlan::reduce(rank, n_ranks, n);
                let own = plan.sends.iter().filter(|send| send.waits_for == 0);
                let part = 4 * (n * (rank + 1) / n_ranks - n * rank / n_ranks);
                assert_eq!(own.map(|send| send.range.len()).sum::<usize>(), part);
                let fold = RingPlan::fold(rank, n_ranks, 4 * n, &[]);
                for plan in [plan, fold] {
                    for send in plan.sends.iter().filter(|send| send.waits_for > 0) {
                        let arrived = &plan.receives[send.waits_for - 1];
                        assert_eq!(send.range, arrived.range);
                        assert_eq!(send.is_passed_on, !arrived.is_added);
                    }
                }
            }
        }
    }
}
