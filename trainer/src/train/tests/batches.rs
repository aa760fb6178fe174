//! Mini-batch training, against full-batch training on the same graph and against sums made by hand.

use kith_client::{BatchMaker, Stock, Whereabouts};
use kith_run::{
    choice::Choice,
    clock::Clock,
    measured::{Measured, Metric},
};
use kith_store::{
    Cluster, Contents, Cut, Dtype, FeatureLayout, FeaturesEntry, Graph, IdsEntry, LabelKind, LabelsEntry, Provenance,
    StoreWriter, write_cluster,
};

use super::*;
use crate::{
    data::{
        BatchInput,
        feed::{batches_of, rows_of_batch},
        input::Sample,
        matrix::rows_of,
        opened::Opened,
    },
    distributed::exchange::{Exchange, add_slices},
    engine::{Engine, Stage, TensorEngine},
    inference::evaluate::Evaluator,
    model::{Model, Pass, oracle::error},
};

pub(super) const N_NODES: usize = 150;

/// Removes the `[early_stop]` of the others, and trains in mini-batches over all neighbors, with every node a root.
pub(super) const FULL_FANOUT: [&str; 4] =
    ["early_stop=off", "train.mode=mini-batch", "train.fanouts=all", "train.edge_seeds=150"];

const MODELS: [&[&str]; 9] = [
    &["model.attention=mx"],
    &["model.attention=sd"],
    &["model.kind=gat", "model.attention=go", "edge_loss=off"],
    &["model=off", "model.kind=gcn", "model.dropout=0.3", "edge_loss=off"],
    &["model=off", "model.kind=sage", "model.dropout=0.3", "edge_loss=off"],
    &["model=off", "model.kind=mlp", "model.dropout=0.3", "edge_loss=off"],
    &["model.attention=v2"],
    &["model=off", "model.kind=gin", "model.dropout=0.3", "edge_loss=off"],
    &["model.kind=gat", "model.attention=v2", "edge_loss=off", "model.self_loops=false", "model.edge_dropout=0.3"],
];

/// The graph of the other tests as a store; mapped files outlive their folder.
pub(super) fn store() -> Arc<Graph> {
    store_in(tempfile::tempdir().unwrap().path())
}

fn store_in(dir: &Path) -> Arc<Graph> {
    write_store(&graph(N_NODES, 0, 1), dir)
}

/// A symmetric graph as a store.
pub(super) fn write_store(graph: &GraphInput, dir: &Path) -> Arc<Graph> {
    write_store_as(graph, FeatureLayout::Dense, dir)
}

/// The same with rows of either form.
pub(super) fn write_store_as(graph: &GraphInput, form: FeatureLayout, dir: &Path) -> Arc<Graph> {
    let n_nodes = graph.n_nodes();
    let out = dir.join("store");
    let mut writer = StoreWriter::create(&out).unwrap();
    let block = &graph.block;
    let (mut indptr, mut indices) = (vec![0u64], Vec::new());
    for node in 0..n_nodes {
        // All but the loop at the end, which every destination gets anyway.
        let edges = block.edges_into(node);
        indices.extend_from_slice(&block.sources()[edges.start..edges.end - 1]);
        indptr.push(indices.len() as u64);
    }
    writer.write("indptr", &indptr).unwrap();
    writer.write("indices", &indices).unwrap();
    match form {
        FeatureLayout::Dense => writer.write("features", &graph.rows.to_dense()).unwrap(),
        FeatureLayout::Sparse => {
            let (mut starts, mut columns, mut values) = (vec![0u64], Vec::new(), Vec::new());
            for row in graph.rows.to_dense().chunks(5) {
                let entries = row.iter().enumerate().filter(|(_, value)| **value > 0.0);
                entries.for_each(|(column, value)| {
                    columns.push(column as u32);
                    values.push(*value);
                });
                starts.push(values.len() as u64);
            }
            writer.write("feature_indptr", &starts).unwrap();
            writer.write("feature_indices", &columns).unwrap();
            writer.write("feature_values", &values).unwrap();
        }
    }
    let labels: Vec<u32> = (0..n_nodes).map(|node| (node % N_CLASSES) as u32).collect();
    writer.write("labels", &labels).unwrap();
    writer.write("ids", &(0..n_nodes as u64).map(|node| 7 * node + 5).collect::<Vec<_>>()).unwrap();
    let mut parts = vec![0u8; n_nodes];
    for (part, nodes) in [(1, &graph.train), (2, &graph.valid), (3, &graph.test)] {
        nodes.iter().for_each(|node| parts[*node as usize] = part);
    }
    writer.write("split.thirds", &parts).unwrap();
    let contents = Contents {
        n_nodes: n_nodes as u64,
        n_edges: indices.len() as u64,
        is_symmetric: true,
        features: Some(FeaturesEntry { dim: 5, layout: form, dtype: Dtype::F32 }),
        labels: Some(LabelsEntry { kind: LabelKind::Classes, n_classes: N_CLASSES as u64 }),
        splits: vec!["thirds".to_owned()],
        ids: Some(IdsEntry::Numbers),
        ..Contents::default()
    };
    writer.finish(contents, Provenance::default()).unwrap();
    Arc::new(Graph::open(&out).unwrap())
}

pub(super) fn load(config: &RunConfig) -> Data {
    crate::engine::device::start();
    Data::load(&Opened::store(store()), config, 7).unwrap()
}

pub(super) fn batch_input(data: &Data) -> &BatchInput {
    let Data::Batches(input) = data else { panic!("loaded for batches") };
    input
}

/// The first step's record and the gradient of each weight.
pub(super) fn first_step(config: RunConfig) -> (StepRecord, Vec<(String, Tensor)>) {
    first_step_of(&load(&config), config)
}

/// The same on other data.
pub(super) fn first_step_of(data: &Data, config: RunConfig) -> (StepRecord, Vec<(String, Tensor)>) {
    let mut run = Run::new(plan(data, config, None, false), alone()).unwrap();
    let (mut engine, mut clock, world) = (TensorEngine::default(), Clock::start(), alone());
    let n_slices = run.host.division.n_slices();
    let mut exchange = Exchange::new(Arc::clone(&run.host.division), 2, true, world);
    let mut stage = Stage { world, exchange: &mut exchange, clock: &mut clock, step: 0 };
    for slice in 0..n_slices {
        let at = run.host.at(0, slice);
        engine.compute(&mut run.host, at, &mut stage).unwrap();
    }
    let mut record = StepRecord::new(0, 0);
    add_slices(&mut record, engine.records().to_vec());
    let gradient = engine.gradients().iter().fold(Tensor::from(0f32), |sum, slice| sum + slice);
    let weights = run.host.model.weights();
    let sizes: Vec<i64> = weights.entries().iter().map(|entry| entry.shape.iter().product()).collect();
    let parts = gradient.split_with_sizes(&sizes[..], 0);
    (record, weights.entries().iter().map(|entry| entry.name.clone()).zip(parts).collect())
}

/// With all neighbors of all nodes a batch is the graph; what is dropped and which negatives are drawn is named by nodes.
#[test]
fn full_fanout_equals_full_batch() {
    for model in MODELS {
        for kernels in KERNELS {
            let full = [model, &["early_stop=off", kernels]].concat();
            let (expected, expected_gradient) = first_step(config(&full));
            let (found, gradient) = first_step(config(&[&full, &FULL_FANOUT[..]].concat()));
            assert!((found.loss - expected.loss).abs() <= 1e-6 * expected.loss, "{full:?}: {found:?} {expected:?}");
            assert_eq!(found.edge_losses.len(), expected.edge_losses.len(), "{full:?}");
            for ((name, found), (_, expected)) in gradient.iter().zip(&expected_gradient) {
                assert!(error(found, expected) <= 1e-5, "{full:?}: {name} {}", error(found, expected));
            }
        }
    }
}

/// Mean cross-entropy over the seeds of a step, of one slice, in doubles.
fn node_loss_by_hand(logits: &Tensor, classes: &[i64], seeds: &[u32], n_step_seeds: usize) -> f64 {
    let logits = rows_of(logits).unwrap();
    let of_seed = |seed: &u32| {
        let row: Vec<f64> = logits.row(*seed as usize).iter().map(|logit| f64::from(*logit)).collect();
        row.iter().map(|logit| logit.exp()).sum::<f64>().ln() - row[classes[*seed as usize] as usize]
    };
    seeds.iter().map(of_seed).sum::<f64>() / n_step_seeds as f64
}

/// The loss of the first step, slice by slice: Σ [node-loss sum / seeds of the step + (λ_E / slices) · Σ edge losses].
fn loss_by_hand(config: &RunConfig) -> f64 {
    let data = load(config);
    let mut config = config.clone();
    data.settle(&mut config, 1);
    let input = batch_input(&data);
    let shape = data.shape();
    let model = Model::new(&config, shape.dim, shape.n_classes, 7, Device::Cpu).unwrap();
    let (plan, batch_config) = batches_of(input, &config, 7).unwrap();
    let n_slices = plan.config().slices;
    let mut maker = BatchMaker::new(Arc::clone(&input.shards), plan, batch_config, Stock::new(1));
    let mut sum = 0.0;
    for slice in 0..n_slices {
        let batch = maker.make(0, slice).unwrap();
        let sample = Sample { blocks: batch.blocks, rows: Arc::new(rows_of_batch(batch.rows)) };
        let forward = model.forward_sample(&sample, Pass::Train { run_key: 7, step: 0 }, batch.pairs.into()).unwrap();
        let Labels::Classes(classes) = &batch.labels else { panic!("one class per node") };
        sum += node_loss_by_hand(&forward.logits, classes, &batch.seeds, batch.n_step_seeds);
        let edge_loss: f64 = forward.losses_of_layers().map(|loss| loss.double_value(&[])).sum();
        sum += config.edge_loss.as_ref().map_or(0.0, |config| config.weight) / n_slices as f64 * edge_loss;
    }
    sum
}

#[test]
fn slices_add_up() {
    let batches = ["early_stop=off", "train.mode=mini-batch", "train.fanouts=[4, 3]", "train.edge_seeds=40"];
    for slices in ["train.slices=1", "train.slices=3", "train.slices=80"] {
        let config = config(&[&batches[..], &[slices]].concat());
        let (record, _) = first_step(config.clone());
        let expected = loss_by_hand(&config);
        assert!((record.loss - expected).abs() <= 1e-6 * expected, "{slices}: {record:?} {expected}");
        assert_eq!(record.digests.len().to_string(), slices.trim_start_matches("train.slices="));
    }
    // Without draws, slices change nothing.
    let undrawn =
        ["model.dropout=0", "edge_loss.weight=0", "train.mode=mini-batch", "train.fanouts=all", "early_stop=off"];
    let [one, three] =
        ["train.slices=1", "train.slices=3"].map(|slices| first_step(config(&[&undrawn[..], &[slices]].concat())));
    assert!((one.0.loss - three.0.loss).abs() <= 1e-6 * one.0.loss, "{:?} {:?}", one.0, three.0);
    for ((name, one), (_, three)) in one.1.iter().zip(&three.1) {
        assert!(error(three, one) <= 1e-5, "{name} {}", error(three, one));
    }
}

pub(super) const SMALL_BATCHES: [&str; 5] =
    ["train.mode=mini-batch", "train.fanouts=[4, 3]", "train.batch_size=20", "train.edge_seeds=15", "train.slices=2"];

/// Killed after any number of steps and resumed, a mini-batch run leaves the same bits as an uninterrupted one.
#[test]
fn resuming_is_invisible_in_batches() {
    let temp = tempfile::tempdir().unwrap();
    let config = config(&SMALL_BATCHES);
    let data = load(&config);
    let whole = temp.path().join("whole");
    let records = to_the_end(plan(&data, config.clone(), Some(&whole), false));
    assert_eq!(records.len(), 12 * 3, "51 seeds by 20 make three steps");
    assert!(records.iter().all(|record| record.digests.len() == 2));
    for n_steps in [2, 11, 30] {
        let dir = temp.path().join(format!("killed-after-{n_steps}"));
        kill(plan(&data, config.clone(), Some(&dir), false), n_steps);
        to_the_end(plan(&data, config.clone(), Some(&dir), true));
        assert_eq!(left_behind(&dir), left_behind(&whole), "after {n_steps}");
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    let alone = || to_the_end(plan(&data, config.clone(), None, false));
    assert_eq!(pool.install(alone), records, "on three threads");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(pool.install(alone), records, "on one thread");
}

/// The number of reductions of the learning rate, and the epochs since the last, are in the checkpoint.
#[test]
fn resuming_on_a_plateau_is_invisible() {
    let temp = tempfile::tempdir().unwrap();
    let schedule = ["schedule.name=plateau", "schedule.patience=1", "train.epochs=6", "optimizer.clip_norm=0.5"];
    let config = config(&[&SMALL_BATCHES[..], &schedule, &["early_stop=off"]].concat());
    let data = load(&config);
    let whole = temp.path().join("whole");
    let records = to_the_end(plan(&data, config.clone(), Some(&whole), false));
    let n_steps = records.len() as u64;
    let plateau = Checkpoints::of(&whole).last().unwrap().state().plateau;
    assert!(plateau.is_some_and(|(_, _, n_reductions)| n_reductions > 0), "{plateau:?}");
    for n_done in [n_steps / 2, n_steps - 1] {
        let killed = temp.path().join(n_done.to_string());
        kill(plan(&data, config.clone(), Some(&killed), false), n_done);
        to_the_end(plan(&data, config.clone(), Some(&killed), true));
        assert_eq!(left_behind(&killed), left_behind(&whole), "after {n_done} of {n_steps} steps");
    }
}

#[test]
fn slices_are_fixed_for_a_run() {
    let temp = tempfile::tempdir().unwrap();
    let config = config(&SMALL_BATCHES);
    let data = load(&config);
    kill(plan(&data, config.clone(), Some(temp.path()), false), 12);
    let other = super::config(&[&SMALL_BATCHES[..4], &["train.slices=3"]].concat());
    let error = Run::new(plan(&data, other, Some(temp.path()), true), alone()).unwrap_err().to_string();
    let path = newest(temp.path()).display().to_string();
    let expected = "a checkpoint of another run: it says `slices = 2` where this one says `slices = 3`";
    assert_eq!(error, format!("{path}: {expected}"));
}

/// Every kind, in memory and in a file, whole and in chunks, exactly as full batches are measured.
#[test]
fn measuring_in_chunks_changes_no_bit() {
    let scratch = tempfile::tempdir().unwrap();
    for model in MODELS {
        for kernels in KERNELS {
            let full = config(&[model, &["early_stop=off", kernels]].concat());
            let batches = config(&[model, &["early_stop=off", kernels, "train.mode=mini-batch"]].concat());
            let (whole, chunked) = (load(&full), load(&batches));
            let shape = whole.shape();
            let model_of = Model::new(&full, shape.dim, shape.n_classes, 7, Device::Cpu).unwrap();
            let expected =
                Evaluator::default().evaluate(&model_of, &whole, Metric::Accuracy, &Room::default(), alone()).unwrap();
            let bits = |measured: Measured| measured.valid_loss.to_bits();
            for n_together in [1 << 17, 64, 7] {
                for memory in [None, Some(1)] {
                    let room = Room { memory, scratch: Some(scratch.path().to_owned()), n_together, ..Room::default() };
                    let found =
                        Evaluator::default().evaluate(&model_of, &chunked, Metric::Accuracy, &room, alone()).unwrap();
                    let case = format!("{model:?} {kernels} {room:?}: {found:?} {expected:?}");
                    match kernels.contains("fused") {
                        true => assert_eq!(bits(found), bits(expected), "{case}"),
                        false => assert!((found.valid_loss - expected.valid_loss).abs() < 1e-6, "{case}"),
                    }
                    assert_eq!((found.valid, found.test), (expected.valid, expected.test), "{case}");
                }
            }
        }
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left of scratch files");
    // A folder in which no file can be made shows that files are really used.
    let config = config(&["train.mode=mini-batch"]);
    let data = load(&config);
    let model = Model::new(&config, 5, N_CLASSES, 7, Device::Cpu).unwrap();
    let room = Room { memory: Some(1), scratch: Some("/proc".into()), ..Room::default() };
    let error = Evaluator::default().evaluate(&model, &data, Metric::Accuracy, &room, alone()).unwrap_err().to_string();
    assert!(error.contains("/proc/"), "{error}");
    let room = Room { scratch: Some(scratch.path().join("nowhere")), ..room };
    Evaluator::default().evaluate(&model, &data, Metric::Accuracy, &room, alone()).unwrap();
}

/// Every metric, in chunks as over the whole graph; and a run is measured by the one that its run file names.
#[test]
fn metrics_are_the_same_in_chunks() {
    let (full, batches) = (config(&["early_stop=off"]), config(&["early_stop=off", "train.mode=mini-batch"]));
    let (whole, chunked) = (load(&full), load(&batches));
    let model = Model::new(&full, 5, N_CLASSES, 7, Device::Cpu).unwrap();
    let (all, room) = (Room::default(), Room { n_together: 7, ..Room::default() });
    let mut seen = Vec::new();
    for (name, metric) in Metric::ALL.iter().filter(|(_, metric)| !metric.is_of_links() && !metric.is_of_numbers()) {
        let of = |data, room| Evaluator::default().evaluate(&model, data, *metric, room, alone()).unwrap();
        let expected = of(&whole, &all);
        assert_eq!(of(&chunked, &room), expected, "{name}");
        seen.push(expected.valid);
        let named = config(&["early_stop=off", "train.epochs=2", &format!("train.metric={name}")]);
        let mut run = Run::new(plan(&whole, named, None, false), alone()).unwrap();
        train(&mut run, |_| ControlFlow::Continue(())).unwrap();
        let measured = Evaluator::default().evaluate(run.model(), &whole, *metric, &room, alone()).unwrap();
        let report = run.report().unwrap();
        assert_eq!((report.metric, report.results.valid_last), (*metric, measured.valid));
    }
    assert_eq!([seen[1], seen[2]], [seen[0]; 2], "classes of one size, and one for each node");
    seen.sort_by(f64::total_cmp);
    seen.dedup();
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn what_a_plan_cannot_mean_is_one_sentence() {
    for (assignment, sentence) in [
        ("train.batch_size=52", "batch_size = 52 is more than the 51 seed nodes: use at most that"),
        ("train.edge_seeds=151", "edge_seeds = 151 is more than the graph's 150 nodes: use at most that"),
    ] {
        let config = config(&["train.mode=mini-batch", assignment]);
        let data = load(&config);
        assert_eq!(Run::new(plan(&data, config, None, false), alone()).unwrap_err().to_string(), sentence);
    }
}

/// The graph as a store, and the same in four shards, one of them empty.
pub(super) fn whole_and_cut(dir: &Path) -> [Opened; 2] {
    let store = store_in(dir);
    let owner: Vec<u16> = (0..N_NODES).map(|node| (node * node % 7 % 3) as u16).collect();
    let (method, provenance) = ("by hand".to_owned(), Provenance::default());
    let cut = Cut { owner: &owner, n_shards: 4, inclusion: None, method, provenance };
    write_cluster(&store, &cut, &dir.join("cluster"), &|_| ()).unwrap();
    let cluster = Some(Arc::new(Cluster::open(&dir.join("cluster")).unwrap()));
    let cut = Opened::find(Whereabouts { cluster, ..Whereabouts::default() }).unwrap();
    [Opened::store(store), cut]
}

/// Partitioning of a graph changes no bit of the steps, evaluations and predictions.
#[test]
fn a_cut_graph_trains_the_same() {
    use kith_run::prediction::{Moment, What};

    use crate::inference::predict::{PredictedNodes, Question, predict};
    let temp = tempfile::tempdir().unwrap();
    let [whole, cut] = whole_and_cut(temp.path());
    assert_eq!(cut.source(), whole.source());
    for model in MODELS {
        let config = config(&[model, &["train.mode=mini-batch", "train.epochs=2", "train.edge_seeds=20"]].concat());
        let ends = [("whole", &whole), ("cut", &cut)].map(|(name, opened)| {
            let data = Data::load(opened, &config, 7).unwrap();
            let dir = temp.path().join(format!("{}-{name}", config.name()));
            let records = to_the_end(plan(&data, config.clone(), Some(&dir), false));
            let checkpoint = Checkpoints::of(&dir).last().unwrap();
            let question = Question {
                checkpoint: &checkpoint,
                opened,
                what: What::Probabilities,
                pairs: None,
                nodes: &PredictedNodes::All,
                layer: None,
                moment: Moment::Last,
                device: Device::Cpu,
                gpu: None,
                room: Room { n_together: 40, ..Room::default() },
            };
            (records, predict(&question).unwrap())
        });
        let [whole, cut] = ends;
        assert_eq!(cut.0, whole.0, "{}", config.name());
        assert!(cut.1 == whole.1, "{}", config.name());
    }
    let full = config(&["train.mode=full-batch"]);
    assert!(Data::load(&cut, &full, 7).unwrap_err().to_string().contains("needs the whole graph"));
}

/// One checkpoint, asked both ways: the same bits, and attention, which is computed in another way, up to rounding. A
/// GPU gives nearly the same numbers.
#[test]
fn predictions_in_chunks_are_those_of_the_whole() {
    use kith_run::prediction::{Moment, What};

    use crate::inference::predict::{PredictedNodes, Question, predict};
    let temp = tempfile::tempdir().unwrap();
    let opened = Opened::store(store());
    for model in MODELS {
        let full = config(&[model, &["early_stop=off", "train.epochs=3", "model.n_layers=3"]].concat());
        let data = load(&full);
        let dir = temp.path().join(full.name());
        to_the_end(plan(&data, full.clone(), Some(&dir), false));
        let checkpoint = Checkpoints::of(&dir).last().unwrap();
        let ask_on = |gpu, what, layer, room| {
            let (checkpoint, opened) = (&checkpoint, &opened);
            predict(&Question {
                checkpoint,
                opened,
                what,
                pairs: None,
                nodes: &PredictedNodes::All,
                layer,
                moment: Moment::Best,
                device: Device::Cpu,
                gpu,
                room,
            })
        };
        let ask = |what, layer, room| ask_on(None, what, layer, room);
        let scratch = temp.path().to_owned();
        let tiny = || Room { memory: Some(1), scratch: Some(scratch.clone()), n_together: 11, ..Room::default() };
        for what in [What::Probabilities, What::Embeddings] {
            let whole = ask(what, None, Room::default()).unwrap();
            assert_eq!(whole.n_rows(), N_NODES);
            assert!(ask(what, None, tiny()).unwrap() == whole, "{} {what:?}", full.name());
            for gpu in super::gpu::devices() {
                let found = ask_on(Some(gpu), what, None, Room::default()).unwrap();
                assert_eq!((found.n_rows(), found.width()), (whole.n_rows(), whole.width()));
                let off = whole.values().iter().zip(found.values()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                // Models with more than graph layers are computed on the CPU.
                assert!((off > 0.0) == full.model.is_plain() && off < 1e-5, "{} {what:?}: {off}", full.name());
            }
        }
        for layer in [None, Some(0), Some(1)] {
            let (whole, chunked) = (ask(What::Attention, layer, Room::default()), ask(What::Attention, layer, tiny()));
            if !full.model.kind.has_attention() {
                assert_eq!(whole.unwrap_err().to_string(), chunked.unwrap_err().to_string());
                continue;
            }
            let (whole, chunked) = (whole.unwrap(), chunked.unwrap());
            assert_eq!((whole.n_rows(), whole.width()), (chunked.n_rows(), chunked.width()));
            let off = whole.values().iter().zip(chunked.values()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 1e-5, "{} layer {layer:?}: {off}", full.name());
        }
        assert!(ask(What::Attention, Some(3), tiny()).is_err());
    }
}

/// Trained with sampled neighbors, a model still learns.
#[test]
fn batches_learn() {
    let config = config(&[&SMALL_BATCHES[..], &["train.epochs=40", "early_stop=off"]].concat());
    let data = load(&config);
    let records = to_the_end(plan(&data, config, None, false));
    let last = records.last().unwrap();
    assert!(last.loss < 0.9 * records[0].loss, "{:?} {last:?}", records[0]);
    assert!(last.measured.unwrap().test > 0.6, "{last:?}");
}
