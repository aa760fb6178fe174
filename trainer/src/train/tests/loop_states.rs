//! Impossible loop states in checkpoints without a checksum of the file: an error message, never a panic.

use serde_json::{Value, json};

use super::*;

/// Changes the loop state of a checkpoint and takes its checksum away, as if an older version had written it.
fn edit(path: &Path, edit: impl FnOnce(&mut Value)) {
    let bytes = fs::read(path).unwrap();
    let n_header = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + n_header]).unwrap();
    let metadata = header["__metadata__"].as_object_mut().unwrap();
    metadata.remove("kith.file_crc32").unwrap();
    let mut state = serde_json::from_str(metadata["kith"].as_str().unwrap()).unwrap();
    edit(&mut state);
    metadata["kith"] = Value::String(state.to_string());
    let mut text = serde_json::to_vec(&header).unwrap();
    text.resize(text.len().next_multiple_of(8), b' ');
    let tensors = &bytes[8 + n_header..];
    fs::write(path, [&(text.len() as u64).to_le_bytes()[..], &text, tensors].concat()).unwrap();
}

#[test]
fn impossible_loop_states_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let input = set();
    let short = || config(&["train.epochs=6", "train.checkpoints_kept=1"]);
    to_the_end(plan(&input, short(), Some(temp.path()), false));
    let path = newest(temp.path());
    let (whole, steps) = (fs::read(&path).unwrap(), fs::read(temp.path().join(STEPS)).unwrap());
    let resume = |change: &dyn Fn(&mut Value)| {
        // Without newer checkpoints, which an attempt that went well has left.
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, &whole).unwrap();
        fs::write(temp.path().join(STEPS), &steps).unwrap();
        edit(&path, change);
        let mut run = Run::new(plan(&input, config(&["train.epochs=8"]), Some(temp.path()), true), alone())
            .map_err(|error| error.to_string())?;
        let notes = run.notes().to_vec();
        train(&mut run, |_| ControlFlow::Continue(())).map_err(|error| error.to_string())?;
        drop(run);
        Ok::<_, String>(notes)
    };
    let notes = resume(&|_| {}).unwrap();
    assert!(notes.len() == 1 && notes[0].contains("an older kith wrote it"), "{notes:?}");

    // The sentence of each.
    for (name, value, sentence) in [
        ("epoch", json!(2), "its loop state is impossible: step 12 in epoch 2 with 2 steps per epoch"),
        ("epoch", json!(u64::MAX), "its loop state is impossible: step 12 in epoch 18446744073709551615"),
        ("step", json!(4), "its loop state is impossible: step 4 in epoch 6 with 2 steps per epoch"),
        ("step", json!(u64::MAX), "steps.jsonl has 12 of its 18446744073709551615 whole records"),
        ("best", json!([6, "0.5", "0.5"]), "its loop state is impossible: best epoch Some(6) of 6"),
        ("best", json!(null), "its loop state is impossible: best epoch None of 6"),
        ("losses", json!(["1", "1", "1", "1", "1"]), "for an early stop over 4"),
        ("metrics", json!([]), "its loop state is impossible: 4 losses and 0 metrics"),
        ("micros", json!(u64::MAX), "its loop state is impossible: a count above 2^60"),
        ("feature_counts", json!([0, u64::MAX, 0]), "its loop state is impossible: a count above 2^60"),
        ("n_negatives_left_out", json!(u64::MAX), "its loop state is impossible: a count above 2^60"),
        ("phases", json!([{ "sample": u64::MAX, "compute": 1, "exchange": 1, "update": 1 }]), "a count above 2^60"),
        ("dim", json!(6), "it was made for 6 features and 3 classes (Classes), the graph has 5 and 3 (Classes)"),
        ("n_classes", json!(4), "it was made for 5 features and 4 classes"),
    ] {
        let found = resume(&|state| state[name] = value.clone()).unwrap_err();
        assert!(found.starts_with(&path.display().to_string()) && found.contains(sentence), "{name}: {found}");
    }
    // No other value causes a panic.
    let values =
        [json!(0), json!(1), json!(1u64 << 60), json!(u64::MAX), json!(true), json!("NaN"), json!([]), json!(null)];
    let fields: Vec<String> = {
        let mut fields = Vec::new();
        resume(&|state| assert!(state.is_object())).unwrap();
        fs::write(&path, &whole).unwrap();
        edit(&path, |state| fields = state.as_object().unwrap().keys().cloned().collect());
        fields
    };
    for name in &fields {
        for value in &values {
            let _ = resume(&|state| state[name] = value.clone());
        }
    }
}

#[test]
fn a_damaged_loop_state_is_no_state() {
    let temp = tempfile::tempdir().unwrap();
    let input = set();
    to_the_end(plan(&input, config(&["train.epochs=6", "train.checkpoints_kept=1"]), Some(temp.path()), false));
    let path = newest(temp.path());
    let bytes = fs::read(&path).unwrap();
    let place = bytes.windows(9).position(|window| window == b"\\\"step\\\":").unwrap();
    let mut damaged = bytes.clone();
    damaged[place + 9] ^= 1;
    fs::write(&path, damaged).unwrap();
    let again = plan(&input, config(&["train.epochs=8"]), Some(temp.path()), true);
    let sentence = Run::new(again, alone()).unwrap_err().to_string();
    assert_eq!(sentence, format!("{}: damaged: the file does not have its checksum", path.display()));
}
