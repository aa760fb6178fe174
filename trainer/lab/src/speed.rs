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
        gpu::{self, Gpu, TrainingPlan},
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
    /// The model.
    pub model: Benched,
    /// Heads, features per head, and heads of the last layer; models without attention have one head.
    pub shape: (usize, usize, usize),
    /// Dropout probability.
    pub dropout: f64,
    /// Runs that are computed together.
    pub n_runs: usize,
    /// The measured time.
    pub asked: Timed,
}

/// A model of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benched {
    /// SuperGAT with MX attention and its edge loss.
    Mx,
    /// GAT.
    Gat,
    /// GATv2.
    GatV2,
    /// GCN.
    Gcn,
    /// GraphSAGE.
    Sage,
    /// GIN.
    Gin,
    /// GAT of five layers with batch norm, linear residuals and a linear layer at the end; attention is dropped with probability 0.1.
    DeepGat,
}

impl Benched {
    /// Its name for the peer.
    pub fn name(self) -> &'static str {
        match self {
            Benched::Mx => "mx",
            Benched::Gat => "gat",
            Benched::GatV2 => "gatv2",
            Benched::Gcn => "gcn",
            Benched::Sage => "sage",
            Benched::Gin => "gin",
            Benched::DeepGat => "deep-gat",
        }
    }
}

/// The time that a benchmark measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    /// Median time of one full-batch step.
    Step,
    /// Time of this number of steps, each followed by an evaluation.
    Epochs(usize),
    /// Median time of an epoch in mini-batches of 1,024 seed nodes, the graph in a store.
    Batches {
        /// True if the features of all nodes are on the GPU; otherwise the GPU reads them from pinned memory.
        rows_on_gpu: bool,
        /// True if the model is evaluated after each epoch.
        is_evaluated: bool,
    },
    /// Median time to sample a million edges on the GPU, in mini-batches of 1,024 seed nodes with fanouts 15, 10 and 5.
    Sampling,
}

/// The rows of the table in `docs/BENCHMARKS.md`.
pub const CASES: [Case; 20] = [
    case("arxiv MX", Size::ARXIV, Benched::Mx, (8, 16, 1), 0.2),
    case("arxiv GAT", Size::ARXIV, Benched::Gat, (8, 16, 1), 0.2),
    case("arxiv GATv2", Size::ARXIV, Benched::GatV2, (8, 16, 1), 0.2),
    case("arxiv GCN", Size::ARXIV, Benched::Gcn, (1, 128, 1), 0.2),
    case("arxiv GraphSAGE", Size::ARXIV, Benched::Sage, (1, 128, 1), 0.2),
    case("arxiv GIN", Size::ARXIV, Benched::Gin, (1, 128, 1), 0.2),
    case("arxiv GAT, 5 layers, batch norm", Size::ARXIV, Benched::DeepGat, (1, 256, 1), 0.3),
    case("flickr MX", Size::FLICKR, Benched::Mx, (8, 8, 8), 0.6),
    case("pubmed MX", Size::PUBMED, Benched::Mx, (8, 8, 8), 0.6),
    case("cora MX", Size::CORA, Benched::Mx, (8, 8, 8), 0.6),
    case("cora GCN", Size::CORA, Benched::Gcn, (1, 64, 1), 0.6),
    Case {
        n_runs: 100,
        asked: Timed::Epochs(490),
        ..case("100 runs of cora MX, 490 epochs", Size::CORA, Benched::Mx, (8, 8, 8), 0.6)
    },
    Case {
        n_runs: 100,
        asked: Timed::Epochs(200),
        ..case("100 runs of cora GCN, 200 epochs", Size::CORA, Benched::Gcn, (1, 64, 1), 0.6)
    },
    Case {
        n_runs: 120,
        asked: Timed::Epochs(300),
        ..case("120 runs of a grid's cell, 300 epochs", Size::GRID, Benched::Mx, (8, 8, 8), 0.6)
    },
    Case {
        asked: Timed::Batches { rows_on_gpu: true, is_evaluated: false },
        ..case("arxiv MX, an epoch of mini-batches", Size::ARXIV, Benched::Mx, (8, 16, 1), 0.2)
    },
    Case {
        asked: Timed::Batches { rows_on_gpu: true, is_evaluated: true },
        ..case("the same with evaluation", Size::ARXIV, Benched::Mx, (8, 16, 1), 0.2)
    },
    Case {
        asked: Timed::Batches { rows_on_gpu: false, is_evaluated: false },
        ..case("the same, features in pinned memory", Size::ARXIV, Benched::Mx, (8, 16, 1), 0.2)
    },
    Case {
        asked: Timed::Sampling,
        ..case("1 M edges drawn, of products", Size::PRODUCTS, Benched::Gat, (1, 1, 1), 0.0)
    },
    Case {
        asked: Timed::Batches { rows_on_gpu: true, is_evaluated: true },
        ..case("products MX, an epoch with evaluation", Size::PRODUCTS, Benched::Mx, (8, 16, 1), 0.2)
    },
    Case {
        asked: Timed::Batches { rows_on_gpu: false, is_evaluated: true },
        ..case("the same, features in pinned memory", Size::PRODUCTS, Benched::Mx, (8, 16, 1), 0.2)
    },
];

const fn case(name: &'static str, size: Size, model: Benched, shape: (usize, usize, usize), dropout: f64) -> Case {
    Case { name, size, model, shape, dropout, n_runs: 1, asked: Timed::Step }
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
        Timed::Batches { rows_on_gpu, .. } => {
            return batches::measure(device, config(case), arrays, rows_on_gpu, folder);
        }
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
    let runs: Vec<(&RunConfig, u64)> = (0..case.n_runs as u64).map(|key| (&config, key)).collect();
    let mut program = gpu::program(device, &models[0], &graph, &runs, TrainingPlan::default(), n_classes)?;
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
    let (heads, hidden, out_heads) = case.shape;
    let model = match case.model {
        Benched::Mx => format!("supergat\"\nattention = \"mx\"\nheads = {heads}\nout_heads = {out_heads}"),
        Benched::Gat => format!("gat\"\nheads = {heads}\nout_heads = {out_heads}"),
        Benched::GatV2 => format!("gat\"\nattention = \"v2\"\nheads = {heads}\nout_heads = {out_heads}"),
        Benched::Gcn => "gcn\"".to_owned(),
        Benched::Sage => "sage\"".to_owned(),
        Benched::Gin => "gin\"".to_owned(),
        Benched::DeepGat => {
            "gat\"\nheads = 1\nn_layers = 5\nnorm = \"batch\"\nresidual = \"linear\"\nactivation = \"relu\"\n\
                             output_linear = true\ninput_dropout = 0.0\nattention_dropout = 0.1"
                .to_owned()
        }
    };
    let mut text = format!(
        "[model]\nkind = \"{model}\nhidden = {hidden}\ndropout = {}\n[optimizer]\nlearning_rate = 0.005\nweight_decay = 5e-4\n",
        case.dropout,
    );
    match case.asked {
        Timed::Batches { is_evaluated, .. } => {
            let fanouts = if case.size == Size::PRODUCTS { "[15, 10]" } else { "[10, 10]" };
            let every = if is_evaluated { 1 } else { 100 };
            // One epoch more than is timed: the last one includes an evaluation.
            let epochs = batches::N_EPOCHS + 1;
            text.push_str(&format!(
                "[train]\nmode = \"mini-batch\"\nfanouts = {fanouts}\nevaluate_every = {every}\nepochs = {epochs}\n"
            ));
        }
        _ => text.push_str("[train]\nmode = \"full-batch\"\nepochs = 1\n"),
    }
    if case.model == Benched::Mx {
        text.push_str("[edge_loss]\nweight = 1.0\n");
    }
    RunFile::parse(&text, "a case").and_then(|file| file.resolve()).expect("cases are run files")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In several tests, because each case compiles kernels of its own.
    const N_TESTS: usize = 3;

    #[test]
    fn cases_of_the_first_third_are_measured() {
        measure_part(0);
    }

    #[test]
    fn cases_of_the_second_third_are_measured() {
        measure_part(1);
    }

    #[test]
    fn cases_of_the_last_third_are_measured() {
        measure_part(2);
    }

    fn measure_part(part: usize) {
        kith_trainer::engine::device::start();
        let size = Size { n_nodes: 100, n_edges: 300, dim: 20, density: 0.2, n_classes: 3 };
        for case in CASES.into_iter().skip(part).step_by(N_TESTS) {
            let (n_runs, asked) = match case.asked {
                Timed::Epochs(_) => (3, Timed::Epochs(2)),
                asked => (1, asked),
            };
            let case = Case { size, n_runs, asked, ..case };
            let folder = tempfile::tempdir().unwrap();
            let found = measure(&kith_cuda_emulator::gpu(), &case, &Arrays::new(size), 3, folder.path()).unwrap();
            assert!(found.milliseconds > 0.0 && found.memory_bytes > 100 * 20, "{found:?}");
        }
    }
}
