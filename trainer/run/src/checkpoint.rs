//! Checkpoint files: weights, Adam's moments and the state of the loop, in one safetensors file that any tool can read.
//!
//! | tensor | holds |
//! |---|---|
//! | `layers.0.weight`, … | the weights, by name |
//! | `moments.first`, `moments.second` | Adam's moments, one number per weight, in the order of the weights |
//! | `best` | the weights of the epoch with the best validation metric, in the same order |
//! | `ema` | with `optimizer.ema`: the average of the weights, in the same order |
//!
//! The loop's state is the text `kith` of the file's metadata, as JSON; `kith.crc32` is the checksum of all tensors, and
//! `kith.file_crc32` that of the whole file (see `checkpoint/checksum.rs`). Version 0.1.0 wrote no checksum of the file.

mod checksum;
mod saved_state;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use safetensors::{
    SafeTensors,
    tensor::{Dtype, TensorView, serialize},
};

use self::checksum::{BLANK, WHOLE, is_right, seal};
pub use self::saved_state::{Exact, SavedState};

/// The format this build writes. It reads format 2 as well.
pub const FORMAT_VERSION: u32 = 3;

/// The names of our texts in the metadata.
const METADATA: &str = "kith";
const CHECKSUM: &str = "kith.crc32";

/// Shape and values of a tensor.
pub type ShapedValues = (Vec<usize>, Vec<f32>);

/// Everything a run needs to go on, as read from a file.
#[derive(Debug)]
pub struct CheckpointFile {
    /// The state of the loop.
    pub state: SavedState,
    /// True for a file with a checksum of all its bytes.
    pub is_sealed: bool,
    /// All tensors, by name.
    pub tensors: HashMap<String, ShapedValues>,
}

impl CheckpointFile {
    /// Reads a file; the error is a part of a sentence.
    pub fn read(bytes: &[u8]) -> Result<CheckpointFile, String> {
        let damaged = |error| format!("not a whole safetensors file ({error})");
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let texts = metadata.metadata().clone().unwrap_or_default();
        let text = texts.get(METADATA).ok_or("not a checkpoint of kith: it holds no state of a run")?;
        let is_sealed = texts.contains_key(WHOLE);
        if is_sealed && !is_right(bytes) {
            return Err("damaged: the file does not have its checksum".to_owned());
        }
        // A damaged name of the checksum must not pass for a file without one.
        if let Some(name) = texts.keys().find(|name| ![METADATA, CHECKSUM, WHOLE].contains(&name.as_str())) {
            return Err(format!("damaged: its metadata has an unknown text {name:?}"));
        }
        let state = SavedState::parse(text)?;
        let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let mut views = file.tensors();
        views.sort_by(|(a, _), (b, _)| a.cmp(b));
        let checksum = checksum_of(views.iter().map(|(name, view)| (name.as_str(), view.data())));
        if texts.get(CHECKSUM) != Some(&checksum) {
            return Err("damaged: its tensors do not have its checksum".to_owned());
        }
        let mut tensors = HashMap::new();
        for (name, view) in views {
            if view.dtype() != Dtype::F32 {
                return Err(format!("{name} does not hold 32-bit floats"));
            }
            let (words, _) = view.data().as_chunks::<4>();
            let values = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
            tensors.insert(name, (view.shape().to_vec(), values));
        }
        Ok(CheckpointFile { state, is_sealed, tensors })
    }
}

/// A file of a state and tensors, each with its name, its shape and the bytes of its 32-bit floats.
///
/// # Panics
///
/// Panics if a tensor does not have as many bytes as its shape says, or two have one name.
pub fn to_bytes(state: &SavedState, mut tensors: Vec<(&str, Vec<usize>, &[u8])>) -> Vec<u8> {
    tensors.sort_by_key(|(name, ..)| *name);
    let checksum = checksum_of(tensors.iter().map(|(name, _, bytes)| (*name, *bytes)));
    let state = serde_json::to_string(state).expect("a state has only numbers and texts");
    let texts = [(METADATA, state), (CHECKSUM, checksum), (WHOLE, BLANK.to_owned())];
    let metadata = HashMap::from(texts.map(|(name, text)| (name.to_owned(), text)));
    let views = tensors.into_iter().map(|(name, shape, bytes)| {
        (name, TensorView::new(Dtype::F32, shape, bytes).expect("as many bytes as its shape says"))
    });
    let mut bytes = serialize(views, &Some(metadata)).expect("tensors with names of their own");
    seal(&mut bytes);
    bytes
}

/// Checksum of all tensors, in the order of their names.
fn checksum_of<'a>(tensors: impl Iterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut hasher = crc32fast::Hasher::new();
    for (name, bytes) in tensors {
        hasher.update(name.as_bytes());
        hasher.update(bytes);
    }
    format!("{:08x}", hasher.finalize())
}
