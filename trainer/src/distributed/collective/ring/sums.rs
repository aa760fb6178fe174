//! Sums on the ring, and texts that all ranks share in the same call.

use std::ops::Range;

use kith_group::ring::{frame::Kind, plan::RingPlan};
use kith_kernels::{is_plain, numbers, numbers_mut};
use tch::Tensor;

use super::{Ring, exchange::Buffer, on_cpu};
use crate::distributed::{collective::Text, world::WorldError};

/// Most bytes that a rank adds to a sum for which gathering them on all ranks is faster than two trips around the ring.
const SMALL_BYTES: usize = 16 << 10;

/// Bytes before a text: its length.
const LENGTH_BYTES: usize = 4;

/// The texts of all ranks, by rank; none of a call without texts.
type Texts = Vec<Vec<u8>>;

impl Ring {
    /// Sums in place, in any order.
    pub(super) fn reduce(&mut self, values: &mut Tensor, text: Option<Text<'_>>) -> Result<Texts, WorldError> {
        if is_plain(values) {
            return self.sum(numbers_mut(values), text);
        }
        let mut here = on_cpu(values)?;
        let texts = self.sum(numbers_mut(&mut here), text)?;
        values.f_copy_(&here)?;
        Ok(texts)
    }

    /// Sums the tensors of all ranks in their order.
    pub(super) fn fold_in_order(
        &mut self,
        own: Vec<Tensor>,
        counts: &[usize],
        text: Option<Text<'_>>,
    ) -> Result<(Tensor, Texts), WorldError> {
        debug_assert_eq!(own.len(), counts[self.rank()], "every rank has as many tensors as it said");
        let here = own.iter().map(on_cpu).collect::<Result<Vec<_>, _>>()?;
        let mut here = here.into_iter();
        let mut sum = here.next().expect("every rank has a tensor");
        let summands: Vec<&[f32]> = here.as_slice().iter().map(numbers).collect();
        let texts = self.sum_in_order(numbers_mut(&mut sum), &summands, counts, text)?;
        Ok((sum.f_to_device(own[0].device())?, texts))
    }

    fn sum(&mut self, values: &mut [f32], text: Option<Text<'_>>) -> Result<Texts, WorldError> {
        let (rank, n_ranks, n_bytes) = (self.rank(), self.n_ranks, size_of_val(values));
        if n_bytes <= SMALL_BYTES {
            return self.sum_gathered(Kind::AllReduce, values, &[], &vec![1; n_ranks], text);
        }
        self.sum_beside(Kind::AllReduce, values, text, |texts| {
            RingPlan::reduce(rank, n_ranks, n_bytes / size_of::<f32>(), texts)
        })
    }

    /// Sums `values` and `summands` of all ranks in place, in their order.
    fn sum_in_order(
        &mut self,
        values: &mut [f32],
        summands: &[&[f32]],
        counts: &[usize],
        text: Option<Text<'_>>,
    ) -> Result<Texts, WorldError> {
        let (rank, n_ranks, n_bytes) = (self.rank(), self.n_ranks, size_of_val(values));
        if counts.iter().all(|count| count * n_bytes <= SMALL_BYTES) {
            return self.sum_gathered(Kind::Fold, values, summands, counts, text);
        }
        self.sum_beside(Kind::Fold, values, text, |texts| RingPlan::fold(rank, n_ranks, n_bytes, summands, texts))
    }

    /// Sums in place by a plan that is made of the plan for the texts.
    fn sum_beside<'a>(
        &mut self,
        kind: Kind,
        values: &mut [f32],
        text: Option<Text<'_>>,
        plan: impl FnOnce(Option<RingPlan<'_>>) -> RingPlan<'a>,
    ) -> Result<Texts, WorldError> {
        let (begun, rank, n_ranks, n_bytes) = (self.begin(), self.rank(), self.n_ranks, size_of_val(values));
        let mut texts = std::mem::take(&mut self.texts);
        let n_room = room_bytes(text);
        let room = |rank: usize| rank * n_room..(rank + 1) * n_room;
        texts.resize(room(n_ranks - 1).end, 0);
        let n_own = put(text, &mut texts[room(rank)]);
        let lengths = (n_own, n_room.saturating_sub(LENGTH_BYTES));
        let behind = |rank: usize| n_bytes + room(rank).start..n_bytes + room(rank).end;
        let plan = plan(text.map(|_| RingPlan::gather_texts(rank, n_ranks, behind, lengths)));
        let buffer = Buffer { numbers: bytemuck::cast_slice_mut(values), texts: &mut texts };
        let outcome = self.exchange_with(begun, (kind, n_bytes), &plan, buffer);
        let shared = outcome.and_then(|()| read(text, &texts, n_ranks, room));
        self.texts = texts;
        shared
    }

    /// Gathers `values`, `summands` and the texts of all ranks on every rank and adds the numbers in their order, in one trip around
    /// the ring. The room of a rank has its numbers, and behind them its text.
    fn sum_gathered(
        &mut self,
        kind: Kind,
        values: &mut [f32],
        summands: &[&[f32]],
        counts: &[usize],
        text: Option<Text<'_>>,
    ) -> Result<Texts, WorldError> {
        let (begun, rank, n_ranks, n_bytes) = (self.begin(), self.rank(), self.n_ranks, size_of_val(values));
        let (n, n_room) = (values.len(), room_bytes(text));
        let starts: Vec<usize> =
            (0..=n_ranks).map(|rank| counts[..rank].iter().sum::<usize>() * n_bytes + rank * n_room).collect();
        let texts_at = |rank: usize| starts[rank + 1] - n_room..starts[rank + 1];
        let mut rows = std::mem::take(&mut self.rows);
        rows.resize(starts[n_ranks] / size_of::<f32>(), 0.0);
        for (place, own) in std::iter::once(&*values).chain(summands.iter().copied()).enumerate() {
            rows[starts[rank] / size_of::<f32>() + place * n..][..n].copy_from_slice(own);
        }
        let bytes = bytemuck::cast_slice_mut(&mut rows);
        let n_own = counts[rank] * n_bytes + put(text, &mut bytes[texts_at(rank)]);
        let lengths = (n_own, n_room.saturating_sub(LENGTH_BYTES));
        let plan = RingPlan::gather_texts(rank, n_ranks, |rank| starts[rank]..starts[rank + 1], lengths);
        let outcome = self.exchange(begun, (kind, n_bytes), &plan, bytes);
        let shared = outcome.and_then(|()| read(text, bytes, n_ranks, texts_at));
        if shared.is_ok() {
            // In the same order everywhere, so that all ranks get the same bits.
            let mut is_first = true;
            for (rank, count) in counts.iter().enumerate() {
                for row in rows[starts[rank] / size_of::<f32>()..][..count * n].chunks_exact(n.max(1)) {
                    match std::mem::take(&mut is_first) {
                        true => values.copy_from_slice(row),
                        false => values.iter_mut().zip(row).for_each(|(value, summand)| *value += summand),
                    }
                }
            }
        }
        self.rows = rows;
        shared
    }
}

/// Bytes that the text of any rank takes at most, behind its length: whole numbers follow.
fn room_bytes(text: Option<Text<'_>>) -> usize {
    text.map_or(0, |text| (LENGTH_BYTES + text.n_most).next_multiple_of(size_of::<f32>()))
}

/// Puts this rank's text into its room; the bytes that it takes.
fn put(text: Option<Text<'_>>, room: &mut [u8]) -> usize {
    let Some(Text { own, n_most }) = text else { return 0 };
    assert!(own.len() <= n_most, "a text of {} bytes, where {n_most} are the most", own.len());
    room[..LENGTH_BYTES].copy_from_slice(&(own.len() as u32).to_le_bytes());
    room[LENGTH_BYTES..][..own.len()].copy_from_slice(own);
    LENGTH_BYTES + own.len()
}

/// The texts of all ranks in their rooms.
fn read(
    text: Option<Text<'_>>,
    bytes: &[u8],
    n_ranks: usize,
    room: impl Fn(usize) -> Range<usize>,
) -> Result<Texts, WorldError> {
    let n_texts = if text.is_some() { n_ranks } else { 0 };
    let text = |rank: usize| {
        let (length, rest) = bytes[room(rank)].split_first_chunk::<LENGTH_BYTES>()?;
        rest.get(..u32::from_le_bytes(*length) as usize).map(<[u8]>::to_vec)
    };
    let malformed = |rank: usize| WorldError::OutOfStep(format!("rank {rank} sent a malformed length of a text"));
    (0..n_texts).map(|rank| text(rank).ok_or_else(|| malformed(rank))).collect()
}
