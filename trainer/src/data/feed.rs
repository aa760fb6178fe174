//! Slices of a run's steps, in order: whole graphs, or mini-batches that are sampled ahead.

mod memory;

use std::{borrow::Cow, sync::Arc};

use kith_client::{Batch, BatchConfig, FetchedRows, Job, Plan, PlanConfig, Prefetch, PrefetchConfig, RowCounts};
use kith_draw::{Name, Purpose};
use kith_kernels::InputRows;
use kith_run::config::{Mode, NeighborSampling, RunConfig, TrainConfig};
use kith_sampler::{Sampling, fanouts_of_layers};

use crate::{
    data::{
        BatchInput, Data,
        input::{GraphInput, Input, Labels, Sample, edge_data_of},
        label_input::{DrawnLabels, LabelInput},
        link_pairs::{LinkPairs, LinkTargets},
        slices::Division,
    },
    distributed::world::World,
    error::TrainError,
    model::{Compared, Model, Pass},
};

/// The steps of a run.
#[derive(Debug)]
pub(crate) enum Feed<'a> {
    Graphs(&'a Input),
    Batches(Box<Batches>),
}

/// Batches in the order of the steps.
#[derive(Debug)]
pub(crate) struct Batches {
    input: BatchInput,
    plan: Arc<Plan>,
    config: BatchConfig,
    n_epochs: u64,
    /// Slices of the steps that are made here.
    division: Arc<Division>,
    /// Ranks that share the cores of this host.
    n_on_host: usize,
    /// True if a GPU computes, which leaves the cores free to sample.
    serves_gpu: bool,
    /// Sampling threads and mini-batches ahead of each, if they are not the default: those that fit into the memory, or none if a GPU
    /// samples.
    ahead: Option<(usize, usize)>,
    /// Started by the first batch that is asked for, from its step on.
    queue: Option<Prefetch>,
}

/// A slice of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) run_key: u64,
    pub(crate) epoch: u64,
    pub(crate) step: u64,
    /// Steps of the epoch before this one.
    pub(crate) place: usize,
    pub(crate) slice: usize,
}

/// Data of one slice of a step.
#[derive(Debug)]
pub(crate) struct Slice<'a> {
    pub(crate) sample: Sample,
    /// Pairs and contrasts of the layers' own losses.
    pub(crate) compared: Compared,
    pub(crate) labels: Cow<'a, Labels>,
    /// Pairs whose loss counts instead of nodes.
    pub(crate) links: Option<SliceLinks>,
    /// Positions whose node loss counts.
    pub(crate) seeds: Cow<'a, [u32]>,
    /// Positions whose labels are input, where all nodes of a graph are at hand.
    pub(crate) shown: Vec<u32>,
    /// Seeds of the whole step: nodes, or edges to predict.
    pub(crate) n_step_seeds: usize,
    /// Of everything drawn, as reports show it; only batches have one.
    pub(crate) digest: Option<String>,
    /// Sources of its features.
    pub(crate) row_counts: RowCounts,
    /// Memory of a batch, for reuse.
    rest: Option<Batch>,
}

/// Pairs of a slice.
#[derive(Debug)]
pub(crate) struct SliceLinks {
    pub(crate) pairs: LinkPairs,
    /// Pairs of the whole step, negatives that were left out included.
    pub(crate) n_step_pairs: usize,
    /// Negatives of the slice that were left out.
    pub(crate) n_left_out: usize,
}

impl Slice<'_> {
    /// True if the slice has no roots: the last step of an epoch may have fewer seed nodes than slices.
    pub(crate) fn is_empty(&self) -> bool {
        self.sample.blocks.last().is_none_or(|block| block.n_destinations() == 0)
    }

    /// Nodes or edges whose loss counts.
    pub(crate) fn n_seeds(&self) -> u64 {
        self.links.as_ref().map_or(self.seeds.len(), |links| links.pairs.n_edges) as u64
    }

    /// Edges of all blocks but the loops, of which every destination has one.
    pub(crate) fn n_edges(&self) -> u64 {
        self.sample.blocks.iter().map(|block| (block.n_edges() - block.n_destinations()) as u64).sum()
    }
}

impl<'a> Feed<'a> {
    /// The steps that a config, all counts said, makes of its data.
    pub(crate) fn new(
        data: &'a Data,
        config: &RunConfig,
        run_key: u64,
        (world, division): (&World, Arc<Division>),
    ) -> Result<Feed<'a>, TrainError> {
        match (data, config.train.mode) {
            (Data::Batches(input), Mode::MiniBatch) => {
                Ok(Feed::Batches(Box::new(Batches::new(input, config, run_key, (world, division))?)))
            }
            (Data::Full(input), _) => Ok(Feed::Graphs(input)),
            (Data::Batches(_), Mode::FullBatch) => unreachable!("data is loaded as the config says"),
        }
    }

    /// Steps of every epoch.
    pub(crate) fn steps_per_epoch(&self) -> usize {
        match self {
            Feed::Graphs(input) => trained(input).count(),
            Feed::Batches(batches) => batches.plan.steps_per_epoch() as usize,
        }
    }

    /// Everything is computed by a GPU; `has_rows`: which does not have the rows of all nodes.
    pub(crate) fn serve_gpu(&mut self, has_rows: bool) {
        if let Feed::Batches(batches) = self {
            batches.serves_gpu = true;
            batches.config.has_rows = has_rows;
        }
    }

    /// Plan and settings of the batches, for sampling on a GPU; `None` without batches.
    pub(crate) fn recipe(&self) -> Option<(&Arc<Plan>, &BatchConfig)> {
        match self {
            Feed::Graphs(_) => None,
            Feed::Batches(batches) => Some((&batches.plan, &batches.config)),
        }
    }

    /// The next slice, which must be the one at this place.
    pub(crate) fn next(&mut self, model: &Model, at: At) -> Result<Slice<'a>, TrainError> {
        match self {
            Feed::Graphs(input) => {
                let graph = order_of_graphs(input, at)[at.place];
                let pass = Pass::Train { run_key: at.run_key, step: at.step };
                let n_layers = model.layers().len();
                let mut slice = Slice {
                    sample: graph.sample(n_layers),
                    compared: model.compare(graph, pass),
                    labels: graph.labels.as_ref().map_or(Cow::Owned(Labels::Classes(Vec::new())), Cow::Borrowed),
                    links: None,
                    seeds: Cow::Borrowed(&graph.train),
                    shown: Vec::new(),
                    n_step_seeds: graph.train.len(),
                    digest: None,
                    row_counts: RowCounts::default(),
                    rest: None,
                };
                if let Some(targets) = targets(input) {
                    let pairs = targets.draw(at.run_key, at.step, n_layers);
                    slice.n_step_seeds = pairs.n_edges;
                    let n_step_pairs = pairs.n_edges + targets.n_negatives();
                    slice.links = Some(SliceLinks { n_left_out: n_step_pairs - pairs.len(), n_step_pairs, pairs });
                }
                if let Some(labels) = model.label_input() {
                    let DrawnLabels { shown, predicted } = labels.draw(graph, at.run_key, at.step);
                    slice.sample.rows = Arc::new(labels.of_graph(graph, &shown));
                    slice.n_step_seeds = predicted.len();
                    (slice.shown, slice.seeds) = (shown, Cow::Owned(predicted));
                }
                Ok(slice)
            }
            Feed::Batches(batches) => batches.next(at, model.label_input()),
        }
    }

    /// Gives back what a slice was made of.
    pub(crate) fn give_back(&self, slice: Slice<'_>) {
        let (Feed::Batches(batches), Some(mut batch)) = (self, slice.rest) else { return };
        let Sample { blocks, rows } = slice.sample;
        drop(blocks);
        if let Some(rows) = Arc::into_inner(rows) {
            batch.rows = rows_to_fetch_into(rows);
        }
        if let Some(queue) = &batches.queue {
            queue.give_back(batch);
        }
    }
}

fn trained(input: &Input) -> impl Iterator<Item = &GraphInput> {
    input.graphs.iter().filter(|graph| !graph.train.is_empty() || targets(input).is_some())
}

/// Edges that are learned instead of classes.
fn targets(input: &Input) -> Option<&LinkTargets> {
    input.links.as_ref()?.train.as_ref()
}

/// The graphs that are trained on, one per step, in the order that the epoch draws: by (draw, first node).
pub(crate) fn order_of_graphs(input: &Input, at: At) -> Vec<&GraphInput> {
    let stream = Name { run_key: at.run_key, purpose: Purpose::SeedOrder, step: 0, layer: 0 }.stream();
    let mut graphs: Vec<&GraphInput> = trained(input).collect();
    graphs.sort_by_key(|graph| {
        let first = graph.block.id(0);
        (stream.draws(at.epoch, first, 0).double_word(), first)
    });
    graphs
}

/// Plan and settings of a run's batches; the config must have all its counts.
pub(crate) fn batches_of(
    input: &BatchInput,
    config: &RunConfig,
    run_key: u64,
) -> Result<(Arc<Plan>, BatchConfig), TrainError> {
    let TrainConfig { fanouts, batch_size, edge_seeds, slices, .. } = &config.train;
    let plan = PlanConfig {
        run_key,
        seeds_per_step: batch_size.expect("all counts are said"),
        edge_seeds: edge_seeds.expect("all counts are said"),
        slices: *slices,
    };
    let info = input.shards.info();
    let edge_loss = config.edge_loss.as_ref().filter(|edge_loss| edge_loss.weight != 0.0);
    let pairs = edge_loss.map(|edge_loss| edge_loss.pairs(info.is_symmetric, input.is_set));
    let plan = Arc::new(match &input.links {
        None => Plan::new(plan, info.n_nodes, Arc::clone(&input.train))?,
        Some(links) => Plan::of_links(plan, info.n_nodes, Arc::clone(&links.targets))?,
    });
    let fanouts = fanouts_of_layers(fanouts, config.model.n_layers).map_err(kith_client::ClientError::from)?;
    let sampling = match config.train.sampling.unwrap_or_default() {
        NeighborSampling::Uniform => Sampling::Uniform,
        NeighborSampling::Weighted => Sampling::Weighted,
    };
    let edge_data = edge_data_of(&config.model);
    let links = input.links.as_ref().map(|links| links.batches.clone());
    Ok((plan, BatchConfig { fanouts, sampling, edge_data, pairs, links, has_rows: true, by_hash: false }))
}

impl Batches {
    fn new(
        input: &BatchInput,
        config: &RunConfig,
        run_key: u64,
        (world, division): (&World, Arc<Division>),
    ) -> Result<Batches, TrainError> {
        let (plan, batch_config) = batches_of(input, config, run_key)?;
        Ok(Batches {
            plan,
            config: batch_config,
            n_epochs: config.train.epochs,
            division,
            n_on_host: world.n_ranks_on_host(),
            input: input.clone(),
            serves_gpu: false,
            ahead: None,
            queue: None,
        })
    }

    fn next(&mut self, at: At, labels: Option<&LabelInput>) -> Result<Slice<'static>, TrainError> {
        let (n_threads, depth) = self.ahead();
        let queue = match &mut self.queue {
            Some(queue) => queue,
            queue => {
                let (division, n_steps) = (Arc::clone(&self.division), self.n_epochs * self.plan.steps_per_epoch());
                let jobs =
                    (at.step..n_steps).flat_map(move |step| division.own(step).map(move |slice| Job { step, slice }));
                let started = Prefetch::start(
                    Arc::clone(&self.input.shards),
                    Arc::clone(&self.plan),
                    self.config.clone(),
                    PrefetchConfig { n_threads, depth },
                    jobs,
                )?;
                queue.insert(started)
            }
        };
        let mut batch = queue.next().expect("there is a batch for every step of the run")?;
        assert_eq!((batch.step, batch.slice), (at.step, at.slice as u64), "batches come in the order of the steps");
        let mut rows = rows_of_batch(std::mem::take(&mut batch.rows));
        if let Some(labels) = labels {
            let seeds = self.plan.step(at.step).all_seeds();
            rows = labels.of_batch(&rows, &batch.nodes, (&self.input.train, &seeds), (at.run_key, at.step));
        }
        Ok(Slice {
            sample: Sample { blocks: batch.blocks.clone(), rows: Arc::new(rows) },
            compared: std::mem::take(&mut batch.pairs).into(),
            labels: Cow::Owned(batch.labels.clone()),
            links: batch.links.take().map(|pairs| SliceLinks {
                n_step_pairs: pairs.n_step_pairs,
                n_left_out: pairs.n_left_out,
                pairs: LinkPairs::of_batch(pairs),
            }),
            seeds: Cow::Owned(std::mem::take(&mut batch.seeds)),
            shown: Vec::new(),
            n_step_seeds: batch.n_step_seeds,
            digest: Some(batch.digest_text()),
            row_counts: batch.row_counts,
            rest: Some(batch),
        })
    }
}

/// Threads of batches that wait for servers most of the time.
const N_WAITING: usize = 4;

/// One of four cores samples: a step costs several times what its batch does. Where a GPU computes, all sample but the one that
/// feeds it.
fn n_sample_threads(n_cores: usize, waits: bool, serves_gpu: bool) -> usize {
    let n_threads = if serves_gpu { (n_cores - 1).max(1) } else { n_cores.div_ceil(4) };
    if waits { n_threads.max(N_WAITING) } else { n_threads }
}

pub(crate) fn rows_of_batch(rows: FetchedRows) -> InputRows {
    let FetchedRows { dim, indptr, columns, values } = rows;
    match indptr.is_empty() {
        true => InputRows::Dense { dim, values },
        false => InputRows::sparse(dim, indptr, columns, values),
    }
}

/// The memory of rows that nobody needs any more.
pub(crate) fn rows_to_fetch_into(rows: InputRows) -> FetchedRows {
    match rows {
        InputRows::Dense { dim, values } => FetchedRows { dim, values, ..FetchedRows::default() },
        InputRows::Sparse(rows) => {
            let (dim, indptr, columns, values) = rows.into_parts();
            FetchedRows { dim, indptr, columns, values }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::n_sample_threads;

    #[test]
    fn sampling_leaves_a_core_for_the_gpu() {
        let of = |serves_gpu| [1, 2, 4, 16, 17].map(|n_cores| n_sample_threads(n_cores, false, serves_gpu));
        assert_eq!((of(true), of(false)), ([1, 1, 3, 15, 16], [1, 1, 1, 4, 5]));
        // Threads that wait for servers need no core.
        assert_eq!([n_sample_threads(1, true, true), n_sample_threads(32, true, false)], [4, 8]);
    }
}
