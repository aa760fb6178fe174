//! RQ1 as an experiment: divergence of attention from label agreement, for GATs with GO and DP attention at two depths,
//! or for any checkpoint.

use std::path::Path;

use kith_partition::progress::Progress;
use kith_report::{
    Axis,
    plot::{
        Size,
        boxes::{Boxes, FiveNumbers, Group},
    },
};
use kith_run::{choice::Choice, config::ModelConfig, prediction::Moment};
use kith_trainer::{
    data::{Data, input::Input, opened::Opened},
    engine::device::Device,
    error::TrainError,
    inference::predict::find_checkpoint,
    model::Model,
    run::Run,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    agreement::{Divergences, Summary},
    bench::{machine, run},
    error::LabError,
    experiment::{Done, Experiment, Workplace},
    findings::{Cell as Shown, Figure, Findings, Table},
    grid::{Cells, Grid, Variant},
};

/// Divergence of attention from label agreement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Summary over all nodes, by layer.
    pub layers: Vec<Summary>,
    /// Summary of uniform attention.
    pub uniform: Summary,
}

impl Seen {
    /// Divergences of a model on all graphs of an input.
    pub fn of(model: &Model, input: &Input) -> Result<Seen, TrainError> {
        let mut all = Divergences { layers: vec![Vec::new(); model.layers().len()], uniform: Vec::new() };
        for graph in &input.graphs {
            let own = Divergences::of(model, graph)?;
            all.layers.iter_mut().zip(own.layers).for_each(|(all, own)| all.extend(own));
            all.uniform.extend(own.uniform);
        }
        if all.uniform.is_empty() || all.layers.iter().any(Vec::is_empty) {
            let kind = "a model with attention, on nodes with classes";
            return Err(TrainError::Predict(format!("label agreement is of {kind}")));
        }
        Ok(Seen { layers: all.layers.into_iter().map(Summary::of).collect(), uniform: Summary::of(all.uniform) })
    }
}

struct Agreement;

impl Experiment for Agreement {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn see(&self, run: &Run<'_>, data: &Data) -> Result<Value, TrainError> {
        let Data::Full(input) = data else { return Err(TrainError::NeedsStore) };
        Ok(serde_json::to_value(run.with_evaluated(|model| Seen::of(model, input))?)
            .expect("summaries have only numbers"))
    }
}

const NOTE: &str = "Kullback-Leibler divergence of a node's attention from its label agreement (all weight, evenly, on neighbors \
    of its own class and itself), in nats, mean over heads; weights of the last epoch, nothing dropped; over all nodes with a \
    class; quartiles and whiskers as a box plot has them";

const COLUMNS: [&str; 11] = [
    "graph",
    "model",
    "layer",
    "mean",
    "lower quartile",
    "median",
    "upper quartile",
    "whisker",
    "largest",
    "outliers",
    "runs",
];

/// Trains all cells and summarizes their attention.
pub fn attention(asked: &Grid<'_>, place: &Workplace, progress: &dyn Progress) -> Result<Findings, LabError> {
    let Cells { cells, mut notes, .. } = asked.cells(&[Variant::PLAIN], place, progress)?;
    let done = run(cells, &Agreement, place, progress)?;
    notes.extend(done.iter().flat_map(Done::failures));
    notes.push(format!("{NOTE}; each number is the mean over seeds"));
    let mut table = Table::new("Divergence of attention from label agreement", &COLUMNS);
    let (mut before, mut boxes) = (None, Vec::<Boxes>::new());
    for done in &done {
        let seen: Vec<Seen> =
            done.runs.iter().filter_map(|run| serde_json::from_value(run.seen.clone()).ok()).collect();
        let Some(first) = seen.first() else { continue };
        let graph = &done.cell.subject.name;
        if before.replace(graph.clone()).as_ref() != Some(graph) {
            table.rows.push(row(graph, "uniform", "", &[&first.uniform]));
            boxes.push(plot(graph, &first.uniform));
        }
        if let Some(boxes) = boxes.last_mut() {
            add(boxes, &done.cell.config.model, first);
        }
        for layer in 0..first.layers.len() {
            let summaries: Vec<&Summary> = seen.iter().map(|seen| &seen.layers[layer]).collect();
            table.rows.push(row(graph, &done.cell.model, &(layer + 1).to_string(), &summaries));
        }
    }
    let figures = boxes.into_iter().map(drawn).collect();
    Ok(Findings { kind: "attention", tables: vec![table], figures, notes, machine: machine(&done) })
}

/// A plot with the box of uniform attention.
fn plot(graph: &str, uniform: &Summary) -> Boxes {
    Boxes {
        title: format!("{graph}: divergence of attention from label agreement"),
        description: "One box for each layer, over all nodes of the graph; the first is that of uniform attention."
            .to_owned(),
        x_label: "form of attention, layer of all layers".to_owned(),
        y: Axis::linear("divergence (nats)"),
        series: vec!["nodes".to_owned()],
        groups: vec![Group { name: "uniform".to_owned(), boxes: vec![Some(box_of(uniform))] }],
        size: Size::WHOLE,
    }
}

/// Adds the boxes of a model's layers.
fn add(boxes: &mut Boxes, model: &ModelConfig, seen: &Seen) {
    let form = model.attention.name().to_uppercase();
    let group = |(layer, summary): (usize, &Summary)| Group {
        name: format!("{form} {}/{}", layer + 1, model.n_layers),
        boxes: vec![Some(box_of(summary))],
    };
    boxes.groups.extend(seen.layers.iter().enumerate().map(group));
}

fn drawn(boxes: Boxes) -> Figure {
    Figure { title: boxes.title.clone(), svg: boxes.svg() }
}

fn box_of(summary: &Summary) -> FiveNumbers {
    FiveNumbers {
        low: summary.low,
        q1: summary.lower_quartile,
        median: summary.median,
        q3: summary.upper_quartile,
        high: summary.high,
        outliers: summary.outliers.clone(),
        n_left_out: summary.n_outliers - summary.outliers.len(),
        n: summary.n,
    }
}

fn row(graph: &str, model: &str, layer: &str, summaries: &[&Summary]) -> Vec<Shown> {
    let mean = |of: fn(&Summary) -> f64| {
        Shown::number(summaries.iter().map(|summary| of(summary)).sum::<f64>() / summaries.len() as f64, 3)
    };
    let outliers = summaries.iter().map(|summary| summary.n_outliers).sum::<usize>() as f64 / summaries.len() as f64;
    vec![
        Shown::text(graph),
        Shown::text(model),
        Shown::text(layer),
        mean(|summary| summary.mean),
        mean(|summary| summary.lower_quartile),
        mean(|summary| summary.median),
        mean(|summary| summary.upper_quartile),
        mean(|summary| summary.high),
        mean(|summary| summary.max),
        Shown::number(outliers, 0),
        Shown::number(summaries.len() as f64, 0),
    ]
}

/// Summarizes the attention of a checkpointed run.
pub fn of_run(dir: &Path, opened: &Opened, moment: Moment) -> Result<Findings, LabError> {
    let checkpoint = find_checkpoint(dir)?;
    checkpoint.check_store(&opened.info().digest)?;
    let (config, state) = (checkpoint.config()?, checkpoint.state());
    let store = opened.whole()?;
    let input = kith_trainer::data::input::load(store, config.train.split.as_deref())?;
    let mut input = input.with_edge_data(store, &config.model)?;
    input.supervise(config.train.supervision);
    let model = Model::new(&config, state.dim, state.n_classes, state.seed, Device::Cpu)?;
    let restored = checkpoint.restore(model.weights().entries())?;
    model.weights().set(restored.of(moment));
    let seen = Seen::of(&model, &input)?;
    let mut table = Table::new("Divergence of attention from label agreement", &COLUMNS);
    let graph = opened.source().dataset;
    table.rows.push(row(&graph, "uniform", "", &[&seen.uniform]));
    for (layer, summary) in seen.layers.iter().enumerate() {
        table.rows.push(row(&graph, &config.name(), &(layer + 1).to_string(), &[summary]));
    }
    let notes = vec![NOTE.to_owned()];
    let mut boxes = plot(&graph, &seen.uniform);
    add(&mut boxes, &config.model, &seen);
    Ok(Findings { kind: "attention", tables: vec![table], figures: vec![drawn(boxes)], notes, machine: machine(&[]) })
}
