//! Measurements of one combination.

use kith_group::launch::attempt::Who;
use kith_run::clock::Phases;
use serde::{Deserialize, Serialize};

use super::{processes::Memory, served::Served, steps::Step};

/// Measurements of one combination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Measured steps, at least the requested number, and their time.
    pub(super) n_steps: u64,
    pub(super) seconds: f64,
    pub(super) n_seeds: u64,
    /// Edges of all mini-batches.
    pub(super) n_edges: u64,
    pub(super) seeds_per_second: f64,
    pub(super) edges_per_second: f64,
    /// Median time of a step.
    pub(super) step_micros: u64,
    /// Bytes of requests to all servers, and of their responses.
    pub(super) to_servers_bytes_per_step: u64,
    pub(super) from_servers_bytes_per_step: u64,
    /// Bytes that all ranks sent to each other.
    pub(super) between_ranks_bytes_per_step: u64,
    /// CPU time of all ranks, and of all servers.
    pub(super) rank_cpu_seconds_per_1000_seeds: f64,
    pub(super) server_cpu_seconds_per_1000_seeds: f64,
    pub(super) ranks: Vec<RankMeasured>,
    pub(super) servers: Vec<ServerMeasured>,
}

/// Measurements of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RankMeasured {
    /// Microseconds of a step by phase, each the median over steps.
    pub(super) phases: Phases,
    pub(super) cpu_seconds: f64,
    #[serde(flatten)]
    pub(super) memory: Memory,
}

/// Measurements of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ServerMeasured {
    pub(super) cpu_seconds: f64,
    #[serde(flatten)]
    pub(super) memory: Memory,
}

/// Counters after a number of recorded steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pub(super) n_steps: usize,
    /// By process, in starting order.
    pub(super) cpu_seconds: Vec<f64>,
    pub(super) served: Served,
}

impl Measured {
    /// Differences between two counts; memory is that of the second.
    pub(super) fn between(
        first: &Counted,
        last: &Counted,
        records: &[Step],
        processes: &[(Who, Memory)],
    ) -> Result<Measured, String> {
        let steps = &records[first.n_steps..last.n_steps];
        let n_ranks = processes.iter().filter(|(who, _)| matches!(who, Who::Rank(_))).count();
        if steps.is_empty() || steps.iter().any(|step| step.phases.len() != n_ranks) {
            return Err("the records of the run are not of all its ranks".to_owned());
        }
        let n_steps = steps.len() as u64;
        // Phases are contiguous, from one gradient exchange to the next.
        let times: Vec<u64> = steps.iter().map(|step| step.phases[0].total()).collect();
        let seconds = times.iter().sum::<u64>() as f64 / 1e6;
        let n_seeds: u64 = steps.iter().map(|step| step.n_seeds).sum();
        let n_edges: u64 = steps.iter().map(|step| step.n_edges).sum();
        let sent_bytes: u64 = steps.iter().flat_map(|step| &step.sent_bytes).sum();

        let (mut ranks, mut servers) = (Vec::new(), Vec::new());
        let cpu = first.cpu_seconds.iter().zip(&last.cpu_seconds).map(|(first, last)| last - first);
        for ((who, memory), cpu_seconds) in processes.iter().zip(cpu) {
            match who {
                Who::Rank(rank) => {
                    ranks.push(RankMeasured { phases: median_phases(steps, *rank), cpu_seconds, memory: *memory });
                }
                Who::Server(_) => servers.push(ServerMeasured { cpu_seconds, memory: *memory }),
            }
        }
        let per_1000_seeds = |cpu_seconds: &mut dyn Iterator<Item = f64>| {
            1000.0 * cpu_seconds.fold(0.0, |sum, seconds| sum + seconds) / n_seeds.max(1) as f64
        };
        Ok(Measured {
            n_steps,
            seconds,
            n_seeds,
            n_edges,
            seeds_per_second: n_seeds as f64 / seconds,
            edges_per_second: n_edges as f64 / seconds,
            step_micros: median(times),
            to_servers_bytes_per_step: (last.served.received_bytes - first.served.received_bytes) / n_steps,
            from_servers_bytes_per_step: (last.served.sent_bytes - first.served.sent_bytes) / n_steps,
            between_ranks_bytes_per_step: sent_bytes / n_steps,
            rank_cpu_seconds_per_1000_seeds: per_1000_seeds(&mut ranks.iter().map(|rank| rank.cpu_seconds)),
            server_cpu_seconds_per_1000_seeds: per_1000_seeds(&mut servers.iter().map(|server| server.cpu_seconds)),
            ranks,
            servers,
        })
    }
}

fn median_phases(steps: &[Step], rank: usize) -> Phases {
    let of = |phase: fn(&Phases) -> u64| median(steps.iter().map(|step| phase(&step.phases[rank])).collect());
    Phases {
        start: of(|phases| phases.start),
        sample: of(|phases| phases.sample),
        compute: of(|phases| phases.compute),
        exchange: of(|phases| phases.exchange),
        update: of(|phases| phases.update),
        evaluate: of(|phases| phases.evaluate),
        save: of(|phases| phases.save),
    }
}

/// Median; the upper one of an even number.
pub(super) fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(sample: u64, sent_bytes: &[u64]) -> Step {
        let phases = Phases { sample, compute: 600, exchange: 200, update: 100, ..Phases::default() };
        Step { n_seeds: 10, n_edges: 300, phases: vec![phases; 2], sent_bytes: sent_bytes.to_vec() }
    }

    #[test]
    fn what_came_before_the_first_count_does_not_count() {
        let records = [step(9_000_000, &[9, 9]), step(100, &[5, 6]), step(100, &[5, 6]), step(1100, &[5, 6])];
        let memory = Memory { resident_bytes: 3, private_bytes: 2, peak_bytes: 4 };
        let processes = [Who::Server(0), Who::Rank(0), Who::Rank(1)].map(|who| (who, memory));
        let counted = |n_steps: usize, cpu_seconds: [f64; 3], bytes: u64| Counted {
            n_steps,
            cpu_seconds: cpu_seconds.to_vec(),
            served: Served { received_bytes: bytes, sent_bytes: 10 * bytes },
        };
        let (first, last) = (counted(1, [1.0, 2.0, 3.0], 100), counted(4, [1.5, 3.0, 4.5], 130));
        let measured = Measured::between(&first, &last, &records, &processes).unwrap();
        assert_eq!((measured.n_steps, measured.n_seeds, measured.n_edges), (3, 30, 900));
        assert!((measured.seconds - 0.004).abs() < 1e-9 && (measured.seeds_per_second - 7500.0).abs() < 1e-6);
        assert_eq!((measured.to_servers_bytes_per_step, measured.from_servers_bytes_per_step), (10, 100));
        assert_eq!((measured.between_ranks_bytes_per_step, measured.step_micros), (11, 1000));
        assert_eq!((measured.ranks[1].phases.sample, measured.ranks[1].phases.total()), (100, 1000));
        assert!((measured.rank_cpu_seconds_per_1000_seeds - 2500.0 / 30.0).abs() < 1e-9);
        assert!((measured.server_cpu_seconds_per_1000_seeds - 500.0 / 30.0).abs() < 1e-9);
        assert!(Measured::between(&last, &last, &records, &processes).is_err());
    }
}
