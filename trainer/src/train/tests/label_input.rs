//! Labels as input: no label reaches its own loss, evaluation shows training nodes alone, and ranks, threads and resumes change no bit.

use kith_client::Seeds;
use kith_run::{
    measured::Metric,
    prediction::{Moment, What},
};
use kith_store::LabelKind;

use super::{
    batches::{load, store, write_store},
    *,
};
use crate::{
    data::{BatchInput, feed::Slice, opened::Opened},
    distributed::world::on_worlds,
    inference::{
        evaluate::Evaluator,
        predict::{PredictedNodes, Question, predict},
    },
    model::{Compared, Model, Pass, oracle::error},
};

const HALF: &str = "train.label_input=0.5";
const REUSED: [&str; 2] = [HALF, "train.label_reuse=2"];
const BATCHES: [&str; 4] = ["train.mode=mini-batch", "train.fanouts=[4, 3]", "train.batch_size=20", "train.slices=3"];

fn of(options: &[&str]) -> RunConfig {
    config(
        &[&["early_stop=off", "edge_loss=off", "model=off", "model.kind=sage", "model.dropout=0.3"], options].concat(),
    )
}

/// The dense label columns of a sample's rows.
fn columns(rows: &InputRows) -> Vec<Vec<f32>> {
    assert_eq!(rows.dim(), 5 + N_CLASSES);
    rows.to_dense().chunks(5 + N_CLASSES).map(|row| row[5..].to_vec()).collect()
}

fn one_hot(class: usize) -> Vec<f32> {
    (0..N_CLASSES).map(|other| f32::from(u8::from(other == class))).collect()
}

/// A slice of a step, and the logits of its forward pass as training computes them.
fn slice_and_logits<'a>(run: &mut Run<'a>, step: u64, slice: usize) -> (Slice<'a>, Vec<Vec<f32>>) {
    let at = run.host.at(step, slice);
    let mut slice = run.host.feed.next(&run.host.model, at).unwrap();
    let is_multi_label = matches!(*slice.labels, Labels::Bits { .. });
    run.host.model.reuse_labels(&mut slice.sample, &slice.shown, is_multi_label).unwrap();
    let pass = Pass::Train { run_key: at.run_key, step };
    let forward = run.host.model.forward_sample(&slice.sample, pass, Compared::default()).unwrap();
    let logits = Vec::<f32>::try_from(forward.logits.detach().reshape(-1)).unwrap();
    (slice, logits.chunks(N_CLASSES).map(<[f32]>::to_vec).collect())
}

/// The same data with other labels of one node: the next class, or all bits turned.
fn flipped(data: &Data, node: usize) -> Data {
    let flip = |labels: &mut Labels, place: usize| match labels {
        Labels::Classes(classes) => classes[place] = (classes[place] + 1) % N_CLASSES as i64,
        Labels::Bits { n_classes, bits } => {
            bits[place * *n_classes..][..*n_classes].iter_mut().for_each(|bit| *bit = !*bit)
        }
        Labels::Numbers { .. } => panic!("no classes"),
    };
    match data {
        Data::Full(input) => {
            let mut input = input.clone();
            flip(input.graphs[0].labels.as_mut().unwrap(), node);
            Data::Full(input)
        }
        Data::Batches(input) => {
            let mut input = input.clone();
            let mut change = |seeds: &mut Arc<Seeds>| {
                if let Ok(place) = seeds.ids().binary_search(&(node as u64)) {
                    flip(Arc::make_mut(seeds).labels_mut(), place);
                }
            };
            [&mut input.train, &mut input.valid, &mut input.test].into_iter().for_each(&mut change);
            Data::Batches(input)
        }
    }
}

/// Several classes per node instead of one.
fn several(graph: GraphInput) -> Data {
    let bits =
        (0..graph.n_nodes()).flat_map(|node| (0..N_CLASSES).map(move |class| (node + class * node / 2) % 3 != 1));
    let labels = Labels::Bits { n_classes: N_CLASSES, bits: bits.collect() };
    let Data::Full(input) = input(vec![GraphInput { labels: Some(labels), ..graph }]) else { panic!("made full") };
    Data::Full(Input { label_kind: LabelKind::MultiLabel, ..input })
}

#[test]
fn labels_in_training_reach_other_nodes_and_never_their_own() {
    for data in [input(vec![graph(60, 0, 1)]), several(graph(60, 0, 1))] {
        for options in [&[HALF][..], &REUSED] {
            for kernels in KERNELS {
                let config = of(&[options, &[kernels]].concat());
                let logits = |data: &Data, step| {
                    let mut run = Run::new(plan(data, config.clone(), None, false), alone()).unwrap();
                    let (slice, logits) = slice_and_logits(&mut run, step, 0);
                    (slice.shown, slice.seeds.into_owned(), slice.n_step_seeds, logits)
                };
                let Data::Full(own) = &data else { panic!("made full") };
                let mut n_reached = 0;
                for step in [0, 5] {
                    let (shown, seeds, n_step_seeds, expected) = logits(&data, step);
                    let mut all = [&shown[..], &seeds].concat();
                    all.sort_unstable();
                    assert_eq!((all, n_step_seeds), (own.graphs[0].train.clone(), seeds.len()));
                    assert!(shown.len() > 3 && seeds.len() > 3, "{shown:?} {seeds:?}");
                    for node in &own.graphs[0].train {
                        let (.., found) = logits(&flipped(&data, *node as usize), step);
                        match seeds.contains(node) {
                            // Not shown: the label reaches no node at all.
                            true => assert_eq!(found, expected, "{options:?} {kernels}: node {node}"),
                            false => {
                                n_reached += usize::from(
                                    seeds.iter().any(|seed| found[*seed as usize] != expected[*seed as usize]),
                                )
                            }
                        }
                    }
                    // Valid and test nodes are never shown.
                    for node in own.graphs[0].valid.iter().chain(&own.graphs[0].test).take(12) {
                        assert_eq!(logits(&flipped(&data, *node as usize), step).3, expected, "node {node}");
                    }
                }
                assert!(n_reached > 5, "{options:?} {kernels}: {n_reached}");
            }
        }
    }
}

fn batch_input(data: &Data) -> &BatchInput {
    let Data::Batches(input) = data else { panic!("loaded for batches") };
    input
}

#[test]
fn labels_in_mini_batches_reach_other_nodes_and_never_their_own() {
    for share in [HALF, "train.label_input=1"] {
        let config = of(&[&BATCHES[..], &[share]].concat());
        let data = load(&config);
        let train = batch_input(&data).train.ids().to_vec();
        let slices_of = |data: &Data| -> Vec<_> {
            let mut run = Run::new(plan(data, config.clone(), None, false), alone()).unwrap();
            let of_slice = |at: usize| {
                let (slice, logits) = slice_and_logits(&mut run, at as u64 / 3, at % 3);
                let block = &slice.sample.blocks[0];
                let nodes: Vec<u64> = (0..block.n_sources()).map(|position| block.id(position)).collect();
                let seeds: Vec<u64> = slice.seeds.iter().map(|position| nodes[*position as usize]).collect();
                assert!(logits.len() >= seeds.len());
                (nodes, seeds, columns(&slice.sample.rows), logits)
            };
            (0..6).map(of_slice).collect()
        };
        let expected = slices_of(&data);
        let (mut n_shown, mut n_hidden) = (0, 0);
        for step in 0..2 {
            let slices = &expected[3 * step..][..3];
            let seeds: Vec<u64> = slices.iter().flat_map(|(_, seeds, ..)| seeds.clone()).collect();
            assert_eq!(seeds.len(), 20);
            for (nodes, _, columns, _) in slices {
                for (node, columns) in nodes.iter().zip(columns) {
                    let may_be_shown = train.contains(node) && !seeds.contains(node);
                    let is_shown = *columns != [0.0; N_CLASSES];
                    assert!(may_be_shown || !is_shown, "node {node}");
                    if is_shown {
                        assert_eq!(*columns, one_hot(*node as usize % N_CLASSES));
                    }
                    (n_shown, n_hidden) =
                        (n_shown + usize::from(is_shown), n_hidden + usize::from(may_be_shown && !is_shown));
                }
            }
        }
        assert!(n_shown > 20 && (n_hidden > 20) == (share == HALF), "{share}: {n_shown} {n_hidden}");
        let mut n_reached = 0;
        for node in train.iter().step_by(3) {
            for (found, expected) in slices_of(&flipped(&data, *node as usize)).iter().zip(&expected) {
                assert_eq!((&found.0, &found.1), (&expected.0, &expected.1), "labels change no sample");
                match expected.1.contains(node) {
                    true => assert_eq!(found.3, expected.3, "seed node {node}"),
                    false => n_reached += usize::from(found.3 != expected.3),
                }
            }
        }
        assert!(n_reached > 5, "{n_reached}");
    }
}

/// A step shows about the share that was asked for, other nodes in other steps, and at least one training node has a loss.
#[test]
fn steps_draw_the_nodes_that_they_show() {
    let data = input(vec![graph(600, 0, 1)]);
    let (Data::Full(own), config) = (&data, of(&["train.label_input=0.3"])) else { panic!("made full") };
    let model = Model::new(&config, 5, N_CLASSES, 7, Device::Cpu).unwrap();
    let labels = model.label_input().unwrap();
    let drawn: Vec<_> = (0..20).map(|step| labels.draw(&own.graphs[0], 7, step)).collect();
    let share = drawn.iter().map(|drawn| drawn.shown.len()).sum::<usize>() as f64 / (20.0 * 200.0);
    assert!((share - 0.3).abs() < 0.03, "{share}");
    assert!(drawn[0] != drawn[1] && labels.draw(&own.graphs[0], 8, 0) != drawn[0]);
    assert_eq!(labels.draw(&own.graphs[0], 7, 0), drawn[0]);
    let one = GraphInput { train: vec![5], ..own.graphs[0].clone() };
    assert!((0..20).all(|step| labels.draw(&one, 7, step).predicted == [5]), "one training node is never shown");
}

#[test]
fn evaluation_shows_all_training_nodes_and_no_other() {
    let data = input(vec![graph(60, 0, 1)]);
    let Data::Full(own) = &data else { panic!("made full") };
    let graph = &own.graphs[0];
    let model = Model::new(&of(&[HALF]), 5, N_CLASSES, 7, Device::Cpu).unwrap();
    for (node, columns) in columns(&model.sample(graph, Pass::Evaluate).unwrap().rows).into_iter().enumerate() {
        let expected =
            if graph.train.contains(&(node as u32)) { one_hot(node % N_CLASSES) } else { vec![0.0; N_CLASSES] };
        assert_eq!(columns, expected, "node {node}");
    }
    // With reuse, the others have probabilities, and training nodes keep their labels.
    let reused = Model::new(&of(&REUSED), 5, N_CLASSES, 7, Device::Cpu).unwrap();
    for (node, columns) in columns(&reused.sample(graph, Pass::Evaluate).unwrap().rows).into_iter().enumerate() {
        match graph.train.contains(&(node as u32)) {
            true => assert_eq!(columns, one_hot(node % N_CLASSES)),
            false => {
                let sum: f32 = columns.iter().sum();
                assert!((sum - 1.0).abs() < 1e-5 && columns.iter().all(|value| *value > 0.0), "{columns:?}");
            }
        }
    }
    for model in [model, reused] {
        let logits = |data: &Data| {
            let Data::Full(input) = data else { panic!("made full") };
            Vec::<f32>::try_from(model.forward(&input.graphs[0], Pass::Evaluate).unwrap().logits.reshape(-1)).unwrap()
        };
        let expected = logits(&data);
        for node in 0..60 {
            let is_shown = graph.train.contains(&node);
            assert_eq!(logits(&flipped(&data, node as usize)) != expected, is_shown, "node {node}");
        }
    }
}

/// On a path with a training node at its end, one layer sees one step far; every reuse sees one step further.
#[test]
fn reused_labels_reach_further() {
    let path = |n_nodes: u64| {
        let near =
            move |node: u64| (node.saturating_sub(1)..(node + 2).min(n_nodes)).filter(move |other| *other != node);
        Block::full(n_nodes, 2 * n_nodes - 2, |node| Ok::<_, BlockError>(near(node))).unwrap()
    };
    let mut graph = graph(9, 0, 1);
    (graph.block, graph.train, graph.valid) = (Arc::new(path(9)), vec![0], (1..8).collect());
    let data = input(vec![graph]);
    for n_reuse in 0..4 {
        let one_layer = ["model.n_layers=1", HALF, &format!("train.label_reuse={n_reuse}")];
        let model = Model::new(&of(&one_layer), 5, N_CLASSES, 7, Device::Cpu).unwrap();
        let logits = |data: &Data| {
            let Data::Full(input) = data else { panic!("made full") };
            Vec::<f32>::try_from(model.forward(&input.graphs[0], Pass::Evaluate).unwrap().logits.reshape(-1)).unwrap()
        };
        let (before, after) = (logits(&data), logits(&flipped(&data, 0)));
        let is_reached = |node: usize| before[3 * node..][..3] != after[3 * node..][..3];
        let reached: Vec<usize> = (0..9).filter(|node| is_reached(*node)).collect();
        assert_eq!(reached, (0..=1 + n_reuse).collect::<Vec<_>>(), "{n_reuse}");
    }
}

/// Chunks of a store against the whole graph, on any number of ranks.
#[test]
fn chunks_are_evaluated_with_labels() {
    for kind in [&["model.kind=gcn"][..], &["model.kind=gat", "model.heads=2", "model.input_linear=true"]] {
        let (full, batches) = (of(&[kind, &[HALF]].concat()), of(&[kind, &[HALF, "train.mode=mini-batch"]].concat()));
        let (whole, chunked) = (load(&full), load(&batches));
        let evaluate = |data: &Data, room: &Room, world: &mut World| {
            let model = Model::new(&full, 5, N_CLASSES, 7, Device::Cpu).unwrap();
            Evaluator::default().evaluate(&model, data, Metric::Accuracy, room, world).unwrap()
        };
        let expected = evaluate(&whole, &Room::default(), alone());
        for n_together in [1 << 17, 40] {
            let room = Room { n_together, ..Room::default() };
            assert_eq!(evaluate(&chunked, &room, alone()), expected, "{kind:?} {room:?}");
        }
        let room = Room { n_together: 40, ..Room::default() };
        for found in on_worlds(2, |world| evaluate(&chunked, &room, world)) {
            assert_eq!(found, expected, "{kind:?} on two ranks");
        }
        let hidden = evaluate(&flipped(&chunked, 1), &Room::default(), alone());
        assert_ne!(hidden.valid_loss, expected.valid_loss, "{kind:?}: labels of training nodes matter");
    }
}

#[test]
fn ranks_threads_and_resumes_change_no_bit_with_labels() {
    let temp = tempfile::tempdir().unwrap();
    let batches = of(&[&BATCHES[..], &[HALF, "train.epochs=2"]].concat());
    let reused = of(&[&REUSED[..], &["train.epochs=9", "train.checkpoint_every=2"]].concat());
    for config in [batches, reused] {
        let data = load(&config);
        let mode = if matches!(data, Data::Full(_)) { "full" } else { "batches" };
        let whole = temp.path().join(mode);
        let records = to_the_end(plan(&data, config.clone(), Some(&whole), false));
        let expected = losses_of(&records);
        for n_ranks in if mode == "full" { vec![] } else { vec![2] } {
            let found = losses_on(n_ranks, &data, &config);
            assert_eq!(found, expected, "{n_ranks} ranks");
        }
        for n_steps in [2, 5] {
            let dir = temp.path().join(format!("{mode}-killed-after-{n_steps}"));
            kill(plan(&data, config.clone(), Some(&dir), false), n_steps);
            to_the_end(plan(&data, config.clone(), Some(&dir), true));
            assert_eq!(left_behind(&dir), left_behind(&whole), "{mode} after {n_steps}");
        }
        for n_threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            assert_eq!(pool.install(|| to_the_end(plan(&data, config.clone(), None, false))), records, "{n_threads}");
        }
        // Other draws than those of a run without labels.
        let plain = RunConfig {
            train: kith_run::config::TrainConfig { label_input: None, label_reuse: None, ..config.train.clone() },
            ..config.clone()
        };
        assert_ne!(to_the_end(plan(&load(&plain), plain.clone(), None, false))[0].loss, records[0].loss);
    }
}

/// A graph of which features say nothing, and the labels of neighbors nearly everything.
fn of_noise() -> GraphInput {
    let mut graph = graph(300, 0, 5);
    let mut draws = Name { run_key: 3, purpose: Purpose::Generator, step: 1, layer: 0 }.stream().draws(0, 0, 0);
    let mut lists = vec![Vec::new(); 300];
    for node in 0..300 {
        for _ in 0..8 {
            let other = draws.below(100) as usize * N_CLASSES + node % N_CLASSES;
            lists[node].push(other as u64);
            lists[other].push(node as u64);
        }
    }
    lists.iter_mut().for_each(|list| list.sort_unstable());
    let n_edges = lists.iter().map(|list| list.len() as u64).sum();
    let block = Block::full(300, n_edges, |node| Ok::<_, BlockError>(lists[node as usize].iter().copied()));
    graph.block = Arc::new(block.unwrap());
    let mut values: Vec<f32> = (0..1500).map(|_| draws.normal() as f32).collect();
    // The mean over a community is zero: it would tell the class.
    for class in 0..N_CLASSES {
        for column in 0..5 {
            let places = (class..300).step_by(N_CLASSES).map(|node| 5 * node + column);
            let mean = places.clone().map(|place| values[place]).sum::<f32>() / 100.0;
            places.for_each(|place| values[place] -= mean);
        }
    }
    graph.rows = Arc::new(InputRows::Dense { dim: 5, values });
    graph
}

#[test]
fn labels_of_neighbors_are_learned() {
    let temp = tempfile::tempdir().unwrap();
    let opened = Opened::store(write_store(&of_noise(), temp.path()));
    let test_of = |options: &[&str]| {
        let config = of(&[&["train.epochs=40", "optimizer.learning_rate=0.02", "model.hidden=16"], options].concat());
        let data = Data::load(&opened, &config, 7).unwrap();
        to_the_end(plan(&data, config, None, false)).last().unwrap().measured.unwrap().test
    };
    let batches = ["train.mode=mini-batch", "train.fanouts=10", "train.batch_size=25"];
    let found = [
        test_of(&[]),
        test_of(&batches),
        test_of(&[HALF]),
        test_of(&REUSED),
        test_of(&[&batches[..], &["train.label_input=1"]].concat()),
    ];
    assert!(found[..2].iter().all(|without| *without < 0.6), "{found:?}");
    assert!(found[2..].iter().all(|with| *with > 0.9), "{found:?}");
}

/// Features that are held sparse give the same losses, up to rounding, and so do both kinds of kernels.
#[test]
fn sparse_features_take_labels() {
    let losses = |is_sparse, kernels| {
        let mut graph = graph(60, 0, 1);
        let values: Vec<f32> = graph.rows.to_dense().iter().map(|value| value.max(0.0)).collect();
        graph.rows = Arc::new(match is_sparse {
            true => InputRows::sparse_of(5, &values),
            false => InputRows::Dense { dim: 5, values },
        });
        let records = to_the_end(plan(&input(vec![graph]), of(&[&REUSED[..], &[kernels]].concat()), None, false));
        records.iter().map(|record| record.loss).collect::<Vec<_>>()
    };
    let expected = losses(false, KERNELS[0]);
    for (is_sparse, kernels) in [(true, KERNELS[0]), (false, KERNELS[1]), (true, KERNELS[1])] {
        for (found, expected) in losses(is_sparse, kernels).iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-4, "{is_sparse} {kernels}: {found} {expected}");
        }
    }
}

/// Predictions are those of the model that was trained, whole and in chunks, with labels from the store.
#[test]
fn predictions_read_labels_of_training_nodes() {
    let temp = tempfile::tempdir().unwrap();
    let opened = Opened::store(store());
    let batches = ["train.mode=mini-batch", "train.fanouts=3", HALF];
    for (name, options) in [("once", &[HALF][..]), ("reused", &REUSED), ("batches", &batches)] {
        let config = of(&[&["model.kind=gat", "train.epochs=2"], options].concat());
        let data = load(&config);
        let dir = temp.path().join(name);
        let mut run = Run::new(plan(&data, config, Some(&dir), false), alone()).unwrap();
        train(&mut run, |_| ControlFlow::Continue(())).unwrap();
        let checkpoint = Checkpoints::of(&dir).last().unwrap();
        let ask = |opened: &Opened, what, room| {
            let checkpoint = &checkpoint;
            let (pairs, layer, moment, device, gpu) = (None, None, Moment::Last, Device::Cpu, None);
            predict(&Question {
                checkpoint,
                opened,
                what,
                pairs,
                nodes: &PredictedNodes::All,
                layer,
                moment,
                device,
                gpu,
                room,
            })
        };
        let tiny = || Room { memory: Some(1), scratch: Some(dir.clone()), n_together: 11, ..Room::default() };
        for what in [What::Probabilities, What::Embeddings, What::Attention] {
            let whole = ask(&opened, what, Room::default()).unwrap();
            let chunked = ask(&opened, what, tiny()).unwrap();
            match what {
                What::Attention => {
                    let off =
                        whole.values().iter().zip(chunked.values()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    assert!(whole.n_rows() == chunked.n_rows() && off < 1e-5, "{name}: {off}");
                }
                _ => assert!(whole == chunked, "{name} {what:?}"),
            }
        }
        let Data::Full(whole) = load(&of(&[HALF])) else { panic!("loaded whole") };
        let logits = run.model().forward(&whole.graphs[0], Pass::Evaluate).unwrap().logits;
        let found = Tensor::from_slice(ask(&opened, What::Probabilities, Room::default()).unwrap().values());
        let expected = logits.softmax(-1, tch::Kind::Float).reshape(-1);
        assert!(error(&found, &expected) < 1e-5, "{name}");
    }
}

#[test]
fn labels_that_do_not_fit_are_refused() {
    let mut numbers = graph(60, 0, 1);
    numbers.labels = Some(Labels::Numbers { width: 1, values: vec![0.5; 60] });
    let Data::Full(numbers) = input(vec![numbers]) else { panic!("made full") };
    let numbers = Data::Full(Input { n_classes: 1, label_kind: LabelKind::Targets, ..numbers });
    let error = Run::new(plan(&numbers, of(&[HALF]), None, false), alone()).unwrap_err().to_string();
    assert_eq!(error, "`train.label_input` is for classes, and these nodes have targets: remove the key");

    let data = input(vec![graph(60, 0, 1)]);
    let on_gpu = RunPlan { gpu: Some(kith_cuda_emulator::gpu()), ..plan(&data, of(&[HALF]), None, false) };
    let error = Run::new(on_gpu, alone()).unwrap_err().to_string();
    assert_eq!(error, "labels as input have no kernels for GPUs: train on the CPU, or with --kernels reference");
}
