//! An answer of any bytes, in any chunks, is one that was asked for or a sentence. The first byte says which.
#![no_main]

use std::sync::Mutex;

use bytes::Bytes;
use kith_client::{
    FetchedRows,
    remote::{
        AnswerError, DenseAnswer, EdgesAnswer, HopAnswer, InfoAnswer, OwnIdsAnswer, Places, Read, RowsDtype,
        SeedsAnswer, SparseAnswer,
    },
};
use kith_proto::IdWidth;
use kith_sampler::{Fanout, Hop, Replacement};
use libfuzzer_sys::fuzz_target;

/// Reads chunks, the second time in pieces: both must say the same.
fn read(answer: &mut impl Read, chunks: &[&[u8]], n_bytes: usize) -> Result<(), AnswerError> {
    let mut whole = |n_bytes: usize| {
        answer.restart();
        for chunk in chunks {
            let mut message = kith_proto::Message::default();
            chunk.chunks(n_bytes).for_each(|piece| message.push(Bytes::copy_from_slice(piece)));
            answer.read(message)?;
        }
        answer.finish()
    };
    let first = whole(usize::MAX);
    assert_eq!(whole(n_bytes), first);
    first
}

fuzz_target!(|bytes: &[u8]| {
    let [which, n_bytes, cut, bytes @ ..] = bytes else { return };
    let n_bytes = usize::from(*n_bytes).max(1);
    let (first, second) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    let chunks = [first, second];
    let nodes = [3, 5, 8];
    let dtype = [RowsDtype::F32, RowsDtype::F16, RowsDtype::Bf16][usize::from(which >> 4) % 3];
    match which % 7 {
        0 => {
            let mut answer = InfoAnswer::new(which & 8 != 0);
            if read(&mut answer, &chunks, n_bytes).is_ok() {
                answer.into_parts().expect("it was finished");
            }
        }
        1 => {
            let width = if which & 8 == 0 { IdWidth::Narrow } else { IdWidth::Wide };
            let mut answer = SeedsAnswer::new(width, 1 << 20, 70, which & 16 != 0);
            if read(&mut answer, &chunks, n_bytes).is_ok() {
                let _ = answer.into_seeds();
            }
        }
        2 => {
            let fanout = Fanout::at_most(4).expect("positive");
            let hop = Hop { run_key: 0, step: 0, hop: 0, fanout, replacement: Replacement::Without };
            let (mut counts, mut ids, mut wide) = (vec![7], vec![7u32], vec![7u64]);
            let is_read = if which & 8 == 0 {
                read(&mut HopAnswer::new(&hop, 3, &mut counts, &mut ids), &chunks, n_bytes).is_ok()
            } else {
                read(&mut HopAnswer::new(&hop, 3, &mut counts, &mut wide), &chunks, n_bytes).is_ok()
            };
            if is_read {
                let n: u32 = counts[1..].iter().sum();
                assert_eq!(counts.len(), 4);
                assert_eq!(ids.len() + wide.len(), 2 + n as usize);
            }
        }
        3 => {
            let mut rows = FetchedRows { dim: 2, values: vec![0.0; 8], ..FetchedRows::default() };
            let places = if which & 8 == 0 { Places::From(1) } else { Places::At(&[3, 0, 1]) };
            let memory = Mutex::new(&mut rows);
            if read(&mut DenseAnswer::new(&nodes, places, dtype, &memory), &chunks, n_bytes).is_ok() {
                assert!(rows.values.iter().all(|value| value.is_finite()));
            }
        }
        4 => {
            let mut rows = FetchedRows { dim: 9, ..FetchedRows::default() };
            if read(&mut SparseAnswer::new(&nodes, &mut rows), &chunks, n_bytes).is_ok() {
                assert_eq!(rows.indptr.len(), 4);
                assert_eq!(rows.indptr[3], rows.values.len());
                assert_eq!(rows.columns.len(), rows.values.len());
                assert!(rows.columns.iter().all(|column| *column < 9));
            }
        }
        5 => {
            let mut answer = OwnIdsAnswer::new(3);
            answer.read(kith_proto::Message::default()).expect("facts are not looked at");
            if read(&mut answer, &chunks, n_bytes).is_ok()
                && let Ok(Some(ids)) = answer.into_ids()
            {
                nodes.map(|node| ids.of(node % 3).into_owned());
            }
        }
        _ => drop(read(&mut EdgesAnswer::new(&mut [false; 11]), &chunks, n_bytes)),
    }
});
