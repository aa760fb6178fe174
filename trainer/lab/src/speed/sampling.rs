//! Speed of neighbor sampling on a GPU, on a random graph with hubs.

use std::{sync::Arc, time::Instant};

use kith_draw::{Name, Permutation, Purpose, Stream};
use kith_kernels::cuda::{Gpu, GraphLists, GraphSampler};
use rayon::prelude::*;

use kith_trainer::error::TrainError;

use super::{graphs::Size, timing::Timing};

/// Warm-up mini-batches, which also allocate memory.
const N_WARM: u64 = 3;

const RUN_KEY: u64 = 42;
const N_ROOTS: u64 = 1024;
const FANOUTS: [Option<u32>; 3] = [Some(15), Some(10), Some(5)];

/// Samples mini-batches around random seed nodes of a random graph of about `size`. Self-loops are not counted;
/// building the adjacency by source is not timed.
pub(super) fn measure(gpu: &Gpu, size: Size, n_batches: usize) -> Result<Timing, TrainError> {
    let before = gpu.used_bytes();
    let n_nodes = size.n_nodes as u64;
    let (indptr, indices) = random_lists(size.n_nodes, size.n_edges);
    let mut sampler = GraphSampler::new(&Arc::new(GraphLists::new(gpu, &indptr, &indices)?))?;
    let mut times = Vec::with_capacity(n_batches);
    for step in 0..N_WARM + n_batches as u64 {
        let order = Permutation::new(stream(2), step, n_nodes);
        let roots: Vec<u64> = (0..N_ROOTS.min(n_nodes)).map(|place| order.at(place)).collect();
        let started = Instant::now();
        let batch = sampler.sample((RUN_KEY, step), &FANOUTS, &roots)?;
        let milliseconds = started.elapsed().as_secs_f64() * 1e3;
        if step >= N_WARM {
            times.push(milliseconds / batch.n_drawn_edges() as f64 * 1e6);
        }
        sampler.give_back(batch);
    }
    times.sort_by(f64::total_cmp);
    let memory_bytes = gpu.used_bytes() - before;
    Ok(Timing { milliseconds: times[n_batches / 2], measure_milliseconds: 0.0, memory_bytes })
}

fn stream(layer: u32) -> Stream {
    Name { run_key: RUN_KEY, purpose: Purpose::Generator, step: 0, layer }.stream()
}

/// CSR by destination: degrees follow a power law, sources are uniform and ascend.
fn random_lists(n_nodes: usize, n_edges: usize) -> (Vec<u64>, Vec<u32>) {
    // u^(-1/2) has a mean of 2, and a density that falls with the cube.
    let each = n_edges as f64 / n_nodes.max(1) as f64 / 2.0;
    let mut indptr: Vec<u64> = (0..n_nodes as u64 + 1)
        .into_par_iter()
        .map(|node| {
            let mut draws = stream(0).draws(node, 0, 0);
            let length = each / draws.uniform().sqrt() + draws.uniform();
            (length as u64).min(n_nodes as u64)
        })
        .collect();
    let mut end = 0;
    for bound in &mut indptr {
        let length = std::mem::replace(bound, end);
        end += length;
    }
    // `indptr` has one entry more than nodes: the length drawn for the last entry is unused.
    let mut indices = vec![0; indptr.last().copied().unwrap_or(0) as usize];
    let mut lists = Vec::with_capacity(n_nodes);
    let mut rest = &mut indices[..];
    for bounds in indptr.windows(2) {
        let (list, behind) = std::mem::take(&mut rest).split_at_mut((bounds[1] - bounds[0]) as usize);
        lists.push(list);
        rest = behind;
    }
    lists.into_par_iter().enumerate().with_min_len(1024).for_each(|(node, list)| {
        for (four, sources) in list.chunks_mut(4).enumerate() {
            // Slightly biased draw by multiplication: good enough here, and fast for a hundred million draws.
            let words = stream(1).words(node as u64, four as u64, 0, 0);
            for (source, word) in sources.iter_mut().zip(words) {
                *source = ((u64::from(word) * n_nodes as u64) >> 32) as u32;
            }
        }
        list.sort_unstable();
    });
    (indptr, indices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_about_their_size_and_hubs() {
        let (indptr, indices) = random_lists(5000, 100_000);
        assert_eq!((indptr.len(), indptr[0], indptr[5000]), (5001, 0, indices.len() as u64));
        assert!((indices.len() as f64 / 1e5 - 1.0).abs() < 0.1, "{} edges", indices.len());
        let longest = indptr.windows(2).map(|bounds| bounds[1] - bounds[0]).max().unwrap();
        assert!(longest > 200, "there are hubs: {longest}");
        assert!(indices.iter().all(|source| *source < 5000));
        let ascends = |bounds: &[u64]| indices[bounds[0] as usize..bounds[1] as usize].is_sorted();
        assert!(indptr.windows(2).all(ascends));
    }
}
