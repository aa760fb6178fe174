//! Seed nodes or edges of every step: known before anything is sampled, the same on all ranks.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, Mutex},
};

use kith_draw::{Name, Permutation, Purpose, Vectorized, vectorized};

use kith_sampler::{Labels, Seeds};

use crate::error::{ClientError, Result};

/// Division of epochs into steps and slices. All counts are for the whole process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanConfig {
    /// Names all randomness of the run.
    pub run_key: u64,
    /// Seeds of a step; the last step of an epoch may have fewer.
    pub seeds_per_step: usize,
    /// Further nodes of a step, without loss of their own.
    pub edge_seeds: usize,
    /// Pieces of a step, each a batch of its own.
    pub slices: usize,
}

/// The order of seeds over a whole run.
///
/// Seeds of epoch e come in the order of (draw, id), draws named (seed order; a = e, b = node, or number of the edge). Edge seeds walk through a
/// keyed permutation of all nodes, further with every step; when it is through, the next pass has the next one
/// (edge-seed order; a = pass). Steps count over the whole run.
#[derive(Debug)]
pub struct Plan {
    config: PlanConfig,
    n_nodes: u64,
    seeds: Arc<Seeds>,
    /// Edges to predict, which are the seeds of link prediction instead of nodes.
    links: Option<Arc<Vec<(u32, u32)>>>,
    /// Orders of the epochs asked for last. Threads that sample ahead are at most one epoch apart.
    orders: Mutex<VecDeque<(u64, Arc<Vec<u32>>)>>,
}

/// One step of a plan.
#[derive(Clone, Debug)]
pub struct Step {
    /// Weight updates before it.
    pub step: u64,
    /// Its epoch.
    pub epoch: u64,
    seeds: Arc<Vec<u32>>,
    own: Range<usize>,
    edge_seeds: EdgeSeeds,
    slices: usize,
}

/// Edge seeds of a step: every slice makes its own.
#[derive(Clone, Copy, Debug)]
struct EdgeSeeds {
    run_key: u64,
    n_nodes: u64,
    step: u64,
    /// Edge seeds of every step.
    n: usize,
}

impl EdgeSeeds {
    /// Some of the step's edge seeds.
    fn part(self, part: Range<usize>) -> Vec<u64> {
        let EdgeSeeds { run_key, n_nodes, step, n } = self;
        let stream = Name { run_key, purpose: Purpose::EdgeSeedOrder, step: 0, layer: 0 }.stream();
        let mut pass: Option<(u64, Permutation)> = None;
        let edge_seed = |index: usize| {
            // In 128 bits: a long run over a large graph may pass 2^64.
            let place = u128::from(step) * n as u128 + index as u128;
            let (a, place) = ((place / u128::from(n_nodes)) as u64, (place % u128::from(n_nodes)) as u64);
            let (_, order) = match pass.take_if(|(own, _)| *own == a) {
                Some(current) => pass.insert(current),
                None => pass.insert((a, Permutation::new(stream, a, n_nodes))),
            };
            order.at(place)
        };
        part.map(edge_seed).collect()
    }
}

/// Nodes that one slice of a step expands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceSeeds {
    /// Places of its seeds in [`Plan::seeds`] or [`Plan::links`], in the order of the epoch.
    pub seeds: Vec<u32>,
    /// Its edge seeds, in the order of the pass.
    pub edge_seeds: Vec<u64>,
}

/// Epochs whose order is kept.
const N_ORDERS: usize = 2;

impl Plan {
    /// A plan over a graph of `n_nodes`.
    pub fn new(config: PlanConfig, n_nodes: u64, seeds: Arc<Seeds>) -> Result<Plan> {
        if let Some(node) = seeds.ids().last().filter(|node| **node >= n_nodes) {
            return Err(ClientError::SeedOutOfRange { node: *node, n_nodes });
        }
        let plan = Plan { config, n_nodes, seeds, links: None, orders: Mutex::default() };
        plan.check("nodes")?;
        Ok(plan)
    }

    /// A plan of link prediction: edges are the seeds.
    pub fn of_links(config: PlanConfig, n_nodes: u64, links: Arc<Vec<(u32, u32)>>) -> Result<Plan> {
        let seeds = Seeds::new(Vec::new(), Labels::Classes(Vec::new()))?;
        let plan = Plan { config, n_nodes, seeds: Arc::new(seeds), links: Some(links), orders: Mutex::default() };
        plan.check("edges")?;
        Ok(plan)
    }

    fn check(&self, what: &str) -> Result<()> {
        let (n_seeds, n_nodes) = (self.n_seeds(), self.n_nodes);
        let PlanConfig { seeds_per_step, edge_seeds, slices, .. } = self.config;
        let refuse = |key, value: usize, problem: String| Err(ClientError::Plan { key, value: value as u64, problem });
        if n_seeds == 0 {
            return Err(ClientError::NoSeeds);
        }
        if seeds_per_step == 0 {
            return refuse("batch_size", 0, "makes no step: use 1 or more".into());
        }
        if seeds_per_step > n_seeds {
            let problem = format!("is more than the {n_seeds} seed {what}: use at most that");
            return refuse("batch_size", seeds_per_step, problem);
        }
        if edge_seeds as u64 > n_nodes {
            return refuse(
                "edge_seeds",
                edge_seeds,
                format!("is more than the graph's {n_nodes} nodes: use at most that"),
            );
        }
        if slices == 0 {
            return refuse("slices", 0, "leaves nothing to train: use 1 or more".into());
        }
        if u32::try_from(n_seeds).is_err() {
            return refuse("seeds", n_seeds, "are more than a plan can order: use fewer than 2^32".into());
        }
        Ok(())
    }

    /// Configuration of the plan.
    pub fn config(&self) -> &PlanConfig {
        &self.config
    }

    /// All seed nodes; none in link prediction.
    pub fn seeds(&self) -> &Arc<Seeds> {
        &self.seeds
    }

    /// Edges to predict; none but in link prediction.
    pub fn links(&self) -> &[(u32, u32)] {
        self.links.as_ref().map_or(&[], |links| links)
    }

    /// Seed nodes or edges of an epoch.
    fn n_seeds(&self) -> usize {
        self.links.as_ref().map_or(self.seeds.len(), |links| links.len())
    }

    /// Steps of every epoch.
    pub fn steps_per_epoch(&self) -> u64 {
        self.n_seeds().div_ceil(self.config.seeds_per_step) as u64
    }

    /// A step of the run.
    pub fn step(&self, step: u64) -> Step {
        let PlanConfig { run_key, seeds_per_step, edge_seeds, slices } = self.config;
        let (epoch, of_epoch) = (step / self.steps_per_epoch(), (step % self.steps_per_epoch()) as usize);
        let start = of_epoch * seeds_per_step;
        let own = start..(start + seeds_per_step).min(self.n_seeds());
        let edge_seeds = EdgeSeeds { run_key, n_nodes: self.n_nodes, step, n: edge_seeds };
        Step { step, epoch, seeds: self.order(epoch), own, edge_seeds, slices }
    }

    /// The order of an epoch's seeds, as places among all seeds.
    pub fn order(&self, epoch: u64) -> Arc<Vec<u32>> {
        let mut orders = self.orders.lock().expect("ordering seeds does not panic");
        if let Some((_, order)) = orders.iter().find(|(own, _)| *own == epoch) {
            return Arc::clone(order);
        }
        let order = Arc::new(self.draw_order(epoch));
        orders.truncate(N_ORDERS - 1);
        orders.push_front((epoch, Arc::clone(&order)));
        order
    }

    fn draw_order(&self, epoch: u64) -> Vec<u32> {
        let stream = Name { run_key: self.config.run_key, purpose: Purpose::SeedOrder, step: 0, layer: 0 }.stream();
        let mut draws = vec![(0, 0); self.n_seeds()];
        let ids = if self.links.is_some() { None } else { Some(self.seeds.ids()) };
        vectorized(SeedDraws { stream, epoch, ids, draws: &mut draws });
        // Ids ascend, so places decide as ids would.
        draws.sort_unstable();
        draws.into_iter().map(|(_, place)| place).collect()
    }
}

impl Step {
    /// Seeds of the whole step.
    pub fn n_seeds(&self) -> usize {
        self.own.len()
    }

    /// The part of `n` things of the step that is a slice's own.
    pub(crate) fn piece_of(&self, n: usize, slice: usize) -> Range<usize> {
        piece(n, self.slices, slice)
    }

    /// Edge seeds of the whole step.
    pub fn n_edge_seeds(&self) -> usize {
        self.edge_seeds.n
    }

    /// Places of the seeds of all slices in [`Plan::seeds`], or [`Plan::links`], ascending.
    pub fn all_seeds(&self) -> Vec<u32> {
        let mut seeds = self.seeds[self.own.clone()].to_vec();
        seeds.sort_unstable();
        seeds
    }

    /// Nodes of a slice. Slices are contiguous, and their sizes differ by at most one, the larger ones first.
    pub fn slice(&self, slice: usize) -> SliceSeeds {
        assert!(slice < self.slices, "slice {slice} of {}", self.slices);
        SliceSeeds {
            seeds: self.seeds[self.own.clone()][piece(self.own.len(), self.slices, slice)].to_vec(),
            edge_seeds: self.edge_seeds.part(piece(self.edge_seeds.n, self.slices, slice)),
        }
    }
}

/// The `index`-th of `n_pieces` pieces of `0..n`.
fn piece(n: usize, n_pieces: usize, index: usize) -> Range<usize> {
    let (size, n_larger) = (n / n_pieces, n % n_pieces);
    let start = |index: usize| index * size + index.min(n_larger);
    start(index)..start(index + 1)
}

/// The draw of every seed: the first two words of its name.
struct SeedDraws<'a> {
    stream: kith_draw::Stream,
    epoch: u64,
    /// Of nodes; the ids of edges are their numbers.
    ids: Option<&'a [u64]>,
    draws: &'a mut [(u64, u32)],
}

impl Vectorized for SeedDraws<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        const N_LANES: usize = 16;
        for (chunk, draws) in self.draws.chunks_mut(N_LANES).enumerate() {
            let first = chunk * N_LANES;
            let mut seeds = [0; N_LANES];
            match self.ids {
                Some(ids) => seeds[..draws.len()].copy_from_slice(&ids[first..first + draws.len()]),
                None => (first as u64..).zip(&mut seeds).for_each(|(number, seed)| *seed = number),
            }
            let words = self.stream.words_of([self.epoch; N_LANES], seeds, 0, 0);
            for (lane, draw) in draws.iter_mut().enumerate() {
                let place = (first + lane) as u32;
                *draw = (u64::from(words[0][lane]) | u64::from(words[1][lane]) << 32, place);
            }
        }
    }
}
