//! Losses that are not finite, and where that began.

use tch::Tensor;

use super::Run;
use crate::{data::Data, error::TrainError, input::Sample, model::Forward};

impl Run<'_> {
    /// Stops a run whose loss is not finite since a step, naming the first layer with a part that is not. `forward` is the
    /// pass that gave the loss, and what it read, where it is known.
    pub(crate) fn check_finite(
        &self,
        loss: f64,
        step: u64,
        forward: Option<(&Sample, &Forward)>,
    ) -> Result<(), TrainError> {
        if loss.is_finite() {
            return Ok(());
        }
        let is_finite = |tensor: &Tensor| tensor.isfinite().all().int64_value(&[]) == 1;
        let traced = match (forward, self.data) {
            (Some((sample, _)), _) => Some(self.model.trace(sample)?),
            (None, Data::Full(input)) => Some(self.model.trace(&input.graphs[0].sample(self.model.layers().len()))?),
            // What does not fit into memory is not traced: the weights tell.
            (None, Data::Batches(_)) => None,
        };
        let edge_losses = forward.map_or(&[][..], |(_, forward)| &forward.edge_losses);
        let of_edges = |layer: usize| edge_losses.iter().filter_map(move |loss| loss.layers.get(layer));
        let of_layer = |layer: usize| {
            let own = format!("layers.{layer}.");
            let entries = self.model.weights().entries().iter().filter(|entry| entry.name.starts_with(&own));
            let mut weights = entries.filter_map(|entry| self.model.weights().get(&entry.name));
            if weights.any(|weight| !is_finite(weight)) {
                return Some(format!("the weights of layer {layer} are the first that are not"));
            }
            if traced.as_ref().is_some_and(|traced| !is_finite(&traced.rows[layer])) {
                return Some(format!("the output of layer {layer} is the first that is not"));
            }
            of_edges(layer)
                .any(|loss| !is_finite(loss))
                .then(|| format!("the edge loss of layer {layer} is the first that is not"))
        };
        let n_layers = self.model.layers().len();
        let place = (0..n_layers).find_map(of_layer);
        // What dropout made too large may be finite without it.
        let place = place.unwrap_or_else(|| format!("the output of layer {} is the first that is not", n_layers - 1));
        Err(TrainError::NotFinite { step, epoch: self.state.epoch, place })
    }
}
