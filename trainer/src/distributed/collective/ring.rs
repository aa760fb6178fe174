//! Ring of TCP connections: each rank sends to the next and receives from the previous. For tensors on the CPU; others
//! are copied there and back.

mod exchange;
mod sums;
#[cfg(test)]
mod tests;

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use kith_group::{
    limits::PATIENCE,
    progress::{Entry, Verdict},
    ring::{
        frame::{Call, Kind},
        judgment::Judge,
        plan::{RingPlan, passing},
    },
};
use kith_kernels::{filled, numbers};
use tch::{Device, Tensor};

use self::exchange::{Buffer, Failure, Links};
use super::{Collective, Text};
use crate::distributed::world::{Board, Line, Order, WorldError};

/// One rank's place in a ring.
#[derive(Debug)]
pub(crate) struct Ring {
    n_ranks: usize,
    links: Links,
    board: Arc<Board>,
    /// Time limit of a call.
    limit: Duration,
    patience: Duration,
    /// Summands of a small sum from all ranks, each rank's text behind its own.
    rows: Vec<f32>,
    /// Texts of all ranks beside a large sum.
    texts: Vec<u8>,
    failed: Option<Verdict>,
}

impl Ring {
    /// A rank between two others.
    pub(crate) fn new(previous: Line, next: Line, board: Arc<Board>, limit: Duration) -> io::Result<Ring> {
        let n_ranks = board.members().len();
        let links = Links::new(previous, next)?;
        Ok(Ring { n_ranks, links, board, limit, patience: PATIENCE, rows: Vec::new(), texts: Vec::new(), failed: None })
    }

    pub(super) fn rank(&self) -> usize {
        self.board.rank()
    }

    pub(super) fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    /// Time limit of a call.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// The error that all ranks must stop with, if it is known by now.
    pub(super) fn why_stop(&self) -> Option<WorldError> {
        self.board.verdict().map(|verdict| self.board.error(verdict))
    }

    /// Error of a call outside the ring that has not ended in time.
    pub(super) fn too_late_in(&mut self, what: &str) -> WorldError {
        let verdict = self.judge(|judge| judge.too_late(what));
        self.settle(Some(verdict))
    }

    /// Error of a failed call outside the ring: most often a process ended, and the pulse knows which.
    pub(super) fn failed_in(&mut self, what: &str, why: &str) -> WorldError {
        let verdict = match self.board.await_verdict(self.patience) {
            Some(verdict) => verdict.clone(),
            None => self.judge(|judge| judge.lost(judge.rank, format!("{what} failed: {why}"))),
        };
        self.settle(Some(verdict))
    }

    /// Begins a collective: its number, and when it must have ended.
    fn begin(&self) -> (u64, Instant) {
        (self.board.enter_collective(), Instant::now() + self.limit)
    }

    /// One exchange of a collective that has begun.
    fn exchange(
        &mut self,
        (number, deadline): (u64, Instant),
        (kind, n_bytes): (Kind, usize),
        plan: &RingPlan<'_>,
        buffer: &mut [u8],
    ) -> Result<(), WorldError> {
        self.exchange_with((number, deadline), (kind, n_bytes), plan, Buffer { numbers: buffer, texts: &mut [] })
    }

    /// The same with texts behind the numbers.
    fn exchange_with(
        &mut self,
        (number, deadline): (u64, Instant),
        (kind, n_bytes): (Kind, usize),
        plan: &RingPlan<'_>,
        buffer: Buffer<'_>,
    ) -> Result<(), WorldError> {
        if let Some(verdict) = &self.failed {
            return Err(self.board.error(verdict));
        }
        let call = Call { number, kind, n_bytes: n_bytes as u64 };
        let outcome = self.links.exchange(call, plan, buffer, &self.board, deadline);
        outcome.map_err(|failure| self.failure(call, failure))
    }

    /// Error of a failed exchange. If this rank saw the failure first, it informs all others.
    fn failure(&mut self, call: Call, failure: Failure) -> WorldError {
        let verdict = match failure {
            Failure::Verdict => None,
            Failure::Own(failure) => match failure.is_broken().then(|| self.board.await_verdict(self.patience)) {
                Some(Some(verdict)) => Some(verdict.clone()),
                _ => Some(self.judge(|judge| judge.verdict(call, &failure))),
            },
        };
        self.settle(verdict)
    }

    fn judge(&self, verdict: impl FnOnce(Judge<'_>) -> Verdict) -> Verdict {
        let (rank, members, limit) = (self.rank(), self.board.members(), self.limit);
        let entries: Vec<Entry> = self.board.entries();
        verdict(Judge { rank, members, entries: &entries, limit })
    }

    /// The end of all calls, for a reason of this rank's own if it has one.
    fn settle(&mut self, verdict: Option<Verdict>) -> WorldError {
        // An earlier verdict of the pulse stands.
        let verdict = match (self.board.verdict(), verdict) {
            (Some(decided), _) => decided.clone(),
            (None, Some(own)) => {
                self.board.order(Order::tell(own.clone()));
                own
            }
            (None, None) => self.judge(|judge| judge.lost(judge.rank, "nobody knows why".to_owned())),
        };
        let error = self.board.error(&verdict);
        self.failed = Some(verdict);
        error
    }
}

impl Collective for Ring {
    fn all_reduce(&mut self, values: &mut Tensor) -> Result<(), WorldError> {
        self.reduce(values, None).map(drop)
    }

    fn all_reduce_with(&mut self, values: &mut Tensor, text: Text<'_>) -> Result<Vec<Vec<u8>>, WorldError> {
        self.reduce(values, Some(text))
    }

    fn all_gather(&mut self, own: &Tensor) -> Result<Tensor, WorldError> {
        let begun = self.begin();
        let here = on_cpu(own)?;
        let (n_ranks, n, rank) = (self.n_ranks, here.numel(), self.rank());
        let plan = RingPlan::gather(rank, &vec![4 * n; n_ranks]);
        let mut outcome = Ok(());
        let rows = filled(&[n_ranks as i64, n as i64], |rows| {
            rows[rank * n..][..n].copy_from_slice(numbers(&here));
            outcome = self.exchange(begun, (Kind::AllGather, 4 * n), &plan, bytemuck::cast_slice_mut(rows));
        });
        if n == 0 {
            outcome = self.exchange(begun, (Kind::AllGather, 0), &plan, &mut []);
        }
        outcome?;
        Ok(rows.f_to_device(own.device())?)
    }

    fn fold(&mut self, own: Vec<Tensor>, counts: &[usize]) -> Result<Tensor, WorldError> {
        self.fold_in_order(own, counts, None).map(|(sum, _)| sum)
    }

    fn fold_with(
        &mut self,
        own: Vec<Tensor>,
        counts: &[usize],
        text: Text<'_>,
    ) -> Result<(Tensor, Vec<Vec<u8>>), WorldError> {
        self.fold_in_order(own, counts, Some(text))
    }

    fn share(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, WorldError> {
        let (begun, rank, n_ranks) = (self.begin(), self.rank(), self.n_ranks);
        let mut lengths = vec![0u64; n_ranks];
        lengths[rank] = own.len() as u64;
        let plan = RingPlan::gather(rank, &vec![8; n_ranks]);
        self.exchange(begun, (Kind::ShareLengths, 8), &plan, bytemuck::cast_slice_mut(&mut lengths))?;
        let lengths: Vec<usize> = lengths.into_iter().map(|n| usize::try_from(n).unwrap_or(usize::MAX)).collect();
        let mut bytes = zeros(lengths.iter().fold(0, |all: usize, n| all.saturating_add(*n)))?;
        let start: usize = lengths[..rank].iter().sum();
        bytes[start..][..own.len()].copy_from_slice(own);
        let plan = RingPlan::gather(rank, &lengths);
        self.exchange(begun, (Kind::Share, bytes.len()), &plan, &mut bytes)?;
        let mut rest = bytes.as_slice();
        let mut shared = Vec::with_capacity(n_ranks);
        for n in lengths {
            let (row, after) = rest.split_at(n);
            shared.push(row.to_vec());
            rest = after;
        }
        Ok(shared)
    }

    fn all_to_all(&mut self, mut own: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, WorldError> {
        let (begun, rank, n_ranks) = (self.begin(), self.rank(), self.n_ranks);
        let mut lengths = vec![0u64; n_ranks * n_ranks];
        lengths[rank * n_ranks..][..n_ranks].iter_mut().zip(&own).for_each(|(n, own)| *n = own.len() as u64);
        let plan = RingPlan::gather(rank, &vec![8 * n_ranks; n_ranks]);
        let n_bytes = 8 * n_ranks;
        self.exchange(begun, (Kind::AllToAllLengths, n_bytes), &plan, bytemuck::cast_slice_mut(&mut lengths))?;
        let as_usize = |n: &u64| usize::try_from(*n).unwrap_or(usize::MAX);
        let lengths: Vec<Vec<usize>> =
            lengths.chunks_exact(n_ranks).map(|row| row.iter().map(as_usize).collect()).collect();
        let checked_sum = |all: usize, n: &usize| all.checked_add(*n).filter(|all| *all <= isize::MAX as usize);
        if lengths.iter().flatten().try_fold(0, checked_sum).is_none() {
            return Err(WorldError::OutOfStep("a rank sent malformed lengths of an all-to-all".to_owned()));
        }
        let places = passing(rank, &lengths);
        let mut bytes = zeros(places.iter().flatten().map(|place| place.len()).sum())?;
        for (after, place) in (1..).zip(&places[0]) {
            let message = std::mem::take(&mut own[(rank + after) % n_ranks]);
            bytes[place.clone()].copy_from_slice(&message);
        }
        let plan = RingPlan::all_to_all(rank, &lengths);
        // Every rank's buffer has another length: the call is named by the length of all messages.
        let n_bytes = lengths.iter().flatten().sum();
        self.exchange(begun, (Kind::AllToAll, n_bytes), &plan, &mut bytes)?;
        for (distance, place) in (1..n_ranks).map(|distance| (distance, places[distance][0].clone())) {
            own[(rank + n_ranks - distance) % n_ranks] = bytes[place].to_vec();
        }
        Ok(own)
    }

    fn broadcast(&mut self, bytes: &mut Vec<u8>) -> Result<(), WorldError> {
        let (begun, rank, n_ranks) = (self.begin(), self.rank(), self.n_ranks);
        let mut length = (bytes.len() as u64).to_le_bytes();
        let plan = RingPlan::broadcast(rank, n_ranks, length.len());
        self.exchange(begun, (Kind::BroadcastLength, length.len()), &plan, &mut length)?;
        let n_bytes = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        if rank != 0 {
            *bytes = zeros(n_bytes)?;
        }
        let plan = RingPlan::broadcast(rank, n_ranks, n_bytes);
        self.exchange(begun, (Kind::Broadcast, n_bytes), &plan, bytes)
    }

    fn barrier(&mut self) -> Result<(), WorldError> {
        let plan = RingPlan::gather(self.rank(), &vec![0; self.n_ranks]);
        self.exchange(self.begin(), (Kind::Barrier, 0), &plan, &mut [])
    }

    /// With the heads of all pieces.
    fn sent_bytes(&self) -> u64 {
        self.links.sent_bytes
    }
}

/// Values where slices of them can be had.
fn on_cpu(values: &Tensor) -> Result<Tensor, WorldError> {
    Ok(values.f_to_device(Device::Cpu)?.f_contiguous()?)
}

/// That many bytes, if there is memory for them: their number came from somebody else.
fn zeros(n_bytes: usize) -> Result<Vec<u8>, WorldError> {
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(n_bytes).is_err() {
        let problem = format!("there is no memory for the {n_bytes} bytes that ranks exchange");
        return Err(WorldError::Io(io::Error::other(problem)));
    }
    bytes.resize(n_bytes, 0);
    Ok(bytes)
}
