//! Prices of work, fitted to what was measured.

use std::collections::BTreeMap;

use kith_run::{choice::Choice, model_kind::ModelKind};

use super::{
    fit::{Sample, fit, largest_error},
    gauge::Round,
    runs::Measured,
    subjects::Subject,
};
use crate::{
    constants::{COMPUTE, Constant, GPU, NAMES},
    plan::work::Work,
};

const LOCAL: [&str; 5] = ["local.slice", "local.edge", "local.vector", "local.byte", "local.pair"];
const CLIENT: [&str; 5] = ["client.call", "client.edge", "client.vector", "client.byte", "client.pair"];
const SERVER: [&str; 5] = ["server.call", "server.edge", "server.vector", "server.byte", "server.pair"];
const UPDATE: [&str; 2] = ["update.step", "update.weight"];

/// Constants that measurements explain.
pub(super) struct Prices<'a> {
    pub(super) measured: &'a [Measured],
    pub(super) constants: BTreeMap<String, Constant>,
    /// Largest relative error of the fitted runs, by what was fitted.
    pub(super) errors: BTreeMap<String, f64>,
}

/// Prices of the medians of the rounds, and of each round.
pub(super) struct Fitted {
    pub(super) median: Vec<f64>,
    pub(super) rounds: Vec<Vec<f64>>,
}

/// Mean work of a rank in a step.
fn mean(measured: &Measured, of: impl Fn(&Work) -> Vec<f64>) -> Vec<f64> {
    let works: Vec<Vec<f64>> = measured.steps.iter().flatten().flatten().map(of).collect();
    (0..works[0].len()).map(|part| works.iter().map(|work| work[part]).sum::<f64>() / works.len() as f64).collect()
}

impl Fitted {
    /// The rounds of one price.
    pub(super) fn price(&self, place: usize) -> (f64, Vec<f64>) {
        let of = |prices: &Vec<f64>| prices.get(place).copied().unwrap_or(0.0);
        (of(&self.median), self.rounds.iter().map(of).collect())
    }
}

/// Fits prices to the median of all rounds, and to each round. `samples` has those of given rounds, one of each measurement.
pub(super) fn fitted(measured: &[&Measured], samples: impl Fn(&[Round]) -> Vec<Sample>) -> (Fitted, f64) {
    let n_rounds = measured.iter().map(|measured| measured.rounds.len()).min().unwrap_or(0);
    let of = |rounds: &[Round]| {
        let samples = samples(rounds);
        let prices = fit(&samples, samples.first().map_or(0, |sample| sample.work.len()));
        (largest_error(&samples, &prices), prices)
    };
    let medians: Vec<Round> = measured.iter().map(|measured| Round::median(&measured.rounds)).collect();
    let (error, median) = of(&medians);
    let round = |round: usize| measured.iter().map(|measured| measured.rounds[round]).collect::<Vec<Round>>();
    (Fitted { median, rounds: (0..n_rounds).map(|nth| of(&round(nth)).1).collect() }, error)
}

impl<'a> Prices<'a> {
    pub(super) fn new(measured: &'a [Measured]) -> Prices<'a> {
        Prices { measured, constants: BTreeMap::new(), errors: BTreeMap::new() }
    }

    pub(super) fn select(&self, is_meant: impl Fn(&Subject) -> bool) -> Vec<&'a Measured> {
        self.measured.iter().filter(|measured| is_meant(&measured.subject)).collect()
    }

    pub(super) fn put(&mut self, name: &str, (median, rounds): (f64, Vec<f64>), unit: &str, meaning: &str) {
        self.constants.insert(name.to_owned(), Constant::new(median, &rounds, unit, meaning));
    }

    /// A constant of [`NAMES`].
    pub(super) fn put_named(&mut self, name: &str, value: (f64, Vec<f64>)) {
        let (_, unit, meaning) = NAMES.iter().find(|(own, ..)| *own == name).expect("a constant");
        self.put(name, value, unit, meaning);
    }

    pub(super) fn put_all(&mut self, names: &[&str], fitted: &Fitted) {
        names.iter().enumerate().for_each(|(place, name)| self.put_named(name, fitted.price(place)));
    }

    /// Prices of some measurements.
    fn of(
        &mut self,
        name: &str,
        measured: &[&Measured],
        work: impl Fn(&Measured) -> Vec<f64>,
        seconds: impl Fn(&Round) -> f64,
    ) -> Fitted {
        let works: Vec<Vec<f64>> = measured.iter().map(|measured| work(measured)).collect();
        let (fitted, error) = fitted(measured, |rounds| {
            rounds.iter().zip(&works).map(|(round, work)| Sample::of(seconds(round), work.clone())).collect()
        });
        self.errors.insert(name.to_owned(), error);
        fitted
    }

    /// Fits prices of the work of a rank and of servers.
    pub(super) fn fit_work(&mut self, models: &[ModelKind]) {
        let alone = self.select(|subject| subject.is_alone() && subject.servers == 0);
        let work = |measured: &Measured| mean(measured, |work| work.local(measured.job.vector_bytes).to_vec());
        let local = self.of("local", &alone, work, |round| round.sampling);
        self.put_all(&LOCAL, &local);

        let served = self.select(|subject| subject.is_alone() && subject.servers > 0);
        let asked = |measured: &Measured| mean(measured, |work| work.client(measured.job.vector_bytes, 1.0).to_vec());
        let client = self.of("client", &served, asked, |round| round.sampling);
        self.put_all(&CLIENT, &client);
        let server = self.of("server", &served, asked, |round| round.servers);
        self.put_all(&SERVER, &server);

        let update = |measured: &Measured| vec![1.0, measured.job.n_weights];
        let update = self.of("update", &alone, update, |round| round.update);
        self.put_all(&UPDATE, &update);

        for kind in models {
            for on_gpu in [false, true] {
                let is_meant = |subject: &Subject| {
                    subject.kind == *kind
                        && subject.servers == 0
                        && if on_gpu { subject.device != "cpu" } else { subject.is_alone() }
                };
                self.fit_compute(*kind, on_gpu, &self.select(is_meant));
            }
        }
    }

    fn fit_compute(&mut self, kind: ModelKind, on_gpu: bool, own: &[&Measured]) {
        if own.is_empty() {
            return;
        }
        let prefix = if on_gpu { GPU } else { "" };
        let work = |measured: &Measured| mean(measured, |work| work.compute().to_vec());
        // A GPU's step is measured whole; it samples local shards itself.
        let seconds = |round: &Round| if on_gpu { round.step } else { (round.training - round.update).max(0.0) };
        let prices = self.of(&format!("{prefix}{}", kind.name()), own, work, seconds);
        for (place, (part, meaning)) in COMPUTE.iter().enumerate() {
            self.put(&format!("{prefix}{}.{part}", kind.name()), prices.price(place), "s", meaning);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::runs::tests::all_counted, *};

    /// Noise of a measurement, within 4%, that is the same in each test.
    pub(in super::super) fn noise(place: usize, round: usize) -> f64 {
        let word = (place as u64 * 7 + round as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        1.0 + 0.04 * (((word >> 33) % 2001) as f64 / 1000.0 - 1.0)
    }

    #[test]
    fn noisy_runs_of_the_default_subjects_give_the_prices_of_their_work() {
        let prices = [8e-4, 2e-11, 1e-9, 4e-9, 1.2e-9, 5e-10];
        for kind in [ModelKind::Gat, ModelKind::Supergat] {
            let mut measured = all_counted(&Subject::shapes(kind));
            for (place, one) in measured.iter_mut().enumerate() {
                let work = mean(one, |work| work.compute().to_vec());
                let exact: f64 = prices.iter().zip(work).map(|(price, n)| price * n).sum();
                one.rounds =
                    (0..5).map(|round| Round { training: exact * noise(place, round), ..Round::default() }).collect();
            }
            let mut fit = Prices::new(&measured);
            fit.fit_compute(kind, false, &measured.iter().collect::<Vec<_>>());
            for (place, (part, _)) in COMPUTE.iter().enumerate() {
                let found = fit.constants[&format!("{}.{part}", kind.name())].median;
                // Gat has no pairs.
                let price = if kind == ModelKind::Gat && *part == "pair" { 0.0 } else { prices[place] };
                let most = if ["edge", "pair", "feature"].contains(part) { 0.4 } else { 0.15 };
                assert!((found - price).abs() <= most * price, "{kind:?}: {part}: {found:e} instead of {price:e}");
            }
        }
    }
}
