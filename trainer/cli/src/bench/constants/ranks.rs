//! Ranks beside each other: crowding, waits, the ring, and threads, compared with one rank of one thread.

use std::collections::BTreeMap;

use super::{
    fit::Sample,
    gauge::Round,
    prices::{Fitted, Prices, fitted},
    runs::Measured,
};
use crate::{
    constants::{CROWD, WAIT, median},
    plan::time::gradients,
};

/// The run of one rank that a measurement is compared with: the median of its rounds.
fn base(measured: &[Measured], other: &Measured) -> Round {
    let is_base =
        |one: &&Measured| one.subject.is_alone() && one.subject.servers == 0 && one.subject.is_like(&other.subject);
    Round::median(&measured.iter().find(is_base).expect("one rank alone is measured").rounds)
}

/// Crowding is the CPU time of a rank beside others, relative to one alone. What a step takes beyond that are the waits of ranks for
/// the slowest, which grow with the step, and the exchange of gradients.
pub(super) fn fit_ranks(prices: &mut Prices<'_>) {
    let all = prices.measured;
    let ranks = prices.select(|subject| subject.ranks > 1);
    let bases: Vec<Round> = ranks.iter().map(|measured| base(all, measured)).collect();
    let mut crowd: BTreeMap<usize, [Vec<f64>; 2]> = BTreeMap::from([(1, [vec![1.0], vec![1.0]])]);
    for (measured, one) in ranks.iter().zip(&bases).filter(|(measured, _)| measured.subject.is_usual()) {
        let [sampling, training] = crowd.entry(measured.subject.ranks).or_default();
        for round in &measured.rounds {
            sampling.push((round.sampling / one.sampling).max(1.0));
            training.push((round.training / one.training).max(1.0));
        }
    }
    // One rank waits for nobody: the rest of its steps is other work of the machine, which several ranks have as well.
    let others = idleness(all, 1) - 1.0;
    let counts: Vec<usize> = crowd.keys().copied().filter(|n| *n > 1).collect();
    let (of_waits, _) = fitted(&ranks, |rounds| {
        let sample = |((measured, one), round): ((&&Measured, &Round), &Round)| {
            let n_ranks = measured.subject.ranks;
            let [sampling, training] = &crowd[&n_ranks];
            let cpu = median(sampling) * one.sampling + median(training) * one.training;
            let (sent, hops) = gradients(&measured.job, n_ranks);
            let mut work: Vec<f64> = counts.iter().map(|n| if *n == n_ranks { cpu } else { 0.0 }).collect();
            work.extend([hops, sent]);
            // Relative to the whole step: the part may be smaller than the noise.
            Sample { seconds: round.step - (1.0 + others) * cpu, scale: round.step, work }
        };
        ranks.iter().zip(&bases).zip(rounds).map(sample).collect()
    });
    for (n_busy, [sampling, training]) in crowd {
        for (part, rounds) in [("sample", sampling), ("compute", training)] {
            prices.put(&format!("{CROWD}{n_busy}.{part}"), (median(&rounds), rounds), "times", IN_CROWD);
        }
    }
    for (place, n_ranks) in counts.iter().enumerate() {
        prices.put(&format!("{WAIT}{n_ranks}"), of_waits.price(place), "share", WAITING);
    }
    let ring = |prices: &Vec<f64>| prices.iter().skip(counts.len()).copied().collect();
    let rounds = of_waits.rounds.iter().map(ring).collect();
    prices.put_all(&["ring.hop", "ring.byte"], &Fitted { median: ring(&of_waits.median), rounds });
}

const IN_CROWD: &str = "CPU time beside this number of busy cores, relative to one";
const WAITING: &str = "time of a step that this number of ranks wait for each other, relative to their CPU time";

/// The share of forward and backward that more threads do not speed up.
pub(super) fn fit_threads(prices: &mut Prices<'_>) {
    let threads = prices.select(|subject| subject.threads > 1 && subject.device == "cpu");
    let serial: Vec<f64> = threads
        .iter()
        .flat_map(|measured| {
            let (one, n) = (base(prices.measured, measured), measured.subject.threads as f64);
            let of = move |round: &Round| {
                ((round.compute / (one.training - one.update) - 1.0 / n) / (1.0 - 1.0 / n)).clamp(0.0, 1.0)
            };
            measured.rounds.iter().map(of)
        })
        .collect();
    let serial = if serial.is_empty() { vec![0.0] } else { serial };
    prices.put_named("threads.serial", (median(&serial), serial));
}

/// Time of steps of ranks on a core each, relative to their CPU time, at least 1.
pub(super) fn idleness(measured: &[Measured], n_ranks: usize) -> f64 {
    let is_meant = |one: &&Measured| {
        let subject = &one.subject;
        subject.ranks == n_ranks && subject.threads == 1 && subject.servers == 0 && subject.device == "cpu"
    };
    let rounds = measured.iter().filter(is_meant).flat_map(|measured| &measured.rounds);
    let all: Vec<f64> = rounds.map(|round| round.step / round.cpu()).collect();
    if all.is_empty() { 1.0 } else { median(&all).max(1.0) }
}

#[cfg(test)]
mod tests {
    use kith_run::model_kind::ModelKind;

    use super::{
        super::{prices::tests::noise, subjects::Subject},
        *,
    };
    use crate::{constants::N_PARTS, plan::time::Job};

    /// Rounds on 8 cores, of which four and more wait for the slowest for a quarter of their time. Two ranks do not, and noise makes
    /// some of their rounds shorter than those of one rank.
    fn on_eight_cores() -> Vec<Measured> {
        let subjects = Subject::all(&[ModelKind::Gat, ModelKind::Supergat], 8, "cpu");
        let measure = |(place, subject): (usize, Subject)| {
            let n_weights = if subject.is_usual() { 22_000.0 } else { 5_000.0 + 5.0 * subject.batch as f64 };
            let n_weights = if subject.graph == super::super::subjects::Like::Wide { 280_000.0 } else { n_weights };
            let job = Job {
                vector_bytes: 512.0,
                id_bytes: 4.0,
                n_weights,
                slices: subject.ranks,
                is_deterministic: true,
                compute: [0.0; N_PARTS],
                disk_pages: 0.0,
            };
            let (sampling, training) = if subject.batch < 100 { (2e-4, 1e-3) } else { (5e-3, 2e-2) };
            let (crowd, wait) = match subject.ranks {
                1 => (1.0, 0.0),
                2 => (1.02, 0.0),
                _ => (1.2, 0.25),
            };
            let (sent, hops) = gradients(&job, subject.ranks);
            let round = |round: usize| {
                let cpu = noise(place, round) * crowd * (sampling + training);
                let step = (1.0 + wait) * crowd * (sampling + training) + hops * 3e-5 + sent * 1e-9;
                Round {
                    step: step * noise(place, round + 5),
                    sampling: cpu * sampling / (sampling + training),
                    training: cpu * training / (sampling + training),
                    ..Round::default()
                }
            };
            Measured { rounds: (0..5).map(round).collect(), subject, steps: Vec::new(), job }
        };
        subjects.into_iter().enumerate().map(measure).collect()
    }

    #[test]
    fn waits_of_some_ranks_are_found_beside_ranks_that_do_not_wait() {
        let measured = on_eight_cores();
        let mut prices = Prices::new(&measured);
        fit_ranks(&mut prices);
        let of = |name: &str| prices.constants[name].median;
        let is_near = |name: &str, expected: f64, error: f64| {
            let found = of(name);
            assert!((found - expected).abs() <= error, "{name}: {found:e} instead of {expected:e}");
        };
        for (n, crowd, wait) in [(1, 1.0, 0.0), (2, 1.02, 0.0), (4, 1.2, 0.25), (8, 1.2, 0.25)] {
            is_near(&format!("crowd.{n}.sample"), crowd, 0.04);
            is_near(&format!("crowd.{n}.compute"), crowd, 0.04);
            if n > 1 {
                is_near(&format!("wait.{n}"), wait, 0.06);
            }
        }
        is_near("ring.hop", 3e-5, 1e-5);
        is_near("ring.byte", 1e-9, 3e-10);
        assert!(idleness(&measured, 1) < 1.05);
    }
}
