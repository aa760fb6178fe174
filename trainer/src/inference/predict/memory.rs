//! Private memory of predictions, which are held until they are written.

use kith_run::prediction::What;
use kith_store::memory::private_bytes;

use super::{PredictedNodes, Question};
use crate::{error::TrainError, inference::layerwise::least_bytes};

/// Bytes of a line beside its numbers: an id, and its end.
const LINE_BYTES: u64 = 24;

impl Question<'_> {
    /// Keeps memory for the predictions; refuses a limit that is too small for them.
    pub fn plan_memory(&mut self) -> Result<(), TrainError> {
        if self.room.memory.is_none() {
            return Ok(());
        }
        let (info, config) = (self.opened.info(), self.checkpoint.config()?);
        let n_nodes = self.nodes.n_of(info.n_nodes) as u64;
        let (n_lines, width) = match (self.what, self.nodes) {
            (What::Attention, PredictedNodes::All) => (info.n_edges + info.n_nodes, config.model.heads),
            // The edges into some nodes are not known yet.
            (What::Attention, PredictedNodes::Some(_)) => (0, 0),
            _ => (n_nodes, config.model.widest(self.checkpoint.state.n_classes)),
        };
        self.room.others = private_bytes().unwrap_or(0) + n_lines * (LINE_BYTES + 4 * width as u64);
        let bytes = least_bytes(&config.model, info.n_nodes, (0, 0));
        self.room.check(bytes, "the prediction", "predict fewer nodes with --nodes, or raise --memory")
    }
}
