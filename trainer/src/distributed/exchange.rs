//! Exchange between ranks in every step: the gradients of their slices, and the slices' losses.

use kith_client::RowCounts;
use kith_run::{clock::Phases, report::StepRecord, stop::Request};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tch::{Tensor, no_grad};

use crate::{
    data::slices::{most_slices, slices_of},
    distributed::world::{World, WorldError},
    error::TrainError,
    output::checkpoint::Exact,
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
}

/// One step's slices of this rank, and how they become those of all ranks.
#[derive(Debug)]
pub(crate) struct Exchange {
    n_slices: usize,
    /// True if gradients are added in the order of slices, whatever ranks computed them.
    is_deterministic: bool,
    gradients: Vec<Tensor>,
    records: Vec<SliceRecord>,
    /// Bytes to other ranks, at this rank's previous message.
    sent_bytes: u64,
}

/// Results of a step on all ranks.
#[derive(Debug)]
pub(crate) struct Exchanged {
    pub(crate) gradient: Tensor,
    /// In the order of slices.
    pub(crate) slices: Vec<SliceRecord>,
    /// By rank, since the step before was exchanged.
    pub(crate) phases: Vec<Phases>,
    /// By rank, to others, since the step before was exchanged.
    pub(crate) sent_bytes: Vec<u64>,
    /// Asked of any rank: all stop after this step.
    pub(crate) stop: Option<Request>,
}

impl Exchange {
    /// Before the first step of a run in this world.
    pub(crate) fn new(n_slices: usize, is_deterministic: bool, world: &mut World) -> Exchange {
        let sent_bytes = world.collective().sent_bytes();
        Exchange { n_slices, is_deterministic, gradients: Vec::new(), records: Vec::new(), sent_bytes }
    }

    /// True if ranks compare their weights before a step: then the host has the current ones.
    pub(crate) fn compares(world: &World, step: u64) -> bool {
        world.n_ranks() > 1 && step.is_multiple_of(COMPARED_EVERY)
    }

    /// Takes what this rank's next slice came to.
    pub(crate) fn push(&mut self, gradient: Tensor, record: SliceRecord) {
        self.gradients.push(gradient);
        self.records.push(record);
    }

    /// Exchanges gradients and records with all ranks.
    pub(crate) fn exchange(
        &mut self,
        world: &mut World,
        weights: &Weights,
        step: u64,
        phases: Phases,
    ) -> Result<Exchanged, TrainError> {
        let gradients = std::mem::take(&mut self.gradients);
        let is_compared = Exchange::compares(world, step);
        let sent_bytes = world.collective().sent_bytes();
        let told = Told {
            sent_bytes: sent_bytes - std::mem::replace(&mut self.sent_bytes, sent_bytes),
            slices: std::mem::take(&mut self.records),
            phases,
            weights: is_compared.then(|| digest_of(weights)).transpose()?,
            stop: world.stop_request().request_at(step),
        };
        let heard = hear(world, &told)?;
        if let Some(rank) = heard.iter().position(|other| other.weights != heard[0].weights) {
            return Err(differ(world, rank, step).into());
        }
        let gradient = match (world.n_ranks(), self.is_deterministic) {
            (1, _) => in_order(gradients),
            (_, true) => self.gather(world, gradients, weights)?,
            (_, false) => {
                let mut sum = in_order(gradients);
                world.collective().all_reduce(&mut sum)?;
                sum
            }
        };
        let phases = heard.iter().map(|told| told.phases).collect();
        let sent_bytes = heard.iter().map(|told| told.sent_bytes).filter(|_| world.n_ranks() > 1).collect();
        let stop = heard.iter().filter_map(|told| told.stop).max();
        let slices = heard.into_iter().flat_map(|told| told.slices).collect();
        Ok(Exchanged { gradient, slices, phases, sent_bytes, stop })
    }

    /// Exchanges the time by phase since the last step was exchanged.
    pub(crate) fn finish(&self, world: &mut World, phases: Phases) -> Result<Vec<Phases>, TrainError> {
        let heard = hear(world, &Told { slices: Vec::new(), phases, sent_bytes: 0, weights: None, stop: None })?;
        Ok(heard.into_iter().map(|told| told.phases).collect())
    }

    /// The gradients of all slices, added in the order of slices on every rank: the same bits for any number of ranks.
    fn gather(&self, world: &mut World, own: Vec<Tensor>, weights: &Weights) -> Result<Tensor, TrainError> {
        let (n_ranks, n_weights) = (world.n_ranks(), weights.n_elements() as i64);
        let most = most_slices(n_ranks, self.n_slices);
        let mut places = own;
        places.resize_with(most, || weights.flat().zeros_like());
        let gathered = world.collective().all_gather(&Tensor::f_cat(&places, 0)?)?;
        let gathered = gathered.f_view([n_ranks as i64, most as i64, n_weights])?;
        let of_rank = |rank: usize| {
            let n_own = slices_of(rank, n_ranks, self.n_slices).len();
            (0..n_own as i64).map(move |place| (rank as i64, place))
        };
        let slices = (0..n_ranks).flat_map(of_rank).map(|(rank, place)| gathered.get(rank).get(place));
        Ok(in_order(slices.collect()))
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
         {first}: set ATEN_CPU_CAPABILITY to what all hosts have"
    ))
}

/// Messages of all ranks, by rank.
fn hear(world: &mut World, told: &Told) -> Result<Vec<Told>, TrainError> {
    let text = serde_json::to_vec(told).expect("numbers and texts");
    let heard = world.collective().share(&text)?;
    heard
        .iter()
        .enumerate()
        .map(|(rank, text)| {
            serde_json::from_slice(text).map_err(|error| {
                TrainError::World(WorldError::OutOfStep(format!("rank {rank} sent a malformed step record: {error}")))
            })
        })
        .collect()
}

/// Adds gradients one after the other.
fn in_order(gradients: Vec<Tensor>) -> Tensor {
    let mut gradients = gradients.into_iter();
    let sum = gradients.next().expect("every rank has a slice");
    no_grad(|| {
        gradients.fold(sum, |mut sum, gradient| {
            let _ = sum.g_add_(&gradient);
            sum
        })
    })
}

/// Of all weights, to be compared.
fn digest_of(weights: &Weights) -> Result<String, TrainError> {
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

    /// One step of a world, and what each rank heard.
    fn step(n_ranks: usize, is_deterministic: bool) -> Vec<(Vec<u32>, Vec<u64>, Vec<u64>)> {
        on_worlds(n_ranks, |world| {
            let mut exchange = Exchange::new(N_SLICES, is_deterministic, world);
            for slice in slices_of(world.rank(), n_ranks, N_SLICES) {
                exchange.push(gradient(slice), SliceRecord { n_seeds: slice as u64, ..SliceRecord::default() });
            }
            let phases = Phases { compute: world.rank() as u64, ..Phases::default() };
            let heard = exchange.exchange(world, &weights(0), 0, phases).unwrap();
            let slices = heard.slices.iter().map(|slice| slice.n_seeds).collect();
            (bits(&heard.gradient), slices, heard.phases.iter().map(|phases| phases.compute).collect())
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
                let (mut exchange, is_asked) = (Exchange::new(3, true, world), world.rank() == asked);
                let mut step = |step| {
                    exchange.push(gradient(0), SliceRecord::default());
                    exchange.exchange(world, &weights(0), step, Phases::default()).unwrap().stop
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

    #[test]
    fn ranks_with_other_weights_are_found() {
        let told = on_worlds(3, |world| {
            let mut exchange = Exchange::new(3, true, world);
            let weights = weights(u64::from(world.rank() == 2));
            let mut step = |step| {
                exchange.push(gradient(0), SliceRecord::default());
                exchange.exchange(world, &weights, step, Phases::default()).map_err(|error| error.to_string())
            };
            (step(999).is_ok(), step(1000).unwrap_err())
        });
        let sentence = "the weights of rank 2 differ from those of rank 0 at step 1000: this is a bug";
        assert_eq!(told, vec![(true, sentence.to_owned()); 3]);
    }
}
