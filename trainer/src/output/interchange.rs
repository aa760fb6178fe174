//! Weights in the names of PyG's `SuperGATConv` and `GATConv`, as a safetensors file. The map is in `docs/use/weights.md`.
//!
//! | ours | PyG's `SuperGATConv` (MX, SD) | PyG's `GATConv` (GO) |
//! |---|---|---|
//! | `layers.0.weight`, D × K·F | `convs.0.lin.weight`, K·F × D | the same |
//! | `layers.0.attention`, first half, K × F | `convs.0.att_r`, 1 × K × F (MX) | `convs.0.att_dst` |
//! | `layers.0.attention`, second half | `convs.0.att_l` (MX) | `convs.0.att_src` |
//! | `layers.0.bias` | `convs.0.bias` | the same |

use std::{collections::BTreeMap, fs, path::Path};

use kith_block::Form;
use kith_run::files::publish_bytes;
use safetensors::{
    SafeTensors,
    tensor::{Dtype, TensorView, serialize},
};
use tch::{Device, Kind, Tensor};

use crate::{
    error::TrainError,
    model::{LayerShape, Model},
};

/// PyG's names of a layer's weights; each layer's names follow its own prefix.
const WEIGHT: &str = "lin.weight";
const BIAS: &str = "bias";

/// Writes a model's weights in Kith's own names: `layers.0.weight`, `layers.0.bias`, and so on.
pub fn save_named(model: &Model, path: &Path) -> Result<(), TrainError> {
    let entries = model.weights().entries().iter();
    let named = |name: &str| model.weights().get(name).expect("entries are the names of weights").detach();
    write(entries.map(|entry| (entry.name.clone(), named(&entry.name))).collect(), path)
}

/// Writes a model's weights in PyG's names: layer 0 is `convs.0`, and so on.
pub fn save(model: &Model, path: &Path) -> Result<(), TrainError> {
    let halves = names_of_halves(model, path)?;
    let mut tensors: Vec<(String, Tensor)> = Vec::new();
    for (layer, shape) in model.layers().iter().enumerate() {
        let own = |name: &str| model.weights().get(&format!("layers.{layer}.{name}")).map(Tensor::detach);
        let mut push = |name: &str, tensor: Tensor| tensors.push((format!("convs.{layer}.{name}"), tensor));
        let features = shape.features as i64;
        push(WEIGHT, own("weight").expect("every layer has one").tr());
        if let Some([of_destination, of_source]) = halves {
            let attention = own("attention").expect("the form has attention weights");
            push(of_destination, attention.narrow(1, 0, features).unsqueeze(0));
            push(of_source, attention.narrow(1, features, features).unsqueeze(0));
        }
        push(BIAS, own("bias").expect("every layer has one"));
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
    match tensors.keys().any(|name| name.ends_with(WEIGHT)) {
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

/// Reads weights in PyG's names. Layers are identified by the prefix of `lin.weight`, and ordered by the numbers in it:
/// `convs.0`, `convs.1`, … or `conv1`, `conv2`, ….
fn load_pyg(model: &Model, path: &Path, mut tensors: BTreeMap<String, TensorView<'_>>) -> Result<(), TrainError> {
    let halves = names_of_halves(model, path)?;
    let mut prefixes: Vec<String> =
        tensors.keys().filter_map(|name| name.strip_suffix(WEIGHT)).map(str::to_owned).collect();
    prefixes.sort_by_cached_key(|prefix| numbers_apart(prefix));
    if prefixes.len() != model.layers().len() {
        let problem = format!("expected {} layers, found {}", model.layers().len(), prefixes.len());
        return Err(TrainError::weights(path, problem));
    }
    let mut take = |name: String, shape: &[usize]| take(&mut tensors, path, &name, shape);
    let mut flat = Vec::new();
    for (prefix, shape) in prefixes.iter().zip(model.layers()) {
        let LayerShape { dim, heads, features, .. } = *shape;
        flat.push(take(format!("{prefix}{WEIGHT}"), &[heads * features, dim])?.tr().reshape(-1));
        if let Some(halves) = halves {
            let mut half = |name: &str| take(format!("{prefix}{name}"), &[1, heads, features]);
            let halves = [half(halves[0])?, half(halves[1])?];
            flat.push(Tensor::cat(&halves, 2).reshape(-1));
        }
        flat.push(take(format!("{prefix}{BIAS}"), &[shape.width()])?);
    }
    finish(model, path, &tensors, &flat)
}

/// PyG's names of the halves of a layer's attention weights, the destination's first; the attention decides PyG's
/// layer.
fn names_of_halves(model: &Model, path: &Path) -> Result<Option<[&'static str; 2]>, TrainError> {
    if let Some(sentence) = model.spec().pyg_refusal() {
        return Err(TrainError::weights(path, sentence));
    }
    if !model.config().is_plain() || !model.config().has_bias() {
        let sentence = "PyG's names exist only for models with a bias, ELU and graph layers alone: use Kith's names (kith export --to kith)";
        return Err(TrainError::weights(path, sentence));
    }
    match model.config().attention {
        Form::Go => Ok(Some(["att_dst", "att_src"])),
        Form::Mx => Ok(Some(["att_r", "att_l"])),
        Form::Sd => Ok(None),
        Form::Dp => Err(TrainError::weights(path, "PyG has no layer with plain dot products: use GO, SD or MX")),
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
