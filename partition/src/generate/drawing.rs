//! Shared parts of the generators: streams of draws, edges from all threads, provenance.

use std::{
    fmt::Display,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use kith_draw::{Name, Purpose, Stream};
use kith_store::Provenance;
use rayon::prelude::*;

use crate::{
    csr::{EdgeFeeder, ListsBuilder},
    error::{PartitionError, Result},
    progress::Piece,
};

/// Kinds of draws of a generator; the number is the layer of the name. Other generators of features use 16 and above.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(super) enum Drawn {
    PairsInside = 0,
    PairsBetween = 1,
    Points = 2,
    Ranks = 3,
    Edges = 4,
    Weights = 5,
}

impl Drawn {
    pub(super) fn stream(self, run_key: u64) -> Stream {
        Name { run_key, purpose: Purpose::Generator, step: 0, layer: self as u32 }.stream()
    }
}

/// Calls `push` for pieces of `0..n_items` from all threads, each with a feeder of its own. Which thread takes which
/// piece changes nothing, because lists are sorted.
pub(super) fn feed(
    lists: &ListsBuilder<'_>,
    n_items: u64,
    piece_len: u64,
    work: &Piece<'_>,
    push: impl Fn(Range<u64>, &mut EdgeFeeder<'_, '_>) -> Result<()> + Sync,
) -> Result<()> {
    let n_pieces = n_items.div_ceil(piece_len);
    let next = AtomicU64::new(0);
    let feed_some = |_| {
        let mut feeder = lists.feeder();
        loop {
            let piece = next.fetch_add(1, Relaxed);
            if piece >= n_pieces {
                return feeder.finish();
            }
            let range = piece * piece_len..n_items.min((piece + 1) * piece_len);
            let n_done = range.end - range.start;
            // One failure stops all threads.
            push(range, &mut feeder).inspect_err(|_| next.store(n_pieces, Relaxed))?;
            work.advance(n_done);
        }
    };
    (0..rayon::current_num_threads()).into_par_iter().try_for_each(feed_some)
}

/// States what a graph was made from.
pub(super) fn record(provenance: &mut Provenance, source: &str, run_key: u64, options: &[(&str, &dyn Display)]) {
    provenance.source = source.to_owned();
    provenance.seed = Some(run_key);
    provenance.options.extend(options.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())));
}

/// An option that makes no sense.
pub(super) fn refuse(problem: String) -> PartitionError {
    PartitionError::Option(problem)
}

/// Refuses a share that is none.
pub(super) fn check_share(what: &str, share: f64) -> Result<()> {
    if (0.0..=1.0).contains(&share) { Ok(()) } else { Err(refuse(format!("{what} {share}: a share is from 0 to 1"))) }
}
