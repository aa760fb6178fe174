//! Table of results: speed and resources.

use kith_run::{clock::Phases, phase::Phase};

use super::{combinations::Combination, measured::Measured, processes::Memory};
use crate::{
    answer::{print, print_table},
    progress::{bytes, grouped},
};

/// Phases of a step that occur in a bench.
const SHOWN: [Phase; 4] = [Phase::Sample, Phase::Compute, Phase::Exchange, Phase::Update];

/// Prints both tables.
pub(super) fn print_tables(rows: &[(&Combination, &Measured)]) -> anyhow::Result<()> {
    let names = ["fanouts", "shards", "servers", "ranks"];
    let speed = ["seed nodes/s", "edges/s", "step", "to servers", "from servers", "between ranks"];
    let phases = SHOWN.map(Phase::name);
    let mut table = vec![heading(names.iter().chain(&speed).chain(&phases))];
    table.extend(rows.iter().map(|(asked, measured)| [combination(asked), how_fast(measured)].concat()));
    print("how fast: bytes are those of a step, phases the largest share of a rank\n")?;
    print_table(&table)?;

    let takes = ["rank resident", "private", "peak", "server resident", "private", "peak", "CPU s, ranks", "servers"];
    let mut table = vec![heading(names.iter().chain(&takes))];
    table.extend(rows.iter().map(|(asked, measured)| [combination(asked), what_it_takes(measured)].concat()));
    print("\nwhat it takes: memory of the largest process, CPU seconds of all for 1,000 seeds\n")?;
    print_table(&table)
}

fn heading<'a>(names: impl Iterator<Item = &'a &'static str>) -> Vec<String> {
    names.map(|name| (*name).to_owned()).collect()
}

fn combination(asked: &Combination) -> Vec<String> {
    let Combination { fanouts, shards, servers, ranks, .. } = asked;
    vec![fanouts.clone(), shards.to_string(), servers.to_string(), ranks.to_string()]
}

fn how_fast(measured: &Measured) -> Vec<String> {
    let mut cells = vec![
        grouped(measured.seeds_per_second.round() as u64),
        grouped(measured.edges_per_second.round() as u64),
        format!("{:.1} ms", measured.step_micros as f64 / 1e3),
        bytes(measured.to_servers_bytes_per_step),
        bytes(measured.from_servers_bytes_per_step),
        bytes(measured.between_ranks_bytes_per_step),
    ];
    let share = |phases: &Phases, phase| 100.0 * phases.of(phase) as f64 / phases.total().max(1) as f64;
    cells.extend(SHOWN.map(|phase| {
        let shares = measured.ranks.iter().map(|rank| share(&rank.phases, phase));
        format!("{:.1}%", shares.fold(0.0, f64::max))
    }));
    cells
}

fn what_it_takes(measured: &Measured) -> Vec<String> {
    let ranks: Vec<Memory> = measured.ranks.iter().map(|rank| rank.memory).collect();
    let servers: Vec<Memory> = measured.servers.iter().map(|server| server.memory).collect();
    let of = |all: &[Memory], part: fn(&Memory) -> u64| bytes(all.iter().map(part).max().unwrap_or(0));
    let mut cells = Vec::new();
    for all in [&ranks, &servers] {
        let parts: [fn(&Memory) -> u64; 3] = [|m| m.resident_bytes, |m| m.private_bytes, |m| m.peak_bytes];
        cells.extend(parts.map(|part| of(all, part)));
    }
    cells.push(format!("{:.3}", measured.rank_cpu_seconds_per_1000_seeds));
    cells.push(format!("{:.3}", measured.server_cpu_seconds_per_1000_seeds));
    cells
}
