//! Fused layers against the same model in plain tensor operations with doubles: outputs, edge losses and gradients.
//!
//! The error of a tensor is max|a − b| / max|b|.

use std::{process::Command, sync::Arc};

use kith_block::{Block, BlockError, Form, Subset};
use kith_draw::{Name, Purpose, Stream};
use kith_kernels::{
    InputRows,
    cuda::{self, Gpu, GpuError, Program},
};
use kith_run::{
    config::{Activation, EdgeLossConfig, Exclude, Jumping, ModelConfig, Norm, Residual, RunConfig},
    model_kind::ModelKind,
};
use kith_trainer::{
    data::input::{GraphInput, Labels},
    engine::gpu::{self, TrainingPlan},
    loss::NodeLoss,
    model::{Model, Pass, oracle::error},
    weights::Entry,
};
use tch::{Device, Kind, Tensor};

const OUTPUT_ERROR: f64 = 5e-6;
const GRADIENT_ERROR: f64 = 2e-5;
const N_CLASSES: usize = 5;

fn stream(layer: u32) -> Stream {
    Name { run_key: 9, purpose: Purpose::Generator, step: 0, layer }.stream()
}

/// A directed graph: node 0 is a hub, the last tenth have no neighbor, some edges are doubled.
fn graph(n_nodes: u64, hub: u64, dim: usize, is_sparse: bool) -> GraphInput {
    let lists: Vec<Vec<u64>> = (0..n_nodes)
        .map(|node| {
            let n_neighbors = match node {
                0 => hub,
                _ if node >= n_nodes - n_nodes / 10 => 0,
                _ => stream(0).draws(node, 0, 0).below(9),
            };
            let mut list: Vec<u64> = (0..n_neighbors).map(|k| stream(1).draws(node, k, 0).below(n_nodes)).collect();
            if node % 7 == 1 {
                list.extend(list.first().copied());
            }
            list.sort_unstable();
            list
        })
        .collect();
    let n_edges = lists.iter().map(|list| list.len() as u64).sum();
    let block =
        Block::full(n_nodes, n_edges, |node| Ok::<_, BlockError>(lists[node as usize].iter().copied())).unwrap();
    let mut values: Vec<f32> = (0..n_nodes * dim as u64).map(|k| stream(2).draws(k, 0, 0).normal() as f32).collect();
    if is_sparse {
        (0..values.len()).filter(|k| stream(3).draws(*k as u64, 0, 0).below(5) > 0).for_each(|k| values[k] = 0.0);
    }
    let rows = if is_sparse { InputRows::sparse_of(dim, &values) } else { InputRows::Dense { dim, values } };
    GraphInput {
        block: Arc::new(block),
        rows: Arc::new(rows),
        labels: Some(Labels::Classes((0..n_nodes as i64).map(|node| node % N_CLASSES as i64).collect())),
        train: (0..n_nodes as u32).step_by(3).collect(),
        valid: Vec::new(),
        test: Vec::new(),
        is_symmetric: false,
        is_one_of_many: false,
    }
}

fn config(kind: ModelKind, form: Form, heads: usize, features: usize, dropout: f64) -> RunConfig {
    let edge_loss = (kind == ModelKind::Supergat).then_some(EdgeLossConfig {
        weight: 2.0,
        neg_sample_ratio: 0.5,
        edge_sampling_ratio: 0.8,
        exclude: Exclude::Symmetric,
        subset: Subset::Union,
    });
    RunConfig {
        model: ModelConfig {
            kind,
            attention: form,
            n_layers: 2,
            heads,
            hidden: features,
            out_heads: heads,
            dropout,
            ..ModelConfig::default()
        },
        edge_loss,
        ..RunConfig::default()
    }
}

/// One training pass: outputs, edge losses and statistics, then the gradient of every weight that is trained.
fn pass(model: &Model, graph: &GraphInput) -> (Vec<Tensor>, Vec<Tensor>) {
    let forward = model.forward(graph, Pass::Train { run_key: 5, step: 3 }).unwrap();
    let mut loss =
        NodeLoss::default().of(&forward.logits, graph.labels.as_ref().unwrap(), &graph.train, graph.train.len());
    for edge_loss in forward.losses_of_layers() {
        loss += edge_loss * 2.0;
    }
    loss.backward();
    let trained = model.weights().entries().iter().filter(|entry| !entry.is_statistic());
    let gradient = |entry: &Entry| {
        let gradient = model.weights().get(&entry.name).unwrap().grad();
        assert!(gradient.defined(), "{} has no gradient", entry.name);
        gradient
    };
    let gradients = trained.map(gradient).collect();
    let outputs = std::iter::once(&forward.logits).chain(forward.losses_of_layers()).chain(&forward.statistics);
    (outputs.map(Tensor::shallow_clone).collect(), gradients)
}

/// The largest number of all gradients.
fn largest_gradient(gradients: &[Tensor]) -> f64 {
    gradients.iter().map(|gradient| gradient.abs().max().double_value(&[])).fold(0.0, f64::max)
}

/// The error of a gradient relative to its largest number; to the `largest` of all if it should be zero: a bias before a norm over
/// nodes changes nothing.
fn gradient_error(found: &Tensor, expected: &Tensor, largest: f64) -> f64 {
    let own = expected.abs().max().double_value(&[]);
    let scale = if own < 1e-9 * largest { largest } else { own };
    (found.to_kind(Kind::Double) - expected).abs().max().double_value(&[]) / scale
}

#[track_caller]
fn check(graph: &GraphInput, config: &RunConfig) {
    let fused = Model::new(config, graph.rows.dim(), N_CLASSES, 1, Device::Cpu).unwrap();
    // Biases start at zero, which would hide one that is not added.
    let flat = fused.weights().flat();
    let shifted = flat + Tensor::arange(flat.size()[0], (Kind::Float, Device::Cpu)).sin() * 0.05;
    fused.weights().set(&shifted);
    let oracle = fused.to_kind(Kind::Double);
    let evaluated = fused.forward(graph, Pass::Evaluate).unwrap().logits;
    let expected = oracle.forward(graph, Pass::Evaluate).unwrap().logits;
    assert!(error(&evaluated, &expected) < OUTPUT_ERROR, "evaluated: {:e}: {config:?}", error(&evaluated, &expected));

    let (outputs, gradients) = pass(&fused, graph);
    let (expected_outputs, expected_gradients) = pass(&oracle, graph);
    assert_eq!(outputs.len(), expected_outputs.len());
    for (k, (found, expected)) in outputs.iter().zip(&expected_outputs).enumerate() {
        let error = error(found, expected);
        assert!(error < OUTPUT_ERROR, "output {k}: {error:e}: {config:?}");
    }
    let trained = fused.weights().entries().iter().filter(|entry| !entry.is_statistic());
    let largest = largest_gradient(&expected_gradients);
    for (entry, (found, expected)) in trained.zip(gradients.iter().zip(&expected_gradients)) {
        let error = gradient_error(found, expected, largest);
        assert!(error < GRADIENT_ERROR, "gradient of {}: {error:e}: {config:?}", entry.name);
    }
    if gpu::refusal(config).is_none() {
        for device in devices(graph) {
            check_on(&device, &fused, graph, config, (&expected, &expected_outputs, &expected_gradients));
        }
    }
}

/// The GPU of this machine, if there is one, and for small graphs one that is emulated.
#[allow(clippy::print_stderr)]
fn devices(graph: &GraphInput) -> Vec<Gpu> {
    let emulated = (graph.block.n_edges() < 3000).then(kith_cuda_emulator::gpu);
    let real = match cuda::open(0) {
        Ok(gpu) => Some(gpu),
        Err(GpuError::Missing(why)) => {
            eprintln!("no GPU here, only an emulated one: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    };
    emulated.into_iter().chain(real).collect()
}

/// The same pass by a GPU's kernels.
#[track_caller]
fn check_on(
    device: &Gpu,
    model: &Model,
    graph: &GraphInput,
    config: &RunConfig,
    (evaluated, outputs, gradients): (&Tensor, &[Tensor], &[Tensor]),
) {
    let (mut program, _) = program(device, model, graph, config);
    program.step().unwrap();
    let name = device.name();
    let losses = program.losses().unwrap().remove(0);
    let node = NodeLoss::default().of(&outputs[0], graph.labels.as_ref().unwrap(), &graph.train, graph.train.len());
    let (n_trained, n_weights) = (model.weights().n_trained() as i64, model.weights().n_elements() as i64);
    let losses_of_layers = &outputs[1..outputs.len() - usize::from(n_trained < n_weights)];
    let expected: Vec<f64> =
        std::iter::once(&node).chain(losses_of_layers).map(|loss| loss.double_value(&[])).collect();
    let found: Vec<f64> = std::iter::once(losses.node).chain(losses.edges).collect();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        let error = (found - expected).abs() / expected.abs();
        assert!(error < OUTPUT_ERROR, "{name}: a loss of {found} instead of {expected}: {config:?}");
    }
    let mut start = 0;
    let found = Tensor::from_slice(&program.gradient().unwrap());
    let largest = largest_gradient(gradients);
    for (entry, expected) in model.weights().entries().iter().zip(gradients) {
        let n = expected.numel() as i64;
        let error = gradient_error(&found.narrow(0, start, n).view_as(expected), expected, largest);
        assert!(error < GRADIENT_ERROR, "{name}: gradient of {}: {error:e}: {config:?}", entry.name);
        start += n;
    }
    if n_trained < n_weights {
        let error = error(&found.narrow(0, n_trained, n_weights - n_trained), outputs.last().unwrap());
        assert!(error < OUTPUT_ERROR, "{name}: statistics: {error:e}: {config:?}");
    }
    // The same weights again, since the step has changed them.
    let weights: Vec<f32> = Vec::try_from(model.weights().flat()).unwrap();
    program.set_state(3, &weights, &vec![0.0; weights.len()], &vec![0.0; weights.len()]).unwrap();
    program.evaluate().unwrap();
    let found = Tensor::from_slice(&program.logits_of(0).unwrap());
    let error = error(&found.view_as(evaluated), evaluated);
    assert!(error < OUTPUT_ERROR, "{name}: evaluated: {error:e}: {config:?}");
}

/// Every norm, residual, activation and way of jumping, with every kind of model, and whatever else a layer can have.
#[test]
fn every_option_agrees_with_the_oracle() {
    use Activation::{Elu, Gelu, LeakyRelu, Prelu, Relu};
    use Norm::{Batch, Graph, Layer};
    use Residual::{Identity, Linear};
    let options = [
        (Norm::None, Residual::None, Relu, Jumping::None),
        (Norm::None, Linear, Elu, Jumping::None),
        (Layer, Residual::None, Gelu, Jumping::Sum),
        (Layer, Linear, LeakyRelu, Jumping::Max),
        (Batch, Identity, Relu, Jumping::None),
        (Batch, Linear, Prelu, Jumping::Concat),
        (Graph, Residual::None, Elu, Jumping::None),
        (Graph, Linear, Gelu, Jumping::Sum),
    ];
    for (place, (norm, residual, activation, jumping)) in options.into_iter().enumerate() {
        let more = if place % 2 == 0 { (ModelKind::Supergat, Form::V2) } else { (ModelKind::Gin, Form::Go) };
        for (kind, form) in [
            (ModelKind::Supergat, Form::Mx),
            (ModelKind::Gat, Form::Go),
            (ModelKind::Gcn, Form::Go),
            (ModelKind::Sage, Form::Go),
            more,
        ] {
            for has_linear in [jumping != Jumping::None, true] {
                let mut config = config(kind, form, 2, 7, 0.4);
                config.model = ModelConfig {
                    n_layers: 3,
                    norm: Some(norm),
                    residual: Some(residual),
                    activation: Some(activation),
                    jumping: Some(jumping),
                    input_linear: Some(has_linear),
                    output_linear: Some(has_linear),
                    input_dropout: Some(0.2),
                    attention_dropout: Some(0.1),
                    root_weight: Some(kind == ModelKind::Sage),
                    bias: Some(place % 3 != 0),
                    ..config.model
                };
                check(&graph(250, 40, 12, place % 2 == 1), &config);
            }
        }
    }
}

/// Layers wider than what a thread or a block has at a time, and more pieces of nodes than are joined at a time.
#[test]
fn wide_layers_agree_with_the_oracle() {
    for (kind, norm, n_nodes, hidden) in [
        (ModelKind::Gcn, Norm::Batch, 1100, 300),
        (ModelKind::Gat, Norm::Layer, 120, 516),
        (ModelKind::Sage, Norm::Graph, 90, 65),
    ] {
        let mut config = config(kind, Form::Go, 1, hidden, 0.3);
        config.model = ModelConfig {
            norm: Some(norm),
            residual: Some(Residual::Linear),
            activation: Some(Activation::Prelu),
            output_linear: Some(true),
            root_weight: Some(kind == ModelKind::Sage),
            ..config.model
        };
        check(&graph(n_nodes, 20, 7, false), &config);
    }
}

const KINDS: [(ModelKind, Form); 12] = [
    (ModelKind::Supergat, Form::Go),
    (ModelKind::Supergat, Form::Dp),
    (ModelKind::Supergat, Form::Sd),
    (ModelKind::Supergat, Form::Mx),
    (ModelKind::Supergat, Form::V2),
    (ModelKind::Gat, Form::Go),
    (ModelKind::Gat, Form::Dp),
    (ModelKind::Gat, Form::V2),
    (ModelKind::Gcn, Form::Go),
    (ModelKind::Sage, Form::Go),
    (ModelKind::Gin, Form::Go),
    (ModelKind::Mlp, Form::Go),
];

#[test]
fn every_kind_agrees_with_the_oracle() {
    for (kind, form) in KINDS {
        for dropout in [0.0, 0.6] {
            for is_sparse in [false, true] {
                check(&graph(300, 40, 33, is_sparse), &config(kind, form, 8, 8, dropout));
            }
        }
    }
}

#[test]
fn every_number_of_heads_agrees_with_the_oracle() {
    for heads in [1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 33] {
        for (kind, form) in [Form::Go, Form::Sd, Form::Mx, Form::V2].map(|form| (ModelKind::Supergat, form)) {
            check(&graph(120, 20, 16, false), &config(kind, form, heads, 6, 0.3));
        }
    }
}

#[test]
fn every_width_agrees_with_the_oracle() {
    for features in [1, 2, 3, 7, 8, 16, 31, 40, 64, 121, 256] {
        for heads in [1, 2, 8] {
            check(&graph(100, 20, 20, true), &config(ModelKind::Supergat, Form::Mx, heads, features, 0.2));
        }
        check(&graph(100, 20, 20, true), &config(ModelKind::Gat, Form::V2, 2, features, 0.2));
        for kind in [ModelKind::Gcn, ModelKind::Sage] {
            check(&graph(100, 20, 20, true), &config(kind, Form::Go, 1, features, 0.2));
        }
    }
}

#[test]
fn lists_in_pieces_agree_with_the_oracle() {
    for (kind, form) in KINDS[..5].iter().chain(&KINDS[8..]) {
        check(&graph(300, 900, 9, false), &config(*kind, *form, 3, 5, 0.2));
    }
}

fn hubs_agree(kinds: &[(ModelKind, Form)]) {
    let graph = graph(60_000, 50_000, 8, false);
    for (kind, form) in kinds {
        check(&graph, &config(*kind, *form, 2, 4, 0.2));
    }
}

/// On an emulated machine each kind takes seconds: one with pairs, one with attention alone, one without.
#[test]
fn hubs_agree_with_the_oracle() {
    hubs_agree(&[(ModelKind::Supergat, Form::Mx), (ModelKind::Gat, Form::Go), (ModelKind::Gcn, Form::Go)]);
}

#[test]
fn slow_hubs_of_every_kind_agree_with_the_oracle() {
    if std::env::var_os("KITH_SLOW").is_some() {
        hubs_agree(&KINDS);
    }
}

/// A program with the weights of a model, some steps into a run.
fn program(device: &Gpu, model: &Model, graph: &GraphInput, config: &RunConfig) -> (Program, Vec<f32>) {
    let weights: Vec<f32> = Vec::try_from(model.weights().flat()).unwrap();
    let zeros = vec![0.0; weights.len()];
    let program = gpu::program(device, model, graph, &[(config, 5)], TrainingPlan::default(), N_CLASSES).unwrap();
    program.set_state(3, &weights, &zeros, &zeros).unwrap();
    (program, weights)
}

/// Dropout and pairs have named draws, so the loss of one step is a function of the weights alone: its slope along the
/// gradient is the gradient's length.
#[test]
fn gradients_are_slopes() {
    let graph = graph(120, 80, 7, false);
    for form in Form::ALL {
        let config = config(ModelKind::Supergat, form, 3, 6, 0.3);
        let model = Model::new(&config, 7, N_CLASSES, 1, Device::Cpu).unwrap();
        for device in devices(&graph) {
            let (mut program, weights) = program(&device, &model, &graph, &config);
            let zeros = vec![0.0; weights.len()];
            let mut loss_at = |weights: &[f32]| {
                program.set_state(3, weights, &zeros, &zeros).unwrap();
                program.step().unwrap();
                let losses = program.losses().unwrap().remove(0);
                (losses.node + 2.0 * losses.edges.iter().sum::<f64>(), program.gradient().unwrap())
            };
            let (_, gradient) = loss_at(&weights);
            let length = gradient.iter().map(|slope| f64::from(slope * slope)).sum::<f64>().sqrt();
            let moved = |by: f64| -> Vec<f32> {
                let step =
                    |(weight, slope): (&f32, &f32)| (f64::from(*weight) + by * f64::from(*slope) / length) as f32;
                weights.iter().zip(&gradient).map(step).collect()
            };
            const STEP: f64 = 5e-3;
            let slope = (loss_at(&moved(STEP)).0 - loss_at(&moved(-STEP)).0) / (2.0 * STEP);
            let error = (slope - length).abs() / length;
            assert!(error < 2e-3, "{}: {form:?}: {slope} instead of {length}", device.name());
        }
    }
}

/// Weights after a few steps, as one number.
fn bits(device: &Gpu, hub: u64, is_recorded: bool) -> u64 {
    let graph = graph(150, hub, 9, false);
    let config = config(ModelKind::Supergat, Form::Mx, 4, 8, 0.4);
    let model = Model::new(&config, 9, N_CLASSES, 1, Device::Cpu).unwrap();
    let (mut program, _) = program(device, &model, &graph, &config);
    for _ in 0..2 {
        if is_recorded { program.step() } else { program.step_unrecorded() }.unwrap();
    }
    let weights = program.weights_of(0).unwrap();
    weights.iter().fold(0, |digest: u64, weight| digest.rotate_left(7) ^ u64::from(weight.to_bits()))
}

/// Layers without self-loops, and with dropped edges; hubs in pieces too.
#[test]
fn left_out_edges_agree_with_the_oracle() {
    for (kind, form) in KINDS {
        for (self_loops, edge_dropout, hub) in [(false, 0.0, 40), (false, 0.5, 300), (true, 0.4, 300)] {
            let has_loops = matches!(kind, ModelKind::Supergat | ModelKind::Gin);
            if kind == ModelKind::Mlp || (has_loops && !self_loops) {
                continue;
            }
            let mut config = config(kind, form, 3, 5, 0.2);
            config.model.self_loops = Some(self_loops);
            config.model.edge_dropout = Some(edge_dropout);
            check(&graph(300, hub, 9, hub == 300), &config);
        }
    }
}

const HUBS: [u64; 3] = [60, 500, 900];

/// In this process and in another, recorded or not.
#[test]
fn one_machine_gives_the_same_bits_twice() {
    for device in devices(&graph(150, 900, 9, false)) {
        let found = HUBS.map(|hub| bits(&device, hub, true));
        assert_eq!(HUBS.map(|hub| bits(&device, hub, true)), found, "{}: again", device.name());
        assert_eq!(HUBS.map(|hub| bits(&device, hub, false)), found, "{}: not recorded", device.name());
        let own = std::env::current_exe().unwrap();
        let mut other = Command::new(own);
        other.args(["--exact", "bits_of_one_process", "--ignored", "--nocapture"]);
        let output = other.env("KITH_TEST_DEVICE", device.name()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&format!("{found:?}")), "{}: {found:?} here, elsewhere {text}", device.name());
    }
}

#[test]
#[ignore = "one process of the test above"]
#[allow(clippy::print_stdout)]
fn bits_of_one_process() {
    let name = std::env::var("KITH_TEST_DEVICE").unwrap_or_default();
    let found = devices(&graph(150, 900, 9, false)).into_iter().find(|device| device.name() == name);
    let Some(device) = found else { return };
    println!("{:?}", HUBS.map(|hub| bits(&device, hub, true)));
}
