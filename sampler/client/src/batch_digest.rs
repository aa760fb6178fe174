//! Digest of everything drawn for a mini-batch, the same for every source of the graph.

use crate::digest::Digest;

/// A digest of one batch that is being made: blocks from the input to the output, then the pairs of each.
#[derive(Clone, Debug)]
pub struct BatchDigest {
    digest: Digest,
    counts: Vec<u32>,
}

impl BatchDigest {
    /// Of a batch's step and slice, roots, places of the seeds among them, and nodes: those of every block are the first of
    /// these.
    pub fn new((step, slice): (u64, u64), roots: &[u64], seeds: &[u32], nodes: &[u64]) -> BatchDigest {
        let mut digest = Digest::default();
        digest.add(&[step, slice]);
        digest.add(roots);
        digest.add_u32(seeds);
        digest.add(nodes);
        BatchDigest { digest, counts: Vec::new() }
    }

    /// A block: how long the list of each destination is, and the sources in them.
    pub fn add_block(&mut self, lengths: impl Iterator<Item = u32>, n_sources: usize, sources: &[u32]) {
        self.counts.clear();
        self.counts.extend(lengths);
        self.counts.push(n_sources as u32);
        self.digest.add_u32(&self.counts);
        self.digest.add_u32(sources);
    }

    /// The pairs of link prediction: both ends, pairs that are edges, and pairs of the step.
    pub fn add_links(&mut self, (sources, destinations): (&[u32], &[u32]), n_edges: u64, n_step_pairs: u64) {
        self.digest.add_u32(sources);
        self.digest.add_u32(destinations);
        self.digest.add(&[n_edges, n_step_pairs]);
    }

    /// The pairs of a layer: both ends of its negatives, a bit for each edge unless all are kept, pairs of the loss, and negatives
    /// that were left out.
    pub fn add_pairs(
        &mut self,
        (sources, destinations): (&[u32], &[u32]),
        kept: &[u64],
        n_pairs: u64,
        n_left_out: u64,
    ) {
        self.digest.add_u32(sources);
        self.digest.add_u32(destinations);
        self.digest.add(kept);
        self.digest.add(&[n_pairs, n_left_out]);
    }

    /// The digest of everything so far.
    pub fn finish(&self) -> u64 {
        self.digest.finish()
    }

    /// The same as reports show it.
    pub fn text(&self) -> String {
        format!("{:016x}", self.finish())
    }
}
