//! Weights as a safetensors file, in Kith's own names or in those of PyG's layers: see `pyg_layer` of each model. The names are in
//! `docs/use/weights.md`.

use std::{collections::BTreeMap, fs, path::Path};

use kith_run::files::publish_bytes;
use safetensors::{
    SafeTensors,
    tensor::{Dtype, TensorView, serialize},
};
use tch::{Device, Kind, Tensor};

use crate::{
    error::TrainError,
    model::{LayerShape, Model, PygMap, PygTensor},
};

/// Ends of the names that PyG's layers have first, and Kith's weights never.
const FIRST_OF_PYG: [&str; 3] = [".lin.weight", ".lin_l.weight", ".nn.0.weight"];

/// Writes a model's weights in Kith's own names: `layers.0.weight`, `layers.0.bias`, and so on.
pub fn save_named(model: &Model, path: &Path) -> Result<(), TrainError> {
    let entries = model.weights().entries().iter();
    let named = |name: &str| model.weights().get(name).expect("entries are the names of weights").detach();
    write(entries.map(|entry| (entry.name.clone(), named(&entry.name))).collect(), path)
}

/// Writes a model's weights in PyG's names: layer 0 is `convs.0`, and so on.
pub fn save(model: &Model, path: &Path) -> Result<(), TrainError> {
    let names = pyg_layer(model, path)?;
    let mut tensors: Vec<(String, Tensor)> = Vec::new();
    for (layer, shape) in model.layers().iter().enumerate() {
        let LayerShape { heads, features, .. } = *shape;
        for name in &names {
            let Some(own) = model.weights().get(&name.ours(layer)).map(Tensor::detach) else { continue };
            let tensor = match name.map {
                PygMap::Same => own,
                PygMap::Turned => own.tr(),
                PygMap::Half(half) => own.narrow(1, (half * features) as i64, features as i64).unsqueeze(0),
                PygMap::Heads => own.view([1, heads as i64, features as i64]),
                PygMap::SourceBias => own.zeros_like(),
                PygMap::Zero => Tensor::zeros([1], (own.kind(), own.device())),
            };
            tensors.push((format!("convs.{layer}.{}", name.theirs), tensor));
        }
    }
    write(tensors, path)
}

fn write(tensors: Vec<(String, Tensor)>, path: &Path) -> Result<(), TrainError> {
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .into_iter()
        .map(|(name, tensor)| {
            let shape = tensor.size().iter().map(|size| *size as usize).collect();
            let values = tensor.to_device(Device::Cpu).to_kind(Kind::Float).flatten(0, -1);
            let values = Vec::<f32>::try_from(values).map_err(TrainError::from)?;
            Ok((name, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect()))
        })
        .collect::<Result<_, TrainError>>()?;
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("as many values as the shape says"))
    });
    let bytes = serialize(views, &None).map_err(|error| TrainError::weights(path, error.to_string()))?;
    Ok(publish_bytes(path, &bytes)?)
}

/// Reads weights into a model of the same shape, in Kith's own names or in PyG's.
pub fn load(model: &Model, path: &Path) -> Result<(), TrainError> {
    let bytes = fs::read(path).map_err(TrainError::io(path))?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| TrainError::weights(path, format!("not a safetensors file: {error}")))?;
    let tensors: BTreeMap<String, TensorView<'_>> = file.tensors().into_iter().collect();
    let is_of_pyg = |name: &String| FIRST_OF_PYG.iter().any(|own| name.ends_with(own));
    match tensors.keys().any(is_of_pyg) {
        true => load_pyg(model, path, tensors),
        false => load_named(model, path, tensors),
    }
}

fn load_named(model: &Model, path: &Path, mut tensors: BTreeMap<String, TensorView<'_>>) -> Result<(), TrainError> {
    let mut flat = Vec::new();
    for entry in model.weights().entries() {
        let shape: Vec<usize> = entry.shape.iter().map(|size| *size as usize).collect();
        flat.push(take(&mut tensors, path, &entry.name, &shape)?.reshape(-1));
    }
    finish(model, path, &tensors, &flat)
}

/// Removes a tensor of this name and shape.
fn take(
    tensors: &mut BTreeMap<String, TensorView<'_>>,
    path: &Path,
    name: &str,
    shape: &[usize],
) -> Result<Tensor, TrainError> {
    let wrong = |problem: String| TrainError::weights(path, problem);
    let view = tensors.remove(name).ok_or_else(|| wrong(format!("{name} is missing")))?;
    if view.shape() != shape {
        return Err(wrong(format!("{name}: expected the shape {shape:?}, found {:?}", view.shape())));
    }
    read(&view).ok_or_else(|| wrong(format!("{name}: expected F32, found {:?}", view.dtype())))
}

/// Sets the weights. A tensor that is left over would be missing in the model's output.
fn finish(
    model: &Model,
    path: &Path,
    left: &BTreeMap<String, TensorView<'_>>,
    flat: &[Tensor],
) -> Result<(), TrainError> {
    if let Some(name) = left.keys().next() {
        return Err(TrainError::weights(path, format!("{name} is not a weight of this model")));
    }
    model.weights().set(&Tensor::cat(flat, 0));
    Ok(())
}

/// Reads weights in PyG's names. Layers are identified by what comes before the name of the first weight, and ordered by the numbers in
/// it: `convs.0`, `convs.1`, … or `conv1`, `conv2`, ….
fn load_pyg(model: &Model, path: &Path, mut tensors: BTreeMap<String, TensorView<'_>>) -> Result<(), TrainError> {
    let names = pyg_layer(model, path)?;
    let mut prefixes: Vec<String> =
        tensors.keys().filter_map(|name| name.strip_suffix(names[0].theirs)).map(str::to_owned).collect();
    prefixes.sort_by_cached_key(|prefix| numbers_apart(prefix));
    if prefixes.len() != model.layers().len() {
        let problem = format!(
            "expected {} layers with {}, found {}: the model must be of the kind and depth of the file",
            model.layers().len(),
            names[0].theirs,
            prefixes.len()
        );
        return Err(TrainError::weights(path, problem));
    }
    let mut found: BTreeMap<String, Tensor> = BTreeMap::new();
    for (layer, (prefix, shape)) in prefixes.iter().zip(model.layers()).enumerate() {
        let LayerShape { heads, features, .. } = *shape;
        let [of_heads, all] = [[heads as i64, features as i64], [1, (heads * features) as i64]];
        for name in &names {
            let ours = name.ours(layer);
            let Some(own) = model.weights().get(&ours) else { continue };
            let mut take = |shape: &[i64]| {
                let shape: Vec<usize> = shape.iter().map(|size| *size as usize).collect();
                take(&mut tensors, path, &format!("{prefix}{}", name.theirs), &shape)
            };
            let size = own.size();
            match name.map {
                PygMap::Same => found.insert(ours, take(&size)?),
                PygMap::Turned => found.insert(ours, take(&[size[1], size[0]])?.tr()),
                PygMap::Heads => found.insert(ours, take(&[1, of_heads[0], of_heads[1]])?.view(of_heads)),
                PygMap::Half(_) => {
                    let half = take(&[1, of_heads[0], of_heads[1]])?.view(of_heads);
                    let both = match found.remove(&ours) {
                        None => half,
                        Some(first) => Tensor::cat(&[first, half], 1),
                    };
                    found.insert(ours, both)
                }
                PygMap::SourceBias => {
                    let bias = take(&all[1..])?;
                    let heads = bias.view(of_heads);
                    let joined =
                        if shape.concat { bias.shallow_clone() } else { heads.mean_dim(0, false, heads.kind()) };
                    for (ours, bias) in [(ours, bias), (format!("layers.{layer}.bias"), joined)] {
                        let sum = found.get(&ours).map_or_else(|| bias.shallow_clone(), |own| own + &bias);
                        found.insert(ours, sum);
                    }
                    None
                }
                PygMap::Zero => {
                    let found = take(&[1])?.double_value(&[0]);
                    if found != 0.0 {
                        let problem = format!(
                            "{prefix}{}: expected 0, found {found}: train it in PyG with eps=0 and train_eps=False",
                            name.theirs
                        );
                        return Err(TrainError::weights(path, problem));
                    }
                    None
                }
            };
        }
    }
    let entries = model.weights().entries().iter();
    let flat: Vec<Tensor> = entries.map(|entry| found[&entry.name].reshape(-1)).collect();
    finish(model, path, &tensors, &flat)
}

/// The tensors of PyG's layer with the weights of a model's.
fn pyg_layer(model: &Model, path: &Path) -> Result<Vec<PygTensor>, TrainError> {
    let wrong = |sentence: String| TrainError::weights(path, sentence);
    let names = model.spec().pyg_layer(model.config()).map_err(|sentence| wrong(sentence.to_owned()))?;
    let is_there =
        |ours: &str| (0..model.layers().len()).any(|layer| names.iter().any(|name| name.ours(layer) == ours));
    match model.weights().entries().iter().find(|entry| !is_there(&entry.name)) {
        None => Ok(names),
        Some(entry) => Err(wrong(format!(
            "PyG's layers have no tensor for {}: use Kith's names (kith export --to kith)",
            entry.name
        ))),
    }
}

/// The values of a tensor in its own shape; `None` if they are no floats of 32 bits.
fn read(view: &TensorView<'_>) -> Option<Tensor> {
    let shape: Vec<i64> = view.shape().iter().map(|size| *size as i64).collect();
    let values: Vec<f32> =
        view.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("4 bytes"))).collect();
    (view.dtype() == Dtype::F32).then(|| Tensor::from_slice(&values).view(shape.as_slice()))
}

/// A name in parts that sort as a person would: `conv2` before `conv10`.
fn numbers_apart(name: &str) -> Vec<(u64, String)> {
    let mut parts = vec![(0u64, String::new())];
    for letter in name.chars() {
        let (number, text) = parts.last_mut().expect("never empty");
        match letter.to_digit(10) {
            Some(digit) if text.is_empty() => *number = number.saturating_mul(10).saturating_add(digit.into()),
            Some(digit) => parts.push((digit.into(), String::new())),
            None => text.push(letter),
        }
    }
    parts
}

#[cfg(test)]
mod tests;
