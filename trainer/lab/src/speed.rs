//! Benchmark of the GPU kernels: training steps on random graphs of the usual sizes.

mod batches;
mod graphs;
mod sampling;
mod timing;

use std::{path::Path, time::Instant};

use kith_run::{config::RunConfig, run_file::RunFile};
use kith_trainer::{
    engine::{
        device::Device,
        gpu::{self, Gpu},
    },
    error::TrainError,
    model::Model,
};

pub use self::{
    graphs::{Arrays, Size},
    timing::Timing,
};

/// One benchmark: a model on a graph, several runs at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// The name.
    pub name: &'static str,
    /// The graph.
    pub size: Size,
    /// SuperGAT with MX attention if true, else GAT.
    pub is_taught: bool,
    /// Heads, features per head, and heads of the last layer.
    pub shape: (usize, usize, usize),
    /// Dropout probability.
    pub dropout: f64,
    /// Runs that are computed together.
    pub n_runs: usize,
    /// The measured time.
    pub asked: Timed,
    /// Upper limit and goal, in milliseconds.
    pub promised: (f64, f64),
}

/// The time that a benchmark measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    /// Median time of one full-batch step.
    Step,
    /// Time of this number of steps, each followed by an evaluation.
    Epochs(usize),
    /// Median time of an epoch in mini-batches of 1,024 seed nodes with fanouts 10 and 10, the graph in a store.
    Batches {
        /// True if the features of all nodes are on the GPU.
        rows_on_gpu: bool,
    },
    /// Median time to sample a million edges on the GPU, in mini-batches of 1,024 seed nodes with fanouts 15, 10 and 5.
    Sampling,
}

/// The rows of the table in `docs/BENCHMARKS.md`.
pub const CASES: [Case; 10] = [
    case("arxiv MX", Size::ARXIV, true, (8, 16, 1), 0.2, (6.0, 2.5)),
    case("arxiv GAT", Size::ARXIV, false, (8, 16, 1), 0.2, (4.0, 1.5)),
    case("flickr MX", Size::FLICKR, true, (8, 8, 8), 0.6, (4.0, 1.5)),
    case("pubmed MX", Size::PUBMED, true, (8, 8, 8), 0.6, (0.8, 0.3)),
    case("cora MX", Size::CORA, true, (8, 8, 8), 0.6, (0.5, 0.15)),
    Case {
        n_runs: 100,
        asked: Timed::Epochs(490),
        ..case("100 runs of cora MX, 490 epochs", Size::CORA, true, (8, 8, 8), 0.6, (30_000.0, 6_000.0))
    },
    Case {
        n_runs: 120,
        asked: Timed::Epochs(300),
        ..case("120 runs of a grid's cell, 300 epochs", Size::GRID, true, (8, 8, 8), 0.6, (10_000.0, 3_000.0))
    },
    Case {
        asked: Timed::Batches { rows_on_gpu: true },
        ..case("arxiv MX, an epoch of mini-batches", Size::ARXIV, true, (8, 16, 1), 0.2, (400.0, 120.0))
    },
    Case {
        asked: Timed::Batches { rows_on_gpu: false },
        ..case("the same, rows on the host", Size::ARXIV, true, (8, 16, 1), 0.2, (600.0, 250.0))
    },
    Case {
        asked: Timed::Sampling,
        ..case("1 M edges drawn, of products", Size::PRODUCTS, false, (1, 1, 1), 0.0, (5.0, 1.0))
    },
];

const fn case(
    name: &'static str,
    size: Size,
    is_taught: bool,
    shape: (usize, usize, usize),
    dropout: f64,
    promised: (f64, f64),
) -> Case {
    Case { name, size, is_taught, shape, dropout, n_runs: 1, asked: Timed::Step, promised }
}

/// Warm-up steps.
const N_WARM: usize = 5;

/// Runs a benchmark; [`Timed::Step`] and [`Timed::Sampling`] repeat it `n_steps` times. [`Timed::Batches`] makes a
/// store in `folder`.
pub fn measure(
    device: &Gpu,
    case: &Case,
    arrays: &Arrays,
    n_steps: usize,
    folder: &Path,
) -> Result<Timing, TrainError> {
    match case.asked {
        Timed::Batches { rows_on_gpu } => return batches::measure(device, config(case), arrays, rows_on_gpu, folder),
        Timed::Sampling => return sampling::measure(device, case.size, n_steps),
        Timed::Step | Timed::Epochs(_) => {}
    }
    let before = device.used_bytes();
    let graph = arrays.graph();
    let config = config(case);
    let n_classes = case.size.n_classes;
    let models: Vec<Model> = (0..case.n_runs as u64)
        .map(|key| Model::new(&config, case.size.dim, n_classes, key, Device::Cpu))
        .collect::<Result<_, _>>()?;
    let runs: Vec<(RunConfig, u64)> = (0..case.n_runs as u64).map(|key| (config.clone(), key)).collect();
    let mut program = gpu::program(device, &models[0], &graph, &runs, n_classes)?;
    let weights: Vec<Vec<f32>> =
        models.iter().map(|model| Vec::try_from(model.weights().flat())).collect::<Result<_, _>>()?;
    let weights = weights.concat();
    let zeros = vec![0.0; weights.len()];
    program.set_state(0, &weights, &zeros, &zeros)?;
    for _ in 0..N_WARM {
        program.step()?;
    }
    program.measure()?;
    let since = |started: Instant| started.elapsed().as_secs_f64() * 1e3;
    let memory_bytes = device.used_bytes() - before;
    if let Timed::Epochs(n_epochs) = case.asked {
        let started = Instant::now();
        for _ in 0..n_epochs {
            program.step()?;
            program.losses()?;
            program.measure()?;
        }
        return Ok(Timing { milliseconds: since(started), measure_milliseconds: 0.0, memory_bytes });
    }
    let mut times = Vec::with_capacity(n_steps);
    for _ in 0..n_steps {
        let started = Instant::now();
        program.step()?;
        device.synchronize()?;
        times.push(since(started));
    }
    times.sort_by(f64::total_cmp);
    let started = Instant::now();
    program.measure()?;
    Ok(Timing { milliseconds: times[n_steps / 2], measure_milliseconds: since(started), memory_bytes })
}

fn config(case: &Case) -> RunConfig {
    let (heads, features, out_heads) = case.shape;
    let mut text = format!(
        "[model]\nkind = \"{}\"\nheads = {heads}\nfeatures = {features}\nout_heads = {out_heads}\ndropout = {}\n",
        if case.is_taught { "supergat\"\nform = \"mx" } else { "gat" },
        case.dropout,
    );
    text.push_str("[train]\nlearning_rate = 0.005\nweight_decay = 5e-4\nepochs = 1\n");
    if matches!(case.asked, Timed::Batches { .. }) {
        // One epoch more than is timed: the last one includes an evaluation.
        text.push_str("mode = \"mini-batch\"\nfanouts = [10, 10]\nevaluate_every = 100\n");
        text = text.replace("epochs = 1\n", &format!("epochs = {}\n", batches::N_EPOCHS + 1));
    }
    if case.is_taught {
        text.push_str("[edge_loss]\nweight = 1.0\n");
    }
    RunFile::parse(&text, "a case").and_then(|file| file.resolve()).expect("cases are run files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_measured() {
        kith_trainer::engine::device::start();
        let size = Size { n_nodes: 100, n_edges: 300, dim: 20, density: 0.2, n_classes: 3 };
        for case in
            [CASES[1], CASES[4], Case { n_runs: 3, asked: Timed::Epochs(2), ..CASES[5] }, CASES[7], CASES[8], CASES[9]]
        {
            let case = Case { size, ..case };
            let folder = tempfile::tempdir().unwrap();
            let found = measure(&kith_cuda_emulator::gpu(), &case, &Arrays::new(size), 3, folder.path()).unwrap();
            assert!(found.milliseconds > 0.0 && found.memory_bytes > 100 * 20, "{found:?}");
        }
    }
}
