//! The training loop on small graphs: it learns, it can be killed anywhere, and it stops where it should.

mod averages;
mod batch_links;
mod batches;
mod confusion;
mod edge_features;
mod gpu;
mod gpu_ranks;
mod hubs;
mod label_input;
mod links;
mod loop_states;
mod numbers;
mod options;
mod scale;
mod stops;
mod uneven;

use std::{fs, path::Path, sync::Arc};

use kith_block::{Block, BlockError};
use kith_draw::{Name, Purpose};
use kith_kernels::InputRows;
use kith_run::{
    config::RunConfig,
    measured::Measured,
    report::{REPORT, STEPS},
    run_file::RunFile,
};
use tch::{Device, Tensor};

use super::*;
use crate::{
    data::{
        Data,
        feed::{At, order_of_graphs},
        input::{GraphInput, Input, Labels},
        opened::Source,
    },
    distributed::world::{World, on_worlds},
    inference::layerwise::Room,
    output::{checkpoint::Checkpoints, keeper::Keeper},
    run::RunPlan,
};

const N_CLASSES: usize = 3;

const KERNELS: [&str; 2] = ["train.kernels=fused", "train.kernels=reference"];

/// A ring of communities, one per class, whose rows say a little about the class. `first` is the id of its first node.
fn graph(n_nodes: usize, first: u64, run_key: u64) -> GraphInput {
    let mut draws = Name { run_key, purpose: Purpose::Generator, step: 0, layer: 0 }.stream().draws(0, 0, 0);
    let class = |node: usize| node % N_CLASSES;
    let mut lists = vec![Vec::new(); n_nodes];
    for node in 0..n_nodes {
        for _ in 0..3 {
            let near = draws.below(n_nodes as u64) as usize;
            let other = if draws.below(5) > 0 { near / N_CLASSES * N_CLASSES + class(node) } else { near } % n_nodes;
            lists[node].push(other as u64);
            lists[other].push(node as u64);
        }
    }
    lists.iter_mut().for_each(|list| list.sort_unstable());
    let n_edges = lists.iter().map(|list| list.len() as u64).sum();
    let block = Block::full(n_nodes as u64, n_edges, |node| Ok::<_, BlockError>(lists[node as usize].iter().copied()));
    let dim = 5;
    let values = (0..n_nodes * dim).map(|place| {
        let signal = if place % dim == class(place / dim) { 1.0 } else { 0.0 };
        (signal + draws.normal()) as f32
    });
    let part =
        |third: usize| (0..n_nodes).filter(|node| node / N_CLASSES % 3 == third).map(|node| node as u32).collect();
    GraphInput {
        block: Arc::new(block.unwrap().with_ids((first..first + n_nodes as u64).collect())),
        rows: Arc::new(InputRows::Dense { dim, values: values.collect() }),
        labels: Some(Labels::Classes((0..n_nodes).map(|node| class(node) as i64).collect())),
        train: part(0),
        valid: part(1),
        test: part(2),
        is_symmetric: true,
        is_one_of_many: first > 0,
    }
}

fn input(graphs: Vec<GraphInput>) -> Data {
    crate::engine::device::start();
    Data::Full(Input {
        graphs,
        dim: 5,
        n_classes: N_CLASSES,
        label_kind: kith_store::LabelKind::Classes,
        scales: Vec::new(),
        links: None,
    })
}

/// A set of three: two are trained on, one validates and tests.
fn set() -> Data {
    let mut graphs = vec![graph(60, 0, 1), graph(45, 60, 2), graph(90, 105, 3)];
    for graph in &mut graphs[..2] {
        graph.train = (0..graph.n_nodes() as u32).collect();
        (graph.valid, graph.test) = (Vec::new(), Vec::new());
    }
    graphs[2].train = Vec::new();
    input(graphs)
}

fn config(assignments: &[&str]) -> RunConfig {
    let text = "
[model]
kind = \"supergat\"
attention = \"mx\"
heads = 2
hidden = 4
out_heads = 2
dropout = 0.3
[optimizer]
learning_rate = 0.05
weight_decay = 1e-4

[train]
epochs = 12
checkpoint_every = 3
[edge_loss]
weight = 0.5
[early_stop]
burn_in = 100
window = 4
loss_threshold = 1e-9
metric_threshold = 1e-9
";
    let mut file = RunFile::parse(text, "test").unwrap();
    assignments.iter().for_each(|assignment| file.set(assignment).unwrap());
    file.resolve().unwrap()
}

fn plan<'a>(data: &'a Data, config: RunConfig, out: Option<&'a Path>, resume: bool) -> RunPlan<'a> {
    let source = Source { dataset: "test".to_owned(), digest: "0123456789abcdef".to_owned(), session: None };
    RunPlan {
        gpu: None,
        gpu_rows: None,
        config,
        run_key: 7,
        data,
        source,
        device: Device::Cpu,
        out,
        init: None,
        resume,
        keeper: Keeper::default(),
        room: Room::default(),
        metrics: Arc::default(),
    }
}

/// A world of one that a run may keep as long as it likes.
fn alone() -> &'static mut World {
    Box::leak(Box::new(World::alone()))
}

fn to_the_end(plan: RunPlan<'_>) -> Vec<StepRecord> {
    let mut records = Vec::new();
    let mut run = Run::new(plan, alone()).unwrap();
    train(&mut run, |record| {
        records.push(StepRecord { micros: 0, phases: Vec::new(), sent_bytes: Vec::new(), ..record.clone() });
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(run.is_done());
    records
}

/// Loss and evaluation of every step, bit for bit.
fn losses_of(records: &[StepRecord]) -> Vec<(u64, Option<Measured>)> {
    records.iter().map(|record| (record.loss.to_bits(), record.measured)).collect()
}

/// The same of a run on several ranks, which must all have it.
fn losses_on(n_ranks: usize, data: &Data, config: &RunConfig) -> Vec<(u64, Option<Measured>)> {
    let mut found = on_worlds(n_ranks, |world| {
        let mut records = Vec::new();
        let mut run = Run::new(plan(data, config.clone(), None, false), world).unwrap();
        train(&mut run, |record| {
            records.push(record.clone());
            ControlFlow::Continue(())
        })
        .unwrap();
        losses_of(&records)
    });
    let first = found.swap_remove(0);
    assert!(found.iter().all(|other| *other == first), "{n_ranks} ranks agree");
    first
}

/// Everything a run left behind, without the times.
fn left_behind(dir: &Path) -> (String, String, Vec<u8>) {
    let read = |name| fs::read_to_string(dir.join(name)).unwrap();
    let steps: String =
        read(STEPS).lines().map(|line| line.split(",\"micros\"").next().unwrap().to_owned() + "\n").collect();
    let report = without_times(&read(REPORT));
    let (bytes, _) = Checkpoints::of(dir).newest(&mut Vec::new()).unwrap().unwrap();
    let n_header = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    assert_eq!(Checkpoints::of(dir).last().unwrap().state().step as usize, steps.lines().count());
    (steps, report, bytes[8 + n_header..].to_vec())
}

fn without_times(report: &str) -> String {
    let mut report: serde_json::Value = serde_json::from_str(report).unwrap();
    let phases = report["phases"][0].as_object().unwrap();
    assert!(phases.values().map(|micros| micros.as_u64().unwrap()).sum::<u64>() > 0, "{report}");
    for own in ["phases", "crc32"] {
        report.as_object_mut().unwrap().remove(own).unwrap();
    }
    for time in ["seconds", "seconds_evaluating"] {
        report["results"].as_object_mut().unwrap().remove(time).unwrap();
    }
    report.to_string()
}

/// The newest checkpoint of a run.
fn newest(dir: &Path) -> std::path::PathBuf {
    Checkpoints::of(dir).newest(&mut Vec::new()).unwrap().unwrap().1
}

#[test]
fn it_learns() {
    let input = input(vec![graph(120, 0, 1)]);
    let records = to_the_end(plan(&input, config(&["train.epochs=60"]), None, false));
    assert_eq!(records.len(), 60);
    let (first, last) = (&records[0], records.last().unwrap());
    assert!(last.loss < 0.8 * first.loss, "{first:?} {last:?}");
    assert!(last.measured.unwrap().test > 0.6, "{last:?}");
    for record in &records {
        let total = record.node_loss + 0.5 * record.edge_losses.iter().sum::<f64>();
        assert!((record.loss - total).abs() < 1e-5, "{record:?}");
        assert_eq!(record.edge_losses.len(), 2);
        assert_eq!(record.step, record.epoch);
    }
}

const CGAT: [&str; 6] = [
    "model.kind=cgat",
    "model.attention=go",
    "edge_loss=off",
    "cgat.graph_weight=0.5",
    "cgat.graph_margin=0.8",
    "cgat.top_k=2",
];

/// On a set of graphs, killed in the middle; its losses are those of every layer, weighted.
#[test]
fn a_cgat_learns_and_goes_on() {
    let temp = tempfile::tempdir().unwrap();
    let (whole, killed) = (temp.path().join("whole"), temp.path().join("killed"));
    let input = set();
    let config = || config(&[&CGAT[..], &["cgat.boundary_weight=2", "cgat.boundary_margin=0.5"]].concat());
    let records = to_the_end(plan(&input, config(), Some(&whole), false));
    for record in &records {
        let [graph_0, graph_1, boundary_0, boundary_1] = record.edge_losses[..] else { panic!("{record:?}") };
        let total = record.node_loss + 0.5 * (graph_0 + graph_1) + 2.0 * (boundary_0 + boundary_1);
        assert!((record.loss - total).abs() < 1e-6 * total, "{record:?}");
    }
    assert!(records.last().unwrap().loss < records[0].loss);
    kill(plan(&input, config(), Some(&killed), false), 9);
    to_the_end(plan(&input, config(), Some(&killed), true));
    assert_eq!(left_behind(&killed), left_behind(&whole));
}

#[test]
fn every_kind_of_model_trains() {
    let input = input(vec![graph(60, 0, 1)]);
    for assignments in [
        &["model.kind=gat", "edge_loss=off"][..],
        &["model.kind=gat", "model.attention=dp", "edge_loss=off", "model.n_layers=3"],
        &["model=off", "model.kind=gcn", "edge_loss=off"],
        &["model=off", "model.kind=sage", "edge_loss=off"],
        &["model=off", "model.kind=mlp", "edge_loss=off"],
        &CGAT,
        &[&CGAT[..], &["cgat.boundary_weight=2", "cgat.boundary_margin=0.5"]].concat(),
        &["model.attention=sd", "edge_loss.subset=each"],
        &["edge_loss.weight=0"],
    ] {
        let records = to_the_end(plan(&input, config(assignments), None, false));
        assert!(records.iter().all(|record| record.loss.is_finite()), "{assignments:?}");
    }
}

#[test]
fn a_run_key_names_everything() {
    let input = input(vec![graph(60, 0, 1)]);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for kernels in KERNELS {
        let once = to_the_end(plan(&input, config(&[kernels]), None, false));
        let plan = || plan(&input, config(&[kernels]), None, false);
        assert_eq!(pool.install(|| to_the_end(plan())), once, "{kernels} on three threads");
        assert_ne!(to_the_end(RunPlan { run_key: 8, ..plan() }), once);
    }
}

/// Both kinds of kernels draw the same and compute nearly the same.
#[test]
fn kernels_follow_one_trajectory() {
    let input = set();
    let [fused, reference] = KERNELS.map(|kernels| to_the_end(plan(&input, config(&[kernels]), None, false)));
    for (a, b) in fused.iter().zip(&reference) {
        assert!((a.loss - b.loss).abs() < 1e-3 * b.loss, "{a:?} {b:?}");
    }
}

/// Killed after any number of steps and resumed, a run leaves the same bits behind as one left alone.
#[test]
fn resuming_is_invisible() {
    let temp = tempfile::tempdir().unwrap();
    for (name, input, steps_per_epoch) in [("one", input(vec![graph(60, 0, 1)]), 1), ("set", set(), 2)] {
        for kernels in KERNELS {
            let dir = |name: String| temp.path().join(kernels).join(name);
            let whole = dir(format!("{name}-whole"));
            to_the_end(plan(&input, config(&[kernels]), Some(&whole), false));
            for n_steps in [1, 5, 6, 9, 11] {
                let dir = dir(format!("{name}-killed-after-{n_steps}"));
                kill(plan(&input, config(&[kernels]), Some(&dir), false), n_steps);
                let resumed = to_the_end(plan(&input, config(&[kernels]), Some(&dir), true));
                // The last checkpoint that was whole before the kill; after epochs 3, 6 and 9.
                let n_saved = (n_steps - 1) / steps_per_epoch / 3 * 3 * steps_per_epoch;
                assert_eq!(resumed[0].step, n_saved, "{name} after {n_steps}");
                assert_eq!(left_behind(&dir), left_behind(&whole), "{name} after {n_steps}");
            }
        }
    }
}

/// Saved in the middle of an epoch, a run goes on in the middle of it.
#[test]
fn steps_are_saved_as_often_as_said_and_the_newest_kept() {
    let temp = tempfile::tempdir().unwrap();
    let input = set();
    let every_three =
        || config(&["train.checkpoint_every_steps=3", "train.checkpoint_every=100", "train.checkpoints_kept=3"]);
    let kept = |dir: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(dir.join("checkpoints")).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let whole = temp.path().join("whole");
    to_the_end(plan(&input, every_three(), Some(&whole), false));
    assert_eq!(kept(&whole), ["step-18.safetensors", "step-21.safetensors", "step-24.safetensors"]);
    for n_steps in [4, 8, 17] {
        let dir = temp.path().join(format!("killed-after-{n_steps}"));
        kill(plan(&input, every_three(), Some(&dir), false), n_steps);
        let resumed = to_the_end(plan(&input, every_three(), Some(&dir), true));
        assert_eq!(resumed[0].step, (n_steps - 1) / 3 * 3, "after {n_steps}");
        assert_eq!(left_behind(&dir), left_behind(&whole), "after {n_steps}");
        assert_eq!(kept(&dir), kept(&whole));
    }
}

#[test]
fn epochs_are_measured_as_often_as_said() {
    let temp = tempfile::tempdir().unwrap();
    let input = input(vec![graph(60, 0, 1)]);
    let now_and_then = || config(&["train.evaluate_every=4", "train.epochs=10", "early_stop=off"]);
    let whole = temp.path().join("whole");
    let records = to_the_end(plan(&input, now_and_then(), Some(&whole), false));
    let measured: Vec<u64> =
        records.iter().filter(|record| record.measured.is_some()).map(|record| record.epoch).collect();
    assert_eq!(measured, [3, 7, 9]);
    // Saved after epochs 3, 6 and 9: the first time before anything was measured.
    for n_steps in [4, 7] {
        let dir = temp.path().join(format!("killed-after-{n_steps}"));
        kill(plan(&input, now_and_then(), Some(&dir), false), n_steps);
        to_the_end(plan(&input, now_and_then(), Some(&dir), true));
        assert_eq!(left_behind(&dir), left_behind(&whole), "after {n_steps}");
    }
}

/// Breaks a run off after `n_steps`.
fn kill(plan: RunPlan<'_>, n_steps: u64) {
    let mut run = Run::new(plan, alone()).unwrap();
    let is_last = |record: &StepRecord| record.step + 1 == n_steps;
    train(&mut run, |record| if is_last(record) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }).unwrap();
}

#[test]
fn a_run_can_be_made_longer() {
    let temp = tempfile::tempdir().unwrap();
    let input = set();
    let (whole, longer) = (temp.path().join("whole"), temp.path().join("longer"));
    to_the_end(plan(&input, config(&[]), Some(&whole), false));
    to_the_end(plan(&input, config(&["train.epochs=4"]), Some(&longer), false));
    to_the_end(plan(&input, config(&[]), Some(&longer), true));
    assert_eq!(left_behind(&longer), left_behind(&whole));
    assert!(to_the_end(plan(&input, config(&[]), Some(&longer), true)).is_empty(), "nothing is left to do");
    assert_eq!(left_behind(&longer), left_behind(&whole));
}

#[test]
fn a_cosine_schedule_cannot_be_made_longer() {
    let temp = tempfile::tempdir().unwrap();
    let input = set();
    let with = |epochs| config(&["schedule.name=cosine", epochs]);
    to_the_end(plan(&input, with("train.epochs=4"), Some(temp.path()), false));
    assert!(to_the_end(plan(&input, with("train.epochs=4"), Some(temp.path()), true)).is_empty());
    let longer = plan(&input, with("train.epochs=5"), Some(temp.path()), true);
    let error = Run::new(longer, alone()).unwrap_err().to_string();
    assert!(error.contains("a run of 4 epochs, not 5: the learning rates of a cosine schedule depend"), "{error}");
}

/// All weights of the same model; those of the same shape for a model with another hidden layer; none for another kind.
#[test]
fn a_run_starts_from_the_weights_of_another() {
    let temp = tempfile::tempdir().unwrap();
    let input = input(vec![graph(60, 0, 1)]);
    let records = to_the_end(plan(&input, config(&[]), Some(temp.path()), false));
    assert!(!records.is_empty());
    let checkpoint = Checkpoints::of(temp.path()).last().unwrap();
    let start = |assignments: &[&str]| {
        let plan = RunPlan { init: Some(temp.path()), ..plan(&input, config(assignments), None, false) };
        let run = Run::new(plan, alone())?;
        Ok::<_, TrainError>((run.notes().to_vec(), run.model().weights().to_kind(tch::Kind::Float)))
    };
    let (notes, weights) = start(&[]).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    let best = checkpoint.restore(weights.entries()).unwrap().best;
    assert_eq!(weights.flat(), &best);

    let (notes, deeper) = start(&["model.n_layers=3"]).unwrap();
    let place = temp.path().display();
    assert_eq!(notes, [format!("of {place} come the weights of layers.0; those of layers.1, layers.2 are new")]);
    assert_eq!(deeper.get("layers.0.weight"), weights.get("layers.0.weight"));

    let error = start(&["model=off", "model.kind=gcn", "model.hidden=99", "edge_loss=off"]).unwrap_err().to_string();
    assert!(
        error.ends_with("no layer of its model has weights with the names and shapes of a layer of this model"),
        "{error}"
    );
}

#[test]
fn an_early_stop_ends_the_run_there() {
    let input = input(vec![graph(60, 0, 1)]);
    let assignments = ["early_stop.burn_in=4", "early_stop.loss_threshold=1e9"];
    let temp = tempfile::tempdir().unwrap();
    let records = to_the_end(plan(&input, config(&assignments), Some(temp.path()), false));
    assert_eq!(records.len(), 6);
    let run = Run::new(plan(&input, config(&assignments), Some(temp.path()), true), alone()).unwrap();
    let results = run.report().unwrap().results;
    assert!(run.is_done() && results.stopped_early);
    assert_eq!(results.epochs, 6);
    let last = records.last().unwrap().measured.unwrap();
    assert_eq!((results.valid_last, results.test_last), (last.valid, last.test));
}

#[test]
fn the_best_epoch_is_the_last_of_the_best() {
    let input = input(vec![graph(60, 0, 1)]);
    let mut run = Run::new(plan(&input, config(&["train.epochs=40"]), None, false), alone()).unwrap();
    let mut curve = Vec::new();
    train(&mut run, |record| {
        curve.push(record.measured.unwrap());
        ControlFlow::Continue(())
    })
    .unwrap();
    let best = curve.iter().map(|measured| measured.valid).fold(0.0, f64::max);
    let epoch = curve.iter().rposition(|measured| measured.valid == best).unwrap();
    let results = run.report().unwrap().results;
    assert_eq!((results.best_epoch, results.valid, results.test), (epoch as u64, best, curve[epoch].test));
}

#[test]
fn graphs_of_a_set_come_in_an_order_of_the_epoch() {
    let graphs: Vec<GraphInput> = (0..6).map(|place| graph(9, 9 * place, place)).collect();
    let Data::Full(input) = input(graphs) else { panic!("made full") };
    let order = |epoch| {
        let at = At { run_key: 7, epoch, step: 0, place: 0, slice: 0 };
        order_of_graphs(&input, at).iter().map(|graph| graph.block.id(0)).collect::<Vec<_>>()
    };
    let orders: Vec<Vec<u64>> = (0..20).map(order).collect();
    for order in &orders {
        let mut sorted = order.clone();
        sorted.sort();
        assert_eq!(sorted, [0, 9, 18, 27, 36, 45]);
    }
    assert!((0..6).all(|place| orders.iter().any(|order| order[0] == 9 * place)), "{orders:?}");
}

#[test]
fn a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint() {
    let temp = tempfile::tempdir().unwrap();
    let input = input(vec![graph(60, 0, 1)]);
    to_the_end(plan(&input, config(&[]), Some(temp.path()), false));
    let before = fs::read(newest(temp.path())).unwrap();

    let mut run = Run::new(plan(&input, config(&["train.epochs=20"]), Some(temp.path()), true), alone()).unwrap();
    let view = run.host.model.weights().get("layers.1.weight").unwrap();
    let _ = tch::no_grad(|| view.shallow_clone().fill_(f64::NAN));
    let error = train(&mut run, |_| ControlFlow::Continue(())).unwrap_err().to_string();
    assert_eq!(
        error,
        "the loss is not finite at step 12 (epoch 12): the weights of layer 1 are the first that are not; a smaller \
         learning rate may help"
    );
    assert_eq!(fs::read(newest(temp.path())).unwrap(), before);
}

#[test]
fn a_learning_rate_beyond_reason_is_named_with_its_step_and_layer() {
    let input = input(vec![graph(60, 0, 1)]);
    for kernels in KERNELS {
        let config = config(&["optimizer.learning_rate=1e30", kernels]);
        let mut run = Run::new(plan(&input, config, None, false), alone()).unwrap();
        let error = train(&mut run, |_| ControlFlow::Continue(())).unwrap_err().to_string();
        assert!(
            error.starts_with("the loss is not finite at step 0 (epoch 0): the output of layer 0 is the first"),
            "{error}"
        );
    }
}

#[test]
fn checkpoints_of_others_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let input = input(vec![graph(60, 0, 1)]);
    to_the_end(plan(&input, config(&["train.epochs=3"]), Some(temp.path()), false));
    let refused = |plan: RunPlan<'_>| Run::new(plan, alone()).unwrap_err().to_string();
    let again = || plan(&input, config(&[]), Some(temp.path()), true);
    let path = newest(temp.path()).display().to_string();

    let mut other = again();
    other.source.digest = "fedcba9876543210".to_owned();
    let expected =
        "a checkpoint of another store: made with the one of digest 0123456789ab…, this one has fedcba987654…";
    assert_eq!(refused(other), format!("{path}: {expected}"));
    assert_eq!(refused(RunPlan { run_key: 8, ..again() }), format!("{path}: a checkpoint of seed 7, not 8"));
    assert_eq!(
        refused(RunPlan { config: config(&["model.attention=sd"]), ..again() }),
        format!(
            "{path}: a checkpoint of another run: it says `attention = \"mx\"` where this one says `attention = \"sd\"`"
        )
    );
    assert_eq!(
        refused(RunPlan { resume: false, ..again() }),
        format!("{}: holds a run already: resume it with --resume, or choose another place", temp.path().display())
    );
    let Data::Full(narrow) = &input else { panic!("made full") };
    let wider = Data::Full(Input { dim: 6, ..narrow.clone() });
    assert_eq!(
        refused(RunPlan { data: &wider, ..again() }),
        format!(
            "{path}: a checkpoint of another model: its layers.0.weight has the shape [5, 8], this model's has [6, 8]"
        )
    );
    let bytes = fs::read(&path).unwrap();
    for (text, sentence) in [
        (&bytes[..bytes.len() - 1], "not a whole safetensors file"),
        (&bytes[..100], "not a whole safetensors file"),
        (&b"nonsense"[..], "not a whole safetensors file"),
    ] {
        fs::write(&path, text).unwrap();
        assert!(refused(again()).contains(sentence), "{}", refused(again()));
    }
    Tensor::write_safetensors(&[("layers.0.weight", Tensor::from(1f32))], &path).unwrap();
    assert!(refused(again()).ends_with("not a checkpoint of kith: it holds no state of a run"));
}
