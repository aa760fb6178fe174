//! Damaged checkpoint files: all damage is detected.

use std::collections::BTreeMap;

use kith_corruption::{Bits, check_bytes, each_mutation};
use serde_json::{Value, json};

use super::*;
use crate::{
    clock::Phases,
    report::{EvaluatedNodes, StepRecord},
};

fn state(due: Option<StepRecord>) -> SavedState {
    SavedState {
        format_version: FORMAT_VERSION,
        run_file: "[model]\nkind = \"gat\"\n".to_owned(),
        seed: 42,
        store_digest: "0123456789abcdef".to_owned(),
        dim: 5,
        n_classes: 3,
        labels: kith_store::LabelKind::Classes,
        target_scales: Vec::new(),
        step: 6,
        epoch: if due.is_some() { 5 } else { 6 },
        stopped_early: false,
        losses: vec![Exact(0.5), Exact(0.25)],
        improved: None,
        metrics: vec![Exact(0.75), Exact(1.0 / 3.0)],
        best: Some((4, Exact(0.75), Exact(0.5))),
        last: Some((Exact(0.25), Exact(0.75), Exact(0.5))),
        plateau: Some((3, Exact(0.25), 1)),
        evaluated_nodes: Some(EvaluatedNodes { graph: 9, features: 8, layers: vec![5, 2] }),
        n_negatives_left_out: 3,
        feature_counts: (1, 2, 3),
        micros: 123_456,
        phases: vec![Phases { sample: 1, compute: 2, exchange: 3, update: 4, ..Phases::default() }; 2],
        due,
    }
}

fn due() -> StepRecord {
    StepRecord { loss: 1.0 / 3.0, node_loss: 0.1, edge_losses: vec![0.7], micros: 9, ..StepRecord::new(5, 5) }
}

fn file(due: Option<StepRecord>) -> Vec<u8> {
    let values: Vec<f32> = (0..25u8).map(|place| f32::from(place) / 3.0 - 4.0).collect();
    let halves: Vec<f32> = values.iter().map(|value| value / 2.0).collect();
    let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let (values, halves) = (bytes(&values), bytes(&halves));
    let tensors = vec![
        ("moments.first", vec![25], &halves[..]),
        ("moments.second", vec![25], &halves[..]),
        ("best", vec![25], &values[..]),
        ("layers.0.weight", vec![4, 5], &values[..80]),
        ("layers.0.bias", vec![5], &values[80..]),
    ];
    to_bytes(&state(due), tensors)
}

fn read(bytes: &[u8]) -> Result<CheckpointFile, String> {
    CheckpointFile::read(bytes).map_err(|problem| format!("file: {problem}"))
}

fn header(bytes: &[u8]) -> (Value, &[u8]) {
    let n_header = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    (serde_json::from_slice(&bytes[8..8 + n_header]).unwrap(), &bytes[8 + n_header..])
}

/// The same file with another header.
fn with_header(header: &Value, tensors: &[u8]) -> Vec<u8> {
    let mut text = serde_json::to_vec(header).unwrap();
    text.resize(text.len().next_multiple_of(8), b' ');
    [&(text.len() as u64).to_le_bytes()[..], &text, tensors].concat()
}

fn state_of(header: &Value) -> Value {
    serde_json::from_str(header["__metadata__"][METADATA].as_str().unwrap()).unwrap()
}

fn set_state(header: &mut Value, state: &Value) {
    header["__metadata__"][METADATA] = Value::String(state.to_string());
}

/// A file as version 0.1.0 wrote it.
fn without_checksum(bytes: &[u8]) -> Vec<u8> {
    let (mut header, tensors) = header(bytes);
    header["__metadata__"].as_object_mut().unwrap().remove(WHOLE).unwrap();
    with_header(&header, tensors)
}

#[test]
fn a_file_comes_back_as_it_was_written() {
    for due in [None, Some(due())] {
        let checkpoint = read(&file(due.clone())).unwrap();
        assert_eq!((&checkpoint.state, checkpoint.is_sealed), (&state(due), true));
    }
}

#[test]
fn every_flipped_byte_is_refused() {
    for due in [None, Some(due())] {
        let bytes = file(due);
        let outcomes = check_bytes(&bytes, "file: ", Bits::Each, |bytes| read(bytes).map(|found| contents(&found)));
        assert_eq!((outcomes.n_refused, outcomes.harmless), (10 * bytes.len() + 1, vec![]));
    }
}

/// Files of version 0.1.0 have a checksum of their tensors alone: the header may change what nobody reads.
#[test]
fn every_flipped_byte_of_older_tensors_is_refused() {
    let bytes = without_checksum(&file(None));
    let n_header = bytes.len() - header(&bytes).1.len();
    let outcomes = check_bytes(&bytes[n_header..], "file: ", Bits::Each, |tensors| {
        read(&[&bytes[..n_header], tensors].concat()).map(|found| contents(&found))
    });
    assert_eq!((outcomes.n_refused, outcomes.harmless), (10 * (bytes.len() - n_header) + 1, vec![]));
}

/// Shape and bits of a tensor.
type TensorBits = (Vec<usize>, Vec<u32>);

/// All that a checkpoint gives to a run.
fn contents(checkpoint: &CheckpointFile) -> (SavedState, BTreeMap<String, TensorBits>) {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    let tensors = checkpoint.tensors.iter();
    let tensors = tensors.map(|(name, (shape, values))| (name.clone(), (shape.clone(), bits(values)))).collect();
    (checkpoint.state.clone(), tensors)
}

/// Drawn damage: no panic, no memory beyond that of the file, and no other contents.
#[test]
fn mutated_files_are_refused() {
    let bytes = file(Some(due()));
    let whole = contents(&read(&bytes).unwrap());
    each_mutation(&bytes, 20_000, |damaged| {
        if let Ok(found) = read(damaged) {
            assert_eq!(contents(&found), whole);
        }
    });
    let older = without_checksum(&bytes);
    each_mutation(&older, 20_000, |damaged| drop(read(damaged)));
}

/// Another value for each value inside.
fn edits(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => vec![json!(1)],
        Value::Bool(flag) => vec![json!(!flag)],
        Value::Number(number) if number.is_u64() => vec![json!(number.as_u64().unwrap() + 1), json!(0)],
        Value::Number(number) => vec![json!(number.as_f64().unwrap() * 2.0)],
        Value::String(text) => vec![json!(format!("{text}0"))],
        Value::Array(items) => (0..items.len())
            .flat_map(|place| edits(&items[place]).into_iter().map(move |edit| (place, edit)))
            .map(|(place, edit)| {
                let mut items = items.clone();
                items[place] = edit;
                Value::Array(items)
            })
            .chain([Value::Array(items.get(1..).unwrap_or_default().to_vec())])
            .collect(),
        Value::Object(fields) => {
            let edited = fields.iter().flat_map(|(name, value)| edits(value).into_iter().map(move |edit| (name, edit)));
            let edited = edited.map(|(name, edit)| {
                let mut fields = fields.clone();
                fields[name] = edit;
                Value::Object(fields)
            });
            let removed = fields.keys().map(|name| {
                let mut fields = fields.clone();
                fields.remove(name);
                Value::Object(fields)
            });
            edited.chain(removed).collect()
        }
    }
}

#[test]
fn every_edited_field_is_refused() {
    for due in [None, Some(due())] {
        let written = file(due);
        let (first, tensors) = header(&written);
        let mut bytes = with_header(&first, tensors);
        seal(&mut bytes);
        assert!(read(&bytes).is_ok(), "the header written once more, with its checksum");
        let (header, tensors) = header(&bytes);
        assert_eq!(with_header(&header, tensors), bytes, "without an edit it is the same file");
        let state = state_of(&header);
        let edited = edits(&state);
        assert!(edited.len() > 40, "{}", edited.len());
        for edit in edited.into_iter().filter(|edit| *edit != state) {
            let mut header = header.clone();
            set_state(&mut header, &edit);
            assert!(read(&with_header(&header, tensors)).is_err(), "{edit}");
        }
        // Names, types, shapes and places of tensors, and the checksums; without that of the file, it is an older file.
        let is_older = |edit: &Value| edit["__metadata__"].get(WHOLE).is_none() && edit["__metadata__"].is_object();
        for edit in edits(&header).into_iter().filter(|edit| *edit != header && !is_older(edit)) {
            assert!(read(&with_header(&edit, tensors)).is_err(), "{edit}");
        }
        let mut renamed = header.clone();
        let tensor = renamed.as_object_mut().unwrap().remove("moments.first").unwrap();
        renamed["moments.firsts"] = tensor;
        assert!(read(&with_header(&renamed, tensors)).is_err());
    }
}

#[test]
fn an_older_file_is_read() {
    let bytes = without_checksum(&file(None));
    let checkpoint = read(&bytes).unwrap();
    assert_eq!((checkpoint.state, checkpoint.is_sealed), (state(None), false));
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(read(&damaged).unwrap_err(), "file: damaged: its tensors do not have its checksum");
}
