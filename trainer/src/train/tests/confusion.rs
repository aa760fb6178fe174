//! Confusion matrices of reports: they add up to the evaluated nodes, and their diagonal to the accuracy, with every engine.

use kith_run::{
    config::LinksConfig,
    report::{Confusion, Report},
};
use kith_store::{FeatureLayout, LabelKind};

use super::{
    batches::{self, SMALL_BATCHES},
    gpu::devices,
    *,
};
use crate::{
    data::{link_pairs::Links, opened::Opened, target_scale::TargetScale},
    distributed::world::on_worlds,
};

/// The report of a run that is kept: only such runs count.
fn report_of(plan: RunPlan<'_>, world: &mut World) -> Report {
    let temp = tempfile::tempdir().unwrap();
    let plan = RunPlan { out: Some(temp.path()), ..plan };
    let mut run = Run::new(plan, world).unwrap();
    train(&mut run, |_| ControlFlow::Continue(())).unwrap();
    run.report().unwrap()
}

/// Compares counts of nodes by class, and the diagonal, with `classes` of the nodes and the accuracy.
#[track_caller]
fn check(counts: &[Vec<u64>], classes: &[i64], accuracy: f64) {
    assert_eq!(counts.len(), N_CLASSES);
    for (class, row) in counts.iter().enumerate() {
        let expected = classes.iter().filter(|own| **own == class as i64).count() as u64;
        assert_eq!((row.len(), row.iter().sum::<u64>()), (N_CLASSES, expected), "{counts:?}");
    }
    let n_right: u64 = counts.iter().enumerate().map(|(class, row)| row[class]).sum();
    assert_eq!(n_right as f64 / classes.len() as f64, accuracy, "{counts:?}");
}

#[track_caller]
fn check_report(report: &Report, classes: &[Vec<i64>; 2]) {
    let Confusion { valid, test } = report.confusion.as_ref().unwrap();
    check(valid, &classes[0], report.results.valid);
    check(test, &classes[1], report.results.test);
}

/// Classes of the valid and test nodes of a graph.
fn classes_of(graph: &GraphInput) -> [Vec<i64>; 2] {
    let Some(Labels::Classes(classes)) = &graph.labels else { panic!("a graph with classes") };
    [&graph.valid, &graph.test].map(|nodes| nodes.iter().map(|node| classes[*node as usize]).collect())
}

/// With this learning rate, results go up and down.
const LOUD: [&str; 4] = ["train.epochs=9", "early_stop=off", "optimizer.ema=0.3", "optimizer.learning_rate=0.3"];

/// Runs whose last epoch is not the best, and has other counts.
#[test]
fn counts_are_those_of_the_best_epoch() {
    let temp = tempfile::tempdir().unwrap();
    let graph = graph(60, 0, 1);
    let store = batches::write_store_as(&graph, FeatureLayout::Dense, temp.path());
    crate::engine::device::start();
    let mini_batch: &[&str] = &SMALL_BATCHES;
    for options in [&[][..], mini_batch] {
        let config = config(&[options, &LOUD].concat());
        let data = Data::load(&Opened::store(Arc::clone(&store)), &config, 7).unwrap();
        let of_seed = |run_key| RunPlan { run_key, ..plan(&data, config.clone(), None, false) };
        let gets_worse = |report: &Report| report.results.test != report.results.test_last;
        let report = (1..40).map(|run_key| report_of(of_seed(run_key), alone())).find(gets_worse).unwrap();
        let own = || of_seed(report.run_key);
        check_report(&report, &classes_of(&graph));
        for gpu in devices() {
            check_report(&report_of(RunPlan { gpu: Some(gpu), ..own() }, alone()), &classes_of(&graph));
        }
        if options == mini_batch {
            for found in on_worlds(2, |world| report_of(own(), world)) {
                assert_eq!(found.confusion, report.confusion);
            }
            let on_gpu = || RunPlan { gpu: Some(kith_cuda_emulator::gpu()), ..own() };
            check_report(&on_worlds(2, |world| report_of(on_gpu(), world))[0], &classes_of(&graph));
        }
    }
}

#[test]
fn graphs_of_a_set_are_counted_together() {
    let data = set();
    let Data::Full(input) = &data else { panic!("a set is loaded whole") };
    let report = report_of(plan(&data, config(&[]), None, false), alone());
    check_report(&report, &classes_of(&input.graphs[2]));
}

#[test]
fn other_labels_have_no_matrix() {
    let Data::Full(whole) = input(vec![graph(60, 0, 1)]) else { panic!("loaded whole") };
    let with = |labels: Labels, label_kind, n_classes, scales| {
        let graphs = vec![GraphInput { labels: Some(labels), ..whole.graphs[0].clone() }];
        Data::Full(Input { graphs, label_kind, n_classes, scales, ..whole.clone() })
    };
    let bits = (0..60 * 3).map(|place| place % 7 == 0).collect();
    let several = with(Labels::Bits { n_classes: 3, bits }, LabelKind::MultiLabel, 3, Vec::new());
    let values = (0..60).map(|node| node as f32 / 60.0).collect();
    let targets =
        with(Labels::Numbers { width: 1, values }, LabelKind::Targets, 1, vec![TargetScale { mean: 0.0, std: 1.0 }]);
    let classes = || Labels::Classes((0..60).map(|node| node % 3).collect());
    let [few, many] = [50, 51].map(|n_classes| with(classes(), LabelKind::Classes, n_classes, Vec::new()));
    for (data, is_counted) in [(several, false), (targets, false), (few, true), (many, false)] {
        let report = report_of(plan(&data, config(&["train.epochs=2"]), None, false), alone());
        assert_eq!(report.confusion.is_some(), is_counted, "{:?}", data.shape());
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json.get("confusion").is_some(), is_counted);
    }
    let config = config(&["links.dim=6", "train.epochs=2"]);
    let (graph, links) = Links::to_predict(&graph(150, 0, 1), (&LinksConfig::default(), None), 7).unwrap();
    let data = Data::Full(Input { graphs: vec![graph], n_classes: 6, links: Some(links), ..whole });
    assert_eq!(report_of(plan(&data, config, None, false), alone()).confusion, None);
}
