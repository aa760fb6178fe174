//! Exchange between ranks in every step: the gradients of their slices, and the slices' losses.

use std::{collections::VecDeque, sync::Arc};

use kith_client::RowCounts;
use kith_kernels::cuda::RankSlices;
use kith_run::{checkpoint::Exact, clock::Phases, report::StepRecord, stop::Request};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tch::Tensor;

use crate::{
    data::slices::Division,
    distributed::{
        collective::{Posted, Text, in_order},
        world::{World, WorldError},
    },
    error::TrainError,
    weights::Weights,
};

/// Steps from one comparison of all ranks' weights to the next.
const COMPARED_EVERY: u64 = 1000;

/// Results of one slice of a step, beside its gradient.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SliceRecord {
    pub(crate) loss: Exact,
    pub(crate) node_loss: Exact,
    pub(crate) edge_losses: Vec<Exact>,
    pub(crate) digest: Option<String>,
    /// Rows from files here, from the cache, from servers.
    pub(crate) row_counts: (u64, u64, u64),
    pub(crate) n_negatives_left_out: u64,
    pub(crate) n_seeds: u64,
    pub(crate) n_edges: u64,
}

impl SliceRecord {
    /// Sources of its features.
    pub(crate) fn rows(&self) -> RowCounts {
        let (local, cached, remote) = self.row_counts;
        RowCounts { local, cached, remote }
    }
}

/// Message of a rank in a step.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    slices: Vec<SliceRecord>,
    phases: Phases,
    /// Bytes to other ranks since its previous message.
    sent_bytes: u64,
    /// Of the weights before the step, where it is time to compare them.
    weights: Option<String>,
    /// Asked of this rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop: Option<Request>,
    /// True if it is time for a checkpoint.
    #[serde(default)]
    saves: bool,
}

/// Bytes of a message at most: of a slice, of a layer in it, and of everything else.
const MOST_BYTES: [usize; 3] = [512, 64, 1024];

/// Exchange of steps' gradients and records between ranks. Records travel with gradients that are summed here; those of gradients that a
/// GPU sums come later.
#[derive(Debug)]
pub(crate) struct Exchange {
    division: Arc<Division>,
    n_layers: usize,
    /// True if gradients are added in the order of slices, whatever ranks computed them.
    is_deterministic: bool,
    /// Steps that were begun and not told.
    begun: VecDeque<StepName>,
    /// Steps that were told and not heard.
    told: VecDeque<(StepName, Posted)>,
    /// Bytes to other ranks, at this rank's previous message.
    sent_bytes: u64,
}

/// A step on this rank.
#[derive(Clone, Debug)]
pub(crate) struct StepName {
    pub(crate) step: u64,
    pub(crate) epoch: u64,
    /// Digest of the weights before the step, where it is time to compare them.
    pub(crate) weights: Option<String>,
    /// True if it is time for a checkpoint on this rank.
    pub(crate) saves: bool,
}

/// Results of a step on all ranks.
#[derive(Debug)]
pub(crate) struct Exchanged {
    pub(crate) step: u64,
    pub(crate) epoch: u64,
    /// In the order of slices.
    pub(crate) slices: Vec<SliceRecord>,
    /// By rank, since the step before was exchanged.
    pub(crate) phases: Vec<Phases>,
    /// By rank, to others, since the step before was exchanged.
    pub(crate) sent_bytes: Vec<u64>,
    /// Asked of any rank: all stop after this step, or after the last that is under way.
    pub(crate) stop: Option<Request>,
    /// True if it is time for a checkpoint on any rank.
    pub(crate) saves: bool,
}

impl Exchange {
    /// Before the first step of a run in this world.
    pub(crate) fn new(division: Arc<Division>, n_layers: usize, is_deterministic: bool, world: &mut World) -> Exchange {
        let sent_bytes = world.collective().sent_bytes();
        Exchange { division, n_layers, is_deterministic, begun: VecDeque::new(), told: VecDeque::new(), sent_bytes }
    }

    /// Bytes at most of a message in a step with these slices of each rank.
    fn n_most(&self, counts: &[usize]) -> usize {
        let [slice, layer, rest] = MOST_BYTES;
        most(counts) * (slice + self.n_layers * layer) + rest
    }

    /// True if ranks compare their weights before a step.
    pub(crate) fn compares(world: &World, step: u64) -> bool {
        world.n_ranks() > 1 && step.is_multiple_of(COMPARED_EVERY)
    }

    /// Slices of all ranks, if there are several and their gradients are added in the order of slices.
    pub(crate) fn rank_slices(&self) -> Option<RankSlices> {
        let counts = self.division.counts(0);
        let n_ranks = counts.len();
        if n_ranks == 1 || !self.is_deterministic {
            return None;
        }
        let own = |(rank, count): (usize, &usize)| (0..*count).map(move |place| (rank, place));
        let order = counts.iter().enumerate().flat_map(own).collect();
        Some(RankSlices { n_ranks, most: most(&counts), order })
    }

    /// Begins a step. Steps are told in the order in which they were begun.
    pub(crate) fn begin(&mut self, name: StepName) {
        self.begun.push_back(name);
    }

    /// Adds up the gradients of all slices, of all ranks; `gradients` are those of this rank. Tells all ranks what the slices came to here.
    pub(crate) fn add(
        &mut self,
        world: &mut World,
        gradients: Vec<Tensor>,
        slices: Vec<SliceRecord>,
        phases: Phases,
    ) -> Result<Tensor, TrainError> {
        let (name, told) = self.next(world, slices, phases);
        let counts = self.division.counts(name.step);
        let text = Text { own: &told.text(), n_most: self.n_most(&counts) };
        let (sum, texts) = if self.is_deterministic {
            world.collective().fold_with(gradients, &counts, text)?
        } else {
            let mut sum = in_order(gradients);
            let texts = world.collective().all_reduce_with(&mut sum, text)?;
            (sum, texts)
        };
        self.told.push_back((name, Posted::Shared(texts)));
        Ok(sum)
    }

    /// Tells all ranks what the slices of a step came to here, whose gradients a GPU adds up.
    pub(crate) fn tell(
        &mut self,
        world: &mut World,
        slices: Vec<SliceRecord>,
        phases: Phases,
    ) -> Result<(), TrainError> {
        let (name, told) = self.next(world, slices, phases);
        let n_most = self.n_most(&self.division.counts(name.step));
        let posted = world.collective().post(&told.text(), n_most)?;
        self.told.push_back((name, posted));
        Ok(())
    }

    /// Message of the first step that was begun and not told.
    fn next(&mut self, world: &mut World, slices: Vec<SliceRecord>, phases: Phases) -> (StepName, Told) {
        let name = self.begun.pop_front().expect("a step was begun");
        let sent_bytes = world.collective().sent_bytes();
        let told = Told {
            sent_bytes: sent_bytes - std::mem::replace(&mut self.sent_bytes, sent_bytes),
            slices,
            phases,
            weights: name.weights.clone(),
            stop: world.stop_request().request_at(name.step),
            saves: name.saves,
        };
        (name, told)
    }

    /// Steps that were begun and not told.
    pub(crate) fn n_begun(&self) -> usize {
        self.begun.len()
    }

    /// Steps that were told and not heard.
    pub(crate) fn n_told(&self) -> usize {
        self.told.len()
    }

    /// The first step that was told and not heard, of all ranks.
    pub(crate) fn hear(&mut self, world: &mut World) -> Result<Exchanged, TrainError> {
        let (StepName { step, epoch, .. }, posted) = self.told.pop_front().expect("a step was told");
        let heard = read(&world.collective().collect(posted)?)?;
        if let Some(rank) = heard.iter().position(|other| other.weights != heard[0].weights) {
            return Err(differ(world, rank, step).into());
        }
        let phases = heard.iter().map(|told| told.phases).collect();
        let sent_bytes = heard.iter().map(|told| told.sent_bytes).filter(|_| world.n_ranks() > 1).collect();
        let stop = heard.iter().filter_map(|told| told.stop).max();
        let saves = heard.iter().any(|told| told.saves);
        let slices = heard.into_iter().flat_map(|told| told.slices).collect();
        Ok(Exchanged { step, epoch, slices, phases, sent_bytes, stop, saves })
    }

    /// Exchanges the time by phase since the last step was exchanged.
    pub(crate) fn finish(&self, world: &mut World, phases: Phases) -> Result<Vec<Phases>, TrainError> {
        let told = Told { slices: Vec::new(), phases, sent_bytes: 0, weights: None, stop: None, saves: false };
        let heard = read(&world.collective().share(&told.text())?)?;
        Ok(heard.into_iter().map(|told| told.phases).collect())
    }
}

/// Weights that differ: a bug, but not between hosts whose CPUs round differently.
fn differ(world: &World, rank: usize, step: u64) -> WorldError {
    let [first, other] = [0, rank].map(|rank| world.members()[rank].instruction_set.as_str());
    if first == other {
        return WorldError::Differ { rank, step };
    }
    WorldError::Refused(format!(
        "the weights of rank {rank} differ from those of rank 0 at step {step}, because they compute with {other} and \
         {first}: set ATEN_CPU_CAPABILITY to what all hosts have, and use CPUs of one vendor"
    ))
}

impl Told {
    fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and texts")
    }
}

/// Messages of all ranks, by rank.
fn read(texts: &[Vec<u8>]) -> Result<Vec<Told>, TrainError> {
    let told = |(rank, text): (usize, &Vec<u8>)| {
        serde_json::from_slice(text).map_err(|error| {
            TrainError::World(WorldError::OutOfStep(format!("rank {rank} sent a malformed step record: {error}")))
        })
    };
    texts.iter().enumerate().map(told).collect()
}

/// The most slices of a rank.
fn most(counts: &[usize]) -> usize {
    counts.iter().copied().max().unwrap_or(0)
}

/// Of all weights, to be compared.
pub(crate) fn digest_of(weights: &Weights) -> Result<String, TrainError> {
    let values: Vec<f32> = weights.flat().try_into()?;
    let mut sha = Sha256::new();
    values.chunks(4096).for_each(|piece| sha.update(bytemuck::cast_slice::<f32, u8>(piece)));
    Ok(sha.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// Adds what the slices of a step lost to its record, in their order.
pub(crate) fn add_slices(record: &mut StepRecord, slices: Vec<SliceRecord>) {
    let n_slices = slices.len() as f64;
    for slice in slices {
        record.loss += slice.loss.0;
        record.node_loss += slice.node_loss.0;
        record.edge_losses.resize(slice.edge_losses.len().max(record.edge_losses.len()), 0.0);
        let own = record.edge_losses.iter_mut().zip(slice.edge_losses);
        own.for_each(|(sum, loss)| *sum += loss.0 / n_slices);
        record.digests.extend(slice.digest);
        record.n_seeds += slice.n_seeds;
        record.n_edges += slice.n_edges;
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::{
        distributed::world::on_worlds,
        weights::{Entry, Initial},
    };

    const N_SLICES: usize = 5;

    fn weights(run_key: u64) -> Weights {
        let entry =
            Entry { name: "layers.0.weight".to_owned(), shape: vec![101], initial: Initial::Uniform { bound: 1.0 } };
        Weights::new(vec![entry], run_key, Device::Cpu)
    }

    /// The gradient of a slice: numbers whose sums round.
    fn gradient(slice: usize) -> Tensor {
        weights(1 + slice as u64).flat().copy()
    }

    fn bits(tensor: &Tensor) -> Vec<u32> {
        Vec::<f32>::try_from(tensor).unwrap().into_iter().map(f32::to_bits).collect()
    }

    fn name(step: u64, weights: Option<String>) -> StepName {
        StepName { step, epoch: 0, weights, saves: false }
    }

    fn exchange(n_slices: usize, is_deterministic: bool, world: &mut World) -> Exchange {
        let division = Division::new((world.rank(), world.n_ranks()), n_slices, None);
        Exchange::new(Arc::new(division), 2, is_deterministic, world)
    }

    /// One step of a world, and what each rank heard.
    fn step(n_ranks: usize, is_deterministic: bool) -> Vec<(Vec<u32>, Vec<u64>, Vec<u64>)> {
        on_worlds(n_ranks, |world| {
            let mut exchange = exchange(N_SLICES, is_deterministic, world);
            let own = exchange.division.own(0);
            let gradients = own.clone().map(gradient).collect();
            let records = own.map(|slice| SliceRecord { n_seeds: slice as u64, ..SliceRecord::default() }).collect();
            let phases = Phases { compute: world.rank() as u64, ..Phases::default() };
            exchange.begin(name(0, None));
            let gradient = exchange.add(world, gradients, records, phases).unwrap();
            let heard = exchange.hear(world).unwrap();
            let slices = heard.slices.iter().map(|slice| slice.n_seeds).collect();
            (bits(&gradient), slices, heard.phases.iter().map(|phases| phases.compute).collect())
        })
    }

    #[test]
    fn slices_are_added_in_their_order_on_any_number_of_ranks() {
        let sum = in_order((0..N_SLICES).map(gradient).collect());
        let backwards = in_order((0..N_SLICES).rev().map(gradient).collect());
        assert_ne!(bits(&sum), bits(&backwards), "the order matters for these");
        for n_ranks in 1..=N_SLICES {
            let expected = (bits(&sum), (0..N_SLICES as u64).collect(), (0..n_ranks as u64).collect());
            assert_eq!(step(n_ranks, true), vec![expected; n_ranks], "{n_ranks} ranks");
            for (found, ..) in step(n_ranks, false) {
                let found = Tensor::from_slice(&found.into_iter().map(f32::from_bits).collect::<Vec<_>>());
                assert!(f64::try_from((found - &sum).abs().max()).unwrap() < 1e-5, "{n_ranks} ranks by all-reduce");
            }
        }
    }

    /// A signal to one rank is a request to all, in the same step.
    #[test]
    fn a_request_to_one_rank_reaches_all_in_one_step() {
        for asked in 0..3 {
            let heard = on_worlds(3, |world| {
                let stop = kith_run::stop::Stop::default();
                world.heed(stop.clone());
                let (mut exchange, is_asked) = (exchange(3, true, world), world.rank() == asked);
                let mut step = |step| {
                    exchange.begin(name(step, None));
                    let _ = exchange.add(world, vec![gradient(0)], Vec::new(), Phases::default()).unwrap();
                    exchange.hear(world).unwrap().stop
                };
                let before = step(1);
                if is_asked {
                    stop.ask(Request::Terminate);
                }
                (before, step(2))
            });
            assert_eq!(heard, vec![(None, Some(Request::Terminate)); 3]);
        }
    }

    /// A checkpoint that is due on one rank is heard by all in the same step, and the records of a step may come later than its
    /// gradients. A message has room for the longest record.
    #[test]
    fn records_may_come_late() {
        let heard = on_worlds(3, |world| {
            let mut exchange = exchange(3, true, world);
            let longest = SliceRecord {
                loss: Exact(-f64::MIN_POSITIVE / 3.0),
                node_loss: Exact(-f64::MAX / 3.0),
                edge_losses: vec![Exact(-1e-300 / 3.0); 4],
                digest: Some("f".repeat(16)),
                row_counts: (u64::MAX, u64::MAX, u64::MAX),
                n_negatives_left_out: u64::MAX,
                n_seeds: u64::MAX,
                n_edges: u64::MAX,
            };
            for step in 1000..1003 {
                let saves = world.rank() == 1 && step == 1001;
                let digest = Exchange::compares(world, step).then(|| "0123456789abcdef".to_owned());
                let told = Told {
                    slices: vec![longest.clone()],
                    phases: Phases { start: u64::MAX, sample: u64::MAX, compute: u64::MAX, ..Phases::default() },
                    sent_bytes: u64::MAX,
                    weights: Some("f".repeat(16)),
                    stop: Some(Request::Terminate),
                    saves,
                };
                assert!(told.text().len() + 7 * 40 <= exchange.n_most(&[1; 3]), "{} bytes", told.text().len());
                exchange.begin(StepName { saves, ..name(step, digest) });
            }
            assert_eq!(exchange.n_begun(), 3);
            for _ in 0..3 {
                exchange.tell(world, vec![longest.clone()], Phases::default()).unwrap();
            }
            assert_eq!((exchange.n_begun(), exchange.n_told()), (0, 3));
            let heard = (0..3).map(|_| exchange.hear(world).unwrap());
            heard.map(|heard| (heard.step, heard.slices.len(), heard.saves)).collect::<Vec<_>>()
        });
        assert_eq!(heard, vec![vec![(1000, 3, false), (1001, 3, true), (1002, 3, false)]; 3]);
    }

    #[test]
    fn ranks_with_other_weights_are_found() {
        let told = on_worlds(3, |world| {
            let mut exchange = exchange(3, true, world);
            let weights = weights(u64::from(world.rank() == 2));
            let mut step = |step| {
                let digest = Exchange::compares(world, step).then(|| digest_of(&weights).unwrap());
                exchange.begin(name(step, digest));
                let _ = exchange.add(world, vec![gradient(0)], Vec::new(), Phases::default()).unwrap();
                exchange.hear(world).map_err(|error| error.to_string())
            };
            (step(999).is_ok(), step(1000).unwrap_err())
        });
        let sentence = "the weights of rank 2 differ from those of rank 0 at step 1000: this is a bug";
        assert_eq!(told, vec![(true, sentence.to_owned()); 3]);
    }
}
