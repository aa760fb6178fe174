//! The same answers without the whole graph in memory: layer by layer, some nodes at a time.

use std::sync::Arc;

use super::{Asked, Table, push_edges, table_of_edges};
use crate::{
    error::TrainError,
    evaluate::rows_of,
    layerwise::{self, Looked, Room},
    model::Model,
    opened::Opened,
};

/// Nodes whose attention is looked at together: edges × heads × features are held.
const N_ATTENDED: u64 = 1 << 13;

pub(super) fn predict(model: &Model, opened: &Opened, asked: Asked, room: &Room) -> Result<Table, TrainError> {
    let layer = match asked {
        Asked::Probabilities { .. } => model.layers().len() - 1,
        Asked::Embeddings { layer } => layer,
        Asked::Attention { layer } => return attention(model, opened, layer, room),
    };
    let mut table = Table::new(&["id"], asked.column());
    layerwise::outputs(model, &**opened.shards(), room, layer, |nodes, rows| {
        let rows = asked.finish(model, &rows)?;
        for (place, node) in nodes.enumerate() {
            table.push(&[&opened.id_of(node)?], rows.row(place));
        }
        Ok(())
    })?;
    Ok(table)
}

fn attention(model: &Model, opened: &Opened, layer: usize, room: &Room) -> Result<Table, TrainError> {
    // Weights of a list are known when its whole softmax is: its edges are held together.
    let room = Room { n_together: room.n_together.min(N_ATTENDED), n_neighbors: u64::MAX, ..room.clone() };
    let mut table = table_of_edges();
    layerwise::walk(model, &**opened.shards(), &room, layer, |_, looked| {
        let Looked::Part(part) = looked else { unreachable!("no list is too long to be whole") };
        let block = Arc::clone(part.block);
        let attention = model.attention_of_layer(layer, part)?.expect("only asked of attention");
        push_edges(&mut table, opened, &block, &rows_of(&attention)?)
    })?;
    Ok(table)
}
