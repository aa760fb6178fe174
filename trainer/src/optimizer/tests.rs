use kith_run::run_file::RunFile;
use tch::nn;

use super::*;
use crate::weights::Initial;

/// An optimizer of a weight of three or four numbers, and a bias of two, if there are that many.
fn optimizer(assignments: &[&str], n_weights: i64) -> Optimizer {
    let mut file = RunFile::parse("", "test").unwrap();
    ["train.epochs=10"].iter().chain(assignments).for_each(|assignment| file.set(assignment).unwrap());
    let n_bias = if n_weights > 4 { 2 } else { 0 };
    let entry = |name: &str, n| Entry { name: name.to_owned(), shape: vec![n], initial: Initial::Constant(0.0) };
    let entries = [entry("layers.0.weight", n_weights - n_bias), entry("layers.0.bias", n_bias)];
    Optimizer::new(&file.resolve().unwrap(), &entries, 1, Device::Cpu)
}

fn adam(learning_rate: f64, weight_decay: f64) -> Optimizer {
    let settings =
        [format!("optimizer.learning_rate={learning_rate}"), format!("optimizer.weight_decay={weight_decay}")];
    optimizer(&[&settings[0], &settings[1]], 3)
}

/// Runs libtorch's optimizer over the same gradients.
fn by_libtorch(
    config: impl nn::OptimizerConfig,
    decay: f64,
    start: &[f32],
    gradients: &[Vec<f32>],
    clip: Option<f64>,
) -> Vec<f32> {
    let store = nn::VarStore::new(Device::Cpu);
    let mut variable = store.root().zeros("weights", &[start.len() as i64]);
    no_grad(|| variable.copy_(&Tensor::from_slice(start)));
    let mut theirs = config.build(&store, 0.02).unwrap();
    theirs.set_weight_decay(decay);
    for gradient in gradients {
        theirs.zero_grad();
        (&variable * Tensor::from_slice(gradient)).sum(Kind::Float).backward();
        if let Some(most) = clip {
            theirs.clip_grad_norm(most);
        }
        theirs.step();
    }
    values(&variable)
}

#[test]
fn every_optimizer_is_that_of_libtorch() {
    let start = [0.5f32, -0.25, 1.5, 0.0, 2.0, -3.0];
    let gradients: Vec<Vec<f32>> =
        (0..7).map(|step| (0..6).map(|place| ((step * 6 + place) as f32 * 0.7).sin() * 3.0).collect()).collect();
    let limit = ["optimizer.clip_norm=1.5"];
    let sgd = |momentum, nesterov| nn::Sgd { momentum, dampening: 0.0, wd: 0.0, nesterov };
    let adamw = nn::AdamW::default();
    for (assignments, decay, clip, expected) in [
        (vec!["optimizer.name=adam"], 0.05, None, by_libtorch(nn::Adam::default(), 0.05, &start, &gradients, None)),
        (vec!["optimizer.name=adamw"], 0.05, None, by_libtorch(adamw, 0.05, &start, &gradients, None)),
        (vec!["optimizer.name=sgd"], 0.05, None, by_libtorch(sgd(0.0, false), 0.05, &start, &gradients, None)),
        (
            vec!["optimizer.name=sgd", "optimizer.momentum=0.9"],
            0.0,
            Some(1.5),
            by_libtorch(sgd(0.9, false), 0.0, &start, &gradients, Some(1.5)),
        ),
        (
            vec!["optimizer.name=sgd", "optimizer.momentum=0.8", "optimizer.nesterov=true"],
            0.05,
            None,
            by_libtorch(sgd(0.8, true), 0.05, &start, &gradients, None),
        ),
        (
            vec!["optimizer.name=adam"],
            0.0,
            Some(1.5),
            by_libtorch(nn::Adam::default(), 0.0, &start, &gradients, Some(1.5)),
        ),
    ] {
        let decay = format!("optimizer.weight_decay={decay}");
        let common = ["optimizer.learning_rate=0.02", &decay];
        let limit: &[&str] = if clip.is_some() { &limit } else { &[] };
        let mut own = optimizer(&[&assignments[..], &common, limit].concat(), 6);
        let mut weights = Tensor::from_slice(&start);
        gradients.iter().for_each(|gradient| own.update(&mut weights, &Tensor::from_slice(gradient)).unwrap());
        for (found, expected) in values(&weights).iter().zip(&expected) {
            assert!((found - expected).abs() <= 2e-6, "{assignments:?}: {found} {expected}");
        }
    }
}

/// Biases are the last two numbers.
#[test]
fn biases_may_be_left_without_decay() {
    for name in ["adam", "adamw", "sgd"] {
        let name = format!("optimizer.name={name}");
        let trained = |decay: &str, no_decay: &str| {
            let mut own = optimizer(&[&name, decay, no_decay], 6);
            let mut weights = Tensor::from_slice(&[0.5f32, -0.25, 1.5, 0.3, 2.0, -3.0]);
            let gradient = Tensor::from_slice(&[0.1f32, 0.2, -0.3, 0.4, -0.5, 0.6]);
            (0..3).for_each(|_| own.update(&mut weights, &gradient).unwrap());
            values(&weights)
        };
        let (decay, none) = ("optimizer.weight_decay=0.3", "optimizer.weight_decay=0");
        let (all, not_biases) =
            (trained(decay, "optimizer.no_decay=none"), trained(decay, "optimizer.no_decay=biases"));
        let nothing = trained(none, "optimizer.no_decay=biases");
        assert_eq!(not_biases[..4], all[..4]);
        assert_eq!(not_biases[4..], nothing[4..]);
        assert!(all.iter().zip(&nothing).all(|(all, nothing)| all != nothing), "{name}: {all:?} {nothing:?}");
    }
}

#[test]
fn the_learning_rate_follows_its_schedule() {
    let mut own = optimizer(&["optimizer.name=sgd", "optimizer.learning_rate=0.5", "schedule.name=linear"], 3);
    let mut weights = Tensor::from_slice(&[0f32; 3]);
    own.update(&mut weights, &Tensor::from_slice(&[1f32, 2.0, 0.0])).unwrap();
    own.update(&mut weights, &Tensor::from_slice(&[1f32, 0.0, 1.0])).unwrap();
    assert_eq!(values(&weights), [-0.95, -1.0, -0.45]);
    assert_eq!(own.factors(3).step_size, 0.4);
}

fn values(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor).unwrap()
}

/// The formulas once more, in f64, one weight at a time.
fn by_hand(weight: f64, gradients: &[f64], learning_rate: f64, weight_decay: f64) -> (f64, f64, f64) {
    let (mut w, mut first, mut second) = (weight, 0.0, 0.0);
    for (step, gradient) in gradients.iter().enumerate() {
        let g = gradient + weight_decay * w;
        first = 0.9 * first + 0.1 * g;
        second = 0.999 * second + 0.001 * g * g;
        let step = step as i32 + 1;
        let corrected = (first / (1.0 - 0.9f64.powi(step)), second / (1.0 - 0.999f64.powi(step)));
        w -= learning_rate * corrected.0 / (corrected.1.sqrt() + 1e-8);
    }
    (w, first, second)
}

#[test]
fn the_first_step_is_as_long_as_the_learning_rate() {
    // For any gradient g, the corrected moments are g and g²: the step is 0.01 · g / (|g| + 1e-8).
    let mut weights = Tensor::from_slice(&[1f32, 2.0, 3.0]);
    let mut optimizer = adam(0.01, 0.0);
    optimizer.update(&mut weights, &Tensor::from_slice(&[5f32, -1e-3, 0.0])).unwrap();
    let found = values(&weights);
    for (found, expected) in found.iter().zip([0.99, 2.01, 3.0]) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
}

#[test]
fn steps_follow_the_formulas() {
    let start = [0.5f32, -0.25, 1.5, 0.0];
    let gradients = [[0.3f32, -0.1, 0.02, 0.0], [-0.2, 0.4, 0.01, 0.0], [0.1, 0.1, -5.0, 0.0]];
    for weight_decay in [0.0, 0.05] {
        let mut weights = Tensor::from_slice(&start);
        let decay = format!("optimizer.weight_decay={weight_decay}");
        let mut optimizer = optimizer(&["optimizer.learning_rate=0.02", &decay], 4);
        for gradient in &gradients {
            optimizer.update(&mut weights, &Tensor::from_slice(gradient)).unwrap();
        }
        assert_eq!(optimizer.step(), 3);
        for place in 0..4 {
            let own: Vec<f64> = gradients.iter().map(|gradient| f64::from(gradient[place])).collect();
            let (weight, first, second) = by_hand(f64::from(start[place]), &own, 0.02, weight_decay);
            let (found_first, found_second) = optimizer.moments();
            for (found, expected) in [(&weights, weight), (found_first, first), (found_second, second)] {
                let found = f64::from(values(found)[place]);
                assert!((found - expected).abs() <= 1e-6 * expected.abs() + 1e-9, "{found} {expected}");
            }
        }
    }
}

#[test]
fn resumed_moments_go_on_to_the_same_bits() {
    let gradient = Tensor::from_slice(&[0.3f32, -0.1, 0.02]);
    let start = || Tensor::from_slice(&[1f32, 2.0, 3.0]);
    let (mut whole, mut weights) = (adam(0.02, 0.01), start());
    for _ in 0..5 {
        whole.update(&mut weights, &gradient).unwrap();
    }
    let (mut half, mut again) = (adam(0.02, 0.01), start());
    for _ in 0..2 {
        half.update(&mut again, &gradient).unwrap();
    }
    let (first, second) = half.moments();
    let mut rest = adam(0.02, 0.01).resume(2, &first.copy(), &second.copy());
    for _ in 0..3 {
        rest.update(&mut again, &gradient).unwrap();
    }
    assert_eq!(values(&again), values(&weights));
}
