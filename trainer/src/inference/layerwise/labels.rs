//! Labels as input of layer-wise inference.

use std::sync::Arc;

use kith_client::{Seeds, Shards};
use kith_kernels::InputRows;

use super::{Ending, Prepared, nodes::NodeWriter, room::Room, walk};
use crate::{
    data::{label_input::LabelInput, matrix::rows_of, probabilities::to_probabilities},
    distributed::world::World,
    error::TrainError,
    inference::receptive::ReceptiveSets,
    model::Model,
};

impl Prepared {
    /// The same for models whose input are the labels of training nodes.
    pub(crate) fn with_labels(self, train: &Arc<Seeds>) -> Prepared {
        Prepared { train: Some(Arc::clone(train)), ..self }
    }

    /// Predicts all nodes as often as the model reuses labels, each time as input of the next.
    pub(crate) fn reuse_labels(
        mut self,
        model: &Model,
        shards: &dyn Shards,
        room: &Room,
        is_multi_label: bool,
    ) -> Result<Prepared, TrainError> {
        let (n_nodes, n_layers) = (shards.info().n_nodes, model.layers().len());
        let mut world = World::alone();
        for _ in 0..model.label_input().map_or(0, LabelInput::n_reuse) {
            let all = Prepared { sets: ReceptiveSets::all(n_nodes, n_layers), ..self.clone() };
            let n_columns = model.label_input().map_or(0, LabelInput::n_columns);
            let mut reused =
                NodeWriter::with_room(n_nodes as usize * n_columns, "labels", (room, room.shares(&world)))?;
            walk(model, shards, room, &mut world, (&all, Ending::Output), |seen| {
                let mut rows = rows_of(&model.logits(seen.looked.output(model, n_layers - 1)?)?)?;
                to_probabilities(&mut rows, is_multi_label);
                reused.push(&rows.values)
            })?;
            self.reused = Some(Arc::new(reused.finish()?));
        }
        Ok(self)
    }

    /// Features of some nodes as a model reads them: with label columns, if it has them.
    pub(super) fn with_label_columns(&self, model: &Model, nodes: &[u64], rows: InputRows) -> InputRows {
        match (model.label_input(), &self.train) {
            (Some(labels), Some(train)) => {
                labels.of_nodes(&rows, nodes, train, self.reused.as_ref().map(|reused| reused.values()))
            }
            (None, _) => rows,
            (Some(_), None) => unreachable!("labels are prepared for models that read them"),
        }
    }
}
