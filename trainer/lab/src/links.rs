//! RQ2: link prediction by the attention of a SuperGAT, against the weight of its edge loss.
//!
//! The clean protocol: 5 % of a graph's edges for validation and 10 % for test, both hidden from message passing and
//! from the edge loss; training draws one negative per edge, each pair with its true label; validation AUC selects the
//! epoch.

use kith_partition::progress::Progress;
use kith_report::{Axis, statistics::Spread};
use kith_run::config::RunConfig;
use kith_trainer::{
    data::{Data, input::Input, link_pairs::Links, opened::Opened},
    error::TrainError,
    inference::evaluate::evaluate_nodes,
    run::Run,
};
use serde_json::{Value, json};

use crate::{
    bench::{machine, run},
    curves::{self, Curve},
    error::LabError,
    experiment::{Done, Experiment, Manner, Workplace},
    findings::{Cell as Shown, Figure, Findings, Table},
    grid::{Cells, Grid, Variant},
};

/// Training on a graph without its held-out edges.
struct LinkPrediction;

impl Experiment for LinkPrediction {
    fn name(&self) -> &'static str {
        "links"
    }

    fn load(&self, opened: &Opened, config: &RunConfig, run_key: u64) -> Result<Data, TrainError> {
        match Data::load(opened, config, run_key)? {
            Data::Full(input) if input.graphs.len() == 1 => {
                let (graph, links) = Links::hold_out(&input.graphs[0], run_key)?;
                Ok(Data::Full(Input { graphs: vec![graph], links: Some(links), ..input }))
            }
            _ => Err(TrainError::Predict("links are held out of one whole graph".to_owned())),
        }
    }

    fn is_by_run_key(&self, _config: &RunConfig) -> bool {
        true
    }

    fn manner(&self) -> Manner {
        Manner::OnCpu // Links are evaluated on the CPU, and every run has its own graph.
    }

    fn see(&self, run: &Run<'_>, data: &Data) -> Result<Value, TrainError> {
        let Data::Full(input) = data else { return Ok(Value::Null) };
        Ok(json!({ "node_test": run.with_evaluated(|model| evaluate_nodes(model, input))?.test }))
    }
}

/// Trains all cells with each λ_E in `weights`. Every seed holds out its own links.
pub fn links(
    asked: &Grid<'_>,
    edge_weights: &[f64],
    place: &Workplace,
    progress: &dyn Progress,
) -> Result<Findings, LabError> {
    let variants = edge_weights.iter().map(|weight| Variant {
        assignments: vec![format!("edge_loss.weight={weight:?}"), "edge_loss.neg_sample_ratio=1.0".to_owned()],
        name: *weight,
    });
    let Cells { cells, variants: weights, mut notes } = asked.cells(&variants.collect::<Vec<_>>(), place, progress)?;
    let done = run(cells, &LinkPrediction, place, progress)?;
    notes.extend(done.iter().flat_map(Done::failures));
    notes.push(
        "AUC and accuracy in percent, mean ± population standard deviation; AUC of the test links at the epoch with the best \
         validation AUC, accuracy of the test nodes after the last epoch, without the held-out edges"
            .to_owned(),
    );
    let figures = figures(&done, &weights);
    let mut table = Table::new(
        "Link prediction by the last layer's attention",
        &["dataset", "model", "λ_E", "test AUC", "node accuracy", "runs"],
    );
    let spread = |spread: Spread| Shown::shown(spread.mean, format!("{:.1} ± {:.1}", spread.mean, spread.std));
    for (done, weight) in done.iter().zip(&weights) {
        let nodes = node_accuracy(done);
        table.rows.push(vec![
            Shown::text(&done.cell.subject.name),
            Shown::text(&done.cell.model),
            Shown::shown(*weight, format!("{weight:?}")),
            spread(done.test()),
            spread(nodes),
            Shown::number(nodes.n as f64, 0),
        ]);
    }
    Ok(Findings { kind: "links", tables: vec![table], figures, notes, machine: machine(&done) })
}

fn node_accuracy(done: &Done) -> Spread {
    Spread::of(&done.values(|run| run.seen["node_test"].as_f64().map(|share| 100.0 * share)))
}

/// AUC and accuracy against λ_E: two figures per dataset.
fn figures(done: &[Done], weights: &[f64]) -> Vec<Figure> {
    let with_weights: Vec<(&Done, f64)> = done.iter().zip(weights.iter().copied()).collect();
    let of_dataset = with_weights.chunk_by(|a, b| a.0.cell.subject.name == b.0.cell.subject.name);
    let draw = |own: &[(&Done, f64)], what: &str, of: fn(&Done) -> Spread| {
        let curves: Vec<Curve> = own
            .chunk_by(|a, b| a.0.cell.model == b.0.cell.model)
            .map(|own| Curve {
                name: own[0].0.cell.model.clone(),
                points: own.iter().map(|(done, weight)| (*weight, of(done))).collect(),
            })
            .collect();
        let title = format!("{}: {what}", own[0].0.cell.subject.name);
        curves::figure(title, Axis::log("λ_E"), Axis::linear(format!("{what} (%)")), &curves)
    };
    of_dataset.flat_map(|own| [draw(own, "test AUC", Done::test), draw(own, "node accuracy", node_accuracy)]).collect()
}
