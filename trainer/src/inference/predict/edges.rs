//! Tables with a row for each edge.

use kith_block::Block;

use super::{nodes::PredictedNodes, table::Table};
use crate::{
    data::{matrix::Matrix, opened::Opened},
    error::TrainError,
};

/// An empty table of edges.
pub(super) fn table_of_edges() -> Table {
    Table::new(&["source", "destination"], "head")
}

/// Adds a row for each edge of a block into nodes that are asked for. `id` is the id of a node at a position; `has_loops`: self-loops are
/// edges of the model.
pub(super) fn push_edges(
    table: &mut Table,
    (opened, nodes): (&Opened, &PredictedNodes),
    (block, id): (&Block, impl Fn(usize) -> u64),
    attention: &Matrix,
    has_loops: bool,
) -> Result<(), TrainError> {
    for destination in 0..block.n_destinations() {
        if !nodes.has(id(destination)) {
            continue;
        }
        let own = opened.id_of(id(destination))?;
        let is_edge = |edge: &usize| has_loops || block.sources()[*edge] as usize != destination;
        for edge in block.edges_into(destination).filter(is_edge) {
            let source = opened.id_of(id(block.sources()[edge] as usize))?;
            table.push(&[&source, &own], attention.row(edge));
        }
    }
    Ok(())
}
