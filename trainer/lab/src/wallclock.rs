//! Training time: whole runs, one after the other, including evaluation.

use kith_partition::progress::Progress;
use kith_report::{paper::printed, statistics::Spread};
use kith_run::{phase::Phase, report::Results};

use crate::{
    bench::{machine, run},
    error::LabError,
    experiment::{Done, Experiment, Manner, Workplace},
    findings::{Cell as Shown, Findings, Table},
    grid::{Cells, Grid, Variant},
    kept::KeptRun,
};

struct Timed;

impl Experiment for Timed {
    fn name(&self) -> &'static str {
        "wallclock"
    }

    fn manner(&self) -> Manner {
        Manner::Alone
    }
}

/// Trains all cells and tabulates their times.
pub fn wallclock(asked: &Grid<'_>, place: &Workplace, progress: &dyn Progress) -> Result<Findings, LabError> {
    let Cells { cells, mut notes, .. } = asked.cells(&[Variant::PLAIN], place, progress)?;
    let done = run(cells, &Timed, place, progress)?;
    notes.extend(done.iter().flat_map(Done::failures));
    notes.push(
        "seconds of whole runs, validation and test measured after every epoch, mean ± population standard deviation; the \
         paper's are on one GTX 1080 Ti; a GPU draws negatives inside the step, where they have no time of their own"
            .to_owned(),
    );
    let columns = [
        "dataset",
        "model",
        "seconds",
        "paper",
        "paper ÷ kith",
        "epochs",
        "ms per epoch",
        "negatives",
        "measuring",
        "device",
    ];
    let mut table = Table::new("Time of training", &columns);
    table.rows = done.iter().map(row).collect();
    Ok(Findings { kind: "wallclock", tables: vec![table], notes, machine: machine(&done), ..Findings::default() })
}

fn row(done: &Done) -> Vec<Shown> {
    let of = |of: fn(&Results) -> f64| Spread::of(&done.values(|run| run.results.as_ref().map(of)));
    let share = |phase: Phase| {
        let share = |run: &KeptRun| Some(100.0 * run.phases.of(phase) as f64 / run.phases.total().max(1) as f64);
        let mean = Spread::of(&done.values(share)).mean;
        Shown::shown(mean, format!("{mean:.1}%"))
    };
    let seconds = of(|results| results.seconds);
    let printed = printed("wallclock", &done.cell.subject.name, &done.cell.model);
    let per_epoch = of(|results| 1e3 * results.seconds / results.epochs as f64);
    vec![
        Shown::text(&done.cell.subject.name),
        Shown::text(&done.cell.model),
        Shown::shown(seconds.mean, format!("{:.2} ± {:.2}", seconds.mean, seconds.std)),
        printed.map_or(Shown::text(""), |printed| {
            Shown::shown(printed.mean, format!("{:.1} ± {:.1}", printed.mean, printed.std.unwrap_or(0.0)))
        }),
        printed.map_or(Shown::text(""), |printed| Shown::number(printed.mean / seconds.mean, 1)),
        Shown::number(of(|results| results.epochs as f64).mean, 0),
        Shown::number(per_epoch.mean, 2),
        share(Phase::Sample),
        share(Phase::Evaluate),
        Shown::text(done.runs.first().map_or("", |run| &run.device)),
    ]
}
