//! Neighbor lists of a sampled batch by source.

use super::{
    args::args,
    error::GpuError,
    memory::Address,
    sampled::SampledOnDevice,
    sampler::{GraphSampler, SCAN_TILE},
};

/// Digits, and edges that one block moves; N_DIGITS, DIGIT_BITS and SORT_TILE in by_source.cu.
const N_DIGITS: usize = 256;
const DIGIT_BITS: u32 = 8;
const SORT_TILE: usize = 4096;

impl GraphSampler {
    /// Makes the neighbor lists by source of all hops, which backward passes read. Edges of a source stay in the order
    /// they have by destination.
    pub fn transpose(&mut self, batch: &mut SampledOnDevice) -> Result<(), GpuError> {
        let (n_edges, n_hops) = (batch.n_edges(), batch.n_hops());
        batch.out_indptr.fit(batch.n_all_sources() + n_hops)?;
        batch.destinations.fit(n_edges)?;
        batch.out_edges.fit(n_edges)?;
        let n_tiles = n_edges.div_ceil(SORT_TILE);
        let n_counts = N_DIGITS * n_tiles;
        let sort = &mut self.sort;
        for array in sort.keys.iter_mut().chain(&mut sort.edges) {
            array.fit(n_edges)?;
        }
        sort.counts.fit(n_counts)?;
        sort.totals.fit(n_counts.div_ceil(SCAN_TILE))?;
        let sort = &self.sort;
        let (n, n_hops, n_tiles, n_counts) = (n_edges as u32, n_hops as u32, n_tiles as u32, n_counts as u32);
        let sampled = self.sampled(batch);
        let (counts, totals) = (sort.counts.at(), sort.totals.at());
        self.launch("kith_source_keys", n_edges, 256, args![sampled, n_hops, n, sort.keys[0].at()])?;
        let n_bits = usize::BITS - batch.n_all_sources().saturating_sub(1).leading_zeros();
        let n_passes = n_bits.div_ceil(DIGIT_BITS).max(1);
        let mut edges = Address::NONE;
        for pass in 0..n_passes {
            let (from, to) = (pass as usize % 2, (pass as usize + 1) % 2);
            let shift = pass * DIGIT_BITS;
            let keys = sort.keys[from].at();
            self.launch("kith_count_digits", n_edges, SORT_TILE, args![n, keys, shift, n_tiles, counts])?;
            self.launch("kith_sum_tiles", n_counts as usize, SCAN_TILE, args![n_counts, counts, totals])?;
            self.launch("kith_scan_tiles", n_counts as usize, SCAN_TILE, args![n_counts, counts, totals])?;
            let sorted = (sort.keys[to].at(), sort.edges[to].at());
            let args = args![n, keys, edges, shift, n_tiles, counts, sorted.0, sorted.1];
            self.launch("kith_sort_digits", n_edges, SORT_TILE, args)?;
            edges = sorted.1;
        }
        let keys = sort.keys[n_passes as usize % 2].at();
        let (out_indptr, destinations) = (batch.out_indptr.at(), batch.destinations.at());
        let args = args![sampled, n_hops, n, keys, edges, out_indptr, destinations, batch.out_edges.at()];
        self.launch("kith_place_by_source", n_edges, 256, args)?;
        batch.is_transposed = true;
        Ok(())
    }
}
