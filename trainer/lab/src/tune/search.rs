//! Next points of a search: a pure function of the tuning key, the trial's number and the results of earlier trials.
//!
//! `gp` maximizes the expected improvement on the best mean of a Gaussian process. Values far below the median are
//! clipped: collapsed runs would hide all differences that matter. Every fourth point is random, so that the search
//! does not end in a local maximum. `docs/use/tune.md` compares the methods.

use kith_draw::{Draws, Name, Purpose, Stream, exp};
use kith_run::search::Method;

use crate::tune::gaussian::Gaussian;

/// Random trials before the first guided one.
const N_BLIND: usize = 10;

/// Period of random trials among guided ones.
const BLIND_EVERY: usize = 4;

/// Candidates for the largest expected improvement: anywhere, and near the best.
const N_ANYWHERE: usize = 1000;
const N_NEAR: usize = 500;

/// Result of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Its point in the unit cube.
    pub point: Vec<f64>,
    /// Its value; larger is better.
    pub value: f64,
}

/// Points of the trials `first..first + n`, given all results known when `first` was chosen.
pub fn propose(method: Method, tuning_key: u64, dim: usize, seen: &[Seen], first: usize, n: usize) -> Vec<Vec<f64>> {
    let blind = |trial| draw_point(&mut stream(tuning_key, trial).draws(0, 0, 0), dim);
    match method {
        Method::Gp if seen.len() >= N_BLIND => improve(tuning_key, seen, first, n),
        _ => (first..first + n).map(blind).collect(),
    }
}

fn stream(tuning_key: u64, trial: usize) -> Stream {
    Name { run_key: tuning_key, purpose: Purpose::Tuning, step: trial as u64, layer: 0 }.stream()
}

fn draw_point(draws: &mut Draws, dim: usize) -> Vec<f64> {
    (0..dim).map(|_| draws.uniform()).collect()
}

/// Points of a batch of trials: each point but the first assumes the predicted means at those before it.
fn improve(tuning_key: u64, seen: &[Seen], first: usize, n: usize) -> Vec<Vec<f64>> {
    let dim = seen[0].point.len();
    let mut points: Vec<Vec<f64>> = seen.iter().map(|seen| seen.point.clone()).collect();
    let mut values = standardized(&seen.iter().map(|seen| seen.value).collect::<Vec<_>>());
    let (mut gaussian, parameters) = Gaussian::fit(&points, &values);
    for trial in first..first + n {
        let stream = stream(tuning_key, trial);
        let point = match trial % BLIND_EVERY == BLIND_EVERY - 1 {
            true => draw_point(&mut stream.draws(0, 0, 0), dim),
            false => most_promising(&gaussian, &points, stream),
        };
        values.push(gaussian.at(&point).0);
        points.push(point);
        if let Some(next) = Gaussian::with(&points, &values, &parameters) {
            gaussian = next;
        }
    }
    points.split_off(seen.len())
}

/// Standardized values, after clipping: the lowest is as far below the median as the best is above it.
fn standardized(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (middle, top) = (sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
    let lowest = middle - (top - middle).max(1e-6);
    let clipped: Vec<f64> = values.iter().map(|value| value.max(lowest)).collect();
    let n = clipped.len() as f64;
    let mean = clipped.iter().sum::<f64>() / n;
    let std = (clipped.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n).sqrt().max(1e-9);
    clipped.iter().map(|value| (value - mean) / std).collect()
}

/// Candidate with the largest expected improvement on the best mean.
fn most_promising(gaussian: &Gaussian, points: &[Vec<f64>], stream: Stream) -> Vec<f64> {
    let dim = points[0].len();
    let means = points.iter().map(|point| gaussian.at(point).0);
    let (best, top) = means.enumerate().fold(
        (0, f64::NEG_INFINITY),
        |best, (place, mean)| {
            if mean > best.1 { (place, mean) } else { best }
        },
    );
    let improvement = |point: &[f64]| {
        let (mean, std) = gaussian.at(point);
        let z = (mean - top) / std;
        (mean - top) * below(z) + std * density(z)
    };
    let mut found = (f64::NEG_INFINITY, Vec::new());
    for candidate in 0..N_ANYWHERE + N_NEAR {
        let mut draws = stream.draws(1, candidate as u64, 0);
        let point: Vec<f64> = match candidate.checked_sub(N_ANYWHERE) {
            None => draw_point(&mut draws, dim),
            Some(place) => {
                let center = if place < N_NEAR / 2 { &points[best] } else { &found.1 };
                let far = if place % 2 == 0 { 0.2 } else { 0.05 };
                let moved = |at: &f64| (at + far * (draws.uniform() + draws.uniform() - 1.0)).clamp(0.0, 1.0);
                center.iter().map(moved).collect()
            }
        };
        let expected = improvement(&point);
        if expected > found.0 {
            found = (expected, point);
        }
    }
    found.1
}

/// Density of the standard normal distribution.
fn density(z: f64) -> f64 {
    exp((-z * z / 2.0).max(-700.0)) / std::f64::consts::TAU.sqrt()
}

/// Cumulative standard normal distribution (Abramowitz and Stegun 26.2.17, to 1e-7).
fn below(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let factors = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    let tail = density(z) * t * factors.iter().fold(0.0, |sum, factor| sum * t + factor);
    if z >= 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: [Method; 2] = [Method::Gp, Method::Random];

    /// A maximum inside the square, and a collapse at large first coordinates.
    fn value(point: &[f64], noise: &mut Draws) -> f64 {
        let far = (point[0] - 0.6).powi(2) + (point[1] - 0.3).powi(2);
        let collapse = if point[0] > 0.85 { 0.4 } else { 0.0 };
        0.8 - 0.3 * far - collapse + 0.005 * noise.normal()
    }

    fn search(method: Method, tuning_key: u64, n: usize, together: usize) -> Vec<Seen> {
        let mut seen: Vec<Seen> = Vec::new();
        let mut noise =
            Name { run_key: tuning_key, purpose: Purpose::Fault, step: 0, layer: 0 }.stream().draws(0, 0, 0);
        while seen.len() < n {
            let points = propose(method, tuning_key, 2, &seen, seen.len(), together);
            let found: Vec<Seen> =
                points.into_iter().map(|point| Seen { value: value(&point, &mut noise), point }).collect();
            seen.extend(found);
        }
        seen
    }

    fn best(seen: &[Seen]) -> f64 {
        let chosen = seen.iter().max_by(|a, b| a.value.total_cmp(&b.value)).unwrap();
        (chosen.point[0] - 0.6).powi(2) + (chosen.point[1] - 0.3).powi(2)
    }

    #[test]
    fn what_is_known_helps() {
        let far = |method, together| (0..12).map(|key| best(&search(method, key, 32, together))).sum::<f64>();
        let blind = far(Method::Random, 1);
        for together in [1, 4] {
            let found = far(Method::Gp, together);
            assert!(found < 0.85 * blind, "by {together}: {found} {blind}");
        }
    }

    #[test]
    fn the_same_points_twice_and_others_by_another_key() {
        for method in METHODS {
            let seen = search(method, 1, 16, 4);
            assert_eq!(seen, search(method, 1, 16, 4), "{method:?}");
            assert_ne!(seen, search(method, 2, 16, 4), "{method:?}");
            assert!(seen.iter().all(|seen| seen.point.iter().all(|place| (0.0..=1.0).contains(place))));
            // A point does not depend on the number of points after it in the batch.
            let [few, many] = [1, 4].map(|n| propose(method, 1, 2, &seen, 16, n));
            assert_eq!(few[0], many[0], "{method:?}");
            assert!(many.windows(2).all(|pair| pair[0] != pair[1]), "{method:?}");
        }
    }

    #[test]
    fn values_that_are_all_alike_do_no_harm() {
        for method in METHODS {
            let point = |place| vec![f64::from(place) / 12.0, 1.0];
            let seen: Vec<Seen> = (0..12).map(|place| Seen { point: point(place), value: 0.5 }).collect();
            let points = propose(method, 1, 2, &seen, 12, 3);
            assert!(points.iter().flatten().all(|place| (0.0..=1.0).contains(place)), "{method:?}: {points:?}");
        }
    }
}
