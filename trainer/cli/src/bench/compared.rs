//! Step times of combinations beside those that `kith plan` predicts.

use std::path::PathBuf;

use kith_client::Found;
use kith_run::run_file::RunFile;
use serde::Serialize;

use super::{combinations::Combination, measured::Measured};
use crate::{
    answer::{print, print_table},
    constants::Constants,
    plan::{
        forecast::vector_bytes,
        of_cluster,
        placement::Placement,
        sampled::{Find, Wanted, sample, settled},
        speed,
        time::{Job, Layout, Network, StepTime, mean, step_time},
        work::Shape,
    },
};

/// Steps whose work is counted.
const N_COUNTED: u64 = 6;

/// A prediction agrees within this share of the median.
const TOLERANCE: f64 = 0.2;

/// A combination, all rounds together.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Compared {
    asked: Combination,
    predicted: StepTime,
    /// Seconds of a step: median, least and greatest of the rounds.
    median: f64,
    least: f64,
    greatest: f64,
    rounds: usize,
    /// Of the median.
    relative_error: f64,
    /// Within 20% of the median, or between the least and the greatest.
    agrees: bool,
    /// Bytes of requests and answers of a step, predicted and measured.
    predicted_bytes: [f64; 2],
    measured_bytes: [u64; 2],
}

/// Groups rounds, and predicts each combination once. `cluster` is the folder of a partitioned graph.
pub(super) fn compare(
    constants: &Constants,
    measured: &[(&Combination, &Measured)],
    cluster: impl Fn(u32) -> PathBuf,
) -> anyhow::Result<Vec<Compared>> {
    let mut compared: Vec<Compared> = Vec::new();
    for (first, _) in measured
        .iter()
        .filter(|(asked, _)| !measured.iter().any(|(other, _)| other.round < asked.round && is_same(asked, other)))
    {
        let own: Vec<&Measured> =
            measured.iter().filter(|(asked, _)| is_same(asked, first)).map(|(_, measured)| *measured).collect();
        let times: Vec<f64> = own.iter().map(|measured| measured.seconds / measured.n_steps as f64).collect();
        let predicted = predict(constants, first, &cluster(first.shards))?;
        let bytes = [own[0].to_servers_bytes_per_step, own[0].from_servers_bytes_per_step];
        compared.push(Compared::new((*first).clone(), predicted, times, bytes));
    }
    Ok(compared)
}

/// True for rounds of the same combination.
fn is_same(one: &Combination, other: &Combination) -> bool {
    *one == Combination { round: one.round, ..other.clone() }
}

impl Compared {
    fn new(asked: Combination, predicted: StepTime, mut times: Vec<f64>, measured_bytes: [u64; 2]) -> Compared {
        times.sort_by(f64::total_cmp);
        let (least, median, greatest) = (times[0], times[times.len() / 2], times[times.len() - 1]);
        let relative_error = predicted.total / median - 1.0;
        Compared {
            asked,
            predicted,
            median,
            least,
            greatest,
            rounds: times.len(),
            relative_error,
            agrees: relative_error.abs() <= TOLERANCE || (least..=greatest).contains(&predicted.total),
            predicted_bytes: [predicted.request_bytes, predicted.answer_bytes],
            measured_bytes,
        }
    }
}

/// Predicted time of a combination, all of whose processes are on this machine.
fn predict(constants: &Constants, asked: &Combination, cluster: &std::path::Path) -> anyhow::Result<StepTime> {
    let planned = of_cluster(cluster, None)?;
    let config = RunFile::parse(&asked.run_file, "scale.jsonl")?.resolve()?;
    let (config, seeds) = settled(&planned.shards, config, asked.ranks)?;
    let info = planned.shards.info().clone();
    let shape = Shape::new(&config, info.dim, info.n_classes);
    let has_gpus = asked.device != "cpu";
    let slices_per_rank = config.train.slices.div_ceil(asked.ranks);
    let percent: f64 = asked.cache.parse().unwrap_or(0.0);
    let n_cached = (planned.owner.len() as f64 * percent / 100.0) as usize;
    let place = Placement::of_ranks(&planned.owner, 1, planned.inclusion.as_deref(), n_cached, 1);
    let is_served = asked.servers > 0;
    let find: &Find<'_> = &|_, node| if is_served { place.find(0, node) } else { Found::Local };
    let wanted = Wanted { run_seed: 42, n_steps: N_COUNTED, ranks: asked.ranks, slices_per_rank };
    let job = Job {
        vector_bytes: vector_bytes(&planned.contents, planned.stored_per_row),
        id_bytes: if u32::try_from(planned.contents.n_nodes).is_ok() { 4.0 } else { 8.0 },
        n_weights: shape.n_weights(),
        slices: config.train.slices,
        is_deterministic: config.train.deterministic.unwrap_or(!has_gpus),
        compute: constants.compute(shape.model, has_gpus)?,
        disk_pages: 0.0,
    };
    let layout = Layout {
        hosts: 1,
        ranks_per_host: asked.ranks,
        servers: asked.servers,
        threads: asked.rank_threads,
        server_threads: asked.server_threads,
        cores: constants.cores,
        has_gpus,
        is_one_machine: true,
    };
    let rate = asked.loopback_rate.as_deref().and_then(|text| speed::parse(text).ok()).unwrap_or(f64::INFINITY);
    let network = Network { rate, latency: 0.0 };
    let steps = sample(&planned.shards, (&config, seeds), wanted, &[find])?.remove(0);
    let times: Vec<StepTime> = steps.iter().map(|ranks| step_time(constants, &job, &layout, &network, ranks)).collect();
    Ok(mean(&times))
}

/// Prints predictions beside measurements.
pub(super) fn print_compared(compared: &[Compared]) -> anyhow::Result<()> {
    if compared.is_empty() {
        return Ok(());
    }
    let n_agreeing = compared.iter().filter(|one| one.agrees).count();
    print(&format!(
        "\nstep times beside those that kith plan predicts: {n_agreeing} of {} within {:.0}% of the median, or inside the spread\n",
        compared.len(),
        100.0 * TOLERANCE
    ))?;
    let heading = [
        "servers",
        "ranks",
        "network",
        "predicted",
        "bound",
        "median",
        "least",
        "greatest",
        "rounds",
        "error",
        "agrees",
    ];
    let mut table = vec![heading.map(str::to_owned).to_vec()];
    for one in compared {
        let ms = |seconds: f64| format!("{:.2} ms", seconds * 1e3);
        table.push(vec![
            one.asked.servers.to_string(),
            one.asked.ranks.to_string(),
            one.asked.loopback_rate.clone().unwrap_or_else(|| "loopback".to_owned()),
            ms(one.predicted.total),
            one.predicted.bound.name().to_owned(),
            ms(one.median),
            ms(one.least),
            ms(one.greatest),
            one.rounds.to_string(),
            format!("{:+.1}%", 100.0 * one.relative_error),
            if one.agrees { "yes" } else { "no" }.to_owned(),
        ]);
    }
    print_table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::tests::asked;

    #[test]
    fn predictions_agree_within_a_fifth_or_inside_the_spread() {
        let agrees = |predicted: f64, times: &[f64]| {
            let step = StepTime { total: predicted, ..StepTime::default() };
            Compared::new(asked(1), step, times.to_vec(), [0, 0]).agrees
        };
        assert!(agrees(0.119, &[0.1, 0.1, 0.1]) && agrees(0.081, &[0.1, 0.1, 0.1]));
        assert!(!agrees(0.121, &[0.1, 0.1, 0.1]) && !agrees(0.079, &[0.1, 0.1, 0.1]));
        assert!(agrees(0.15, &[0.16, 0.1, 0.09]) && !agrees(0.15, &[0.14, 0.1, 0.09]));
        let step = StepTime { total: 0.05, ..StepTime::default() };
        let compared = Compared::new(asked(1), step, vec![0.3, 0.1, 0.2], [0, 0]);
        assert_eq!((compared.least, compared.median, compared.greatest), (0.1, 0.2, 0.3));
        assert!((compared.relative_error + 0.75).abs() < 1e-9);
    }

    #[test]
    fn rounds_are_of_one_combination() {
        let (one, other) = (asked(1), Combination { round: 3, ..asked(1) });
        assert!(is_same(&one, &other) && !is_same(&one, &asked(2)));
    }
}
