//! Time by phase, for each rank of each run.

use kith_run::{clock::Phases, phase::Phase};

use super::{
    folder::Runs,
    json::{JsonPart, seconds},
};
use crate::{
    page::{Cell, Column, Figure, Table},
    plot::bars::{Bar, Bars},
};

/// Maximum number of readable bars; means are shown for more.
const MAX_BARS: usize = 24;

/// The phases of one rank of one run.
struct Rank {
    name: String,
    phases: Phases,
    /// Source of the phases in the run's report.
    reported: Option<JsonPart>,
}

/// A plot and a table of all ranks; `None` without timings.
pub(super) fn spent(runs: &Runs) -> Option<(Figure, Table)> {
    let ranks = ranks(runs);
    if ranks.iter().all(|rank| rank.phases.total() == 0) {
        return None;
    }
    let is_mean = ranks.len() > MAX_BARS;
    let lengths = |phases: &Phases| Phase::ALL.iter().map(|phase| phases.of(*phase) as f64 / 1e6).collect::<Vec<f64>>();
    let bars = if is_mean {
        let n = ranks.len() as f64;
        let sum =
            ranks.iter().map(|rank| lengths(&rank.phases)).reduce(|a, b| a.iter().zip(b).map(|(a, b)| a + b).collect());
        let mean = sum.unwrap_or_default().into_iter().map(|length| length / n).collect();
        vec![Bar { name: "mean".to_owned(), lengths: mean }]
    } else {
        ranks.iter().map(|rank| Bar { name: rank.name.clone(), lengths: lengths(&rank.phases) }).collect()
    };
    let plot = Bars {
        title: "Where the time went".to_owned(),
        description: "Seconds that each rank spent in each phase.".to_owned(),
        x_label: "seconds".to_owned(),
        unit: "s".to_owned(),
        parts: Phase::ALL.iter().map(|phase| phase.name().to_owned()).collect(),
        bars,
        width: 880.0,
    };
    let caption = if is_mean { "The mean over all ranks of all runs." } else { "" };
    Some((Figure { svg: plot.svg(), caption: caption.to_owned() }, table(&ranks)))
}

fn table(ranks: &[Rank]) -> Table {
    let mut columns = vec!["rank".to_owned()];
    columns.extend(Phase::ALL.iter().map(|phase| format!("{} (s)", phase.name())));
    columns.push("all (s)".to_owned());
    let in_seconds = |micros: f64| seconds(micros / 1e6);
    let row = |rank: &Rank| {
        let mut row = vec![Cell::new(&rank.name)];
        for phase in Phase::ALL {
            let own = || Cell::new(in_seconds(rank.phases.of(phase) as f64)).with_value(rank.phases.of(phase));
            let pointer = format!("/{}", phase.name());
            let reported = rank.reported.as_ref().filter(|reported| reported.number(&pointer).is_some());
            row.push(reported.map_or_else(own, |reported| reported.cell(&pointer, in_seconds)));
        }
        row.push(Cell::new(in_seconds(rank.phases.total() as f64)).with_value(rank.phases.total()));
        row
    };
    Table {
        name: "phases".to_owned(),
        columns: Column::named(columns),
        rows: ranks.iter().map(row).collect(),
        ..Table::default()
    }
}

fn ranks(runs: &Runs) -> Vec<Rank> {
    let mut ranks = Vec::new();
    for run in &runs.all {
        let reported = run.report.as_ref().and_then(|report| report.at("/phases")).map(|phases| phases.items());
        let parts: Vec<(Phases, Option<JsonPart>)> = match reported {
            Some(parts) => parts.into_iter().map(|part| (phases_of(&part), Some(part))).collect(),
            None => run.steps.phases.iter().map(|phases| (*phases, None)).collect(),
        };
        let n_ranks = parts.len();
        for (rank, (phases, reported)) in parts.into_iter().enumerate() {
            let name = match (runs.are_several, n_ranks) {
                (true, 1) => run.name(),
                (true, _) => format!("{}, rank {rank}", run.name()),
                (false, _) => format!("rank {rank}"),
            };
            ranks.push(Rank { name, phases, reported });
        }
    }
    ranks
}

/// Phases of a report; unknown ones of other versions are skipped.
fn phases_of(part: &JsonPart) -> Phases {
    let micros = |phase: Phase| part.number(&format!("/{}", phase.name())).unwrap_or(0.0) as u64;
    Phases {
        start: micros(Phase::Start),
        sample: micros(Phase::Sample),
        compute: micros(Phase::Compute),
        exchange: micros(Phase::Exchange),
        update: micros(Phase::Update),
        evaluate: micros(Phase::Evaluate),
        save: micros(Phase::Save),
    }
}
