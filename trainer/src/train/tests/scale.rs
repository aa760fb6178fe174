//! Predictions of some nodes, and evaluations that look at some nodes.

use std::collections::HashMap;

use kith_run::{
    measured::Metric,
    prediction::{Moment, What},
    stop::{Request, Stop},
};

use super::{
    batches::{N_NODES, SMALL_BATCHES, load, store},
    *,
};
use crate::{
    data::opened::Opened,
    inference::{
        evaluate::Evaluator,
        predict::{PredictedNodes, Question, Table, model_of, predict},
    },
    model::Model,
};

/// Lines of a table, by the id of the node, or of the destination.
fn lines_by_node(table: &Table, dir: &Path) -> HashMap<String, Vec<String>> {
    let path = dir.join("table.csv");
    table.write(&path).unwrap();
    let text = fs::read_to_string(path).unwrap();
    let mut lines: HashMap<String, Vec<String>> = HashMap::new();
    let n_ids = if text.starts_with("source") { 2 } else { 1 };
    for line in text.lines().skip(1) {
        let id = line.split(',').nth(n_ids - 1).unwrap();
        lines.entry(id.to_owned()).or_default().push(line.to_owned());
    }
    lines
}

/// Every output, of a store at once and in chunks with any memory: the lines of the nodes asked for, bit for bit.
#[test]
fn predictions_of_some_nodes_are_those_of_all() {
    let temp = tempfile::tempdir().unwrap();
    let opened = Opened::store(store());
    let file = temp.path().join("nodes.txt");
    fs::write(&file, "id\n5\n\n26\n  40\n26\n").unwrap();
    for mode in ["full-batch", "mini-batch"] {
        let mode = format!("train.mode={mode}");
        let config = config(&["early_stop=off", "train.epochs=2", &mode]);
        let data = load(&config);
        let dir = temp.path().join(mode);
        to_the_end(plan(&data, config.clone(), Some(&dir), false));
        let checkpoint = Checkpoints::of(&dir).last().unwrap();
        let find = |named: &str| PredictedNodes::find(named, &opened, (&config, 7));
        let ask = |what, nodes: &PredictedNodes, memory| {
            let room = Room { memory, scratch: Some(temp.path().to_owned()), n_together: 11, ..Room::default() };
            let (checkpoint, opened, device) = (&checkpoint, &opened, Device::Cpu);
            let moment = Moment::Best;
            predict(&Question {
                checkpoint,
                opened,
                what,
                pairs: None,
                nodes,
                layer: None,
                moment,
                device,
                gpu: None,
                room,
            })
            .unwrap()
        };
        for what in [What::Probabilities, What::Embeddings, What::Attention] {
            for memory in [None, Some(1), Some(1 << 16)] {
                let all = lines_by_node(&ask(what, &PredictedNodes::All, memory), temp.path());
                assert_eq!(all.len(), N_NODES);
                let n_test = N_NODES.div_ceil(3);
                for (named, n_nodes) in [(file.to_str().unwrap(), 3), ("test", n_test)] {
                    let some = lines_by_node(&ask(what, &find(named).unwrap(), memory), temp.path());
                    assert!(
                        some.len().abs_diff(n_nodes) <= usize::from(named == "test") * 5,
                        "{named}: {}",
                        some.len()
                    );
                    assert!(some.iter().all(|(id, lines)| all[id] == *lines), "{what:?} of {named}, {memory:?}");
                }
            }
        }
        fs::write(temp.path().join("wrong.txt"), "5\nnobody\n").unwrap();
        let error = find(temp.path().join("wrong.txt").to_str().unwrap()).unwrap_err().to_string();
        assert!(error.contains("wrong.txt, line 2: the graph has no node nobody"), "{error}");
        fs::write(temp.path().join("empty.txt"), "\n").unwrap();
        let error = find(temp.path().join("empty.txt").to_str().unwrap()).unwrap_err().to_string();
        assert!(error.contains("expected a node id per line, found none"), "{error}");
    }
}

const SAMPLED: [&str; 3] = ["early_stop=off", "train.epochs=5", "evaluate.sample=0.3"];

/// Evaluations during training look at some nodes; results are those of all nodes, for the best weights and the last.
#[test]
fn results_of_sampled_evaluations_are_exact() {
    let temp = tempfile::tempdir().unwrap();
    let config = config(&[&SMALL_BATCHES[..], &SAMPLED].concat());
    let data = load(&config);
    let mut run = Run::new(plan(&data, config.clone(), Some(temp.path()), false), alone()).unwrap();
    let mut curve = Vec::new();
    train(&mut run, |record| {
        curve.extend(record.measured);
        ControlFlow::Continue(())
    })
    .unwrap();
    let results = run.report().unwrap().results;
    let checkpoint = Checkpoints::of(temp.path()).last().unwrap();
    let exact = |moment| -> Measured {
        let (_, model) = model_of(&checkpoint, moment, Device::Cpu).unwrap();
        Evaluator::default().evaluate(&model, &data, Metric::Accuracy, &Room::default(), alone()).unwrap()
    };
    let (best, last) = (exact(Moment::Best), exact(Moment::Last));
    assert_eq!((results.valid, results.test), (best.valid, best.test));
    assert_eq!((results.valid_last, results.valid_loss_last), (last.valid, last.valid_loss));
    assert_ne!(curve.last().unwrap().valid_loss, last.valid_loss, "the curve is of fewer nodes");
    assert_eq!(curve.len(), 5);
    let best_of_curve = curve.iter().map(|measured| measured.valid).fold(0.0, f64::max);
    assert_eq!(curve[results.best_epoch as usize].valid, best_of_curve, "the curve chooses the best epoch");
    // Without sampling, training is the same.
    let whole = super::config(&[&SMALL_BATCHES[..], &SAMPLED[..2]].concat());
    let losses = |config| -> Vec<u64> {
        to_the_end(plan(&data, config, None, false)).iter().map(|record| record.loss.to_bits()).collect()
    };
    assert_eq!(losses(config.clone()), losses(whole));
    let alone = losses_on(1, &data, &config);
    assert_eq!(losses_on(2, &data, &config), alone);
}

/// All validation nodes have several classes, and those of the sample one.
#[test]
fn a_sample_that_the_metric_is_not_defined_for_is_refused() {
    let error = |metric: &str, sample: &str| {
        let config = config(&[&SMALL_BATCHES[..], &["early_stop=off", metric, sample]].concat());
        let data = load(&config);
        Run::new(plan(&data, config, None, false), alone()).err().map(|error| error.to_string())
    };
    for metric in ["roc-auc", "average-precision"] {
        let of = |sample| error(&format!("train.metric={metric}"), sample);
        let refused = of("evaluate.sample=0.001").unwrap();
        let expected = format!("`evaluate.sample`: {metric} needs validation nodes of at least two classes");
        assert!(refused.contains(&expected) && refused.contains("larger share than 0.001"), "{refused}");
        assert_eq!(of("evaluate.sample=0.5"), None);
    }
    assert_eq!(error("train.metric=accuracy", "evaluate.sample=0.001"), None);
    let targets = super::numbers::store(false);
    let error = |metric: &str, sample: &str| {
        let config = super::numbers::of(&["model.kind=sage"], &["train.mode=mini-batch", metric, sample]);
        let data = super::numbers::load(&targets, &config);
        Run::new(plan(&data, config, None, false), alone()).err().map(|error| error.to_string())
    };
    let refused = error("train.metric=r2", "evaluate.sample=0.001").unwrap();
    let expected =
        "`evaluate.sample`: r2 needs validation nodes with different targets, and those of the sample have the same";
    assert!(refused.contains(expected), "{refused}");
    assert_eq!(error("train.metric=r2", "evaluate.sample=0.5"), None);
    assert_eq!(error("train.metric=mae", "evaluate.sample=0.001"), None);
}

/// A run that is stopped in its last evaluation has that evaluation when it is resumed.
#[test]
fn exact_results_come_after_a_stop() {
    let temp = tempfile::tempdir().unwrap();
    let config = config(&[&SMALL_BATCHES[..], &SAMPLED].concat());
    let data = load(&config);
    let undisturbed = temp.path().join("undisturbed");
    to_the_end(plan(&data, config.clone(), Some(&undisturbed), false));
    let dir = temp.path().join("stopped");
    let world = alone();
    let stop = Stop::default();
    world.heed(stop.clone());
    let mut run = Run::new(plan(&data, config.clone(), Some(&dir), false), world).unwrap();
    let n_steps = 5 * run.host.feed.steps_per_epoch() as u64;
    let ended = train(&mut run, |record| {
        if record.step + 1 == n_steps {
            stop.ask(Request::Terminate);
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(ended, Err(TrainError::Asked { .. })), "{ended:?}");
    assert!(!dir.join("report.json").exists());
    drop(run);
    to_the_end(plan(&data, config, Some(&dir), true));
    assert!(left_behind(&dir) == left_behind(&undisturbed));
}

/// Ranks give each other what they ask for.
#[test]
fn ranks_evaluate_the_same_with_any_memory() {
    let config = config(&["early_stop=off", "train.mode=mini-batch", "model.n_layers=3"]);
    let data = load(&config);
    let found = |world: &mut World, memory| {
        let model = Model::new(&config, 5, N_CLASSES, 7, Device::Cpu).unwrap();
        let room = Room { memory, n_together: 40, ..Room::default() };
        let measured = Evaluator::default().evaluate(&model, &data, Metric::Accuracy, &room, world).unwrap();
        (measured.valid_loss.to_bits(), measured.valid, measured.test)
    };
    let expected = found(alone(), None);
    for memory in [None, Some(1), Some(1 << 13)] {
        for n_ranks in [1, 2, 3, 5] {
            let all = on_worlds(n_ranks, |world| found(world, memory));
            assert!(all.iter().all(|found| *found == expected), "{n_ranks} ranks, {memory:?}");
        }
    }
}

/// Two ranks of ten seed nodes each, and one that goes on alone, train as one rank of twenty.
#[test]
fn seed_nodes_per_rank_are_counted_once() {
    let temp = tempfile::tempdir().unwrap();
    let whole = config(&[&SMALL_BATCHES[..], &SAMPLED[..2]].concat());
    let per_rank = ["train.mode=mini-batch", "train.fanouts=[4, 3]", "train.edge_seeds=15", "train.slices=2"];
    let per_rank = config(
        &[&per_rank[..], &SAMPLED[..2], &["train.batch_size_per_rank=10", "train.checkpoint_every_steps=2"]].concat(),
    );
    let data = load(&whole);
    let undisturbed = temp.path().join("undisturbed");
    to_the_end(plan(&data, whole, Some(&undisturbed), false));
    let dir = temp.path().join("two");
    on_worlds(2, |world| {
        let mut run = Run::new(plan(&data, per_rank.clone(), Some(&dir), false), world).unwrap();
        let mut n_steps = 0;
        let ended = train(&mut run, |_| {
            n_steps += 1;
            if n_steps == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        ended.unwrap();
    });
    to_the_end(plan(&data, per_rank, Some(&dir), true));
    let steps = |dir: &Path| -> Vec<String> {
        let text = fs::read_to_string(dir.join(STEPS)).unwrap();
        text.lines().map(|line| line.split(",\"micros\"").next().unwrap().to_owned()).collect()
    };
    assert!(steps(&dir) == steps(&undisturbed));
}
