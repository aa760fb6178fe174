//! Weights of edges and numbers to predict: full batches, mini-batches, chunks, ranks, resumes, GPUs.

use kith_run::{
    measured::Metric,
    prediction::{Moment, What},
};
use kith_store::{
    Contents, Dtype, FeatureLayout, FeaturesEntry, Graph, LabelKind, LabelsEntry, Provenance, StoreWriter,
};

use super::{
    batches::{FULL_FANOUT, first_step_of},
    gpu::{devices, follows_run},
    *,
};
use crate::{
    data::opened::Opened,
    distributed::world::on_worlds,
    inference::{
        evaluate::Evaluator,
        predict::{PredictedNodes, Question, predict},
    },
    model::{Model, oracle::error},
};

pub(super) const N_NODES: usize = 150;

/// Weight of an edge: other values in the two directions, and zeros.
fn weight(source: u64, destination: u64) -> f32 {
    ((source * 7 + destination * 3) % 11) as f32 / 5.0
}

/// Features of an edge: other values in the two directions.
pub(super) fn features_of(source: u64, destination: u64) -> [f32; 3] {
    [(source * 5 + destination) % 2, (source + destination * 11) % 5, (source * destination) % 7]
        .map(|value| value as f32 / 2.0)
}

/// A graph with weights, all 1 if `are_ones`, features of edges, and two numbers to predict per node: ten times the mean of the first feature over the
/// node and its neighbors plus 100, and a mixture of its own features. Every seventh node has none, and is in no part.
pub(super) fn store(are_ones: bool) -> Opened {
    store_with(are_ones, &[])
}

/// The same with more parallel edges into some nodes: (node, number of edges).
fn store_with(are_ones: bool, hubs: &[(usize, usize)]) -> Opened {
    crate::engine::device::start();
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("store");
    let graph = graph(N_NODES, 0, 1);
    let (mut indptr, mut indices, mut weights, mut features) = (vec![0u64], Vec::new(), Vec::new(), Vec::new());
    let rows = graph.rows.to_dense();
    let mut numbers = Vec::new();
    for node in 0..N_NODES {
        let sources = &graph.block.sources()[graph.block.edges_into(node)];
        let mean = sources.iter().map(|source| rows[5 * *source as usize]).sum::<f32>() / sources.len() as f32;
        let own = 0.02 * rows[5 * node + 1] - 0.05 * rows[5 * node + 3];
        numbers.extend(if node % 7 == 3 { [f32::NAN; 2] } else { [100.0 + 10.0 * mean, own] });
        // All but the loop at the end, which every destination gets anyway.
        let n_more = hubs.iter().find(|(hub, _)| *hub == node).map_or(0, |(_, n_edges)| *n_edges);
        let more = (0..n_more).map(|edge| (edge * 7 % N_NODES) as u32).filter(|source| *source as usize != node);
        let mut sources: Vec<u32> = sources[..sources.len() - 1].iter().copied().chain(more).collect();
        sources.sort_unstable();
        let own = |source: u32| if are_ones { 1.0 } else { weight(source.into(), node as u64) };
        weights.extend(sources.iter().map(|source| own(*source)));
        features.extend(sources.iter().flat_map(|source| features_of(u64::from(*source), node as u64)));
        indices.extend(sources);
        indptr.push(indices.len() as u64);
    }
    let mut parts = vec![0u8; N_NODES];
    for (part, nodes) in [(1, &graph.train), (2, &graph.valid), (3, &graph.test)] {
        nodes.iter().filter(|node| **node % 7 != 3).for_each(|node| parts[*node as usize] = part);
    }
    let mut writer = StoreWriter::create(&out).unwrap();
    writer.write("indptr", &indptr).unwrap();
    writer.write("indices", &indices).unwrap();
    writer.write("edge_weights", &weights).unwrap();
    writer.write("edge_features", &features).unwrap();
    writer.write("features", &rows).unwrap();
    writer.write("labels", &numbers).unwrap();
    writer.write("split.thirds", &parts).unwrap();
    let contents = Contents {
        n_nodes: N_NODES as u64,
        n_edges: indices.len() as u64,
        is_symmetric: true,
        edge_weights: true,
        edge_features: Some(FeaturesEntry { dim: 3, layout: FeatureLayout::Dense, dtype: Dtype::F32 }),
        features: Some(FeaturesEntry { dim: 5, layout: FeatureLayout::Dense, dtype: Dtype::F32 }),
        labels: Some(LabelsEntry { kind: LabelKind::Targets, n_classes: 2 }),
        splits: vec!["thirds".to_owned()],
        ..Contents::default()
    };
    writer.finish(contents, Provenance::default()).unwrap();
    // Mapped files outlive their folder.
    Opened::store(Arc::new(Graph::open(&out).unwrap()))
}

pub(super) fn load(opened: &Opened, config: &RunConfig) -> Data {
    Data::load(opened, config, 7).unwrap()
}

/// Models that weigh edges.
const WEIGHTED: [&[&str]; 4] = [
    &["model.kind=gcn"],
    &["model.kind=sage"],
    &["model.kind=gin", "model.hidden=6"],
    &["model.kind=sage", "model.self_loops=false", "model.edge_dropout=0.3", "model.root_weight=true"],
];

pub(super) fn of(model: &[&str], others: &[&str]) -> RunConfig {
    config(&[&["model=off", "edge_loss=off", "early_stop=off", "train.epochs=3"], model, others].concat())
}

const WITH_WEIGHTS: &str = "model.edge_weights=true";

#[test]
fn full_fanout_equals_full_batch_with_weights() {
    let opened = store(false);
    for model in WEIGHTED {
        let mut fused = None;
        for kernels in KERNELS {
            let full = of(model, &[WITH_WEIGHTS, kernels]);
            let batches = of(model, &[&[WITH_WEIGHTS, kernels], &FULL_FANOUT[1..]].concat());
            let (expected, expected_gradient) = first_step_of(&load(&opened, &full), full);
            let (found, gradient) = first_step_of(&load(&opened, &batches), batches);
            assert!((found.loss - expected.loss).abs() <= 1e-6 * expected.loss, "{model:?}: {found:?} {expected:?}");
            for ((name, found), (_, expected)) in gradient.iter().zip(&expected_gradient) {
                assert!(error(found, expected) <= 1e-5, "{model:?}: {name} {}", error(found, expected));
            }
            // Both kinds of kernels compute the same.
            let own: Vec<Tensor> = gradient.into_iter().map(|(_, gradient)| gradient).collect();
            let before = fused.get_or_insert((found.loss, own));
            assert!((found.loss - before.0).abs() <= 1e-5 * before.0, "{model:?} {kernels}");
            for ((name, found), expected) in expected_gradient.iter().zip(&before.1) {
                assert!(error(found, expected) <= 2e-5, "{model:?} {kernels}: {name} {}", error(found, expected));
            }
        }
    }
}

#[test]
fn weights_of_one_change_no_bit_and_others_do() {
    let (ones, others) = (store(true), store(false));
    for model in WEIGHTED {
        let step = |opened: &Opened, options: &[&str]| {
            let config = of(model, options);
            first_step_of(&load(opened, &config), config).0.loss
        };
        let plain = step(&ones, &[]);
        assert_eq!(step(&ones, &[WITH_WEIGHTS]).to_bits(), plain.to_bits(), "{model:?}");
        assert_eq!(step(&others, &[]).to_bits(), plain.to_bits(), "{model:?}: weights that nobody asked for");
        assert_ne!(step(&others, &[WITH_WEIGHTS]), plain, "{model:?}");
    }
}

/// Whole lists, and chunks.
#[test]
fn chunks_are_evaluated_with_weights() {
    let opened = store(false);
    for model in WEIGHTED {
        let (full, batches) = (of(model, &[WITH_WEIGHTS]), of(model, &[WITH_WEIGHTS, "train.mode=mini-batch"]));
        let (whole, chunked) = (load(&opened, &full), load(&opened, &batches));
        let evaluate = |data: &Data, room: &Room, world: &mut World| {
            let model_of = Model::new(&full, 5, 2, 7, Device::Cpu).unwrap();
            Evaluator::default().evaluate(&model_of, data, Metric::Mae, room, world).unwrap()
        };
        let expected = evaluate(&whole, &Room::default(), alone());
        for n_together in [1 << 17, 64, 7] {
            let room = Room { n_together, ..Room::default() };
            assert_eq!(evaluate(&chunked, &room, alone()), expected, "{model:?} {room:?}");
        }
        let room = Room { n_together: 40, ..Room::default() };
        for found in on_worlds(3, |world| evaluate(&chunked, &room, world)) {
            assert_eq!(found, expected, "{model:?} on three ranks");
        }
    }
}

/// Lists that come in pieces, with a last piece of many edges, of few, and of the self-loop alone.
#[test]
fn hubs_in_pieces_are_evaluated_with_weights() {
    let others = |node: usize, n: usize| (0..n).filter(|edge| edge * 7 % N_NODES == node).count();
    // As many edges as two pieces, with those that the node has anyway: found by counting.
    let plain = store(false);
    let degree = plain.whole().unwrap().lists().degree(9).unwrap() as usize;
    let n_two_pieces = (0..4000).find(|n| n - others(9, *n) + degree == 2048).unwrap();
    let opened = store_with(false, &[(5, 3000), (9, n_two_pieces), (20, 1500)]);
    assert_eq!(opened.whole().unwrap().lists().degree(9).unwrap(), 2048);
    for model in WEIGHTED.iter().chain([&NO_LOOPS]) {
        let (full, batches) = (of(model, &[WITH_WEIGHTS]), of(model, &[WITH_WEIGHTS, "train.mode=mini-batch"]));
        let (whole, chunked) = (load(&opened, &full), load(&opened, &batches));
        let model_of = Model::new(&full, 5, 2, 7, Device::Cpu).unwrap();
        let evaluate = |data: &Data, room: &Room| {
            Evaluator::default().evaluate(&model_of, data, Metric::Mae, room, alone()).unwrap()
        };
        let expected = evaluate(&whole, &Room::default());
        let room = Room { n_neighbors: 1024, n_together: 40, ..Room::default() };
        assert_eq!(evaluate(&chunked, &room), expected, "{model:?}");
    }
}

const NO_LOOPS: &[&str] = &["model.kind=sage", "model.self_loops=false"];

const WEIGHTED_BATCHES: [&str; 5] = [
    "train.mode=mini-batch",
    "train.fanouts=[4, 3]",
    "train.batch_size=20",
    "train.slices=3",
    "train.sampling=weighted",
];

#[test]
fn ranks_threads_and_resumes_change_no_bit_with_weights() {
    let opened = store(false);
    let temp = tempfile::tempdir().unwrap();
    let config = of(WEIGHTED[0], &[&WEIGHTED_BATCHES[..], &[WITH_WEIGHTS]].concat());
    let data = load(&opened, &config);
    let whole = temp.path().join("whole");
    let records = to_the_end(plan(&data, config.clone(), Some(&whole), false));
    for n_ranks in [2, 3] {
        let found = losses_on(n_ranks, &data, &config);
        let expected = losses_of(&records);
        assert_eq!(found, expected, "{n_ranks} ranks");
    }
    for n_steps in [2, 7] {
        let dir = temp.path().join(format!("killed-after-{n_steps}"));
        kill(plan(&data, config.clone(), Some(&dir), false), n_steps);
        to_the_end(plan(&data, config.clone(), Some(&dir), true));
        assert_eq!(left_behind(&dir), left_behind(&whole), "after {n_steps}");
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(pool.install(|| to_the_end(plan(&data, config.clone(), None, false))), records, "on one thread");
    let uniform = of(WEIGHTED[0], &[&WEIGHTED_BATCHES[..4], &[WITH_WEIGHTS]].concat());
    assert_ne!(to_the_end(plan(&load(&opened, &uniform), uniform, None, false))[0].digests, records[0].digests);
}

/// One layer of GraphSAGE can say exactly what the numbers are; predictions come back in the units of the data.
#[test]
fn numbers_are_learned() {
    let opened = store(true);
    let temp = tempfile::tempdir().unwrap();
    let model: &[&str] = &["model.kind=sage", "model.n_layers=1", "model.root_weight=true", "model.dropout=0"];
    for (place, loss) in ["mse", "huber", "mae"].iter().enumerate() {
        let rate = format!("optimizer.learning_rate={}", [0.05, 0.05, 0.02][place]);
        let loss = format!("train.loss={loss}");
        let options = ["train.epochs=300", "train.evaluate_every=50", &rate, &loss, "optimizer.weight_decay=0"];
        let config = of(model, &options);
        let data = load(&opened, &config);
        let dir = temp.path().join(place.to_string());
        let records = to_the_end(plan(&data, config, Some(&dir), false));
        let last = records.last().unwrap().measured.unwrap();
        assert!(last.valid > 0.99 && last.test > 0.99, "{loss}: {last:?}");

        let checkpoint = Checkpoints::of(&dir).last().unwrap();
        assert_eq!((checkpoint.state().labels, checkpoint.state().target_scales.len()), (LabelKind::Targets, 2));
        let ask = |what, memory| {
            predict(&Question {
                checkpoint: &checkpoint,
                opened: &opened,
                what,
                pairs: None,
                nodes: &PredictedNodes::All,
                layer: None,
                moment: Moment::Last,
                device: Device::Cpu,
                gpu: None,
                room: Room { memory, ..Room::default() },
            })
        };
        let table = ask(What::Targets, None).unwrap();
        assert_eq!((table.n_rows(), table.width()), (N_NODES, 2));
        let labels = opened.whole().unwrap().labels().unwrap();
        for node in (0..N_NODES).filter(|node| node % 7 != 3) {
            let (found, expected) = (&table.values()[2 * node..][..2], labels.numbers(node as u64).unwrap());
            assert!(
                (found[0] - expected[0]).abs() < 1.0 && (found[1] - expected[1]).abs() < 0.02,
                "{found:?} {expected:?}"
            );
        }
        assert_eq!(ask(What::Targets, Some(1)).unwrap(), table, "in chunks");
        let error = ask(What::Probabilities, None).unwrap_err().to_string();
        assert!(error.contains("the model predicts targets, not classes: use --what targets"), "{error}");
    }
}

/// Errors choose the epoch with the smallest one.
#[test]
fn the_best_epoch_has_the_smallest_error() {
    let opened = store(true);
    for metric in ["mae", "rmse", "r2"] {
        let named = format!("train.metric={metric}");
        let config = of(&["model.kind=gcn"], &["train.epochs=25", "optimizer.learning_rate=0.3", &named]);
        let data = load(&opened, &config);
        let mut run = Run::new(plan(&data, config, None, false), alone()).unwrap();
        let mut valid = Vec::new();
        train(&mut run, |record| {
            valid.push(record.measured.unwrap().valid);
            ControlFlow::Continue(())
        })
        .unwrap();
        let best = match metric {
            "r2" => valid.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            _ => valid.iter().copied().fold(f64::INFINITY, f64::min),
        };
        let results = run.report().unwrap().results;
        assert_eq!((results.valid, results.valid_last), (best, *valid.last().unwrap()), "{metric}");
        assert_ne!(results.valid, results.valid_last, "{metric}: the last epoch is not the best");
    }
}

#[test]
fn numbers_in_mini_batches_are_those_of_full_batches() {
    let opened = store(true);
    for kernels in KERNELS {
        for loss in ["mse", "mae", "huber"] {
            let options = [kernels, &format!("train.loss={loss}")];
            let full = of(&["model.kind=gcn"], &options);
            let batches = of(&["model.kind=gcn"], &[&options[..], &FULL_FANOUT[1..]].concat());
            let (expected, _) = first_step_of(&load(&opened, &full), full);
            let (found, _) = first_step_of(&load(&opened, &batches), batches);
            assert!((found.loss - expected.loss).abs() <= 1e-6 * expected.loss, "{found:?} {expected:?}");
        }
    }
}

#[test]
fn gpus_predict_numbers_as_the_cpu_does() {
    let opened = store(false);
    for gpu in devices() {
        let by_weight =
            ["train.mode=mini-batch", "train.fanouts=[2, 3]", "train.batch_size=19", "train.sampling=weighted"];
        for (options, loss) in
            [(&[][..], "mse"), (&["train.metric=mae"], "mae"), (&FULL_FANOUT[1..2], "huber"), (&by_weight, "mse")]
        {
            let loss = format!("train.loss={loss}");
            let config = of(&["model.kind=gcn", "model.dropout=0.3"], &[options, &[&loss]].concat());
            follows_run(&load(&opened, &config), &config, &gpu, &loss);
        }
    }
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let opened = store(true);
    let refused = |model: &[&str], options: &[&str]| {
        let config = of(model, options);
        let data = load(&opened, &config);
        Run::new(plan(&data, config, None, false), alone()).unwrap_err().to_string()
    };
    let gcn: &[&str] = &["model.kind=gcn"];
    assert!(refused(gcn, &["train.metric=accuracy"]).contains("is for classes, and these nodes have targets"));
    assert!(refused(gcn, &["train.label_smoothing=0.1"]).contains("these have targets"));
    assert!(refused(&["model.kind=cgat"], &[]).contains("a cgat compares classes"));
    let classes = input(vec![graph(60, 0, 1)]);
    for (option, expected) in [("train.metric=r2", "is for targets"), ("train.loss=mae", "these nodes have classes")] {
        let error = Run::new(plan(&classes, of(gcn, &[option]), None, false), alone()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let unweighted = Opened::store(batches::store());
    for (option, mode) in [(WITH_WEIGHTS, "full-batch"), ("train.sampling=weighted", "mini-batch")] {
        let config = of(gcn, &[&format!("train.mode={mode}"), option]);
        let error = Data::load(&unweighted, &config, 7).unwrap_err().to_string();
        let key = option.split('=').next().unwrap();
        assert_eq!(
            error,
            format!(
                "`{key}` needs edge weights, and the graph has none: import it with --edge-weights, or remove the key"
            )
        );
    }
}
