//! The moving average of the weights: computed as by hand, evaluated in place of the weights, and invisible to resumes and ranks.

use kith_run::prediction::Moment;

use super::{
    batches::{SMALL_BATCHES, load},
    gpu::devices,
    *,
};
use crate::{
    distributed::world::on_worlds,
    inference::{
        evaluate::Evaluator,
        predict::{find_checkpoint, model_of},
    },
};

const AVERAGED: [&str; 4] = ["optimizer.ema=0.7", "model.norm=batch", "train.epochs=5", "early_stop=off"];

fn numbers(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor).unwrap()
}

fn average_of(run: &Run<'_>) -> Vec<f32> {
    numbers(run.host.optimizer.average().unwrap())
}

#[test]
fn the_average_is_that_of_a_plain_loop() {
    let input = input(vec![graph(60, 0, 1)]);
    for kernels in KERNELS {
        let config = config(&[&AVERAGED[..], &[kernels]].concat());
        let mut run = Run::new(plan(&input, config, None, false), alone()).unwrap();
        let n_trained = run.model().weights().n_trained();
        assert!(n_trained < run.model().weights().n_elements(), "there are running statistics");
        let start = numbers(run.model().weights().flat());
        let (mut expected, mut exact) = (start.clone(), start.iter().map(|own| f64::from(*own)).collect::<Vec<_>>());
        for _ in 0..5 {
            step(&mut run).unwrap();
            let weights = numbers(run.model().weights().flat());
            for (place, weight) in weights.iter().enumerate() {
                if place < n_trained {
                    expected[place] = (weight - expected[place]).mul_add((1.0f64 - 0.7) as f32, expected[place]);
                    exact[place] = 0.7 * exact[place] + (1.0 - 0.7) * f64::from(*weight);
                } else {
                    (expected[place], exact[place]) = (*weight, f64::from(*weight));
                }
            }
            assert_eq!(average_of(&run), expected, "{kernels}");
            let off = |(own, exact): (&f32, &f64)| (f64::from(*own) - exact).abs();
            assert!(expected.iter().zip(&exact).map(off).fold(0.0, f64::max) < 1e-6);
            assert_ne!(expected[..n_trained], weights[..n_trained]);
        }
    }
}

/// A run with an average trains as one without, and is evaluated with the average.
#[test]
fn evaluation_uses_the_average() {
    let temp = tempfile::tempdir().unwrap();
    let mini_batch: &[&str] = &SMALL_BATCHES;
    for (name, mode) in [("full", &[][..]), ("batches", mini_batch)] {
        let dir = temp.path().join(name);
        let config = config(&[&AVERAGED[..], mode, &["optimizer.ema=0.9"]].concat());
        let data = load(&config);
        let measure = |run: &Run<'_>, weights: &Tensor| {
            run.model().weights().set(weights);
            let room = Room::default();
            Evaluator::default().evaluate(run.model(), &data, run.metric(), &room, alone()).unwrap()
        };
        let mut run = Run::new(plan(&data, config.clone(), Some(&dir), false), alone()).unwrap();
        let mut records = Vec::new();
        train(&mut run, |record| {
            records.push(record.clone());
            ControlFlow::Continue(())
        })
        .unwrap();
        let raw = run.model().weights().flat().copy();
        let average = run.host.optimizer.average().unwrap().copy();
        let last = records.last().unwrap().measured.unwrap();
        assert_eq!(last, measure(&run, &average), "{name}");
        assert_ne!(last, measure(&run, &raw), "{name}");

        // Predictions and exports have the average as well, of the best epoch and of the last.
        drop(run);
        let checkpoint = find_checkpoint(&dir).unwrap();
        let of = |moment| numbers(model_of(&checkpoint, moment, Device::Cpu).unwrap().1.weights().flat());
        assert_eq!(of(Moment::Last), numbers(&average));
        let best = numbers(&checkpoint.restore(&entries(&config, &data)).unwrap().best);
        assert_eq!(of(Moment::Best), best);
        let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(dir.join(REPORT)).unwrap()).unwrap();
        let run = Run::new(plan(&data, config.clone(), None, false), alone()).unwrap();
        let found = measure(&run, &Tensor::from_slice(&best));
        assert_eq!(report["results"]["valid"].as_f64().unwrap().to_bits(), found.valid.to_bits());
        assert_eq!(report["results"]["test"].as_f64().unwrap().to_bits(), found.test.to_bits());

        // Training goes on with the weights themselves.
        let mut without = config.clone();
        without.optimizer.ema = None;
        let plain = to_the_end(plan(&data, without, None, false));
        let losses = |records: &[StepRecord]| records.iter().map(|record| record.loss.to_bits()).collect::<Vec<_>>();
        assert_eq!(losses(&records), losses(&plain));
        assert_ne!(plain.last().unwrap().measured, Some(last));
    }
}

fn entries(config: &RunConfig, data: &Data) -> Vec<crate::weights::Entry> {
    let run = Run::new(plan(data, config.clone(), None, false), alone()).unwrap();
    run.model().weights().entries().to_vec()
}

#[test]
fn resuming_with_an_average_is_invisible() {
    let temp = tempfile::tempdir().unwrap();
    let mini_batch: &[&str] = &SMALL_BATCHES;
    for (name, mode) in [("full", &[][..]), ("batches", mini_batch)] {
        let config = config(&[&AVERAGED[..], mode, &["train.checkpoint_every=1"]].concat());
        let data = load(&config);
        for gpu in std::iter::once(None).chain(devices().into_iter().map(Some)) {
            let place = gpu.as_ref().map_or("cpu".to_owned(), kith_kernels::cuda::Gpu::name);
            let [whole, killed] = ["whole", "killed"].map(|end| temp.path().join(&place).join(format!("{name}-{end}")));
            let plan = |dir, resume| RunPlan { gpu: gpu.clone(), ..plan(&data, config.clone(), Some(dir), resume) };
            let n_steps = to_the_end(plan(&whole, false)).len() as u64;
            kill(plan(&killed, false), n_steps - n_steps / 5);
            to_the_end(plan(&killed, true));
            assert_eq!(left_behind(&killed), left_behind(&whole), "{name} on {place}");
        }
    }
}

#[test]
fn ranks_have_one_average() {
    let config = config(&[&AVERAGED[..], &SMALL_BATCHES].concat());
    let data = load(&config);
    let trained = |world: &mut World| {
        let mut run = Run::new(plan(&data, config.clone(), None, false), world).unwrap();
        train(&mut run, |_| ControlFlow::Continue(())).unwrap();
        (average_of(&run), run.report().unwrap().results.valid.to_bits())
    };
    let expected = trained(alone());
    for found in on_worlds(2, trained) {
        assert!(found == expected);
    }
}

/// A checkpoint of a run with an average must hold it.
#[test]
fn a_run_without_an_average_writes_none() {
    let temp = tempfile::tempdir().unwrap();
    let input = input(vec![graph(60, 0, 1)]);
    let with = |name: &str, assignments: &[&str]| {
        let dir = temp.path().join(name);
        to_the_end(plan(&input, config(assignments), Some(&dir), false));
        let bytes = fs::read(newest(&dir)).unwrap();
        let n_header = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
        let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + n_header]).unwrap();
        let names: Vec<String> = header.as_object().unwrap().keys().cloned().collect();
        names
    };
    let (plain, averaged) =
        (with("plain", &["train.epochs=2"]), with("averaged", &["train.epochs=2", "optimizer.ema=0.5"]));
    assert!(!plain.contains(&"ema".to_owned()));
    let more: Vec<&String> = averaged.iter().filter(|name| !plain.contains(name)).collect();
    assert_eq!(more, ["ema"]);
    let other = config(&["train.epochs=2", "optimizer.ema=0.6"]);
    let dir = temp.path().join("averaged");
    let error = Run::new(plan(&input, other, Some(&dir), true), alone()).unwrap_err().to_string();
    assert!(error.ends_with("it says `ema = 0.5` where this one says `ema = 0.6`"), "{error}");
}
