//! Weights in the names of PyG's `SuperGATConv` and `GATConv`, as a safetensors file. The map is in `docs/INTERCHANGE.md`.
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

/// What PyG calls a layer's weights; each layer's names follow a prefix of its own.
const WEIGHT: &str = "lin.weight";
const BIAS: &str = "bias";

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

/// Reads weights in PyG's names into a model of the same shape. Layers are told apart by what stands before
/// `lin.weight` and taken in the order of the numbers there: `convs.0`, `convs.1`, … or `conv1`, `conv2`, ….
pub fn load(model: &Model, path: &Path) -> Result<(), TrainError> {
    let halves = names_of_halves(model, path)?;
    let wrong = |problem: String| TrainError::weights(path, problem);
    let bytes = fs::read(path).map_err(TrainError::io(path))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| wrong(format!("not a safetensors file: {error}")))?;
    let mut tensors: BTreeMap<String, TensorView<'_>> = file.tensors().into_iter().collect();

    let mut prefixes: Vec<String> =
        tensors.keys().filter_map(|name| name.strip_suffix(WEIGHT)).map(str::to_owned).collect();
    prefixes.sort_by_cached_key(|prefix| numbers_apart(prefix));
    if prefixes.len() != model.layers().len() {
        return Err(wrong(format!("{} layers, the model has {}", prefixes.len(), model.layers().len())));
    }
    let mut take = |name: String, expected: &[usize]| {
        let view = tensors.remove(&name).ok_or_else(|| wrong(format!("{name} is missing")))?;
        if view.shape() != expected {
            return Err(wrong(format!("{name} has the shape {:?}, {expected:?} expected", view.shape())));
        }
        read(&view).ok_or_else(|| wrong(format!("{name} is {:?}, F32 expected", view.dtype())))
    };
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
    // A weight that is left over would be missing in what the model computes.
    if let Some(name) = tensors.keys().next() {
        return Err(wrong(format!("{name} is no weight of this model")));
    }
    model.weights().set(&Tensor::cat(&flat, 0));
    Ok(())
}

/// What PyG calls the halves of a layer's attention weights, the destination's first; the form decides the layer.
fn names_of_halves(model: &Model, path: &Path) -> Result<Option<[&'static str; 2]>, TrainError> {
    if let Some(sentence) = model.spec().pyg_refusal() {
        return Err(TrainError::weights(path, sentence));
    }
    match model.config().form {
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
