//! A checkpoint of arbitrary bytes is read, or refused with a sentence. If the first byte is odd, its checksums are made right first.

use kith_run::{
    checkpoint::{CheckpointFile, to_bytes},
    run_file::RunFile,
};
use kith_store::LabelKind;
use safetensors::SafeTensors;

/// Puts eight digits behind the name of a checksum.
fn put(bytes: &mut [u8], name: &str, sum: u32) -> Option<()> {
    let before = format!("\"{name}\":\"");
    let start = bytes.windows(before.len()).position(|window| window == before.as_bytes())? + before.len();
    bytes.get_mut(start..start + 8)?.copy_from_slice(format!("{sum:08x}").as_bytes());
    Some(())
}

/// Makes the checksum of the tensors right, then the one of the file.
fn correct(bytes: &mut [u8]) -> Option<()> {
    let mut sum = crc32fast::Hasher::new();
    {
        let file = SafeTensors::deserialize(bytes).ok()?;
        let mut tensors = file.tensors();
        tensors.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (name, view) in &tensors {
            sum.update(name.as_bytes());
            sum.update(view.data());
        }
    }
    put(bytes, "kith.crc32", sum.finalize())?;
    // The sum of the file is that with zeros as its digits.
    let before = b"\"kith.file_crc32\":\"";
    let start = bytes.windows(before.len()).position(|window| window == before)? + before.len();
    bytes.get_mut(start..start + 8)?.copy_from_slice(b"00000000");
    let whole = crc32fast::hash(bytes);
    put(bytes, "kith.file_crc32", whole)
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((is_corrected, bytes)) = bytes.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if is_corrected % 2 == 1 {
        let _ = correct(&mut bytes); // Without its names, the file is read as it is.
    }
    let Ok(file) = CheckpointFile::read(&bytes) else { return };
    let n_bytes: usize = file.tensors.values().map(|(_, values)| 4 * values.len()).sum();
    assert!(n_bytes <= bytes.len(), "tensors of {n_bytes} bytes in {} bytes", bytes.len());
    if let Ok(config) = RunFile::parse(&file.state.run_file, "a checkpoint").and_then(|file| file.resolve()) {
        let _ = file.state.check(&config, (file.state.dim, file.state.n_classes, LabelKind::Classes), 2);
    }
    let values = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let tensors: Vec<_> =
        file.tensors.iter().map(|(name, (shape, floats))| (name, shape.clone(), values(floats))).collect();
    let tensors = tensors.iter().map(|(name, shape, bytes)| (name.as_str(), shape.clone(), &bytes[..])).collect();
    let again = CheckpointFile::read(&to_bytes(&file.state, tensors)).expect("what was written is read");
    // As text: a loss that is no number differs from itself.
    let text = |state| serde_json::to_string(state).expect("a state has only numbers and texts");
    assert_eq!((text(&again.state), again.is_sealed), (text(&file.state), true));
}
