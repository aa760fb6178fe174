//! Features and weights of edges in attention scores: full batches, mini-batches, chunks, ranks, resumes.

use kith_run::{
    measured::{Measured, Metric},
    prediction::{Moment, What},
};
use kith_store::{
    Contents, Dtype, FeatureLayout, FeaturesEntry, Graph, LabelKind, LabelsEntry, Provenance, StoreWriter,
};

use tch::Kind;

use super::{
    batches::{FULL_FANOUT, first_step_of},
    numbers::{N_NODES, features_of, load, of, store},
    *,
};
use crate::{
    data::{input, opened::Opened},
    distributed::world::on_worlds,
    inference::{
        evaluate::Evaluator,
        predict::{PredictedNodes, Question, predict},
    },
    model::{Model, Pass, oracle::error},
};

const NO_PAIRS: &str = "edge_loss.weight=0";

/// Models that read numbers of edges.
const MODELS: [&[&str]; 6] = [
    &["model.kind=gat", "model.edge_dim=3"],
    &["model.kind=gat", "model.edge_weights=true"],
    &["model.kind=gat", "model.attention=v2", "model.edge_dim=3", "model.edge_weights=true"],
    &["model.kind=gat", "model.edge_dim=3", "model.self_loops=false", "model.edge_dropout=0.3"],
    &["model.kind=supergat", "model.attention=mx", "model.edge_dim=3", NO_PAIRS],
    &["model.kind=supergat", "model.attention=sd", "model.edge_dim=3", "model.edge_weights=true", NO_PAIRS],
];

fn with_pairs(model: &[&str], others: &[&str]) -> RunConfig {
    let is_supergat = model[0].ends_with("supergat");
    let pairs: &[&str] = if is_supergat { &["edge_loss.weight=1.5"] } else { &[] };
    of(model, &[others, pairs].concat())
}

#[test]
fn full_fanout_equals_full_batch_with_features_of_edges() {
    let opened = store(false);
    for model in MODELS {
        // Negative pairs are other draws in mini-batches.
        let full = of(model, &[]);
        let batches = of(model, &FULL_FANOUT[1..]);
        let (expected, expected_gradient) = first_step_of(&load(&opened, &full), full);
        let (found, gradient) = first_step_of(&load(&opened, &batches), batches);
        assert!((found.loss - expected.loss).abs() <= 1e-6 * expected.loss, "{model:?}: {found:?} {expected:?}");
        for ((name, found), (_, expected)) in gradient.iter().zip(&expected_gradient) {
            assert!(error(found, expected) <= 1e-5, "{model:?}: {name} {}", error(found, expected));
            assert!(f64::try_from(expected.abs().max()).unwrap() > 0.0, "{model:?}: {name} has no gradient");
        }
        assert!(gradient.iter().any(|(name, _)| name.ends_with("edge.weight")), "{model:?}");
    }
}

/// Scores of one layer by hand: Σ over a destination's edges, loop included, of softmax(leaky_relu(e)) · h.
#[test]
fn scores_are_those_of_the_formula() {
    let opened = store(false);
    let model: &[&str] =
        &["model.kind=gat", "model.n_layers=1", "model.out_heads=2", "model.edge_dim=3", "model.edge_weights=true"];
    for attention in ["go", "dp", "sd", "mx", "v2"] {
        let kind = format!("model.attention={attention}");
        let config = of(&[model, &[kind.as_str()]].concat(), &[]);
        let store = opened.whole().unwrap();
        let input = input::load(store, None).unwrap().with_edge_data(store, &config.model).unwrap();
        let graph = &input.graphs[0];
        let model = Model::new(&config, 5, 2, 7, Device::Cpu).unwrap();
        let found = Vec::<f32>::try_from(model.forward(graph, Pass::Evaluate).unwrap().logits.flatten(0, 1)).unwrap();
        let weight = |name: &str| -> Vec<f64> {
            let weight = model.weights().get(&format!("layers.0.{name}"));
            weight
                .map_or(Vec::new(), |weight| Vec::<f64>::try_from(weight.to_kind(Kind::Double).flatten(0, -1)).unwrap())
        };
        let [w, a, u, b, t, bias] =
            ["weight", "attention", "edge.weight", "edge.attention", "target.weight", "bias"].map(weight);
        let rows = graph.rows.to_dense();
        // x · a matrix with 4 columns: two heads of two features.
        let times = |x: &[f64], matrix: &[f64]| -> Vec<f64> {
            (0..4).map(|column| x.iter().enumerate().map(|(row, x)| x * matrix[4 * row + column]).sum()).collect()
        };
        let row = |node: usize| rows[5 * node..][..5].iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
        let bend = |value: f64| if value > 0.0 { value } else { 0.2 * value };
        for node in [0, 3, 77, 149] {
            let edges = graph.block.edges_into(node);
            let sources: Vec<usize> = graph.block.sources()[edges].iter().map(|source| *source as usize).collect();
            let (_, others) = sources.split_last().unwrap();
            let own = |source: &usize| features_of(*source as u64, node as u64).map(f64::from);
            let mut numbers: Vec<Vec<f64>> = others
                .iter()
                .map(|source| {
                    let strength = ((source * 7 + node * 3) % 11) as f32 / 5.0;
                    [&[f64::from(strength)], &own(source)[..]].concat()
                })
                .collect();
            let mean = |k: usize| others.iter().map(|source| own(source)[k]).sum::<f64>() / others.len().max(1) as f64;
            let strength = numbers.iter().map(|own| own[0]).sum::<f64>() / others.len().max(1) as f64;
            numbers.push(vec![strength, mean(0), mean(1), mean(2)]);
            let mut expected = [0.0; 2];
            for head in 0..2 {
                let of_head = |values: &[f64]| [values[2 * head], values[2 * head + 1]];
                let dot = |a: [f64; 2], b: [f64; 2]| a[0] * b[0] + a[1] * b[1];
                let target = of_head(&times(&row(node), &w));
                let scores: Vec<f64> = sources
                    .iter()
                    .zip(&numbers)
                    .map(|(source, numbers)| {
                        let (other, edge) = (of_head(&times(&row(*source), &w)), of_head(&times(numbers, &u)));
                        let term = if attention == "v2" { 0.0 } else { dot(edge, of_head(&b)) };
                        let linear = || {
                            dot(target, [a[4 * head], a[4 * head + 1]]) + dot(other, [a[4 * head + 2], a[4 * head + 3]])
                        };
                        match attention {
                            "go" => bend(linear() + term),
                            "dp" => bend(dot(target, other) + term),
                            "sd" => bend(dot(target, other) / 2f64.sqrt() + term),
                            "mx" => bend((linear() + term) / (1.0 + (-dot(target, other)).exp())),
                            _ => {
                                let to = of_head(&times(&row(node), &t));
                                let sum = |k: usize| bend(to[k] + other[k] + edge[k]);
                                dot([sum(0), sum(1)], of_head(&a))
                            }
                        }
                    })
                    .collect();
                let total: f64 = scores.iter().map(|score| score.exp()).sum();
                for (source, score) in sources.iter().zip(&scores) {
                    let value = of_head(&times(&row(*source), &w));
                    (0..2).for_each(|k| expected[k] += score.exp() / total * value[k] / 2.0);
                }
            }
            for k in 0..2 {
                let (found, expected) = (f64::from(found[2 * node + k]), expected[k] + bias[k]);
                assert!(
                    (found - expected).abs() <= 1e-4 * (1.0 + expected.abs()),
                    "{attention} {node}: {found} {expected}"
                );
            }
        }
    }
}

/// Whole lists, chunks of any size, and ranks.
#[test]
fn chunks_are_evaluated_with_features_of_edges() {
    let opened = store(false);
    for model in MODELS {
        let (full, batches) = (of(model, &[]), of(model, &["train.mode=mini-batch"]));
        let (whole, chunked) = (load(&opened, &full), load(&opened, &batches));
        let evaluate = |data: &Data, room: &Room, world: &mut World| {
            let model_of = Model::new(&full, 5, 2, 7, Device::Cpu).unwrap();
            Evaluator::default().evaluate(&model_of, data, Metric::Mae, room, world).unwrap()
        };
        let expected = evaluate(&whole, &Room::default(), alone());
        let is_near = |found: Measured| (found.valid - expected.valid).abs() <= 1e-6 * expected.valid.abs();
        for n_together in [1 << 17, 64, 7] {
            let room = Room { n_together, ..Room::default() };
            let found = evaluate(&chunked, &room, alone());
            assert!(is_near(found), "{model:?} {room:?}: {found:?} {expected:?}");
        }
        for memory in [None, Some(1), Some(1 << 13)] {
            let room = Room { n_together: 40, memory, ..Room::default() };
            for n_ranks in [1, 3] {
                let found = on_worlds(n_ranks, |world| evaluate(&chunked, &room, world));
                assert!(found.iter().all(|own| is_near(*own)), "{model:?} on {n_ranks} ranks, {memory:?}: {found:?}");
            }
        }
    }
}

const BATCHES: [&str; 4] = ["train.mode=mini-batch", "train.fanouts=[4, 3]", "train.batch_size=20", "train.slices=3"];

#[test]
fn ranks_threads_and_resumes_change_no_bit_with_features_of_edges() {
    let opened = store(false);
    let temp = tempfile::tempdir().unwrap();
    let config = with_pairs(MODELS[5], &[&BATCHES[..], &["train.sampling=weighted"]].concat());
    let data = load(&opened, &config);
    let whole = temp.path().join("whole");
    let records = to_the_end(plan(&data, config.clone(), Some(&whole), false));
    let expected = losses_of(&records);
    let found = losses_on(2, &data, &config);
    assert_eq!(found, expected, "two ranks");
    let dir = temp.path().join("killed");
    kill(plan(&data, config.clone(), Some(&dir), false), 3);
    to_the_end(plan(&data, config.clone(), Some(&dir), true));
    assert_eq!(left_behind(&dir), left_behind(&whole));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(pool.install(|| to_the_end(plan(&data, config.clone(), None, false))), records, "on one thread");
}

/// A graph where an edge's feature says whether its source counts: the number to predict is the mean of those that do.
fn marked() -> Opened {
    crate::engine::device::start();
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("store");
    let graph = graph(N_NODES, 0, 1);
    let rows = graph.rows.to_dense();
    let (mut indptr, mut indices, mut marks, mut numbers) = (vec![0u64], Vec::<u32>::new(), Vec::new(), Vec::new());
    for node in 0..N_NODES {
        let sources = &graph.block.sources()[graph.block.edges_into(node)];
        let others = &sources[..sources.len() - 1];
        let counts = |source: &u32| (*source as usize + node).is_multiple_of(2);
        let counted: Vec<f32> =
            others.iter().filter(|source| counts(source)).map(|source| rows[5 * *source as usize]).collect();
        numbers.push(if counted.is_empty() { f32::NAN } else { counted.iter().sum::<f32>() / counted.len() as f32 });
        marks.extend(others.iter().map(|source| f32::from(u8::from(counts(source)))));
        indices.extend(others);
        indptr.push(indices.len() as u64);
    }
    let part = |node: usize| if numbers[node].is_nan() { 0 } else { [1u8, 1, 2, 3][node % 4] };
    let mut writer = StoreWriter::create(&out).unwrap();
    writer.write("indptr", &indptr).unwrap();
    writer.write("indices", &indices).unwrap();
    writer.write("edge_features", &marks).unwrap();
    writer.write("features", &rows).unwrap();
    writer.write("labels", &numbers).unwrap();
    writer.write("split.quarters", &(0..N_NODES).map(part).collect::<Vec<u8>>()).unwrap();
    let entry = |dim| Some(FeaturesEntry { dim, layout: FeatureLayout::Dense, dtype: Dtype::F32 });
    let contents = Contents {
        n_nodes: N_NODES as u64,
        n_edges: indices.len() as u64,
        is_symmetric: true,
        edge_features: entry(1),
        features: entry(5),
        labels: Some(LabelsEntry { kind: LabelKind::Targets, n_classes: 1 }),
        splits: vec!["quarters".to_owned()],
        ..Contents::default()
    };
    writer.finish(contents, Provenance::default()).unwrap();
    Opened::store(Arc::new(Graph::open(&out).unwrap()))
}

#[test]
fn features_of_edges_are_learned_from() {
    let opened = marked();
    let temp = tempfile::tempdir().unwrap();
    let model = |attention: &str, edge_dim: Option<&str>| {
        let attention = format!("model.attention={attention}");
        let mut options = vec!["model.kind=gat", "model.n_layers=1", "model.out_heads=1", "model.dropout=0"];
        options.extend(["model.self_loops=false", attention.as_str()]);
        options.extend(edge_dim);
        // GATv2 learns the same more slowly.
        let epochs = if attention.ends_with("v2") { "train.epochs=3200" } else { "train.epochs=400" };
        let training = [epochs, "train.evaluate_every=400", "optimizer.learning_rate=0.05"];
        of(&options, &[&training[..], &["optimizer.weight_decay=0"]].concat())
    };
    for attention in ["go", "v2"] {
        let trained = |edge_dim: Option<&str>, dir: Option<&Path>| {
            let config = model(attention, edge_dim);
            to_the_end(plan(&load(&opened, &config), config, dir, false)).last().unwrap().measured.unwrap()
        };
        let dir = temp.path().join(attention);
        let (without, with) = (trained(None, None), trained(Some("model.edge_dim=1"), Some(&dir)));
        assert!(
            with.test > 0.95 && without.test < 0.5,
            "{attention}: R² {} without features of edges, {} with them",
            without.test,
            with.test
        );
        let checkpoint = Checkpoints::of(&dir).last().unwrap();
        let ask = |opened: &Opened, memory| {
            predict(&Question {
                checkpoint: &checkpoint,
                opened,
                what: What::Targets,
                pairs: None,
                nodes: &PredictedNodes::All,
                layer: None,
                moment: Moment::Last,
                device: Device::Cpu,
                gpu: None,
                room: Room { memory, ..Room::default() },
            })
        };
        let (whole, chunks) = (ask(&opened, None).unwrap(), ask(&opened, Some(1)).unwrap());
        let difference = |(a, b): (&f32, &f32)| (a - b).abs();
        assert!(whole.values().iter().zip(chunks.values()).map(difference).fold(0.0, f32::max) < 1e-5);
        let error = ask(&Opened::store(batches::store()), None).unwrap_err().to_string();
        assert!(error.contains("expected 1 features per edge, found 0"), "{error}");
    }
}

#[test]
fn wrong_numbers_of_features_are_refused() {
    for (opened, found) in
        [(store(false), "3: set model.edge_dim = 3"), (Opened::store(batches::store()), "none: import")]
    {
        let error = Data::load(&opened, &of(&["model.kind=gat"], &["model.edge_dim=2"]), 7).unwrap_err().to_string();
        let expected = format!("expected 2 features per edge (`model.edge_dim`), found {found}");
        assert!(error.starts_with(&expected), "{error}");
    }
}

/// Logits of the edge loss have no part of the edges' features: with the same weights, the loss of the first layer is the same.
#[test]
fn the_edge_loss_leaves_features_out() {
    let opened = store(false);
    for attention in ["go", "dp", "sd", "mx", "v2"] {
        let attention = format!("model.attention={attention}");
        let plain = config(&["early_stop=off", &attention, "train.kernels=reference"]);
        let with = config(&["early_stop=off", &attention, "model.edge_dim=3"]);
        let forward = |config: &RunConfig, weights: Option<&Model>| {
            let Data::Full(input) = load(&opened, config) else { panic!("a whole graph") };
            let model = Model::new(config, 5, 2, 7, Device::Cpu).unwrap();
            if let Some(other) = weights {
                tch::no_grad(|| {
                    for entry in other.weights().entries() {
                        let (from, to) = (other.weights().get(&entry.name), model.weights().get(&entry.name));
                        to.unwrap().shallow_clone().copy_(from.unwrap());
                    }
                });
            }
            let pass = Pass::Train { run_key: 7, step: 0 };
            let forward = model.forward(&input.graphs[0], pass).unwrap();
            let first = f64::try_from(forward.losses_of_layers().next().unwrap().detach()).unwrap();
            (model, first, Vec::<f32>::try_from(forward.logits.detach().flatten(0, 1)).unwrap())
        };
        let (model, expected, logits) = forward(&plain, None);
        let (_, found, other) = forward(&with, Some(&model));
        assert_eq!(found.to_bits(), expected.to_bits(), "{attention}");
        assert_ne!(other, logits, "{attention}: outputs depend on features");
    }
}
