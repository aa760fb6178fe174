//! Programs that train on mini-batches.

use std::sync::Arc;

use super::{
    Program, ProgramPlan,
    optimizer::StepFactors,
    work::{Batches, Gathered, SliceGradients, Work},
};
use crate::cuda::{
    args::args,
    batch::DeviceBatch,
    error::GpuError,
    graph_lists::GraphLists,
    layer::N_THREADS,
    machine::{EventId, Gpu, Lane},
    memory::{Address, Array, DeviceNumbers},
    pairs::{HostPairs, PairPlaces},
    rows::PlacedRows,
    sampled::{BlockPlaces, HostBlocks},
};

/// Slices of all ranks, whose gradients are added in the order of slices.
#[derive(Clone, Debug)]
pub struct RankSlices {
    /// Ranks.
    pub n_ranks: usize,
    /// Most slices of a rank.
    pub most: usize,
    /// Rank of each slice, and its place among those of the rank.
    pub order: Vec<(usize, usize)>,
}

impl Program {
    /// For batches of one run: see [`Program::start`]. `lists` are those of the graph that batches are sampled from on the
    /// machine. `slices`: gradients of several ranks are added in the order of slices.
    pub fn of_batches(
        gpu: &Gpu,
        lists: Option<Arc<GraphLists>>,
        plan: ProgramPlan,
        slices: Option<&RankSlices>,
    ) -> Result<Program, GpuError> {
        assert_eq!(plan.runs.len(), 1, "every run has its own batches");
        let spread = Array::zeros(gpu, 0, "rows of a batch")?;
        let gradients = SliceGradients::new(gpu, plan.n_weights + 1, slices)?;
        let is_lost = Array::zeros(gpu, 1, "gradients of weights")?;
        let batches = Batches { lists, spread, batch: None, gradients, is_lost };
        Program::of(gpu, Work::Batches(Box::new(batches)), plan)
    }

    fn batches(&mut self) -> &mut Batches {
        match &mut self.work {
            Work::Batches(batches) => batches,
            Work::Graph(_) => unreachable!("a whole graph has no batches"),
        }
    }

    /// Makes room for pairs that are drawn here.
    fn fit_pairs(&mut self) -> Result<(), GpuError> {
        let Program { work: Work::Batches(batches), plan, .. } = self else { return Ok(()) };
        let batch = batches.batch.as_mut().expect("a batch is computed");
        let (Some(slice), Some(config)) = (batch.placed().drawn_slice, plan.pairs) else { return Ok(()) };
        let mut drawn = std::mem::take(&mut batch.drawn);
        for (drawn, graph) in drawn.iter_mut().zip(&batch.placed().graphs) {
            drawn.fit(graph, config, slice, 1)?;
        }
        batch.drawn = drawn;
        Ok(())
    }

    /// Starts the pass of a batch, forward and backward, as slice `place` of the step. Its gradient is kept, or added to those
    /// of the slices before. The batch may be filled again once its losses were waited for.
    pub fn start(&mut self, batch: DeviceBatch, place: usize) -> Result<DeviceBatch, GpuError> {
        batch.hold(Lane::Compute)?;
        let dim = self.plan.dim();
        let batches = self.batches();
        batches.batch = Some(batch);
        batches.fit(dim)?;
        self.fit_pairs()?;
        self.fit()?;
        self.differentiate()?;
        self.add_slice(place)?;
        let mut batch = self.batches().batch.take().expect("it was put there");
        let n_bytes = size_of::<f64>() * self.losses.len();
        batch.losses.bring(Lane::Compute, self.losses.at().0, 0, n_bytes)?;
        for (layer, drawn) in batch.drawn.iter().enumerate() {
            let size = size_of::<u32>();
            batch.losses.bring(Lane::Compute, drawn.n_pairs.at().0, n_bytes + layer * size, size)?;
        }
        Ok(batch)
    }

    fn add_slice(&mut self, place: usize) -> Result<(), GpuError> {
        let n_weights = self.plan.n_weights as u32;
        let (gradient, losses, n_losses) = (self.gradient.at(), self.losses.at(), self.losses.len() as u32);
        let batches = self.batches();
        let (sum, is_first) = batches.gradients.slice(place, n_weights + 1);
        let mut args = args![n_weights, is_first, gradient, sum, n_losses, losses];
        let n_blocks = (n_weights + 1).div_ceil(N_THREADS);
        self.launch(self.layers[0].module, "kith_add_slice", n_blocks, N_THREADS, &mut args)
    }

    /// A slice without roots: its gradient is zero.
    pub fn skip(&mut self, place: usize) -> Result<(), GpuError> {
        let n = self.plan.n_weights + 1;
        let gradients = &self.batches().gradients;
        match gradients.gathered.is_some() || place == 0 {
            true => gradients.own.fill_part(place * n..(place + 1) * n),
            false => Ok(()),
        }
    }

    /// Gradients of the slices of this rank, for exchange with the other ranks: their sum, or each, and room for those of all
    /// ranks.
    pub fn gradients(&mut self) -> (DeviceNumbers, Option<DeviceNumbers>) {
        let SliceGradients { own, gathered } = &self.batches().gradients;
        (own.numbers(), gathered.as_ref().map(|gathered| gathered.all.numbers()))
    }

    /// Changes the weights by the gradients of all slices.
    pub fn update_by_slices(&mut self, factors: StepFactors) -> Result<(), GpuError> {
        let (module, n) = (self.layers[0].module, self.plan.n_weights as u32 + 1);
        let batches = self.batches();
        let is_lost = batches.is_lost.at();
        let mut sum = batches.gradients.own.at();
        if let Some(Gathered { all, order, sum: ordered }) = &batches.gradients.gathered {
            sum = ordered.at();
            let mut args = args![n, order.len() as u32, order.at(), all.at(), sum];
            self.launch(module, "kith_add_ranks", n.div_ceil(N_THREADS), N_THREADS, &mut args)?;
        }
        self.update_by(factors, is_lost, sum)
    }
}

impl SliceGradients {
    /// `n` numbers for each slice: a gradient, and whether its loss is not finite.
    fn new(gpu: &Gpu, n: usize, slices: Option<&RankSlices>) -> Result<SliceGradients, GpuError> {
        const WHAT: &str = "gradients of slices";
        let Some(RankSlices { n_ranks, most, order }) = slices else {
            return Ok(SliceGradients { own: Array::zeros(gpu, n, WHAT)?, gathered: None });
        };
        let order: Vec<u32> = order.iter().map(|(rank, place)| (rank * most + place) as u32).collect();
        Ok(SliceGradients {
            own: Array::zeros(gpu, most * n, WHAT)?,
            gathered: Some(Gathered {
                all: Array::zeros(gpu, n_ranks * most * n, WHAT)?,
                order: Array::of(gpu, &order, WHAT)?,
                sum: Array::zeros(gpu, n, WHAT)?,
            }),
        })
    }

    /// Address of a slice's gradient, or of the sum; and whether it is the first there.
    fn slice(&self, place: usize, n: u32) -> (Address, u32) {
        match self.gathered {
            Some(_) => (Address(self.own.at().0 + 4 * u64::from(n) * place as u64), 1),
            None => (self.own.at(), u32::from(place == 0)),
        }
    }
}

/// Draws of a batch that was sampled on the GPU, and is computed there.
#[derive(Debug)]
pub struct Draws {
    gpu: Gpu,
    is_drawn: EventId,
    blocks: BlockPlaces,
    pairs: Vec<PairPlaces>,
}

impl DeviceBatch {
    /// The draws of a batch that was started and sampled on the machine. Another thread may read them until it is filled again.
    pub fn draws(&self, gpu: &Gpu) -> Draws {
        let pairs = self.drawn.iter().zip(&self.placed().graphs).map(|(drawn, graph)| drawn.places(graph.n_edges));
        Draws {
            gpu: gpu.clone(),
            is_drawn: self.is_drawn.id(),
            blocks: self.sampled().places(),
            pairs: pairs.collect(),
        }
    }
}

impl Draws {
    /// Reads them beside the computation: the blocks from the input to the output, and the pairs of each.
    pub fn fetch(&self) -> Result<(HostBlocks, Vec<HostPairs>), GpuError> {
        self.gpu.machine().follow(Lane::Read, self.is_drawn)?;
        let pairs = self.pairs.iter().map(|pairs| pairs.fetch(&self.gpu)).collect::<Result<_, _>>()?;
        Ok((self.blocks.fetch(&self.gpu)?, pairs))
    }
}

impl Batches {
    /// Makes room for rows of the batch that are spread.
    fn fit(&mut self, dim: usize) -> Result<(), GpuError> {
        let placed = self.batch().placed();
        let n_rows = if let PlacedRows::Sparse(_) = placed.rows { placed.graphs[0].n_sources } else { 0 };
        self.spread.fit(n_rows * dim)?;
        Ok(())
    }
}
