//! Curves of runs: losses and metrics over steps or epochs.

use std::collections::BTreeMap;

use crate::{
    Axis,
    page::Figure,
    plot::{
        boxes::{Boxes, FiveNumbers, Group},
        lines::{Lines, Reference, Series},
    },
};

use super::{
    folder::{Run, Runs},
    metric::ShownMetric,
    steps::Step,
};

/// Number of steps from which several share a point, and the number of points then.
const LONG: usize = 1000;
const N_POINTS: usize = 250;
/// Number of runs from which a box plot is shown.
const MANY: usize = 5;
/// Colors of curves; losses and metrics use the same ones.
const TOTAL: usize = 0;
const NODES: usize = 5;
const VALID: usize = 1;
const TEST: usize = 2;
const EDGES: [usize; 4] = [3, 6, 4, 7];

/// Losses, and metrics if any were evaluated.
pub(super) fn figures(runs: &Runs, paper: Option<(f64, f64)>, metric: ShownMetric) -> Vec<Figure> {
    if runs.all.iter().all(|run| run.steps.all.is_empty()) {
        return Vec::new();
    }
    let mut figures = vec![losses(runs)];
    if runs.all.iter().any(|run| run.steps.all.iter().any(|step| step.valid.is_some())) {
        figures.push(metrics(runs, paper, metric));
    }
    figures
}

/// The horizontal axis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Steps,
    Epochs,
}

fn losses(runs: &Runs) -> Figure {
    // Runs of different lengths share epochs; a single run shows every step.
    let over = match &runs.all[..] {
        [run] if run.steps.all.len() as u64 > run.steps.n_epochs() => Over::Steps,
        _ => Over::Epochs,
    };
    let n_layers = runs.all.iter().map(|run| run.steps.n_edge_losses()).max().unwrap_or(0);
    let of = |name: &str, color, value: &dyn Fn(&Step) -> Option<f64>| series(runs, over, name, color, value);
    let mut all =
        vec![of("total loss", TOTAL, &|step| Some(step.loss)), of("node loss", NODES, &|step| Some(step.node_loss))];
    for layer in 0..n_layers {
        let name = format!("edge loss, layer {layer}");
        all.push(of(&name, EDGES[layer % EDGES.len()], &|step| step.edge_losses.get(layer).copied().flatten()));
    }
    all.push(of("validation loss", VALID, &|step| step.valid_loss));
    let lines = Lines {
        title: "Loss".to_owned(),
        description:
            "The loss that was made smaller, its parts before they are weighted, and the loss of the valid nodes."
                .to_owned(),
        x: Axis::linear(if over == Over::Steps { "step" } else { "epoch" }),
        y: Axis::linear("loss (nats)"),
        series: all.into_iter().flatten().collect(),
        ..Lines::default()
    };
    let parts = match n_layers {
        0 => "",
        _ => "Edge losses are shown before they are weighted; the total is what was made smaller. ",
    };
    let how = match &runs.all[..] {
        [run] if over == Over::Steps && steps_per_point(run) > 1 => {
            let n = steps_per_point(run);
            format!("Every point is the mean of {n} steps; bands reach from the lowest of them to the highest.")
        }
        _ => how(runs).to_owned(),
    };
    Figure { svg: lines.svg(), caption: format!("{parts}{how}").trim_end().to_owned() }
}

fn metrics(runs: &Runs, paper: Option<(f64, f64)>, metric: ShownMetric) -> Figure {
    let name = metric.name;
    let of = |name: &str, color, value: fn(&Step) -> Option<f64>| {
        series(runs, Over::Epochs, name, color, &|step| Some(metric.on_axis(value(step)?)))
    };
    let all = [of("validation", VALID, |step| step.valid), of("test", TEST, |step| step.test)];
    let reference = |(mean, _): (f64, f64)| Reference { name: "test, paper".to_owned(), y: mean, color: 6 };
    let lines = Lines {
        title: format!("{} by epoch", capitalized(name)),
        description: format!("The {name} of the valid and test nodes after each epoch{}.", in_percent(metric)),
        x: Axis::linear("epoch"),
        y: Axis::linear(metric.titled(metric.name)),
        series: all.into_iter().flatten().collect(),
        references: paper.map(reference).into_iter().collect(),
        ..Lines::default()
    };
    Figure { svg: lines.svg(), caption: how(runs).to_owned() }
}

fn how(runs: &Runs) -> &'static str {
    match runs.all.len() {
        1 => "",
        _ => "Lines are means over the runs that got so far; bands reach from the lowest run to the highest.",
    }
}

/// One line for a single run; for several, their mean within a band from the lowest to the highest.
fn series(runs: &Runs, over: Over, name: &str, color: usize, value: &dyn Fn(&Step) -> Option<f64>) -> Option<Series> {
    let mut series = Series { name: name.to_owned(), color: Some(color), ..Series::default() };
    if over == Over::Steps {
        for steps in runs.all.iter().flat_map(|run| run.steps.all.chunks(steps_per_point(run))) {
            let values: Vec<f64> = steps.iter().filter_map(value).collect();
            if !values.is_empty() {
                let middle = (steps[0].step + steps[steps.len() - 1].step) as f64 / 2.0;
                series.points.push((middle, mean(&values)));
                series.reach.push(ends(&values));
            }
        }
        if runs.all.iter().all(|run| steps_per_point(run) == 1) {
            series.reach.clear();
        }
    } else {
        let mut by_epoch: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for run in &runs.all {
            for epoch in run.steps.all.chunk_by(|a, b| a.epoch == b.epoch) {
                let values: Vec<f64> = epoch.iter().filter_map(value).collect();
                if !values.is_empty() {
                    by_epoch.entry(epoch[0].epoch).or_default().push(mean(&values));
                }
            }
        }
        series.points = by_epoch.iter().map(|(epoch, values)| (*epoch as f64, mean(values))).collect();
        if runs.all.len() > 1 {
            series.reach = by_epoch.values().map(|values| ends(values)).collect();
        }
    }
    Some(series).filter(|series| !series.points.is_empty())
}

/// Steps per point of a curve.
fn steps_per_point(run: &Run) -> usize {
    let n = run.steps.all.len();
    if n > LONG { n.div_ceil(N_POINTS) } else { 1 }
}

/// Minimum and maximum.
fn ends(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Box plot of the results of many runs; `None` for fewer than [`MANY`].
pub(super) fn spread_of_results(runs: &Runs, metric: ShownMetric) -> Option<Figure> {
    if runs.reports().count() < MANY {
        return None;
    }
    let group = |(name, key): (&str, &str)| {
        let pointer = format!("/results/{key}");
        let values: Vec<f64> =
            runs.reports().filter_map(|report| Some(metric.on_axis(report.number(&pointer)?))).collect();
        Group { name: name.to_owned(), boxes: vec![FiveNumbers::of(&values)] }
    };
    let results = [("valid", "valid"), ("test", "test"), ("valid_last", "valid_last"), ("test_last", "test_last")];
    let boxes = Boxes {
        title: "Results of all runs".to_owned(),
        description: format!(
            "The {} of all runs{}: of the best epoch and of the last.",
            metric.name,
            in_percent(metric)
        ),
        y: Axis::linear(metric.titled(metric.name)),
        groups: results.into_iter().map(group).collect(),
        ..Boxes::default()
    };
    let caption = "Median and quartiles; whiskers reach 1.5 times as far as the box is high, crosses lie beyond.";
    Some(Figure { svg: boxes.svg(), caption: caption.to_owned() })
}

fn in_percent(metric: ShownMetric) -> &'static str {
    if metric.unit().is_empty() { "" } else { ", in percent" }
}

/// A name with a capital first letter.
fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
