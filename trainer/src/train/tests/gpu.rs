//! The training loop with whole steps on a GPU: the real one if there is one, and an emulated one.

use kith_kernels::cuda::{self, Gpu};

use kith_store::FeatureLayout;

use super::*;
use crate::data::opened::Opened;

#[allow(clippy::print_stderr)]
pub(super) fn devices() -> Vec<Gpu> {
    let real = cuda::open(0).inspect_err(|error| eprintln!("no GPU here, only an emulated one: {error}")).ok();
    std::iter::once(kith_cuda_emulator::gpu()).chain(real).collect()
}

const WITH_ADAMW: [&str; 9] = [
    "optimizer.ema=0.8",
    "optimizer.name=adamw",
    "optimizer.weight_decay=0.1",
    "optimizer.no_decay=biases",
    "optimizer.clip_norm=0.3",
    "schedule.name=cosine",
    "schedule.warmup=1",
    "train.label_smoothing=0.2",
    "train.class_weights=balanced",
];

const WITH_SGD: [&str; 9] = [
    "optimizer.name=sgd",
    "optimizer.clip_norm=0.2",
    "optimizer.momentum=0.9",
    "optimizer.nesterov=true",
    "optimizer.weight_decay=0.01",
    "optimizer.learning_rate=0.1",
    "schedule.name=plateau",
    "schedule.patience=1",
    "train.class_weights=balanced",
];

/// The same draws, and nearly the same numbers: losses of every step, and what is measured.
#[test]
fn a_gpu_follows_the_trajectory_of_the_cpu() {
    let few = input(vec![uneven()]);
    let input = input(vec![graph(60, 0, 1)]);
    for gpu in devices() {
        for assignments in [
            &[][..],
            &["model.attention=sd", "edge_loss.subset=each"],
            &["model.attention=go", "edge_loss.neg_sample_ratio=40"],
            &["model.kind=gat", "model.attention=dp", "edge_loss=off", "model.n_layers=3"],
            &["model.attention=v2", "model.edge_dropout=0.3"],
            &["model=off", "model.kind=gcn", "edge_loss=off", "model.self_loops=false", "model.edge_dropout=0.2"],
            &["model=off", "model.kind=gin", "edge_loss=off", "model.hidden=6"],
            &["edge_loss.weight=0", "model.dropout=0", "model.n_layers=1"],
            &["model=off", "model.kind=gcn", "edge_loss=off", "model.dropout=0.4", "model.n_layers=3"],
            &["model=off", "model.kind=sage", "edge_loss=off", "model.hidden=5"],
            &["model=off", "model.kind=mlp", "edge_loss=off", "model.dropout=0"],
            &["train.metric=roc-auc", "train.epochs=3"],
        ] {
            follows(&input, assignments, &gpu);
        }
        for assignments in [&WITH_ADAMW[..], &WITH_SGD] {
            follows(&few, assignments, &gpu);
        }
    }
}

/// A graph with more training nodes of one class than of the others.
fn uneven() -> GraphInput {
    let mut graph = graph(60, 0, 1);
    graph.train.retain(|node| (*node as usize).is_multiple_of(N_CLASSES) || *node < 20);
    graph
}

/// Compares the GPU's steps with those of the CPU.
#[track_caller]
fn follows(data: &Data, assignments: &[&str], gpu: &Gpu) {
    follows_run(data, &config(assignments), gpu, &format!("{assignments:?}"));
}

/// The same of a config.
#[track_caller]
pub(super) fn follows_run(data: &Data, config: &RunConfig, gpu: &Gpu, assignments: &str) {
    let plan = || plan(data, config.clone(), None, false);
    let expected = to_the_end(plan());
    let found = to_the_end(RunPlan { gpu: Some(gpu.clone()), ..plan() });
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(&expected) {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-4 * b.abs();
        assert!(near(a.loss, b.loss) && near(a.node_loss, b.node_loss), "{assignments}: {a:?} {b:?}");
        assert_eq!(a.edge_losses.len(), b.edge_losses.len());
        assert!(a.edge_losses.iter().zip(&b.edge_losses).all(|(a, b)| near(*a, *b)), "{a:?} {b:?}");
        assert_eq!((a.n_seeds, a.n_edges, &a.digests), (b.n_seeds, b.n_edges, &b.digests));
        if let Some((own, theirs)) = a.measured.zip(b.measured) {
            assert!(near(own.valid_loss, theirs.valid_loss), "{assignments}: {a:?} {b:?}");
            // Errors of numbers are no counts.
            let is_right = match data.shape().labels {
                kith_store::LabelKind::Targets => near(own.valid, theirs.valid) && near(own.test, theirs.test),
                _ => (own.valid, own.test) == (theirs.valid, theirs.test),
            };
            assert!(is_right, "{assignments}: {a:?} {b:?}");
        }
        assert_eq!(a.measured.is_some(), b.measured.is_some());
    }
}

/// Batches that the GPU samples, with the rows of all nodes there; batches that are sampled here, since their fanouts are large;
/// batches that bring sparse rows; and graphs of a set, which bring dense ones. Slices may be empty: the last step of an epoch
/// has fewer seeds than there are slices. Digests say that the same was drawn.
#[test]
fn a_gpu_follows_the_cpu_in_slices() {
    let load = |graph: &GraphInput, form| {
        let temp = tempfile::tempdir().unwrap();
        let store = batches::write_store_as(graph, form, temp.path());
        Data::load(&Opened::store(store), &config(&["train.mode=mini-batch"]), 7).unwrap()
    };
    crate::engine::device::start();
    let (dense, sparse) = (load(&graph(60, 0, 1), FeatureLayout::Dense), load(&graph(60, 0, 1), FeatureLayout::Sparse));
    let uneven = load(&uneven(), FeatureLayout::Dense);
    let in_batches =
        ["train.mode=mini-batch", "train.fanouts=3", "train.batch_size=19", "train.slices=2", "train.epochs=2"];
    for gpu in devices() {
        for (data, assignments) in [
            (&dense, &["train.edge_seeds=10"][..]),
            (&dense, &["model.attention=v2", "model.edge_dropout=0.2"]),
            (&sparse, &["model.kind=gat", "model.attention=v2", "edge_loss=off", "model.self_loops=false"]),
            (&dense, &["model=off", "model.kind=sage", "edge_loss=off", "model.self_loops=false"]),
            (&dense, &["model=off", "model.kind=gin", "edge_loss=off", "model.hidden=6"]),
            (&dense, &["model.attention=go", "edge_loss.subset=each", "model.dropout=0", "train.edge_seeds=0"]),
            (
                &dense,
                &[
                    "edge_loss.neg_sample_ratio=60",
                    "edge_loss.edge_sampling_ratio=1",
                    "train.fanouts=all",
                    "train.edge_seeds=0",
                ],
            ),
            (&dense, &["model.attention=dp", "train.fanouts=70", "train.edge_seeds=5"]),
            (&sparse, &["model.attention=sd", "train.edge_seeds=3"]),
            (&sparse, &["model.kind=gat", "model.attention=dp", "edge_loss=off", "model.n_layers=3"]),
            (&dense, &["model=off", "model.kind=gcn", "edge_loss=off"]),
            (&sparse, &["model=off", "model.kind=gcn", "edge_loss=off", "model.n_layers=3"]),
            (&dense, &["model=off", "model.kind=sage", "edge_loss=off", "train.fanouts=all"]),
            (&dense, &["model=off", "model.kind=mlp", "edge_loss=off"]),
            (&uneven, &[&WITH_ADAMW[..], &["train.epochs=4", "train.batch_size=5"]].concat()),
            (&uneven, &[&WITH_SGD[..], &["train.epochs=4", "train.batch_size=5"]].concat()),
            (&dense, &["train.metric=macro-f1"]),
            (&sparse, &["train.metric=average-precision"]),
        ] {
            follows(data, &[&in_batches, assignments].concat(), &gpu);
        }
        follows(&set(), &["train.epochs=2"], &gpu);
    }
}

/// Features on the GPU, in pinned memory or partly in both; sampled on the GPU or, with a fanout that it does not take, on the
/// host: the same bits of weights and losses. The host leaves out negatives that are edges, the GPU keeps room for them: in one
/// graph nearly all pairs are edges; in the other the sum of losses has one part without them and two with them.
#[test]
fn it_makes_no_difference_who_samples() {
    crate::engine::device::start();
    let assignments =
        ["train.mode=mini-batch", "train.batch_size=20", "train.epochs=1", "edge_loss.neg_sample_ratio=1.2"];
    for graph in [crowded(60), loud(graph(300, 0, 1))] {
        let temp = tempfile::tempdir().unwrap();
        let store = batches::write_store_as(&graph, FeatureLayout::Dense, temp.path());
        let data = Data::load(&Opened::store(store), &config(&assignments), 7).unwrap();
        for gpu in devices() {
            let trained = |gpu_rows, fanouts: &str| {
                let assignments = [&assignments[..], &[fanouts]].concat();
                let plan = plan(&data, config(&assignments), None, false);
                let mut run = Run::new(RunPlan { gpu: Some(gpu.clone()), gpu_rows, ..plan }, alone()).unwrap();
                let mut losses = Vec::new();
                train(&mut run, |record| {
                    losses.push((record.loss.to_bits(), record.edge_losses.clone()));
                    ControlFlow::Continue(())
                })
                .unwrap();
                (Vec::<f32>::try_from(run.model().weights().flat()).unwrap(), losses)
            };
            let (on_gpu, on_host) = ("train.fanouts=all", "train.fanouts=100");
            let expected = trained(None, on_gpu);
            for (most, fanouts) in [(Some(0), on_gpu), (Some(1000), on_gpu), (None, on_host), (Some(0), on_host)] {
                let found = trained(most, fanouts);
                assert_eq!(found, expected, "{} with {most:?} bytes of features and {fanouts}", gpu.name());
            }
        }
    }
}

/// With features this large, losses of pairs are so different that their sum in doubles depends on its order.
fn loud(graph: GraphInput) -> GraphInput {
    let values = graph.rows.to_dense().iter().map(|value| 3.0 * value).collect();
    GraphInput { rows: Arc::new(InputRows::Dense { dim: 5, values }), ..graph }
}

/// A graph with nearly all edges that it could have.
fn crowded(n_nodes: u64) -> GraphInput {
    let list = |node: u64| (0..n_nodes).filter(move |other| *other != node && !(node + other).is_multiple_of(31));
    let n_edges = (0..n_nodes).map(|node| list(node).count() as u64).sum();
    let block = Block::full(n_nodes, n_edges, |node| Ok::<_, BlockError>(list(node))).unwrap();
    GraphInput { block: Arc::new(block.with_ids((0..n_nodes).collect())), ..graph(n_nodes as usize, 0, 1) }
}

#[test]
fn resuming_batches_on_a_gpu_is_invisible() {
    crate::engine::device::start();
    let temp = tempfile::tempdir().unwrap();
    let store = batches::write_store_as(&graph(60, 0, 1), FeatureLayout::Dense, temp.path());
    let assignments =
        ["train.mode=mini-batch", "train.fanouts=3", "train.batch_size=7", "train.checkpoint_every_steps=2"];
    let data = Data::load(&Opened::store(store), &config(&assignments), 7).unwrap();
    for gpu in devices() {
        let dir = |name: &str| temp.path().join(gpu.name()).join(name);
        let (whole, killed) = (dir("whole"), dir("killed"));
        let plan =
            |dir, resume| RunPlan { gpu: Some(gpu.clone()), ..plan(&data, config(&assignments), Some(dir), resume) };
        to_the_end(plan(&whole, false));
        kill(plan(&killed, false), 5);
        assert_eq!(to_the_end(plan(&killed, true))[0].step, 4);
        assert_eq!(left_behind(&killed), left_behind(&whole));
    }
}

#[test]
fn resuming_on_a_gpu_is_invisible() {
    let temp = tempfile::tempdir().unwrap();
    let input = input(vec![graph(60, 0, 1)]);
    for gpu in devices() {
        let dir = |name: &str| temp.path().join(gpu.name()).join(name);
        let (whole, killed) = (dir("whole"), dir("killed"));
        let plan = |dir, resume| RunPlan { gpu: Some(gpu.clone()), ..plan(&input, config(&[]), Some(dir), resume) };
        to_the_end(plan(&whole, false));
        kill(plan(&killed, false), 8);
        let resumed = to_the_end(plan(&killed, true));
        assert_eq!(resumed[0].step, 6);
        assert_eq!(left_behind(&killed), left_behind(&whole));
    }
}

#[test]
fn what_a_gpu_does_not_take_is_said() {
    let plan = |data, assignments: &[&str]| RunPlan {
        gpu: Some(kith_cuda_emulator::gpu()),
        ..plan(data, config(assignments), None, false)
    };
    let refused = |plan: RunPlan<'_>| Run::new(plan, alone()).unwrap_err().to_string();
    let one = input(vec![graph(60, 0, 1)]);
    let end = ": train on the CPU, or with --kernels reference";
    let expected = format!("cgat has no kernels for GPUs{end}");
    assert_eq!(refused(plan(&one, &["model=off", "model.kind=cgat", "edge_loss=off"])), expected);
    let expected = format!("the kernels for GPUs take up to 32 heads, not 33{end}");
    assert_eq!(refused(plan(&one, &["model.heads=33"])), expected);
}

/// The sentence names what needs how much, and what would need less.
#[test]
fn too_little_memory_is_said_with_what_would_fit() {
    crate::engine::device::start();
    let one = input(vec![graph(60, 0, 1)]);
    let temp = tempfile::tempdir().unwrap();
    let store = batches::write_store_as(&graph(60, 0, 1), FeatureLayout::Dense, temp.path());
    let batches = Data::load(&Opened::store(store), &config(&["train.mode=mini-batch"]), 7).unwrap();
    for (data, assignments, expected) in [
        (&one, &[][..], "train.mode = \"mini-batch\" needs less"),
        (&batches, &["train.mode=mini-batch", "train.fanouts=3"], "smaller train.batch_size"),
    ] {
        let gpu = kith_cuda_emulator::gpu_with(20_000);
        let plan = RunPlan { gpu: Some(gpu), ..plan(data, config(assignments), None, false) };
        let outcome = Run::new(plan, alone()).and_then(|mut run| train(&mut run, |_| ControlFlow::Continue(())));
        let sentence = outcome.unwrap_err().to_string();
        assert!(sentence.starts_with("no room for ") && sentence.contains(" 1 MiB are needed, "), "{sentence}");
        assert!(sentence.contains(expected), "{sentence}");
    }
}

/// Runs that a GPU computes together, which differ in their keys and in numbers of their settings, leave behind what each
/// leaves alone; they stop early where each does.
#[test]
fn runs_together_are_each_as_if_alone() {
    let temp = tempfile::tempdir().unwrap();
    let input = input(vec![graph(60, 0, 1)]);
    const COMMON: [&str; 4] =
        ["schedule.name=plateau", "schedule.patience=1", "schedule.warmup=2", "train.metric=average-precision"];
    let settings: [&[&str]; 4] = [
        &[],
        &[
            "optimizer.learning_rate=0.01",
            "optimizer.weight_decay=0.01",
            "optimizer.clip_norm=0.1",
            "optimizer.ema=0.7",
        ],
        &["model.dropout=0.5", "edge_loss.weight=3"],
        &["early_stop.burn_in=2", "early_stop.metric_threshold=1.0"],
    ];
    let settings = settings.map(|own| [own, &COMMON].concat());
    for gpu in devices() {
        let dir = |name: &str, place: usize| temp.path().join(gpu.name()).join(format!("{name}-{place}"));
        let alone_dirs: Vec<_> = (0..4).map(|place| dir("alone", place)).collect();
        let dirs: Vec<_> = (0..4).map(|place| dir("together", place)).collect();
        let plan = |place: usize, out, gpu| RunPlan {
            gpu,
            run_key: 7 + place as u64,
            ..plan(&input, config(&settings[place]), Some(out), false)
        };
        let weights = |run: &Run<'_>| Vec::<f32>::try_from(run.model().weights().flat()).unwrap();
        let mut expected = Vec::new();
        for (place, out) in alone_dirs.iter().enumerate() {
            let mut run = Run::new(plan(place, out, Some(gpu.clone())), alone()).unwrap();
            train(&mut run, |_| ControlFlow::Continue(())).unwrap();
            expected.push(weights(&run));
        }
        let made = dirs.iter().enumerate().map(|(place, out)| Run::new(plan(place, out, None), alone()).unwrap());
        let mut runs: Vec<Run<'_>> = made.collect();
        Run::put_on_gpu(&gpu, &mut runs).unwrap();
        let mut n_steps = [0u64; 4];
        let count = |place: usize, _: &_| {
            n_steps[place] += 1;
            ControlFlow::Continue(())
        };
        let mut ended = Vec::new();
        train_runs(&mut runs, count, |run| ended.push((run.run_key(), run.n_steps()))).unwrap();
        assert_eq!(ended.len(), 4, "each is seen at its end");
        assert_eq!(ended[0].1, n_steps[3], "the one that stopped early comes first");
        assert!(n_steps[3] < 12, "it stopped after {}", n_steps[3]);
        assert_eq!(n_steps[..3], [12; 3]);
        assert!(runs.iter().map(weights).eq(expected), "each ended with its own weights");
        for (own, expected) in dirs.iter().zip(&alone_dirs) {
            assert_eq!(left_behind(own), left_behind(expected));
        }
    }
}

/// Measured never, so that the loss of a step is what shows it.
#[test]
fn a_loss_that_is_not_finite_is_named_with_its_step_on_a_gpu() {
    let input = input(vec![graph(60, 0, 1)]);
    let sentence = |gpu| {
        let config = config(&["optimizer.learning_rate=1e30", "train.evaluate_every=100"]);
        let mut run = Run::new(RunPlan { gpu, ..plan(&input, config, None, false) }, alone()).unwrap();
        train(&mut run, |_| ControlFlow::Continue(())).unwrap_err().to_string()
    };
    let expected = sentence(None);
    let (expected, _) = expected.split_once(": ").unwrap();
    assert_eq!(expected, "the loss is not finite at step 1 (epoch 1)");
    for gpu in devices() {
        let found = sentence(Some(gpu));
        assert!(found.starts_with(expected) && found.contains(" of layer "), "{found}");
    }
}
