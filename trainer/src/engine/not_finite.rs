//! Checks for losses that are not finite, and the first layer concerned.

use tch::Tensor;

use super::host::Host;
use crate::{
    data::{Data, feed::At, input::Sample},
    distributed::exchange::SliceRecord,
    error::TrainError,
    model::Pass,
};

impl Host<'_> {
    /// Refuses a slice whose loss is not finite; `sample` is its input, if it is on the host.
    pub(super) fn check_slice(&self, at: At, record: &SliceRecord, sample: Option<&Sample>) -> Result<(), TrainError> {
        let edge_losses: Vec<f64> = record.edge_losses.iter().map(|loss| loss.0).collect();
        self.check_finite(record.loss.0, at.step, at.epoch, sample, &edge_losses)
    }

    /// Refuses a loss that is not finite after a step, naming the first layer with a part that is not. `edge_losses` holds a
    /// loss for each layer, or several such groups.
    pub(crate) fn check_finite(
        &self,
        loss: f64,
        step: u64,
        epoch: u64,
        sample: Option<&Sample>,
        edge_losses: &[f64],
    ) -> Result<(), TrainError> {
        if loss.is_finite() {
            return Ok(());
        }
        let is_finite = |tensor: &Tensor| tensor.isfinite().all().int64_value(&[]) == 1;
        let n_layers = self.model.layers().len();
        let traced = match (sample, self.data) {
            (Some(sample), _) => Some(self.model.trace(sample)?),
            (None, Data::Full(input)) => Some(self.model.trace(&self.model.sample(&input.graphs[0], Pass::Evaluate)?)?),
            // A graph that does not fit into memory is not traced: the weights tell.
            (None, Data::Batches(_)) => None,
        };
        let of_layer = |layer: usize| {
            // All weights of a layer have its number: layers.0.bias, norms.0.weight.
            let own = format!(".{layer}.");
            let entries = self.model.weights().entries().iter().filter(|entry| entry.name.contains(&own));
            let mut weights = entries.filter_map(|entry| self.model.weights().get(&entry.name));
            if weights.any(|weight| !is_finite(weight)) {
                return Some(format!("the weights of layer {layer} are the first that are not"));
            }
            if traced.as_ref().is_some_and(|traced| !is_finite(&traced.rows[layer])) {
                return Some(format!("the output of layer {layer} is the first that is not"));
            }
            let mut own = edge_losses.iter().skip(layer).step_by(n_layers);
            own.any(|loss| !loss.is_finite())
                .then(|| format!("the edge loss of layer {layer} is the first that is not"))
        };
        let linear = |name: &str| {
            let weight = self.model.weights().get(&format!("{name}.weight"))?;
            (!is_finite(weight)).then(|| format!("the weights of the {name} layer are the first that are not"))
        };
        let place = linear("input").or_else(|| (0..n_layers).find_map(of_layer)).or_else(|| linear("output"));
        // Values that dropout made too large may be finite without it.
        let last = match self.model.config().has_output_linear() {
            true => "the output layer".to_owned(),
            false => format!("layer {}", n_layers - 1),
        };
        let place = place.unwrap_or_else(|| format!("the output of {last} is the first that is not"));
        Err(TrainError::NotFinite { step, epoch, place })
    }
}
