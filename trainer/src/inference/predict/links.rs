//! Probabilities of edges: of the pairs that a run held out, or of pairs from a file.

use std::{fs, path::Path};

use kith_run::config::RunConfig;

use super::{in_chunks, nodes::PredictedNodes, output::Output, table::Table};
use crate::{
    data::{
        Data,
        given_pairs::read_pairs,
        input::{GraphInput, load_unlabeled},
        link_pairs::LinkPairs,
        matrix::{Matrix, dot, rows_of},
        opened::Opened,
        probabilities::sigmoid,
    },
    error::TrainError,
    inference::{evaluate::Evaluator, layerwise::Room},
    model::{Model, Pass},
};

/// The pairs that a run held out, in the graph without them: part, and whether they have an edge.
pub(super) fn of_held_out(
    model: &Model,
    opened: &Opened,
    (config, run_key): (&RunConfig, u64),
    room: &Room,
) -> Result<Table, TrainError> {
    let mut table = Table::new(&["source", "destination", "part", "is_edge"], PROBABILITY);
    match Data::load(opened, config, run_key)? {
        Data::Full(input) => {
            let (Some(links), [graph]) = (&input.links, &input.graphs[..]) else { unreachable!("loaded with links") };
            let outputs = outputs_of(model, graph)?;
            for (part, pairs) in [("valid", &links.valid), ("test", &links.test)] {
                push_pairs(&mut table, opened, (pairs, &pairs.scores(&outputs)), part)?;
            }
        }
        Data::Batches(input) => {
            let links = input.links.as_ref().expect("loaded with links");
            let [valid, test] = Evaluator::default().link_scores(model, (&input, links), room)?;
            push_pairs(&mut table, opened, (&links.valid, &valid), "valid")?;
            push_pairs(&mut table, opened, (&links.test, &test), "test")?;
        }
    }
    Ok(table)
}

fn push_pairs(
    table: &mut Table,
    opened: &Opened,
    (pairs, scores): (&LinkPairs, &[f32]),
    part: &str,
) -> Result<(), TrainError> {
    for ((source, destination, is_edge), score) in pairs.each().zip(scores) {
        let ids = [opened.id_of(source.into())?, opened.id_of(destination.into())?];
        let names = [&*ids[0], &*ids[1], part, if is_edge { "1" } else { "0" }];
        table.push(&names, &[sigmoid(f64::from(*score)) as f32]);
    }
    Ok(())
}

/// Pairs from a csv file of two ids per line, by all edges of the graph. `in_chunks`: the graph is not loaded at once.
pub(super) fn of_file(
    model: &Model,
    opened: &Opened,
    path: &Path,
    in_chunks: Option<&Room>,
) -> Result<Table, TrainError> {
    let text = fs::read_to_string(path).map_err(TrainError::io(path))?;
    let pairs = read_pairs(path, &text, opened)?;
    let outputs = match in_chunks {
        Some(room) => {
            in_chunks::predict((model, None), (opened, &PredictedNodes::All), &Output::Outputs, room)?.into_matrix()
        }
        None => outputs_of(model, &the_graph(opened)?)?,
    };
    let mut table = Table::new(&["source", "destination"], PROBABILITY);
    for (source, destination) in pairs.into_iter().map(|pair| pair.ends) {
        let score = dot(outputs.row(source as usize), outputs.row(destination as usize));
        let ids = [opened.id_of(source.into())?, opened.id_of(destination.into())?];
        table.push(&[&ids[0], &ids[1]], &[sigmoid(f64::from(score)) as f32]);
    }
    Ok(table)
}

/// Name of the column; the table adds a number.
const PROBABILITY: &str = "probability";

fn the_graph(opened: &Opened) -> Result<GraphInput, TrainError> {
    let mut graphs = load_unlabeled(opened.whole()?)?.graphs;
    match graphs.len() {
        1 => Ok(graphs.remove(0)),
        _ => Err(TrainError::LinksOfSet),
    }
}

fn outputs_of(model: &Model, graph: &GraphInput) -> Result<Matrix, TrainError> {
    rows_of(&model.forward(graph, Pass::Evaluate)?.logits)
}
