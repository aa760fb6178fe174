//! Predictions without the whole graph in memory: layer by layer, in chunks of nodes.

use std::sync::Arc;

use kith_client::Seeds;

use super::{
    edges::{push_edges, table_of_edges},
    nodes::PredictedNodes,
    output::Output,
    table::Table,
};
use crate::{
    data::{matrix::rows_of, opened::Opened},
    distributed::world::World,
    error::TrainError,
    inference::{
        layerwise::{self, Ending, Looked, Prepared, Room, Seen},
        receptive::NodeSet,
    },
    model::Model,
};

/// Nodes whose attention is looked at together: edges × heads × features are held.
const N_ATTENDED: u64 = 1 << 13;

/// A model, and the training nodes whose labels are its input; true if a node may have several classes.
type Labeled<'a> = (&'a Model, Option<(Arc<Seeds>, bool)>);

pub(super) fn predict(
    labeled: Labeled<'_>,
    (opened, nodes): (&Opened, &PredictedNodes),
    output: &Output,
    room: &Room,
) -> Result<Table, TrainError> {
    let model = labeled.0;
    let layer = match output {
        Output::Probabilities { .. } | Output::Targets { .. } | Output::Outputs => model.layers().len() - 1,
        Output::Embeddings { layer } => *layer,
        Output::Attention { layer } => return attention(labeled, (opened, nodes), *layer, room),
    };
    let mut table = Table::new(&["id"], output.column());
    walk(labeled, (opened, nodes), room, (layer, Ending::Output), |computed, seen| {
        let rows = seen.looked.output(model, layer)?;
        let rows = match output {
            Output::Embeddings { .. } => model.embeddings(rows),
            _ => model.logits(rows)?,
        };
        let rows = output.finish(model, &rows)?;
        if table.n_rows() == 0 {
            table.reserve(nodes.n_of(opened.info().n_nodes), rows.width);
        }
        for (row, place) in seen.places.iter().enumerate() {
            let node = computed.id(*place);
            if nodes.has(node) {
                table.push(&[&opened.id_of(node)?], rows.row(row));
            }
        }
        Ok(())
    })?;
    Ok(table)
}

fn attention(
    labeled: Labeled<'_>,
    (opened, nodes): (&Opened, &PredictedNodes),
    layer: usize,
    room: &Room,
) -> Result<Table, TrainError> {
    let model = labeled.0;
    // Weights of a list are known when its whole softmax is: its edges are held together.
    let room = Room { n_together: room.n_together.min(N_ATTENDED), n_neighbors: u64::MAX, ..room.clone() };
    let mut table = table_of_edges();
    walk(labeled, (opened, nodes), &room, (layer, Ending::Edges), |_, Seen { looked, names, .. }| {
        let Looked::LayerPart(part) = looked else { unreachable!("no list is too long to be whole") };
        let block = Arc::clone(part.block);
        let attention = model.attention_of_layer(layer, part)?.expect("only attention has weights");
        let id = |node: usize| names.id(block.id(node));
        push_edges(&mut table, (opened, nodes), (&block, id), &rows_of(&attention)?, model.config().has_self_loops())
    })?;
    Ok(table)
}

/// Every chunk of a layer, here: a question has one rank. `see` also gets the nodes that the layer computes.
fn walk(
    (model, labels): Labeled<'_>,
    (opened, nodes): (&Opened, &PredictedNodes),
    room: &Room,
    (layer, ending): (usize, Ending),
    mut see: impl FnMut(&NodeSet, Seen<'_>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let (shards, mut world) = (&**opened.shards(), World::alone());
    let mut prepared = match nodes {
        PredictedNodes::All => Prepared::all(model, shards, room, &mut world, layer + 1)?,
        PredictedNodes::Some(ids) => {
            Prepared::of_nodes(model, shards, room, &mut world, (ids.iter().copied(), layer + 1))?
        }
    };
    if let Some((train, is_multi_label)) = labels {
        prepared = prepared.with_labels(&train).reuse_labels(model, shards, room, is_multi_label)?;
    }
    let computed = prepared.sets().computed_by(layer);
    layerwise::walk(model, shards, room, &mut world, (&prepared, ending), |seen| see(computed, seen))
}
