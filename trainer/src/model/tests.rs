//! Whole models: sizes, initial weights, gradients, draws.

mod cgat;

use std::{collections::BTreeSet, sync::Arc};

use kith_block::{Block, BlockError, Form, Subset};
use kith_draw::{Name, Purpose};
use kith_kernels::InputRows;
use kith_run::{
    config::{Exclude, TrainConfig},
    model_kind::ModelKind,
};

use super::*;
use crate::{data::input::Labels, loss::NodeLoss, weights::Initial};

const FORMS: [Form; 5] = Form::ALL;
const KINDS: [ModelKind; 6] =
    [ModelKind::Supergat, ModelKind::Gat, ModelKind::Gcn, ModelKind::Sage, ModelKind::Gin, ModelKind::Mlp];

fn config(kind: ModelKind, form: Form) -> RunConfig {
    RunConfig {
        model: ModelConfig {
            kind,
            attention: form,
            n_layers: 2,
            heads: 8,
            hidden: 8,
            out_heads: 8,
            dropout: 0.6,
            ..ModelConfig::default()
        },
        train: TrainConfig { kernels: Kernels::Reference, ..TrainConfig::default() },
        edge_loss: Some(edge_loss()),
        ..RunConfig::default()
    }
}

fn edge_loss() -> EdgeLossConfig {
    EdgeLossConfig {
        weight: 2.0,
        neg_sample_ratio: 0.5,
        edge_sampling_ratio: 0.8,
        exclude: Exclude::Directed,
        subset: Subset::Union,
    }
}

/// A small model whose gradients can be tried number by number.
fn small(kind: ModelKind, form: Form, n_layers: usize) -> RunConfig {
    let mut config = config(kind, form);
    config.model = ModelConfig { n_layers, heads: 2, hidden: 3, out_heads: 3, dropout: 0.3, ..config.model };
    config
}

fn model(config: &RunConfig, dim: usize, n_classes: usize, run_key: u64) -> Model {
    crate::engine::device::start();
    Model::new(config, dim, n_classes, run_key, Device::Cpu).unwrap()
}

/// A random directed graph with loops, duplicate edges and a node without neighbors; every fourth node has zero rows.
fn random_graph(n_nodes: usize, n_edges: usize, dim: usize, n_classes: usize) -> GraphInput {
    let stream = Name { run_key: 5, purpose: Purpose::Generator, step: 0, layer: 0 }.stream();
    let mut draws = stream.draws(0, 0, 0);
    let mut lists = vec![Vec::new(); n_nodes];
    for _ in 0..n_edges {
        let destination = draws.below(n_nodes as u64 - 1);
        lists[destination as usize].push(draws.below(n_nodes as u64));
    }
    let repeated = lists[0].clone();
    lists[0].extend(repeated);
    lists.iter_mut().for_each(|list| list.sort_unstable());
    let n_edges = lists.iter().map(|list| list.len() as u64).sum();
    let block = Block::full(n_nodes as u64, n_edges, |node| Ok::<_, BlockError>(lists[node as usize].iter().copied()));
    let values = (0..n_nodes * dim).map(|place| if place / dim % 4 == 3 { 0.0 } else { draws.normal() as f32 });
    let positions = || (0..n_nodes as u32).collect::<Vec<_>>();
    GraphInput {
        block: Arc::new(block.unwrap()),
        rows: Arc::new(InputRows::Dense { dim, values: values.collect() }),
        labels: Some(Labels::Classes((0..n_nodes).map(|node| (node % n_classes) as i64).collect())),
        train: positions(),
        valid: positions(),
        test: positions(),
        is_symmetric: false,
        is_one_of_many: false,
    }
}

/// The same graph with every value of its features moved by one unit in the last place, up and down in turn.
fn moved_by_a_rounding(graph: &GraphInput) -> GraphInput {
    let InputRows::Dense { dim, values } = &*graph.rows else { panic!("dense features") };
    let moved = values.iter().enumerate().map(|(place, value)| match place % 2 {
        0 => value * (1.0 + f32::EPSILON),
        _ => value * (1.0 - f32::EPSILON),
    });
    GraphInput { rows: Arc::new(InputRows::Dense { dim: *dim, values: moved.collect() }), ..graph.clone() }
}

fn total_loss(model: &Model, graph: &GraphInput, pass: Pass) -> Tensor {
    let forward = model.forward(graph, pass).unwrap();
    let node = NodeLoss::default().of(&forward.logits, graph.labels.as_ref().unwrap(), &graph.train, graph.train.len());
    match forward.edge_loss(1) {
        Some(edge_loss) => node + edge_loss,
        None => node,
    }
}

#[test]
fn models_have_the_published_sizes() {
    for (form, dim, n_classes, n_elements) in [
        (Form::Go, 1433, 7, 95_607),
        (Form::Mx, 1433, 7, 95_607),
        (Form::Dp, 1433, 7, 95_367),
        (Form::Sd, 1433, 7, 95_367),
        (Form::Mx, 3703, 6, 240_358),
        (Form::Go, 500, 3, 33_779),
        (Form::Mx, 50, 121, 67_401),
    ] {
        for kind in [ModelKind::Supergat, ModelKind::Gat] {
            let model = model(&config(kind, form), dim, n_classes, 1);
            assert_eq!(model.weights().n_elements(), n_elements, "{form:?} on {dim} columns");
            assert_eq!(model.weights().flat().size(), [n_elements as i64]);
        }
    }
}

#[test]
fn names_and_shapes_of_weights() {
    let mut config = config(ModelKind::Supergat, Form::Mx);
    config.model.n_layers = 3;
    config.model.out_heads = 1;
    let model = model(&config, 20, 5, 1);
    let found: Vec<(String, Vec<i64>)> =
        model.weights().entries().iter().map(|entry| (entry.name.clone(), entry.shape.clone())).collect();
    let expected = [
        ("layers.0.weight", vec![20, 64]),
        ("layers.0.attention", vec![8, 16]),
        ("layers.0.bias", vec![64]),
        ("layers.1.weight", vec![64, 64]),
        ("layers.1.attention", vec![8, 16]),
        ("layers.1.bias", vec![64]),
        ("layers.2.weight", vec![64, 5]),
        ("layers.2.attention", vec![1, 10]),
        ("layers.2.bias", vec![5]),
    ];
    assert_eq!(found, expected.map(|(name, shape)| (name.to_owned(), shape)));
}

/// Uniform up to the published bounds: the largest draws come near them, the mean near zero.
#[test]
fn initial_weights_keep_their_bounds() {
    let root = |x: f64| x.sqrt();
    let expected = [
        (ModelKind::Gat, "layers.0.weight", root(6.0 / (1433.0 + 64.0))),
        (ModelKind::Gat, "layers.0.attention", 0.5),
        (ModelKind::Gat, "layers.0.bias", 0.0),
        (ModelKind::Supergat, "layers.1.weight", root(6.0 / (64.0 + 56.0))),
        (ModelKind::Supergat, "layers.1.attention", root(6.0 / (8.0 + 14.0))),
        (ModelKind::Supergat, "layers.1.bias", 0.0),
        (ModelKind::Gcn, "layers.0.weight", root(6.0 / (1433.0 + 8.0))),
        (ModelKind::Gcn, "layers.1.weight", root(6.0 / (8.0 + 7.0))),
        (ModelKind::Gcn, "layers.1.bias", 0.0),
        (ModelKind::Sage, "layers.0.weight", 1.0 / root(1433.0)),
        (ModelKind::Sage, "layers.0.bias", 1.0 / root(1433.0)),
        (ModelKind::Sage, "layers.1.weight", 1.0 / root(8.0)),
        (ModelKind::Mlp, "layers.0.weight", 1.0 / root(1433.0)),
        (ModelKind::Mlp, "layers.1.weight", 1.0 / root(8.0)),
    ];
    for (kind, name, bound) in expected {
        let model = model(&config(kind, Form::Mx), 1433, 7, 3);
        let weight = model.weights().get(name).unwrap().detach().to_kind(Kind::Double);
        let largest = weight.abs().max().double_value(&[]);
        let mean = weight.mean(Kind::Double).double_value(&[]);
        let n_elements = weight.numel() as f64;
        assert!(largest <= bound * (1.0 + 1e-6), "{name}: {largest} above {bound}");
        assert!(largest >= bound * (1.0 - 8.0 / n_elements), "{name}: {largest} far below {bound}");
        assert!(mean.abs() <= 5.0 * bound / (3.0 * n_elements).sqrt(), "{name}: mean {mean}");
    }
}

#[test]
fn a_run_key_names_the_initial_weights() {
    for kind in KINDS {
        let fresh = |run_key| model(&config(kind, Form::Mx), 30, 4, run_key);
        let (first, again, other) = (fresh(1), fresh(1), fresh(2));
        assert_eq!(first.weights().flat(), again.weights().flat());
        let mut seen = BTreeSet::new();
        for entry in first.weights().entries() {
            let of =
                |model: &Model| Vec::<f32>::try_from(model.weights().get(&entry.name).unwrap().flatten(0, -1)).unwrap();
            if entry.initial != Initial::Constant(0.0) {
                assert_ne!(of(&first), of(&other), "{kind:?} {}", entry.name);
                // Two tensors of one model share no draws either.
                assert!(seen.insert(of(&first).iter().map(|value| value.to_bits()).collect::<Vec<_>>()));
            }
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let graph = random_graph(9, 25, 4, 3);
    let mut cases: Vec<RunConfig> = FORMS.map(|form| small(ModelKind::Supergat, form, 2)).into();
    cases.push(small(ModelKind::Supergat, Form::Mx, 3));
    cases.extend(
        [ModelKind::Gat, ModelKind::Gcn, ModelKind::Sage, ModelKind::Gin, ModelKind::Mlp]
            .map(|kind| small(kind, Form::Go, 2)),
    );
    for config in cases {
        check_gradient(&config, &graph);
    }
}

/// Compares every number of a small model's gradient in a step with a difference of losses, in doubles.
fn check_gradient(config: &RunConfig, graph: &GraphInput) {
    let pass = Pass::Train { run_key: 7, step: 3 };
    let model = model(config, 4, 3, 1).to_kind(Kind::Double);
    // Biases of zero would leave whole rows at zero, right where the activation bends.
    let n_elements = model.weights().n_elements() as i64;
    let moved = Tensor::arange(n_elements, (Kind::Double, Device::Cpu)).sin() * 0.2;
    model.weights().set(&(model.weights().flat() + moved));
    total_loss(&model, graph, pass).backward();
    let gradient = model.weights().gradient();
    let start = model.weights().flat().copy();
    let loss_at = |place: i64, delta: f64| {
        let moved = start.copy();
        let _ = moved.narrow(0, place, 1).g_add_scalar_(delta);
        model.weights().set(&moved);
        tch::no_grad(|| total_loss(&model, graph, pass).double_value(&[]))
    };
    let h = 1e-6;
    let differences: Vec<f64> =
        (0..start.numel() as i64).map(|place| (loss_at(place, h) - loss_at(place, -h)) / (2.0 * h)).collect();
    let found = oracle::error(&gradient, &Tensor::from_slice(&differences));
    assert!(found < 1e-7, "{:?} {:?}: {found}", config.model.kind, config.model.attention);
}

#[test]
fn gradients_of_labels_that_are_bits() {
    let logits = Tensor::from_slice(&[0.0f64, 3.0, -40.0, 40.0, 0.5, 0.0]).view([3, 2]).set_requires_grad(true);
    let labels = Labels::Bits { n_classes: 2, bits: vec![true, false, true, false, false, true] };
    let loss = NodeLoss::default().of(&logits, &labels, &[0, 2], 2);
    loss.backward();
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let expected =
        -(sigmoid(0.0).ln() + (1.0 - sigmoid(3.0)).ln() + (1.0 - sigmoid(0.5)).ln() + sigmoid(0.0).ln()) / 4.0;
    assert!((loss.double_value(&[]) - expected).abs() < 1e-12);
    let gradient = [sigmoid(0.0) - 1.0, sigmoid(3.0), 0.0, 0.0, sigmoid(0.5), sigmoid(0.0) - 1.0].map(|g| g / 4.0);
    assert!(oracle::error(&logits.grad(), &Tensor::from_slice(&gradient).view([3, 2])) < 1e-12);
}

#[test]
fn the_loss_of_classes_is_the_mean_cross_entropy() {
    let logits = Tensor::from_slice(&[1.0f64, 2.0, 0.0, -1.0, 500.0, 3.0]).view([3, 2]);
    let labels = Labels::Classes(vec![0, -1, 1]);
    let found = NodeLoss::default().of(&logits, &labels, &[2, 0], 2).double_value(&[]);
    assert!((found - (1f64.exp().ln_1p() + 497.0) / 2.0).abs() < 1e-12, "{found}");
}

/// Doubles are the oracle; floats must follow it.
#[test]
fn floats_follow_doubles() {
    for (n_nodes, n_edges, dim) in [(2, 1, 1), (50, 300, 7), (400, 3000, 40)] {
        let graph = random_graph(n_nodes, n_edges, dim, 3);
        for kind in KINDS {
            for form in FORMS {
                let model = model(&small(kind, form, 3), dim, 3, 2);
                let doubles = model.to_kind(Kind::Double);
                for pass in [Pass::Evaluate, Pass::Train { run_key: 7, step: 1 }] {
                    let (found, expected) =
                        (model.forward(&graph, pass).unwrap(), doubles.forward(&graph, pass).unwrap());
                    let error = oracle::error(&found.logits, &expected.logits);
                    assert!(error < 5e-6, "{kind:?} {form:?} {n_nodes}: {error}");
                    assert_eq!(found.losses_of_layers().count(), expected.losses_of_layers().count());
                }
                let pass = Pass::Train { run_key: 7, step: 2 };
                total_loss(&model, &graph, pass).backward();
                total_loss(&doubles, &graph, pass).backward();
                let error = |model: &Model| oracle::error(&model.weights().gradient(), &doubles.weights().gradient());
                // Scores of wide features are ill-conditioned: doubles themselves move more if features move by one rounding.
                let conditioning = || {
                    let moved = self::model(&small(kind, form, 3), dim, 3, 2).to_kind(Kind::Double);
                    total_loss(&moved, &moved_by_a_rounding(&graph), pass).backward();
                    error(&moved)
                };
                let error = error(&model);
                assert!(
                    error < 2e-5 || error < 4.0 * conditioning(),
                    "{kind:?} {form:?} {n_nodes}: gradient {error}, moved {}",
                    conditioning()
                );
            }
        }
    }
}

#[test]
fn a_step_is_named_and_nothing_else_matters() {
    let graph = random_graph(60, 400, 9, 4);
    for kernels in [Kernels::Reference, Kernels::Fused] {
        let step = |run_key, step, n_threads| {
            let mut config = small(ModelKind::Supergat, Form::Mx, 2);
            config.train.kernels = kernels;
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            pool.install(|| {
                let model = model(&config, 9, 4, 1);
                let loss = total_loss(&model, &graph, Pass::Train { run_key, step });
                loss.backward();
                (loss.double_value(&[]).to_bits(), Vec::<f32>::try_from(model.weights().gradient()).unwrap())
            })
        };
        let first = step(1, 5, 1);
        assert_eq!(first, step(1, 5, 1));
        assert_eq!(first, step(1, 5, 3));
        assert_ne!(first.0, step(1, 6, 1).0);
        assert_ne!(first.0, step(2, 5, 1).0);
    }
}

/// Each purpose of dropout is heard: with one of them off, another number comes out.
#[test]
fn dropout_falls_on_inputs_hidden_rows_and_attention() {
    let graph = random_graph(60, 400, 9, 4);
    let model = model(&small(ModelKind::Gat, Form::Go, 2), 9, 4, 1);
    let edges = Edges::new(&graph.block, Device::Cpu);
    let call = |layer, pass| model.call((layer, &graph.block, None), Some(&edges), pass);
    let pass = Pass::Train { run_key: 1, step: 0 };
    for layer in [0, 1] {
        let input = match layer {
            0 => LayerRows::Input(&graph.rows),
            _ => LayerRows::Hidden(Tensor::ones([60, model.layers()[layer].dim as i64], (Kind::Float, Device::Cpu))),
        };
        let rows = draws::dropped(&call(layer, pass), &input);
        let undropped = draws::dropped(&call(layer, Pass::Evaluate), &input);
        assert_eq!(undropped, input.to_tensor(model.weights()));
        let attention = draws::attention_factors(&call(layer, pass)).unwrap();
        assert_eq!(rows.size(), [60, model.layers()[layer].dim as i64]);
        assert_eq!(attention.size(), [graph.block.n_edges() as i64, model.layers()[layer].heads as i64]);
        for kept in [rows.abs().masked_select(&undropped.ne(0.0)), attention] {
            let share = kept.gt(0.0).to_kind(Kind::Double).mean(Kind::Double).double_value(&[]);
            assert!((share - 0.7).abs() < 0.06, "{share}");
        }
        assert!(draws::attention_factors(&call(layer, Pass::Evaluate)).is_none());
    }
}

#[test]
fn only_supergat_has_edge_losses() {
    let graph = random_graph(20, 80, 5, 3);
    let pass = Pass::Train { run_key: 1, step: 0 };
    for (kind, n_losses) in KINDS.into_iter().zip([3, 0, 0, 0, 0]) {
        let config = small(kind, Form::Mx, 3);
        let with = model(&config, 5, 3, 1);
        assert_eq!(with.forward(&graph, pass).unwrap().losses_of_layers().count(), n_losses);
        assert!(with.forward(&graph, Pass::Evaluate).unwrap().edge_losses.is_empty());
        let off = RunConfig { edge_loss: Some(EdgeLossConfig { weight: 0.0, ..edge_loss() }), ..config };
        assert!(model(&off, 5, 3, 1).forward(&graph, pass).unwrap().edge_losses.is_empty());
    }
}

#[test]
fn an_mlp_is_rows_times_weights_and_ignores_edges() {
    let graph = random_graph(50, 300, 7, 3);
    let without = GraphInput { block: Arc::new(graph.block.loops()), ..graph.clone() };
    assert_eq!((graph.block.n_edges() > 300, without.block.n_edges()), (true, 50));
    for kernels in [Kernels::Reference, Kernels::Fused] {
        let mut config = small(ModelKind::Mlp, Form::Go, 3);
        config.train.kernels = kernels;
        let model = model(&config, 7, 3, 1);
        let mut rows = oracle::dense(&graph.rows);
        for layer in 0..3 {
            let weight = |name: &str| model.weight(layer, name);
            rows = rows.matmul(weight("weight")) + weight("bias");
            if layer < 2 {
                rows = rows.elu();
            }
        }
        let logits = |graph, pass| model.forward(graph, pass).unwrap().logits.detach();
        assert!(oracle::error(&logits(&graph, Pass::Evaluate), &rows) < 1e-6, "{kernels:?}");
        for pass in [Pass::Evaluate, Pass::Train { run_key: 1, step: 2 }] {
            assert_eq!(logits(&graph, pass), logits(&without, pass), "{kernels:?}");
        }
    }
}

#[test]
fn a_trace_shows_every_layer() {
    let graph = random_graph(20, 80, 5, 3);
    let model = model(&small(ModelKind::Supergat, Form::Sd, 3), 5, 3, 1);
    let traced = model.trace(&graph.sample(3)).unwrap();
    let shapes = |tensors: &[Tensor]| tensors.iter().map(|tensor| tensor.size()).collect::<Vec<_>>();
    assert_eq!(shapes(&traced.rows), [[20, 6], [20, 6], [20, 3]]);
    let n_edges = graph.block.n_edges() as i64;
    assert_eq!(shapes(&traced.attention), [[n_edges, 2], [n_edges, 2], [n_edges, 3]]);
    assert_eq!(traced.rows[2], model.forward(&graph, Pass::Evaluate).unwrap().logits);
}

mod pairs {
    use kith_block::Pairs;

    use super::*;

    #[test]
    fn counts_are_whole_shares() {
        let graph = random_graph(100, 700, 1, 2);
        let n_edges = graph.block.n_edges();
        let n_kept_edges = |pairs: &Pairs| (0..n_edges).filter(|edge| pairs.keeps(*edge)).count();
        let union = draw_pairs(&edge_loss(), &graph, 1, 0, 0);
        assert_eq!(union.n_pairs() + union.negatives().n_left_out, (n_edges + n_edges / 2) * 4 / 5);
        assert_eq!(n_kept_edges(&union) + union.negatives().len(), union.n_pairs());

        let each = draw_pairs(&EdgeLossConfig { subset: Subset::Each, ..edge_loss() }, &graph, 1, 0, 0);
        assert_eq!(each.negatives().len() + each.negatives().n_left_out, n_edges * 2 / 5);
        assert_eq!(n_kept_edges(&each), n_edges * 4 / 5);
        assert_eq!(each.n_pairs(), n_edges * 4 / 5 + each.negatives().len());
    }

    #[test]
    fn negatives_are_no_edges() {
        let mut graph = random_graph(30, 200, 1, 2);
        let config = |exclude| EdgeLossConfig { exclude, neg_sample_ratio: 5.0, ..edge_loss() };
        let n_reverses = |graph: &GraphInput, exclude| {
            let pairs = draw_pairs(&config(exclude), graph, 1, 0, 0);
            let negatives = pairs.negatives();
            assert!(negatives.len() > 100);
            let pairs = || negatives.sources.iter().zip(&negatives.destinations);
            assert!(pairs().all(|(source, destination)| source != destination));
            assert!(pairs().all(|(source, destination)| !graph.block.has_edge(*source, *destination)));
            pairs().filter(|(source, destination)| graph.block.has_edge(**destination, **source)).count()
        };
        assert!(n_reverses(&graph, Exclude::Directed) > 0);
        assert_eq!(n_reverses(&graph, Exclude::Symmetric), 0);
        // The batched sampler of the published runs did not know the option.
        graph.is_one_of_many = true;
        assert!(n_reverses(&graph, Exclude::Symmetric) > 0);
    }

    #[test]
    fn layers_and_steps_have_their_own() {
        let graph = random_graph(100, 700, 1, 2);
        let draw = |step, layer| draw_pairs(&edge_loss(), &graph, 1, step, layer).negatives().clone();
        assert_eq!(draw(0, 0), draw(0, 0));
        assert_ne!(draw(0, 0), draw(0, 1));
        assert_ne!(draw(0, 0), draw(1, 0));
    }

    /// A graph with all edges has no negatives; its loss looks at edges alone.
    #[test]
    fn a_complete_graph_has_none() {
        let block = Block::full(3, 6, |node| Ok::<_, BlockError>((0..3).filter(move |source| *source != node)));
        let graph = GraphInput { block: Arc::new(block.unwrap()), ..random_graph(3, 1, 2, 3) };
        let pairs = draw_pairs(&edge_loss(), &graph, 1, 0, 0);
        assert_eq!((pairs.negatives().len(), pairs.negatives().n_left_out, pairs.n_pairs()), (0, 0, 7));
        let model = model(&small(ModelKind::Supergat, Form::Mx, 2), 2, 3, 1);
        let loss = total_loss(&model, &graph, Pass::Train { run_key: 1, step: 0 });
        assert!(loss.double_value(&[]).is_finite());
    }
}

/// The edge loss of a one-layer model equals the one computed from the logits of its pairs.
#[test]
fn pair_logits_are_what_the_edge_loss_sees() {
    let graph = random_graph(20, 60, 5, 3);
    for form in FORMS {
        let mut config = small(ModelKind::Supergat, form, 1);
        config.model.dropout = 0.0;
        config.edge_loss = Some(EdgeLossConfig { edge_sampling_ratio: 1.0, ..edge_loss() });
        for kernels in [Kernels::Reference, Kernels::Fused] {
            config.train.kernels = kernels;
            let model = model(&config, 5, 3, 1);
            let pass = Pass::Train { run_key: 1, step: 0 };
            let pairs = model.compare(&graph, pass).pairs;
            let block = &graph.block;
            let edges =
                (0..block.n_destinations()).flat_map(|to| block.edges_into(to).map(move |edge| (edge, to as u32)));
            let (sources, destinations): (Vec<u32>, Vec<u32>) =
                edges.map(|(edge, to)| (block.sources()[edge], to)).unzip();
            let negatives = pairs[0].negatives();
            let of_edges = model.pair_logits(&graph, &sources, &destinations).unwrap();
            let of_others = model.pair_logits(&graph, &negatives.sources, &negatives.destinations).unwrap();
            let loss = |logit: f32| f64::from((-logit).exp()).ln_1p();
            let sum = of_edges.iter().map(|logit| loss(*logit)).sum::<f64>()
                + of_others.iter().map(|logit| loss(-*logit)).sum::<f64>();
            let forward = model.forward(&graph, pass).unwrap();
            let expected = forward.losses_of_layers().next().unwrap().double_value(&[]);
            let found = sum / (of_edges.len() + of_others.len()) as f64;
            assert!((found - expected).abs() < 1e-5, "{form:?} {kernels:?}: {found} {expected}");
        }
    }
}

/// Rows between layers are before the ELU or after it; pairs see them after it.
#[test]
fn pair_logits_do_not_depend_on_the_kernels() {
    let graph = random_graph(30, 90, 5, 3);
    let (sources, destinations): (Vec<u32>, Vec<u32>) = (0..29).map(|node| (node, node + 1)).unzip();
    for form in FORMS {
        let mut config = small(ModelKind::Supergat, form, 3);
        let plain = model(&config, 5, 3, 1).pair_logits(&graph, &sources, &destinations).unwrap();
        config.train.kernels = Kernels::Fused;
        let fused = model(&config, 5, 3, 1).pair_logits(&graph, &sources, &destinations).unwrap();
        assert!(plain.iter().any(|logit| *logit != 0.0));
        assert!(plain.iter().zip(&fused).all(|(a, b)| (a - b).abs() < 1e-5), "{form:?}: {plain:?} {fused:?}");
    }
}

/// A step with dropped edges is a step on the graph without them.
#[test]
fn dropped_edges_are_as_if_they_were_not_there() {
    let graph = random_graph(60, 400, 5, 3);
    let pass = Pass::Train { run_key: 1, step: 4 };
    let stream = Name { run_key: 1, purpose: Purpose::EdgeDropout, step: 4, layer: 0 }.stream();
    let is_kept = |source: u64, destination: u64| stream.words(destination, source, 0, 0)[0] & 0xffff >= 65536 * 2 / 5;
    let block = &graph.block;
    let lists: Vec<Vec<u64>> = (0..60)
        .map(|to| {
            let sources = block.edges_into(to).map(|edge| u64::from(block.sources()[edge]));
            sources.filter(|from| *from != to as u64 && is_kept(*from, to as u64)).collect()
        })
        .collect();
    let n_edges = lists.iter().map(|list| list.len() as u64).sum();
    let of = |node: u64| Ok::<_, BlockError>(lists[node as usize].iter().copied());
    let without = GraphInput { block: Arc::new(Block::full(60, n_edges, of).unwrap()), ..graph.clone() };
    assert!(n_edges * 2 < block.n_edges() as u64 * 2 && without.block.n_edges() < block.n_edges());
    for kind in [ModelKind::Gat, ModelKind::Gcn, ModelKind::Sage, ModelKind::Gin] {
        for form in if kind == ModelKind::Gat { &FORMS[..] } else { &[Form::Go] } {
            for kernels in [Kernels::Reference, Kernels::Fused] {
                let mut config = RunConfig { edge_loss: None, ..small(kind, *form, 2) };
                config.train.kernels = kernels;
                let whole = model(&config, 5, 3, 1).forward(&without, pass).unwrap().logits;
                config.model.edge_dropout = Some(0.4);
                let dropped = model(&config, 5, 3, 1).forward(&graph, pass).unwrap().logits;
                assert!(oracle::error(&dropped, &whole) < 1e-5, "{kind:?} {form:?} {kernels:?}");
            }
        }
    }
}
