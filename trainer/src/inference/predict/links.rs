//! Probabilities of edges: of the pairs that a run held out, or of pairs from a file.

use std::{collections::HashMap, fs, path::Path};

use kith_run::config::LinksConfig;

use super::table::Table;
use crate::{
    data::{
        input::{GraphInput, load_unlabeled},
        link_pairs::{LinkPairs, Links, dot},
        matrix::{Matrix, rows_of},
        opened::Opened,
        probabilities::sigmoid,
    },
    error::TrainError,
    model::{Model, Pass},
};

/// The pairs that a run held out, in the graph without them: part, and whether they have an edge.
pub(super) fn of_held_out(
    model: &Model,
    opened: &Opened,
    (config, run_key): (&LinksConfig, u64),
) -> Result<Table, TrainError> {
    let (graph, links) = Links::to_predict(&the_graph(opened)?, config, run_key)?;
    let outputs = outputs_of(model, &graph)?;
    let mut table = Table::new(&["source", "destination", "part", "is_edge"], PROBABILITY);
    for (part, pairs) in [("valid", &links.valid), ("test", &links.test)] {
        push_pairs(&mut table, opened, &outputs, pairs, part)?;
    }
    Ok(table)
}

fn push_pairs(
    table: &mut Table,
    opened: &Opened,
    outputs: &Matrix,
    pairs: &LinkPairs,
    part: &str,
) -> Result<(), TrainError> {
    for ((source, destination, is_edge), score) in pairs.each().zip(pairs.scores(outputs)) {
        let ids = [opened.id_of(source.into())?, opened.id_of(destination.into())?];
        let names = [&*ids[0], &*ids[1], part, if is_edge { "1" } else { "0" }];
        table.push(&names, &[sigmoid(f64::from(score)) as f32]);
    }
    Ok(())
}

/// Pairs from a csv file of two ids per line, by all edges of the graph. A first line that names no nodes is a header.
pub(super) fn of_file(model: &Model, opened: &Opened, path: &Path) -> Result<Table, TrainError> {
    let text = fs::read_to_string(path).map_err(TrainError::io(path))?;
    let mut nodes = HashMap::new();
    for node in 0..opened.info().n_nodes {
        nodes.insert(opened.id_of(node)?.into_owned(), node as usize);
    }
    let wrong =
        |line: usize, problem: &str| TrainError::Predict(format!("{}: line {}: {problem}", path.display(), line + 1));
    let mut pairs = Vec::new();
    for (line, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let ids: Vec<&str> = text.split(',').map(str::trim).collect();
        let [source, destination] = ids[..] else {
            return Err(wrong(line, &format!("expected source,destination, found {} columns", ids.len())));
        };
        match (nodes.get(source), nodes.get(destination)) {
            (Some(source), Some(destination)) => pairs.push((*source, *destination)),
            (None, None) if line == 0 => {}
            (found, _) => {
                let id = if found.is_none() { source } else { destination };
                return Err(wrong(line, &format!("the graph has no node {id}")));
            }
        }
    }
    let outputs = outputs_of(model, &the_graph(opened)?)?;
    let mut table = Table::new(&["source", "destination"], PROBABILITY);
    for (source, destination) in pairs {
        let score = dot(outputs.row(source), outputs.row(destination));
        let ids = [opened.id_of(source as u64)?, opened.id_of(destination as u64)?];
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
        n_graphs => Err(TrainError::LinksOfSet { n_graphs }),
    }
}

fn outputs_of(model: &Model, graph: &GraphInput) -> Result<Matrix, TrainError> {
    rows_of(&model.forward(graph, Pass::Evaluate)?.logits)
}
