//! Schedule of a call: every rank sends to the next and receives from the previous, piece by piece. A piece is sent on
//! as soon as it has arrived, so that all links are busy at the same time.

use std::ops::Range;

/// Most bytes of a piece: they are summed, checked and sent on while they are in the cache.
pub const PIECE_BYTES: usize = 128 << 10;

/// Least pieces of a fold, so that the last rank soon has work; smaller pieces than `FOLD_PIECE_BYTES` cost more than the
/// wait.
const FOLD_PIECES: usize = 16;
const FOLD_PIECE_BYTES: usize = 32 << 10;

/// A piece of the buffer to send.
#[derive(Debug, PartialEq, Eq)]
pub struct Send {
    /// Of a piece that is passed on and arrived shorter, the beginning counts.
    pub range: Range<usize>,
    /// Number of pieces that must have arrived before.
    pub waits_for: usize,
    /// True if it is sent on as received, not as a sum.
    pub is_passed_on: bool,
}

/// A piece of the buffer that arrives.
#[derive(Debug, PartialEq, Eq)]
pub struct Receive {
    /// Its place in the buffer.
    pub range: Range<usize>,
    /// True if it is added to the buffer as floats; otherwise it replaces the content.
    pub is_added: bool,
    /// Bytes by which it may be shorter than the range: its length is in its head.
    pub n_spare: usize,
}

impl Receive {
    /// A piece that fills the range.
    fn of(range: Range<usize>, is_added: bool) -> Receive {
        Receive { range, is_added, n_spare: 0 }
    }
}

/// Sends and receives of one rank in one call.
#[derive(Debug, Default, PartialEq)]
pub struct RingPlan<'a> {
    /// In their order.
    pub sends: Vec<Send>,
    /// In their order.
    pub receives: Vec<Receive>,
    /// Tensors of this rank, each as long as the buffer, which are added in this order: to a piece that was added to the
    /// buffer when it arrived, and to a piece that waits for none before it is sent.
    pub summands: &'a [&'a [f32]],
}

impl<'a> RingPlan<'a> {
    /// All-reduce of `n_numbers` floats: each rank's part goes around the ring to be summed, then around again to be
    /// copied. One rank adds the last summand of each part, so that all ranks get the same bits. Texts follow the parts of the first round.
    pub fn reduce(rank: usize, n_ranks: usize, n_numbers: usize, texts: Option<RingPlan<'_>>) -> Self {
        let part = |k: usize| 4 * (n_numbers * k / n_ranks)..4 * (n_numbers * (k + 1) / n_ranks);
        let rounds = 2 * (n_ranks - 1);
        let around = |rank: usize, round: usize| (rank + 2 * n_ranks - round % n_ranks) % n_ranks;
        let sends = (0..rounds).map(|round| part(around(rank, round)));
        let receives = (0..rounds).map(|round| (part(around(rank, round + 1)), round < n_ranks - 1));
        // After the parts of its round.
        let n_before =
            |from: usize, round: usize| (0..=round).map(|round| pieces(part(around(from, round))).count()).sum();
        RingPlan::in_rounds(sends, receives).with_texts(texts, (rank, n_ranks), n_before)
    }

    /// The rows of all ranks, which stand one after the other in the buffer, from those who have them to all.
    pub fn gather(rank: usize, row_bytes: &[usize]) -> Self {
        let n_ranks = row_bytes.len();
        let row = |k: usize| {
            let start: usize = row_bytes[..k].iter().sum();
            start..start + row_bytes[k]
        };
        let sends = (0..n_ranks - 1).map(|round| row((rank + n_ranks - round) % n_ranks));
        let receives = (0..n_ranks - 1).map(|round| (row((rank + 2 * n_ranks - round - 1) % n_ranks), false));
        RingPlan::in_rounds(sends, receives)
    }

    /// The texts of all ranks, from those who have them to all. Each has a room in the buffer; this rank's fills `n_own` bytes of its room,
    /// and others leave at most `n_spare` bytes of theirs.
    pub fn gather_texts(
        rank: usize,
        n_ranks: usize,
        room: impl Fn(usize) -> Range<usize>,
        (n_own, n_spare): (usize, usize),
    ) -> Self {
        let mut plan = RingPlan::default();
        for round in 0..n_ranks - 1 {
            let sent = room((rank + n_ranks - round) % n_ranks);
            let range = if round == 0 { sent.start..sent.start + n_own } else { sent };
            plan.sends.push(Send { range, waits_for: round, is_passed_on: round > 0 });
            let range = room((rank + 2 * n_ranks - round - 1) % n_ranks);
            plan.receives.push(Receive { range, is_added: false, n_spare });
        }
        plan
    }

    /// Messages from each rank to each other, on the way that the ring has for them: a rank sends its own to the next rank, which keeps the
    /// first and passes the others on. `lengths[from][to]` are all lengths. The buffer has the messages that reach or leave this
    /// rank: see [`passing`].
    pub fn all_to_all(rank: usize, lengths: &[Vec<usize>]) -> Self {
        let n_ranks = lengths.len();
        let mut plan = RingPlan::default();
        let places = passing(rank, lengths);
        // Pieces of a message, all of them at least one, so that every rank takes part in every round.
        let message = |distance: usize, kept: usize| places[distance][kept].clone();
        for round in 0..n_ranks - 1 {
            // Sent: what came from `round` ranks before, but for the message to this rank.
            let first = usize::from(round > 0);
            let mut n_before = plan.receives.len();
            if round > 0 {
                n_before -= (0..n_ranks - round).map(|k| pieces(message(round, k)).count()).sum::<usize>();
                n_before += pieces(message(round, 0)).count();
            }
            let mut n_sent = 0;
            for kept in first..n_ranks - round - 1 + first {
                for range in pieces(message(round, kept)) {
                    n_sent += 1;
                    let waits_for = if round == 0 { 0 } else { n_before + n_sent };
                    plan.sends.push(Send { range, waits_for, is_passed_on: round > 0 });
                }
            }
            for kept in 0..n_ranks - round - 1 {
                let arriving = pieces(message(round + 1, kept)).map(|range| Receive::of(range, false));
                plan.receives.extend(arriving);
            }
        }
        plan
    }

    /// The whole buffer, from rank 0 along the ring to the last rank.
    pub fn broadcast(rank: usize, n_ranks: usize, n_bytes: usize) -> Self {
        let mut plan = RingPlan::default();
        for (place, range) in pieces(0..n_bytes).enumerate() {
            if rank + 1 < n_ranks {
                let waits_for = if rank == 0 { 0 } else { place + 1 };
                plan.sends.push(Send { range: range.clone(), waits_for, is_passed_on: rank != 0 });
            }
            if rank > 0 {
                plan.receives.push(Receive::of(range, false));
            }
        }
        plan
    }

    /// Ordered sum of the buffer and of `summands`. Partial sums go from rank 0 to the last rank, and each rank adds its own
    /// tensors to them; the sums go from the last rank on around the ring. Texts go around while no piece is there: a rank sends those that
    /// arrive before its first piece, and the others after its last one and before the sums.
    pub fn fold(
        rank: usize,
        n_ranks: usize,
        n_bytes: usize,
        summands: &'a [&'a [f32]],
        texts: Option<RingPlan<'_>>,
    ) -> Self {
        let piece_bytes = (n_bytes / FOLD_PIECES).clamp(FOLD_PIECE_BYTES, PIECE_BYTES) / 4 * 4;
        let mut plan = RingPlan { summands, ..RingPlan::default() };
        for (place, range) in pieces_of(piece_bytes, 0..n_bytes).enumerate() {
            let waits_for = if rank == 0 { 0 } else { place + 1 };
            plan.sends.push(Send { range: range.clone(), waits_for, is_passed_on: false });
            if rank > 0 {
                plan.receives.push(Receive::of(range, true));
            }
        }
        let n_added = plan.receives.len();
        for (place, range) in pieces_of(piece_bytes, 0..n_bytes).enumerate() {
            if rank + 2 < n_ranks {
                let waits_for = n_added + place + 1;
                plan.sends.push(Send { range: range.clone(), waits_for, is_passed_on: true });
            }
            if rank + 1 < n_ranks {
                plan.receives.push(Receive::of(range, false));
            }
        }
        let n_pieces = pieces_of(piece_bytes, 0..n_bytes).count();
        let n_before = |from: usize, round: usize| if round < from { 0 } else { n_pieces };
        plan.with_texts(texts, (rank, n_ranks), n_before)
    }

    /// Puts a gather of texts between the pieces: of what a rank sends, `n_before(rank, round)` pieces are before the text of a round.
    fn with_texts(
        self,
        texts: Option<RingPlan<'_>>,
        (rank, n_ranks): (usize, usize),
        n_before: impl Fn(usize, usize) -> usize,
    ) -> Self {
        let Some(texts) = texts else { return self };
        let places = |from: usize| (0..n_ranks - 1).map(|round| n_before(from, round)).collect::<Vec<usize>>();
        let (sent, received) = (places(rank), places((rank + n_ranks - 1) % n_ranks));
        let mut plan = RingPlan { summands: self.summands, ..RingPlan::default() };
        let piece_waits = |n: usize| n + received.iter().filter(|before| **before < n).count();
        let pieces = self.sends.into_iter().map(|send| Send { waits_for: piece_waits(send.waits_for), ..send });
        let text_waits = |n: usize| if n == 0 { 0 } else { received[n - 1] + n };
        let texts_sent = texts.sends.into_iter().map(|send| Send { waits_for: text_waits(send.waits_for), ..send });
        plan.sends = merged(pieces, texts_sent, &sent);
        plan.receives = merged(self.receives.into_iter(), texts.receives.into_iter(), &received);
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
            plan.receives.extend(pieces(receive).map(|range| Receive::of(range, is_added)));
        }
        plan
    }
}

/// Places in a rank's buffer of the messages of an all-to-all that leave, reach or pass it, by the distance of the rank that
/// sent them: from 0, those of this rank, in the order of the ranks after it, and from others the one to this rank, then those
/// to the ranks after it.
pub fn passing(rank: usize, lengths: &[Vec<usize>]) -> Vec<Vec<Range<usize>>> {
    let n_ranks = lengths.len();
    let mut end = 0;
    let mut next = |from: usize, to: usize| {
        let start = end;
        end += lengths[from][to];
        start..end
    };
    (0..n_ranks)
        .map(|distance| {
            let from = (rank + n_ranks - distance) % n_ranks;
            let first = usize::from(distance == 0);
            (first..n_ranks - distance).map(|after| next(from, (rank + after) % n_ranks)).collect()
        })
        .collect()
}

/// Pieces with texts between them; `n_before` has the number of pieces before each text.
fn merged<T>(pieces: impl Iterator<Item = T>, texts: impl Iterator<Item = T>, n_before: &[usize]) -> Vec<T> {
    let mut texts = texts.zip(n_before).peekable();
    let mut all = Vec::new();
    for (place, piece) in pieces.enumerate() {
        while let Some((text, _)) = texts.next_if(|(_, n_before)| **n_before <= place) {
            all.push(text);
        }
        all.push(piece);
    }
    all.extend(texts.map(|(text, _)| text));
    all
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

    /// Texts that fill their rooms.
    fn texts(rank: usize, n_ranks: usize, start: usize) -> RingPlan<'static> {
        RingPlan::gather_texts(rank, n_ranks, |rank| start + 50 * rank..start + 50 * (rank + 1), (50, 40))
    }

    /// Trips from rank to rank until all have everything, if a piece takes no time but the trip.
    fn n_trips(plans: &[RingPlan<'_>]) -> usize {
        let n_ranks = plans.len();
        // Time of each arrival so far, by rank.
        let mut arrived: Vec<Vec<usize>> = vec![Vec::new(); n_ranks];
        loop {
            let before = arrived.clone();
            for (rank, plan) in plans.iter().enumerate() {
                let mut now = 0;
                for (place, send) in plan.sends.iter().enumerate() {
                    if send.waits_for > arrived[rank].len() {
                        break;
                    }
                    now = now.max(send.waits_for.checked_sub(1).map_or(0, |last| arrived[rank][last]));
                    if place == arrived[(rank + 1) % n_ranks].len() {
                        arrived[(rank + 1) % n_ranks].push(now + 1);
                    }
                }
            }
            if before == arrived {
                break;
            }
        }
        let n_receives: Vec<usize> = plans.iter().map(|plan| plan.receives.len()).collect();
        assert_eq!(arrived.iter().map(Vec::len).collect::<Vec<_>>(), n_receives, "all that is waited for arrives");
        arrived.into_iter().flatten().max().unwrap()
    }

    #[test]
    fn texts_add_no_trip_to_a_sum() {
        for n_ranks in 2..9 {
            for n in [1, 3 * PIECE_BYTES] {
                let trips = |plan: &dyn Fn(usize) -> RingPlan<'static>| {
                    n_trips(&(0..n_ranks).map(plan).collect::<Vec<RingPlan<'static>>>())
                };
                let beside = |rank| Some(texts(rank, n_ranks, 4 * n));
                assert_eq!(trips(&|rank| RingPlan::reduce(rank, n_ranks, n, None)), 2 * n_ranks - 2);
                assert_eq!(trips(&|rank| RingPlan::reduce(rank, n_ranks, n, beside(rank))), 2 * n_ranks - 2);
                assert_eq!(trips(&|rank| RingPlan::fold(rank, n_ranks, 4 * n, &[], None)), 2 * n_ranks - 2);
                assert_eq!(trips(&|rank| RingPlan::fold(rank, n_ranks, 4 * n, &[], beside(rank))), 2 * n_ranks - 2);
                assert_eq!(trips(&|rank| texts(rank, n_ranks, 0)), n_ranks - 1);
            }
        }
    }

    #[test]
    fn what_a_rank_sends_is_what_the_next_one_receives() {
        for n_ranks in 2..7 {
            let long = 3 * PIECE_BYTES / 4 * n_ranks + 1;
            let rows: Vec<usize> = (0..n_ranks).map(|k| k * PIECE_BYTES * 2 / 3).collect();
            let messages: Vec<Vec<usize>> = (0..n_ranks)
                .map(|from| (0..n_ranks).map(|to| (3 * from + to) % 5 * PIECE_BYTES * 2 / 3).collect())
                .collect();
            let lengths_sent = |plan: &RingPlan<'_>| plan.sends.iter().map(|send| send.range.len()).collect::<Vec<_>>();
            let all_to_all = |rank| RingPlan::all_to_all(rank % n_ranks, &messages);
            for rank in 0..n_ranks {
                let received = all_to_all(rank + 1).receives.into_iter().map(|receive| receive.range.len());
                assert_eq!(lengths_sent(&all_to_all(rank)), received.collect::<Vec<_>>(), "rank {rank} of {n_ranks}");
            }
            let plans: [&dyn Fn(usize) -> RingPlan<'static>; 9] = [
                &|rank| RingPlan::reduce(rank, n_ranks, long, None),
                &|rank| RingPlan::reduce(rank, n_ranks, 1, None),
                &|rank| RingPlan::reduce(rank, n_ranks, long, Some(texts(rank, n_ranks, 4 * long))),
                &|rank| texts(rank, n_ranks, 0),
                &|rank| RingPlan::gather(rank, &rows),
                &|rank| RingPlan::broadcast(rank, n_ranks, long),
                &|rank| RingPlan::fold(rank, n_ranks, 4 * long, &[], None),
                &|rank| RingPlan::fold(rank, n_ranks, 0, &[], None),
                &|rank| RingPlan::fold(rank, n_ranks, 4 * long, &[], Some(texts(rank, n_ranks, 4 * long))),
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
                let plan = RingPlan::reduce(rank, n_ranks, n, None);
                let own = plan.sends.iter().filter(|send| send.waits_for == 0);
                let part = 4 * (n * (rank + 1) / n_ranks - n * rank / n_ranks);
                assert_eq!(own.map(|send| send.range.len()).sum::<usize>(), part);
                let fold = RingPlan::fold(rank, n_ranks, 4 * n, &[], None);
                let reduced = RingPlan::reduce(rank, n_ranks, n, Some(texts(rank, n_ranks, 4 * n)));
                let folded = RingPlan::fold(rank, n_ranks, 4 * n, &[], Some(texts(rank, n_ranks, 4 * n)));
                let messages: Vec<Vec<usize>> =
                    (0..n_ranks).map(|from| (0..n_ranks).map(|to| (from + to) % 3 * PIECE_BYTES).collect()).collect();
                for plan in [plan, fold, reduced, folded, RingPlan::all_to_all(rank, &messages)] {
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
