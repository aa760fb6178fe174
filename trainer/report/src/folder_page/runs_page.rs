//! Report of one run or several.

use std::path::Path;

use crate::page::{Cell, Page};

use super::{
    confusion, curves,
    folder::{Run, Runs},
    json::{JsonPart, count},
    metric::ShownMetric,
    published::Paper,
    recipe::RecipePoint,
    results, time,
};

/// Report of runs.
pub(super) fn page(dir: &Path, runs: &Runs, place: Option<&RecipePoint>, paper: Paper<'_>) -> Page {
    let first = runs.reports().next();
    let dataset = first.and_then(|report| report.text("/dataset"));
    let paper = dataset.zip(runs.model.as_deref()).and_then(|(dataset, model)| paper(dataset, model));
    let metric = ShownMetric::of(runs);
    let folder = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let folder =
        folder.file_name().map_or_else(|| dir.display().to_string(), |name| name.to_string_lossy().into_owned());
    let subject = dataset.map_or(folder, str::to_owned);
    let title = runs.model.as_ref().map_or(subject.clone(), |model| format!("{subject}, {model}"));
    let mut page = Page::new(title, lead(runs, metric.name));
    page.footer(format!("Made by kith {} of {}.", env!("CARGO_PKG_VERSION"), dir.display()));
    if let Some(note) = at_work(runs) {
        page.note(&note);
    }
    page.tiles(&results::tiles(runs, paper, metric));

    page.section("Results");
    if let Some(explained) = explained(runs) {
        page.paragraph(explained);
    }
    page.table(&results::table(runs, paper, metric));
    let mut figures = curves::figures(runs, paper, metric);
    figures.extend(curves::spread_of_results(runs, metric));
    if !figures.is_empty() {
        page.section("How it went");
        page.figures(&figures);
    }
    confusion::section(&mut page, runs);
    if let Some((figure, table)) = time::spent(runs) {
        page.section("Where the time went");
        page.figures(&[figure]);
        page.table(&table);
    }
    if let Some(place) = place {
        place.section(&mut page, runs);
    }
    page.section("What it was");
    page.facts(&facts(runs, dataset));
    if let Some(run_file) = &runs.run_file {
        page.details("The run file as it was followed", run_file);
    }
    page
}

fn lead(runs: &Runs, metric: &str) -> String {
    let keys: Vec<String> = runs.all.iter().filter_map(|run| run.key).map(|key| key.to_string()).collect();
    let keys = match &keys[..] {
        [] => String::new(),
        [key] => format!(" with seed {key}"),
        [first, .., last] => format!(" with seeds {first} to {last}"),
    };
    let n = runs.all.len();
    let runs = if n == 1 { "One run".to_owned() } else { format!("{n} runs") };
    if metric == "metric" { format!("{runs}{keys}.") } else { format!("{runs}{keys}, measured by {metric}.") }
}

/// Note about runs without a report.
fn at_work(runs: &Runs) -> Option<String> {
    let how_far = |run: &Run| {
        let epoch =
            run.steps.all.last().map_or("before its first step".to_owned(), |step| format!("at epoch {}", step.epoch));
        if runs.are_several { format!("{} {epoch}", run.name()) } else { epoch }
    };
    let open: Vec<String> = runs.all.iter().filter(|run| run.report.is_none()).map(how_far).collect();
    let hint = "no report.json is there. What follows is what there was so far";
    match open.len() {
        0 => None,
        1 if !runs.are_several => Some(format!("This run is still at work, or was killed, {}: {hint}.", open[0])),
        1 => Some(format!("One of these runs is still at work, or was killed ({}): {hint}.", open[0])),
        n => Some(format!("{n} of these runs are still at work, or were killed ({}): {hint}.", open.join(", "))),
    }
}

fn explained(runs: &Runs) -> Option<&'static str> {
    runs.reports().next().map(|_| {
        "valid and test are those of the epoch with the best validation, which looks at no test node: report these. \
         valid_last and test_last are those of the last epoch; compare the paper's tables with test_last."
    })
}

/// Facts about the runs: common values, and ranges or lists where they differ.
fn facts(runs: &Runs, dataset: Option<&str>) -> Vec<(&'static str, Cell)> {
    let mut facts: Vec<(&'static str, Cell)> = Vec::new();
    facts.extend(dataset.map(|dataset| ("dataset", Cell::new(dataset))));
    facts.extend(runs.model.as_ref().map(|model| ("model", Cell::new(model))));
    let texts = [
        ("device", "/device"),
        ("instruction set", "/instruction_set"),
        ("kith", "/kith"),
        ("libtorch", "/libtorch"),
        ("store digest", "/store_digest"),
    ];
    let counts = [
        ("weights", "/n_weights"),
        ("ranks", "/n_ranks"),
        ("negatives left out", "/n_negatives_left_out"),
        ("features from files", "/features/local"),
        ("features from the cache", "/features/cached"),
        ("features from servers", "/features/remote"),
    ];
    facts.extend(counts.into_iter().filter_map(|(name, pointer)| Some((name, counted(runs, pointer)?))));
    facts.extend(seeds_per_second(runs).map(|seeds| ("seeds per second", seeds)));
    facts.extend(texts.into_iter().filter_map(|(name, pointer)| Some((name, named(runs, pointer)?))));
    facts
}

/// The distinct texts at a pointer of all reports.
fn named(runs: &Runs, pointer: &str) -> Option<Cell> {
    let mut texts: Vec<&str> = Vec::new();
    for text in runs.reports().filter_map(|report| report.text(pointer)) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    Some(Cell::new(texts.join(", "))).filter(|_| !texts.is_empty())
}

/// The count at a pointer of all reports; a range if they differ.
fn counted(runs: &Runs, pointer: &str) -> Option<Cell> {
    let all: Vec<(&JsonPart, f64)> =
        runs.reports().filter_map(|report| Some((report, report.number(pointer)?))).collect();
    let (lowest, low) = all.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (highest, high) = all.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let cell = |report: &JsonPart| report.cell(pointer, count);
    Some(if low == high { cell(lowest) } else { Cell::joined(vec![cell(lowest), cell(highest)], " to ") })
}

fn seeds_per_second(runs: &Runs) -> Option<Cell> {
    let n_seeds: u64 = runs.all.iter().flat_map(|run| &run.steps.all).map(|step| step.n_seeds).sum();
    let seconds: f64 = runs.all.iter().map(|run| run.steps.seconds()).sum();
    let rate = n_seeds as f64 / seconds;
    let cell = || Cell::new(crate::short(rate)).with_value(rate).followed_by("(measuring included)");
    (rate.is_finite() && rate > 0.0).then(cell)
}
