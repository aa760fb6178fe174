//! Private memory of predictions, which are held until they are written.

use kith_run::prediction::What;
use kith_store::memory::private_bytes;

use super::{PredictedNodes, Question};
use crate::{
    error::TrainError,
    inference::layerwise::{kept_bytes, least_bytes},
};

/// Bytes of an id in a line, and of the line's end.
const ID_BYTES: u64 = 16;
const END_BYTES: u64 = 8;

impl Question<'_> {
    /// Keeps memory for the predictions; refuses a limit that is too small for them.
    pub fn plan_memory(&mut self) -> Result<(), TrainError> {
        if self.room.memory.is_none() {
            return Ok(());
        }
        let (info, config) = (self.opened.info(), self.checkpoint.config()?);
        let n_nodes = self.nodes.n_of(info.n_nodes) as u64;
        let heads = || config.model.heads_of(self.layer.unwrap_or(config.model.n_layers - 1));
        let (n_lines, n_ids, width) = match (self.what, self.nodes) {
            (What::Attention, PredictedNodes::All) => (info.n_edges + info.n_nodes, 2, heads()),
            // The edges into some nodes are not known yet.
            (What::Attention, PredictedNodes::Some(_)) => (0, 0, 0),
            _ => (n_nodes, 1, config.model.widest(self.checkpoint.state().n_classes)),
        };
        self.room.others = private_bytes().unwrap_or(0) + n_lines * (n_ids * ID_BYTES + END_BYTES + 4 * width as u64);
        let bytes = least_bytes(&config.model, info.n_nodes, (0, 0));
        self.room.check(bytes, "the prediction", "predict fewer nodes with --nodes, or raise --memory")?;
        self.room.others += kept_bytes(&config.model, info.n_nodes);
        Ok(())
    }
}
