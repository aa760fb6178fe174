//! Predictions without the whole graph in memory: layer by layer, in chunks of nodes.

use std::{ops::Range, sync::Arc};

use kith_client::Seeds;

use super::{
    edges::{push_edges, table_of_edges},
    output::Output,
    table::Table,
};
use crate::{
    data::{matrix::rows_of, opened::Opened},
    distributed::world::World,
    error::TrainError,
    inference::layerwise::{self, Ending, Looked, Prepared, Room},
    model::Model,
};

/// Nodes whose attention is looked at together: edges × heads × features are held.
const N_ATTENDED: u64 = 1 << 13;

/// A model, and the training nodes whose labels are its input; true if a node may have several classes.
type Labeled<'a> = (&'a Model, Option<(Arc<Seeds>, bool)>);

pub(super) fn predict(
    labeled: Labeled<'_>,
    opened: &Opened,
    output: &Output,
    room: &Room,
) -> Result<Table, TrainError> {
    let model = labeled.0;
    let layer = match output {
        Output::Probabilities { .. } | Output::Targets { .. } | Output::Outputs => model.layers().len() - 1,
        Output::Embeddings { layer } => *layer,
        Output::Attention { layer } => return attention(labeled, opened, *layer, room),
    };
    let mut table = Table::new(&["id"], output.column());
    walk(labeled, opened, room, (layer, Ending::Output), |nodes, looked| {
        let rows = looked.output(model, layer)?;
        let rows = match output {
            Output::Embeddings { .. } => model.embeddings(rows),
            _ => model.logits(rows)?,
        };
        let rows = output.finish(model, &rows)?;
        for (place, node) in nodes.enumerate() {
            table.push(&[&opened.id_of(node)?], rows.row(place));
        }
        Ok(())
    })?;
    Ok(table)
}

fn attention(labeled: Labeled<'_>, opened: &Opened, layer: usize, room: &Room) -> Result<Table, TrainError> {
    let model = labeled.0;
    // Weights of a list are known when its whole softmax is: its edges are held together.
    let room = Room { n_together: room.n_together.min(N_ATTENDED), n_neighbors: u64::MAX, ..room.clone() };
    let mut table = table_of_edges();
    walk(labeled, opened, &room, (layer, Ending::Edges), |_, looked| {
        let Looked::LayerPart(part) = looked else { unreachable!("no list is too long to be whole") };
        let block = Arc::clone(part.block);
        let attention = model.attention_of_layer(layer, part)?.expect("only attention has weights");
        push_edges(&mut table, opened, &block, &rows_of(&attention)?, model.config().has_self_loops())
    })?;
    Ok(table)
}

/// Every chunk of a layer, here: a question has one rank.
fn walk(
    (model, labels): Labeled<'_>,
    opened: &Opened,
    room: &Room,
    (layer, ending): (usize, Ending),
    mut see: impl FnMut(Range<u64>, Looked<'_>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let see = |nodes: Range<u64>, looked: Looked<'_>| see(nodes, looked).map(|()| Vec::new());
    let (shards, mut world) = (&**opened.shards(), World::alone());
    let mut prepared = Prepared::all(model, shards, room, &mut world, layer + 1)?;
    if let Some((train, is_multi_label)) = labels {
        prepared = prepared.with_labels(&train).reuse_labels(model, shards, (room, &mut world), is_multi_label)?;
    }
    layerwise::walk(model, shards, room, &mut world, (&prepared, ending), see, |_| Ok(()))
}
