//! Initial weights from elsewhere: a file, or another run (fine-tuning).

use std::{collections::HashSet, path::Path};

use kith_run::prediction::Moment;
use tch::{Device, Tensor};

use crate::{
    error::TrainError,
    inference::predict::{find_checkpoint, model_of},
    model::Model,
    output::interchange,
    weights::{Entry, Weights},
};

/// Sets a model's weights: from a file of weights, which must fit the model, or from the best epoch of a run, layer by layer, as
/// far as the weights of a layer agree in names and shapes. A sentence for the user about layers that do not come from the run.
pub(super) fn start_from(model: &Model, path: &Path) -> Result<Option<String>, TrainError> {
    if !path.is_dir() {
        return interchange::load(model, path).map(|()| None);
    }
    let (_, other) = model_of(&find_checkpoint(path)?, Moment::Best, Device::Cpu)?;
    let (own, theirs) = (model.weights(), other.weights());
    let fits = |entry: &Entry| theirs.get(&entry.name).is_some_and(|weight| weight.size() == entry.shape);
    let n_weights =
        |weights: &Weights, layer: &str| weights.entries().iter().filter(|entry| entry.layer() == layer).count();
    let is_taken = |layer: &str| {
        let all_fit = own.entries().iter().filter(|entry| entry.layer() == layer).all(fits);
        all_fit && n_weights(own, layer) == n_weights(theirs, layer)
    };
    let mut layers: Vec<&str> = own.entries().iter().map(Entry::layer).collect();
    let mut seen = HashSet::new();
    layers.retain(|layer| seen.insert(*layer));
    let (taken, new): (Vec<&str>, Vec<&str>) = layers.into_iter().partition(|layer| is_taken(layer));
    if taken.is_empty() {
        let problem = "no layer of its model has weights with the names and shapes of a layer of this model".to_owned();
        return Err(TrainError::weights(path, problem));
    }
    let weight = |entry: &Entry| {
        let weights = if taken.contains(&entry.layer()) { theirs } else { own };
        weights.get(&entry.name).map(|weight| weight.detach().to_device(own.flat().device()).reshape(-1))
    };
    let flat: Vec<Tensor> = own.entries().iter().filter_map(weight).collect();
    own.set(&Tensor::cat(&flat, 0));
    let (taken, new, place) = (taken.join(", "), new.join(", "), path.display());
    Ok((!new.is_empty()).then(|| format!("of {place} come the weights of {taken}; those of {new} are new")))
}
