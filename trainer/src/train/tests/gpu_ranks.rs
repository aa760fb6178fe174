//! Ranks with a GPU each, emulated: the same bits for any number of them, records that come late, and steps that wait for
//! nothing.

use kith_kernels::cuda::Gpu;
use kith_store::FeatureLayout;

use super::*;
use crate::{data::opened::Opened, distributed::world::on_worlds};

const MODELS: [&[&str]; 9] = [
    &[
        "optimizer.name=adamw",
        "optimizer.weight_decay=0.1",
        "optimizer.clip_norm=0.1",
        "optimizer.ema=0.8",
        "schedule.name=cosine",
    ],
    &[],
    &["model.attention=sd"],
    &["model.kind=gat", "model.attention=go", "edge_loss=off"],
    &["model=off", "model.kind=gcn", "edge_loss=off"],
    &["model=off", "model.kind=sage", "edge_loss=off"],
    &["model=off", "model.kind=mlp", "edge_loss=off"],
    &["model.attention=v2", "model.edge_dropout=0.2"],
    &["model=off", "model.kind=gin", "edge_loss=off", "model.hidden=6"],
];

const IN_BATCHES: [&str; 6] = [
    "train.mode=mini-batch",
    "train.fanouts=3",
    "train.batch_size=5",
    "train.slices=4",
    "train.epochs=2",
    "train.deterministic=true",
];

/// A small graph, loaded for batches.
fn load(assignments: &[&str]) -> Data {
    crate::engine::device::start();
    let temp = tempfile::tempdir().unwrap();
    let store = batches::write_store_as(&graph(40, 0, 1), FeatureLayout::Dense, temp.path());
    Data::load(&Opened::store(store), &config(assignments), 7).unwrap()
}

/// Weights and records of a run, each without its times.
fn trained(plan: RunPlan<'_>, world: &mut World) -> (Vec<u32>, Vec<String>) {
    let mut run = Run::new(plan, world).unwrap();
    let mut records = Vec::new();
    let watch = |record: &StepRecord| {
        let StepRecord { step, epoch, loss, digests, n_seeds, n_edges, measured, .. } = record;
        records.push(format!("{step} {epoch} {loss:?} {digests:?} {n_seeds} {n_edges} {measured:?}"));
        ControlFlow::Continue(())
    };
    train(&mut run, watch).unwrap();
    let weights = Vec::<f32>::try_from(run.model().weights().flat()).unwrap();
    (weights.into_iter().map(f32::to_bits).collect(), records)
}

/// Every rank hears the same records, in order, and ends with the same weights.
#[test]
fn ranks_on_gpus_end_with_the_bits_of_one() {
    for model in MODELS {
        let assignments = [&IN_BATCHES, model].concat();
        let data = load(&assignments);
        let on_gpu =
            || RunPlan { gpu: Some(kith_cuda_emulator::gpu()), ..plan(&data, config(&assignments), None, false) };
        let expected = trained(on_gpu(), alone());
        assert!(expected.1.len() >= 6 && expected.1.iter().any(|record| record.contains("valid_loss")));
        for n_ranks in [2, 3, 4] {
            for found in on_worlds(n_ranks, |world| trained(on_gpu(), world)) {
                assert!(found == expected, "{model:?} on {n_ranks} ranks: {:#?} {:#?}", found.1, expected.1);
            }
        }
    }
}

/// Killed after some steps and resumed on as many ranks or on others, a run leaves the steps, weights and moments of one that was
/// not.
#[test]
fn resuming_on_gpus_is_invisible() {
    let temp = tempfile::tempdir().unwrap();
    for (place, model) in MODELS.iter().enumerate().filter(|(place, _)| [0, 4].contains(place)) {
        let assignments = [&IN_BATCHES, *model, &["train.checkpoint_every_steps=2"]].concat();
        let data = load(&assignments);
        let dir = |name: &str| temp.path().join(format!("{place}-{name}"));
        let train_on = |n_ranks, dir: &Path, resume, n_steps: u64| {
            let seen = on_worlds(n_ranks, |world| {
                let plan = plan(&data, config(&assignments), Some(dir), resume);
                let mut run = Run::new(RunPlan { gpu: Some(kith_cuda_emulator::gpu()), ..plan }, world).unwrap();
                let mut steps = Vec::new();
                let watch = |record: &StepRecord| {
                    steps.push(record.step);
                    if steps.len() as u64 == n_steps { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                train(&mut run, watch).unwrap();
                steps
            });
            seen[0].clone()
        };
        let (whole, n_all) = (dir("whole"), 6);
        assert_eq!(train_on(1, &whole, false, u64::MAX).len(), n_all);
        let expected = left_behind(&whole);
        for (n_before, n_after) in [(2, 2), (4, 4), (3, 1), (1, 2)] {
            let killed = dir(&format!("killed-{n_before}-{n_after}"));
            train_on(n_before, &killed, false, 3);
            assert_eq!(train_on(n_after, &killed, true, u64::MAX)[0], 2, "from the checkpoint after two steps");
            let found = left_behind(&killed);
            assert!(
                (&found.0, &found.2) == (&expected.0, &expected.2),
                "{model:?}: {n_before} ranks, then {n_after}:\n{}\n{}",
                found.0,
                expected.0
            );
        }
    }
}

/// A run without `deterministic` adds gradients in an order of its own: nearly the same.
#[test]
fn ranks_on_gpus_add_up_in_any_order() {
    let assignments = [&IN_BATCHES, &["train.deterministic=false"][..]].concat();
    let data = load(&assignments);
    let on_gpu = || RunPlan { gpu: Some(kith_cuda_emulator::gpu()), ..plan(&data, config(&assignments), None, false) };
    let expected = trained(on_gpu(), alone()).0;
    for (found, _) in on_worlds(3, |world| trained(on_gpu(), world)) {
        let near = |(a, b): (&u32, &u32)| (f32::from_bits(*a) - f32::from_bits(*b)).abs() < 1e-4;
        assert!(found.iter().zip(&expected).all(near));
    }
}

/// Features on the GPU, sampled there; and sent with batches that the host samples.
#[test]
fn a_step_waits_for_nothing() {
    let data = load(&IN_BATCHES);
    for (gpu, gpu_rows) in gpu::devices().into_iter().flat_map(|gpu: Gpu| [(gpu.clone(), None), (gpu, Some(0))]) {
        let plan = RunPlan { gpu: Some(gpu), gpu_rows, ..plan(&data, config(&IN_BATCHES), None, false) };
        let mut run = Run::new(plan, alone()).unwrap();
        train(&mut run, |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(run.report().unwrap().host_syncs_per_step, Some(0.0), "features on the GPU: {gpu_rows:?}");
    }
}

/// The step that is under way when a loss is seen changes no weight, and no checkpoint holds what was not seen.
#[test]
fn a_loss_that_is_not_finite_is_named_with_its_own_step() {
    let temp = tempfile::tempdir().unwrap();
    // With more slices, the first of them would be seen before the step ends.
    let wild = [
        "optimizer.learning_rate=1e30",
        "train.evaluate_every=100",
        "train.slices=1",
        "train.checkpoint_every_steps=1",
    ];
    let assignments = [&IN_BATCHES[..], &wild].concat();
    let data = load(&assignments);
    let sentence = |gpu, dir: &Path| {
        let plan = RunPlan { gpu, ..plan(&data, config(&assignments), Some(dir), false) };
        let mut run = Run::new(plan, alone()).unwrap();
        train(&mut run, |_| ControlFlow::Continue(())).unwrap_err().to_string()
    };
    let on_cpu = temp.path().join("cpu");
    let expected = sentence(None, &on_cpu);
    let (start, _) = expected.split_once(": ").unwrap();
    let kept = |dir: &Path| Checkpoints::of(dir).last().unwrap().state().step;
    for (place, gpu) in gpu::devices().into_iter().enumerate() {
        let dir = temp.path().join(place.to_string());
        let found = sentence(Some(gpu), &dir);
        assert!(found.starts_with(start), "{found}, not {expected}");
        assert_eq!(kept(&dir), kept(&on_cpu));
    }
    // Without checkpoints nothing holds the next step back: the weights are those that the lost step began with.
    let assignments = [&IN_BATCHES[..], &wild[..3]].concat();
    for (place, gpu) in gpu::devices().into_iter().enumerate() {
        let plan = RunPlan { gpu: Some(gpu), ..plan(&data, config(&assignments), None, false) };
        let mut run = Run::new(plan, alone()).unwrap();
        let found = train(&mut run, |_| ControlFlow::Continue(())).unwrap_err().to_string();
        assert!(found.starts_with(start) && found.contains(" of layer "), "{found}, not {expected}");
        let last = Checkpoints::of(&temp.path().join(place.to_string())).last().unwrap();
        let expected = last.restore(run.model().weights().entries()).unwrap().weights;
        let [found, expected] =
            [run.model().weights().flat(), &expected].map(|weights| Vec::<f32>::try_from(weights).unwrap());
        assert_eq!(found, expected);
    }
}
