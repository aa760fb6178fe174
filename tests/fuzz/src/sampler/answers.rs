//! An answer of arbitrary bytes, in arbitrary chunks, is valid or an error. The first byte selects the call.

use std::sync::Mutex;

use bytes::Bytes;
use kith_client::{
    FetchedRows, Info,
    remote::{
        AnswerError, Chunks, DenseAnswer, EdgesAnswer, Facts, FeatureDtype, HopAnswer, InfoAnswer, OwnIdsAnswer,
        OwnersAnswer, Places, Question, Read, SeedsAnswer, SparseAnswer,
    },
};
use kith_proto::{Call, IdWidth};
use kith_sampler::{EdgeData, Fanout, Hop, Sampling};
use kith_store::LabelKind;

/// Reads chunks, the second time in pieces: both must say the same. Then, with an odd `n_bytes`, an attempt that ends behind the first
/// chunk and another one: rows that are whole stay.
fn read(answer: &mut impl Read, n_rows: usize, all: &[&[u8]], n_bytes: usize) -> Result<(), AnswerError> {
    let mut whole = |all: &[&[u8]], n_bytes: usize, first: usize| {
        answer.begin(first..n_rows);
        let question = Question { call: Call::Info, request: Bytes::new(), rows: first..n_rows };
        let mut chunks = Chunks::new(&question, answer);
        let mut take = |chunk: &&[u8]| {
            let mut message = kith_proto::Message::default();
            chunk.chunks(n_bytes).for_each(|piece| message.push(Bytes::copy_from_slice(piece)));
            chunks.take(message, answer)
        };
        let taken = all.iter().try_for_each(&mut take);
        let n_whole = answer.n_whole();
        assert!(n_whole <= n_rows, "{n_whole} of {n_rows}");
        (taken.and_then(|()| answer.finish()), n_whole)
    };
    let (first, _) = whole(all, usize::MAX, 0);
    assert_eq!(whole(all, n_bytes, 0).0, first);
    if n_bytes.is_multiple_of(2) {
        return first;
    }
    // Attempts go on: none begins before an earlier one.
    let (_, n_whole) = whole(&all[..1], usize::MAX, 0);
    let (_, n_more) = whole(&all[1..], n_bytes, n_whole);
    assert!(n_more >= n_whole);
    Err(AnswerError::Other("the rows of two attempts, which need not fit"))
}

fn facts(width: IdWidth, is_multi_label: bool) -> Facts {
    let (digest, source, splits) = (String::new(), String::new(), Vec::new());
    let info = Info {
        digest,
        source,
        n_nodes: 1 << 20,
        n_edges: 1 << 24,
        is_symmetric: false,
        dim: 2,
        rows: None,
        n_classes: 70,
        labels: if is_multi_label { LabelKind::MultiLabel } else { LabelKind::Classes },
        has_edge_weights: true,
        edge_dim: 2,
        splits,
        is_set: false,
    };
    Facts {
        cluster: String::new(),
        info,
        ids: width,
        rows_dtype: FeatureDtype::F32,
        n_shards: 300,
        shards: vec![0],
        owner_checksum: 0,
        owner_bytes: 2,
        max_frontier: 1,
        resumes: true,
    }
}

pub(crate) fn run(bytes: &[u8]) {
    let [which, n_bytes, cut, bytes @ ..] = bytes else { return };
    let n_bytes = usize::from(*n_bytes).max(1);
    let (first, second) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    let chunks = [first, second];
    let nodes = [3, 5, 8];
    let dtype = [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16][usize::from(which >> 4) % 3];
    let width = if which & 8 == 0 { IdWidth::Narrow } else { IdWidth::Wide };
    match which % 8 {
        0 => {
            let mut answer = InfoAnswer::new();
            if read(&mut answer, usize::MAX, &chunks, n_bytes).is_ok() {
                answer.into_facts().expect("it was finished");
            }
        }
        1 => {
            let mut answer = SeedsAnswer::new(&facts(width, which & 16 != 0));
            if read(&mut answer, usize::MAX, &chunks, n_bytes).is_ok() {
                let _ = answer.into_seeds();
            }
        }
        2 => {
            let fanout = Fanout::at_most(4).expect("positive");
            let edge_data = EdgeData { weights: which & 32 != 0, features: which & 64 != 0, ids: false };
            let hop = Hop { run_key: 0, step: 0, hop: 0, fanout, sampling: Sampling::Uniform, edge_data };
            let width = edge_data.width(2);
            let (mut counts, mut ids, mut wide, mut data) = (vec![7], vec![7u32], vec![7u64], vec![0.0; width]);
            let is_read = if which & 8 == 0 {
                read(&mut HopAnswer::new(&hop, (9, 2), (&mut counts, &mut ids, &mut data)), 3, &chunks, n_bytes).is_ok()
            } else {
                read(&mut HopAnswer::new(&hop, (9, 2), (&mut counts, &mut wide, &mut data)), 3, &chunks, n_bytes)
                    .is_ok()
            };
            if is_read {
                let n: u32 = counts[1..].iter().sum();
                assert_eq!(counts.len(), 4);
                assert_eq!(ids.len() + wide.len(), 2 + n as usize);
                assert_eq!(data.len(), width * (1 + n as usize));
                assert!(data.iter().all(|value| value.is_finite()));
            }
        }
        3 => {
            let mut rows = FetchedRows { dim: 2, values: vec![0.0; 8], ..FetchedRows::default() };
            let places = if which & 8 == 0 { Places::From(1) } else { Places::At(&[3, 0, 1]) };
            let memory = Mutex::new(&mut rows);
            if read(&mut DenseAnswer::new(&nodes, places, dtype, &memory), 3, &chunks, n_bytes).is_ok() {
                assert!(rows.values.iter().all(|value| value.is_finite()));
            }
        }
        4 => {
            let mut rows = FetchedRows { dim: 9, ..FetchedRows::default() };
            if read(&mut SparseAnswer::new(&nodes, &mut rows), 3, &chunks, n_bytes).is_ok() {
                assert_eq!(rows.indptr.len(), 4);
                assert_eq!(rows.indptr[3], rows.values.len());
                assert_eq!(rows.columns.len(), rows.values.len());
                assert!(rows.columns.iter().all(|column| *column < 9));
            }
        }
        5 => {
            // The first chunk stands for facts, which are not looked at.
            let mut answer = OwnIdsAnswer::new(3, which & 16 != 0);
            let chunks = [&[0][..], first, second];
            if read(&mut answer, usize::MAX, &chunks, n_bytes).is_ok()
                && let Ok(Some(ids)) = answer.into_ids()
            {
                let _ = nodes.map(|node| ids.of(node % 3).into_owned());
            }
        }
        6 => {
            let mut answer = OwnersAnswer::new(&facts(width, false));
            if read(&mut answer, usize::MAX, &[&[0][..], first, second], n_bytes).is_ok() {
                let _ = answer.into_owners();
            }
        }
        _ => drop(read(&mut EdgesAnswer::new(&mut [false; 11]), 11, &chunks, n_bytes)),
    }
}
