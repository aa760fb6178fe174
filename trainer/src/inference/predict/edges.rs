//! Tables with a row for each edge.

use kith_block::Block;

use super::table::Table;
use crate::{
    data::{matrix::Matrix, opened::Opened},
    error::TrainError,
};

/// An empty table of edges.
pub(super) fn table_of_edges() -> Table {
    Table::new(&["source", "destination"], "head")
}

/// Adds a row for each edge of a block; `has_loops`: self-loops are edges of the model.
pub(super) fn push_edges(
    table: &mut Table,
    opened: &Opened,
    block: &Block,
    attention: &Matrix,
    has_loops: bool,
) -> Result<(), TrainError> {
    for destination in 0..block.n_destinations() {
        let own = opened.id_of(block.id(destination))?;
        let is_edge = |edge: &usize| has_loops || block.sources()[*edge] as usize != destination;
        for edge in block.edges_into(destination).filter(is_edge) {
            let source = opened.id_of(block.id(block.sources()[edge] as usize))?;
            table.push(&[&source, &own], attention.row(edge));
        }
    }
    Ok(())
}
