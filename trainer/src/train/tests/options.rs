//! Random combinations of layer options: mini-batch against full-batch, chunks against the whole graph, ranks, threads, resumes, GPUs.

use kith_run::{
    choice::Choice,
    config::{Activation, Jumping, Norm, Residual},
    measured::Metric,
    prediction::{Moment, What},
};

use kith_store::FeatureLayout;

use super::{
    batches::{FULL_FANOUT, SMALL_BATCHES, first_step, load, store, write_store_as},
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

/// Combinations in `make test`, and in `make slow`.
const N_DRAWN: [u64; 2] = [12, 140];

fn n_drawn() -> u64 {
    N_DRAWN[usize::from(std::env::var_os("KITH_SLOW").is_some())]
}

/// A combination of options; the seed is one whose first ten have every choice.
fn drawn(number: u64) -> Vec<String> {
    let stream = Name { run_key: 365, purpose: Purpose::Generator, step: number, layer: 0 }.stream();
    let mut place = 0;
    let mut below = |n: usize| {
        place += 1;
        stream.draws(place, 0, 0).below(n as u64) as usize
    };
    fn named<T: Choice>(key: &str, place: usize) -> String {
        format!("model.{key}={}", T::ALL[place].0)
    }
    let kinds: [&[&str]; 8] = [
        &["model.attention=mx"],
        &["model.attention=sd", "edge_loss.weight=2"],
        &["model.kind=gat", "edge_loss=off"],
        &["model.attention=v2"],
        &["model=off", "model.kind=gin", "edge_loss=off", "model.hidden=6"],
        &["model=off", "model.kind=gcn", "edge_loss=off", "model.hidden=6"],
        &["model=off", "model.kind=sage", "edge_loss=off", "model.hidden=9"],
        &["model=off", "model.kind=mlp", "edge_loss=off", "model.hidden=9"],
    ];
    let kind = kinds[below(kinds.len())];
    let mut options: Vec<String> = kind.iter().map(|option| (*option).to_owned()).collect();
    if kind.contains(&"model.kind=sage") {
        options.push(format!("model.root_weight={}", below(2) == 0));
    }
    if kind.contains(&"model.kind=gat") || kind.len() < 3 {
        options.push(format!("model.attention_dropout=0.{}", below(5)));
    }
    // A gcn without self-loops has no mini-batches.
    let has_loops = !["gat", "sage"].iter().any(|name| kind.contains(&format!("model.kind={name}").as_str()));
    if !has_loops {
        options.push(format!("model.self_loops={}", below(2) == 0));
    }
    if !kind.contains(&"model.kind=mlp") {
        options.push(format!("model.edge_dropout=0.{}", below(3)));
    }
    let output_linear = below(2) == 0;
    options.extend([
        named::<Norm>("norm", below(Norm::ALL.len())),
        named::<Residual>("residual", below(Residual::ALL.len())),
        named::<Activation>("activation", below(Activation::ALL.len())),
        format!("model.input_linear={}", below(2) == 0),
        format!("model.output_linear={output_linear}"),
        format!("model.bias={}", below(3) > 0),
        format!("model.input_dropout=0.{}", below(4)),
        format!("model.n_layers={}", 3 + below(2)),
        "model.dropout=0.3".to_owned(),
        "optimizer.clip_norm=1".to_owned(),
        "early_stop=off".to_owned(),
    ]);
    if number.is_multiple_of(2) {
        options.push("optimizer.ema=0.8".to_owned());
    }
    if output_linear {
        options.retain(|option| !option.starts_with("model.out_heads"));
        options.push(named::<Jumping>("jumping", below(Jumping::ALL.len())));
    }
    options
}

fn with(options: &[String], others: &[&str]) -> RunConfig {
    // The last layer's heads of the other tests' model do not go with a linear layer after it.
    let start: &[&str] = match options.contains(&"model.output_linear=true".to_owned()) && options[0] != "model=off" {
        true => &["model=off", "model.kind=supergat", "model.heads=2", "model.hidden=4"],
        false => &[],
    };
    let options: Vec<&str> = start.iter().copied().chain(options.iter().map(String::as_str)).collect();
    config(&[&options[..], others].concat())
}

/// Every value of every choice is among them.
#[test]
fn combinations_have_every_choice() {
    let all: Vec<String> = (0..N_DRAWN[0]).flat_map(drawn).collect();
    fn names<T: Choice>(key: &str) -> Vec<String> {
        T::ALL.iter().map(|(name, _)| format!("model.{key}={name}")).collect()
    }
    let linear = [
        "model.input_linear=true",
        "model.output_linear=true",
        "model.root_weight=true",
        "model.bias=false",
        "model.self_loops=false",
        "model.edge_dropout=0.2",
        "model.attention=v2",
        "model.kind=gin",
        "model.kind=gcn",
        "model.kind=gat",
        "model.kind=mlp",
        "model.attention=sd",
        "model.attention=mx",
    ];
    let choices = [
        names::<Norm>("norm"),
        names::<Residual>("residual"),
        names::<Activation>("activation"),
        names::<Jumping>("jumping"),
        linear.map(str::to_owned).to_vec(),
    ];
    for choice in choices.concat() {
        assert!(all.contains(&choice), "{choice}");
    }
}

/// One node has no variance: a slice of one node leaves running statistics unchanged.
#[test]
fn a_slice_of_one_node_keeps_running_statistics() {
    let options =
        ["model.n_layers=1", "model.norm=batch", "model.output_linear=true", "early_stop=off", "edge_loss=off"];
    let others = ["model=off", "model.kind=gcn", "train.mode=mini-batch", "train.batch_size=1", "train.slices=1"];
    for kernels in KERNELS {
        let (_, gradient) = first_step(config(&[&others[..], &options, &[kernels]].concat()));
        for (name, value) in [("norms.0.mean", 0.0), ("norms.0.variance", 1.0)] {
            let (_, found) = gradient.iter().find(|(own, _)| own == name).unwrap();
            assert!(Vec::<f32>::try_from(found).unwrap().iter().all(|found| *found == value), "{name}: {found:?}");
        }
    }
    let config = config(&[&others[..], &options, &["train.epochs=1"]].concat());
    let data = load(&config);
    for gpu in devices() {
        let plan = RunPlan { gpu: Some(gpu), ..plan(&data, config.clone(), None, false) };
        let mut run = Run::new(plan, alone()).unwrap();
        train(&mut run, |_| ControlFlow::Continue(())).unwrap();
        let weights = run.model().weights();
        for (name, value) in [("norms.0.mean", 0.0), ("norms.0.variance", 1.0)] {
            let found = Vec::<f32>::try_from(weights.get(name).unwrap()).unwrap();
            assert!(found.iter().all(|found| (found - value).abs() < 1e-5), "{name}: {found:?}");
        }
    }
}

/// Statistics of a graph norm belong to one graph.
#[test]
fn graph_norm_on_a_set_of_graphs_in_mini_batches_is_refused() {
    let config = config(&["model.norm=graph", "train.mode=mini-batch"]);
    let Data::Batches(mut input) = load(&config) else { panic!("loaded for batches") };
    input.is_set = true;
    let data = Data::Batches(input);
    let error = Run::new(plan(&data, config, None, false), alone()).unwrap_err().to_string();
    assert!(error.starts_with("graph norm is over the nodes of each graph"), "{error}");
}

#[test]
fn full_fanout_equals_full_batch_with_every_option() {
    for number in 0..n_drawn() {
        let options = drawn(number);
        for kernels in KERNELS {
            let (expected, expected_gradient) = first_step(with(&options, &[kernels]));
            let (found, gradient) = first_step(with(&options, &[&[kernels], &FULL_FANOUT[..]].concat()));
            assert!((found.loss - expected.loss).abs() <= 2e-6 * expected.loss, "{options:?}: {found:?} {expected:?}");
            let norm = |tensor: &Tensor| tensor.abs().max().double_value(&[]);
            let largest = expected_gradient.iter().map(|(_, gradient)| norm(gradient)).fold(0.0, f64::max);
            for ((name, found), (_, expected)) in gradient.iter().zip(&expected_gradient) {
                // A bias before a norm over nodes has a gradient of zero, up to rounding.
                let error =
                    if norm(expected) < 1e-5 * largest { norm(found) / largest } else { error(found, expected) };
                assert!(error <= 3e-5, "{options:?} {kernels}: {name} {error}");
            }
        }
    }
}

/// A model whose running statistics and biases are not those of the first step.
fn shifted(config: &RunConfig) -> Model {
    crate::engine::device::start();
    let model = Model::new(config, 5, N_CLASSES, 7, Device::Cpu).unwrap();
    let flat = model.weights().flat();
    let shift = Tensor::arange(flat.size()[0], (tch::Kind::Float, Device::Cpu)).sin().abs() * 0.1;
    model.weights().set(&(flat + shift));
    model
}

#[test]
fn evaluation_in_chunks_changes_no_bit_with_any_option() {
    let scratch = tempfile::tempdir().unwrap();
    for number in 0..n_drawn() {
        let options = drawn(number);
        for kernels in KERNELS {
            let full = with(&options, &[kernels]);
            let (whole, chunked) = (load(&full), load(&with(&options, &[kernels, "train.mode=mini-batch"])));
            let evaluate = |data: &Data, room: &Room, world: &mut World| {
                Evaluator::default().evaluate(&shifted(&full), data, Metric::Accuracy, room, world).unwrap()
            };
            let expected = evaluate(&whole, &Room::default(), alone());
            for (n_together, memory) in [(1 << 17, None), (7, Some(1))] {
                let room = Room { memory, scratch: Some(scratch.path().to_owned()), n_together, ..Room::default() };
                let found = evaluate(&chunked, &room, alone());
                match kernels.contains("fused") {
                    true => assert_eq!(found, expected, "{options:?}"),
                    false => assert!((found.valid_loss - expected.valid_loss).abs() < 1e-5, "{options:?}"),
                }
            }
            if kernels.contains("fused") {
                for memory in [None, Some(1)] {
                    let scratch = Some(scratch.path().to_owned());
                    let room = Room { n_together: 11, memory, scratch, ..Room::default() };
                    for found in on_worlds(3, |world| evaluate(&chunked, &room, world)) {
                        assert_eq!(found, expected, "{options:?}: on 3 ranks");
                    }
                }
            }
        }
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left of scratch files");
}

/// Weights, running statistics included, and losses of a run.
fn trained(plan: RunPlan<'_>, world: &mut World) -> (Vec<u32>, Vec<u64>) {
    let mut run = Run::new(plan, world).unwrap();
    let mut losses = Vec::new();
    train(&mut run, |record| {
        losses.push(record.loss.to_bits());
        ControlFlow::Continue(())
    })
    .unwrap();
    let weights = Vec::<f32>::try_from(run.model().weights().flat()).unwrap();
    (weights.into_iter().map(f32::to_bits).collect(), losses)
}

#[test]
fn ranks_threads_and_resumes_change_no_bit_with_any_option() {
    let temp = tempfile::tempdir().unwrap();
    for number in 0..n_drawn() {
        let options = drawn(number);
        let config = with(&options, &[&SMALL_BATCHES[..], &["train.epochs=2", "train.slices=3"]].concat());
        let data = load(&config);
        let expected = trained(plan(&data, config.clone(), None, false), alone());
        for n_ranks in [2, 3] {
            for found in on_worlds(n_ranks, |world| trained(plan(&data, config.clone(), None, false), world)) {
                assert!(found == expected, "{options:?}: on {n_ranks} ranks");
            }
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1 + number as usize % 3).build().unwrap();
        let found = pool.install(|| trained(plan(&data, config.clone(), None, false), alone()));
        assert!(found == expected, "{options:?}: on other threads");
        let [whole, killed] = ["whole", "killed"].map(|name| temp.path().join(format!("{name}-{number}")));
        to_the_end(plan(&data, config.clone(), Some(&whole), false));
        kill(plan(&data, config.clone(), Some(&killed), false), 1 + number % 5);
        to_the_end(plan(&data, config.clone(), Some(&killed), true));
        assert_eq!(left_behind(&killed), left_behind(&whole), "{options:?}");
    }
}

#[test]
fn predictions_in_chunks_are_those_of_the_whole_with_any_option() {
    let temp = tempfile::tempdir().unwrap();
    let opened = Opened::store(store());
    for number in 0..n_drawn() {
        let options = drawn(number);
        let full = with(&options, &["train.epochs=2"]);
        let dir = temp.path().join(number.to_string());
        to_the_end(plan(&load(&full), full.clone(), Some(&dir), false));
        let checkpoint = Checkpoints::of(&dir).last().unwrap();
        let ask = |what, room| {
            let (checkpoint, opened, device) = (&checkpoint, &opened, Device::Cpu);
            predict(&Question {
                checkpoint,
                opened,
                what,
                pairs: None,
                nodes: &PredictedNodes::All,
                layer: None,
                moment: Moment::Best,
                device,
                gpu: None,
                room,
            })
        };
        let tiny = || Room { memory: Some(1), scratch: Some(dir.clone()), n_together: 11, ..Room::default() };
        for what in [What::Probabilities, What::Embeddings] {
            let whole = ask(what, Room::default()).unwrap();
            assert!(ask(what, tiny()).unwrap() == whole, "{options:?} {what:?}");
        }
        if full.model.kind.has_attention() {
            let [whole, chunked] = [Room::default(), tiny()].map(|room| ask(What::Attention, room).unwrap());
            let off = whole.values().iter().zip(chunked.values()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(whole.n_rows() == chunked.n_rows() && off < 1e-5, "{options:?}: {off}");
        }
    }
}

/// On a GPU: whole graphs, sampled slices with dense and sparse features, and sets of graphs; and with ranks.
#[test]
fn gpus_follow_the_cpu_with_any_option() {
    crate::engine::device::start();
    let temp = tempfile::tempdir().unwrap();
    let mini_batch =
        ["train.mode=mini-batch", "train.fanouts=3", "train.batch_size=19", "train.slices=2", "train.epochs=2"];
    let [dense, sparse] = [FeatureLayout::Dense, FeatureLayout::Sparse].map(|form| {
        let dir = temp.path().join(format!("{form:?}"));
        fs::create_dir(&dir).unwrap();
        let store = write_store_as(&graph(60, 0, 1), form, &dir);
        Data::load(&Opened::store(store), &config(&["train.mode=mini-batch"]), 7).unwrap()
    });
    let (whole, set) = (input(vec![graph(60, 0, 1)]), set());
    for gpu in devices() {
        for number in 0..n_drawn() {
            let options = drawn(number);
            // The gradient of a bias before a norm over nodes is a rounding error, which Adam would turn into a whole step.
            let others = ["train.epochs=3", "optimizer.name=sgd", "optimizer.learning_rate=0.05"];
            let name = format!("{options:?}");
            follows_run(&whole, &with(&options, &others), &gpu, &name);
            let batches = if number % 2 == 0 { &dense } else { &sparse };
            follows_run(batches, &with(&options, &[&others[..], &mini_batch].concat()), &gpu, &name);
            if number % 3 == 0 {
                follows_run(&set, &with(&options, &others), &gpu, &name);
            }
        }
    }
    for number in 0..n_drawn() / 4 {
        let options = drawn(number);
        let config = with(&options, &[&mini_batch[..], &["train.slices=4", "train.deterministic=true"]].concat());
        let on_gpu = || RunPlan { gpu: Some(kith_cuda_emulator::gpu()), ..plan(&dense, config.clone(), None, false) };
        let expected = trained(on_gpu(), alone());
        for found in on_worlds(3, |world| trained(on_gpu(), world)) {
            assert!(found == expected, "{options:?}");
        }
    }
}

/// Runs that are computed together end as each alone.
#[test]
fn several_seeds_on_a_gpu_change_no_bit_with_any_option() {
    let data = input(vec![graph(60, 0, 1)]);
    for number in 0..n_drawn() / 4 {
        let config = with(&drawn(number), &["train.epochs=3"]);
        let runs = |run_keys: &[u64]| {
            let own = |run_key: &u64| {
                let plan = RunPlan { run_key: *run_key, ..plan(&data, config.clone(), None, false) };
                Run::new(plan, alone()).unwrap()
            };
            let mut runs: Vec<Run<'_>> = run_keys.iter().map(own).collect();
            Run::put_on_gpu(&kith_cuda_emulator::gpu(), &mut runs).unwrap();
            train_runs(&mut runs, |_, _| ControlFlow::Continue(()), |_| ()).unwrap();
            let weights = |run: &Run<'_>| Vec::<f32>::try_from(run.model().weights().flat()).unwrap();
            runs.iter().map(weights).collect::<Vec<_>>()
        };
        let together = runs(&[7, 8, 9]);
        for (run_key, together) in [7, 8, 9].into_iter().zip(&together) {
            assert!(runs(&[run_key])[0] == *together, "{run_key}: {:?}", drawn(number));
        }
    }
}

/// A 15-layer model with batch norm and residuals learns.
#[test]
fn deep_models_learn() {
    let deep =
        ["early_stop=off", "model=off", "edge_loss=off", "model.n_layers=15", "model.hidden=16", "model.dropout=0.1"];
    let options = ["model.norm=batch", "model.residual=linear", "model.activation=relu", "model.output_linear=true"];
    for kind in ["model.kind=gcn", "model.kind=sage", "model.kind=gat"] {
        let config =
            config(&[&deep[..], &options, &[kind, "train.epochs=40", "optimizer.learning_rate=0.01"]].concat());
        let data = input(vec![graph(150, 0, 1)]);
        let records = to_the_end(plan(&data, config, None, false));
        let last = records.last().unwrap();
        assert!(last.loss < 0.5 * records[0].loss, "{kind}: {:?} {last:?}", records[0]);
    }
}
