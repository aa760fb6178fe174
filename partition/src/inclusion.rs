//! Probability that a node is in a mini-batch, computed instead of counted. It decides which nodes a cache keeps (the
//! analysis of SALIENT++, Kaler and others 2023, for mini-batches whose hops expand every node so far).
//!
//! A seed node is in a mini-batch with probability batch size / number of seed nodes. An expanded node v of degree d
//! draws a given neighbor with probability s = min(1, fanout / d). So, from hop to hop, with p(v) the probability that
//! v is in the mini-batch and r(v) the probability that v is in it and has drawn the neighbor:
//!
//! r(v) += s · (p(v) - r(v)), then p(u) = 1 - (1 - seed(u)) · Π (1 - r(v)) over all v that have u as a neighbor
//!
//! With one hop this is the paper's 1 - Π (1 - min(1, fanout / d) · p). With more hops, a node that is expanded again
//! does not count as another node. Nodes are treated as independent, which overestimates, more with every hop. Degrees
//! exclude stored self-loops, as draws do. Edge seeds are ignored: they are uniform over all nodes and add the same to
//! each.

use std::num::NonZeroU32;

use kith_store::{Graph, SplitPart, StoreError};
use rayon::prelude::*;

use crate::{
    error::{PartitionError, Result},
    progress::{Piece, Progress, Unit},
};

/// Mini-batches that the probabilities are computed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InclusionOptions {
    /// The most neighbors drawn at each hop, from the seeds outwards; `None` takes all.
    pub fanouts: Vec<Option<NonZeroU32>>,
    /// Seeds of one batch.
    pub seeds_per_step: u64,
}

/// Nodes per piece of work.
const PIECE_LEN: usize = 4096;

/// For each node the probability of being in a batch whose seeds are training seeds of the first split; `None` for a
/// store without any.
pub fn inclusion(graph: &Graph, options: &InclusionOptions, progress: &dyn Progress) -> Result<Option<Vec<f32>>> {
    if options.fanouts.is_empty() || options.seeds_per_step == 0 {
        return Err(PartitionError::Option("inclusion needs at least one fanout and one seed per step".to_owned()));
    }
    let Some(split) = graph.splits().first() else { return Ok(None) };
    let mut n_seeds = 0u64;
    for node in 0..graph.n_nodes() {
        n_seeds += u64::from(split.part(node)? == SplitPart::Train);
    }
    if n_seeds == 0 {
        return Ok(None);
    }
    let of_seed = (options.seeds_per_step as f64 / n_seeds as f64).min(1.0);
    let not_a_seed =
        |node: u64| -> Result<f64> { Ok(if split.part(node)? == SplitPart::Train { 1.0 - of_seed } else { 1.0 }) };
    let mut included = vec![0f32; graph.n_nodes() as usize];
    let mut drawn = included.clone();
    let work = Piece::begin(progress, "inclusion in mini-batches", Some(graph.n_nodes()), Unit::Nodes);
    each_node(&mut included, &work, |node, included| {
        *included = (1.0 - not_a_seed(node)?) as f32;
        Ok(())
    })?;
    drop(work);
    for fanout in &options.fanouts {
        let work = Piece::begin(progress, "inclusion in mini-batches", Some(2 * graph.n_nodes()), Unit::Nodes);
        each_node(&mut drawn, &work, |node, drawn| {
            *drawn += drawn_share(graph, node, *fanout)? * (included[node as usize] - *drawn);
            Ok(())
        })?;
        each_node(&mut included, &work, |node, included| {
            *included = (1.0 - not_a_seed(node)? * not_drawn(graph, node, &drawn)?) as f32;
            Ok(())
        })?;
    }
    Ok(Some(included))
}

/// Changes the value of every node, pieces side by side.
fn each_node(values: &mut [f32], work: &Piece<'_>, change: impl Fn(u64, &mut f32) -> Result<()> + Sync) -> Result<()> {
    values.par_chunks_mut(PIECE_LEN).enumerate().try_for_each(|(piece, values)| {
        work.advance(values.len() as u64);
        ((piece * PIECE_LEN) as u64..).zip(values).try_for_each(|(node, value)| change(node, value))
    })
}

/// Probability that a node of the frontier draws a given neighbor.
fn drawn_share(graph: &Graph, node: u64, fanout: Option<NonZeroU32>) -> Result<f32> {
    let Some(fanout) = fanout else { return Ok(1.0) };
    let degree = graph.lists().degree(node)?;
    if degree <= u64::from(fanout.get()) {
        return Ok(1.0);
    }
    let list = graph.lists().of(node)?;
    let n_loops = if list.contains(node) { list.iter().filter(|neighbor| *neighbor == node).count() } else { 0 };
    Ok((f64::from(fanout.get()) / (degree - n_loops as u64).max(1) as f64).min(1.0) as f32)
}

/// Probability that no node has drawn `node`: one product, in the order of its neighbor list.
fn not_drawn(graph: &Graph, node: u64, drawn: &[f32]) -> Result<f64> {
    let mut missing = 1.0;
    for destination in graph.out_lists().of(node)?.iter() {
        if destination != node {
            let drawn = drawn.get(destination as usize).ok_or_else(|| StoreError::damaged("indices", node))?;
            missing *= 1.0 - f64::from(*drawn);
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use kith_draw::{Name, Purpose};

    use super::*;
    use crate::{
        generate::{
            PowerLaw,
            testing::{PLAIN, open},
        },
        progress::Quiet,
        split::Fractions,
    };

    fn graph(folder: &std::path::Path, is_directed: bool, train: f64) -> Graph {
        let out = folder.join(format!("{is_directed}-{train}"));
        let split = Fractions { train, ..PLAIN.split };
        open(&PowerLaw { is_directed, split, ..PLAIN }, &out)
    }

    fn options(fanouts: &[u32], seeds_per_step: u64) -> InclusionOptions {
        InclusionOptions { fanouts: fanouts.iter().map(|n| NonZeroU32::new(*n)).collect(), seeds_per_step }
    }

    /// Frequency of each node in `n_batches` sampled mini-batches.
    fn frequencies(graph: &Graph, options: &InclusionOptions, n_batches: u64) -> Vec<f64> {
        let split = &graph.splits()[0];
        let seeds: Vec<u64> =
            (0..graph.n_nodes()).filter(|node| split.part(*node).unwrap() == SplitPart::Train).collect();
        let mut n_included = vec![0u64; graph.n_nodes() as usize];
        for batch in 0..n_batches {
            let stream = |layer| Name { run_key: 1, purpose: Purpose::Neighbor, step: batch, layer }.stream();
            let mut is_in = vec![false; n_included.len()];
            drawn(&seeds, options.seeds_per_step as usize, &mut stream(99).draws(0, 0, 0))
                .iter()
                .for_each(|seed| is_in[*seed as usize] = true);
            for (hop, fanout) in options.fanouts.iter().enumerate() {
                let frontier: Vec<u64> = (0..graph.n_nodes()).filter(|node| is_in[*node as usize]).collect();
                for node in frontier {
                    let list: Vec<u64> =
                        graph.lists().of(node).unwrap().iter().filter(|neighbor| *neighbor != node).collect();
                    let n = fanout.map_or(list.len(), |n| n.get() as usize);
                    let mut draws = stream(hop as u32).draws(node, 0, 0);
                    drawn(&list, n, &mut draws).iter().for_each(|node| is_in[*node as usize] = true);
                }
            }
            n_included.iter_mut().zip(is_in).for_each(|(n, is_in)| *n += u64::from(is_in));
        }
        n_included.into_iter().map(|n| n as f64 / n_batches as f64).collect()
    }

    fn drawn(from: &[u64], n: usize, draws: &mut kith_draw::Draws) -> Vec<u64> {
        let mut from = from.to_vec();
        for place in 0..n.min(from.len()) {
            let other = place + draws.below((from.len() - place) as u64) as usize;
            from.swap(place, other);
        }
        from.truncate(n);
        from
    }

    #[test]
    fn probabilities_are_the_frequencies_of_real_batches() {
        for (is_directed, fanouts) in [(false, &[3, 2][..]), (true, &[4, 0])] {
            let temp = tempfile::tempdir().unwrap();
            let graph = graph(temp.path(), is_directed, 0.3);
            let options = options(fanouts, 8);
            let found = inclusion(&graph, &options, &Quiet).unwrap().unwrap();
            let counted = frequencies(&graph, &options, 4000);
            let n = found.len() as f64;
            let error = found.iter().zip(&counted).map(|(found, counted)| f64::from(*found) - counted);
            let mean: f64 = error.clone().map(f64::abs).sum::<f64>() / n;
            assert!(mean < 0.02, "{fanouts:?}: on average {mean} off");
            let total = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>();
            let all = total(&mut found.iter().map(|p| f64::from(*p)));
            let counted_all = total(&mut counted.iter().copied());
            assert!((all / counted_all - 1.0).abs() < 0.1, "{fanouts:?}: {all} nodes instead of {counted_all}");
            // A cache keeps the best 100 nodes; compares both rankings on them.
            let best = |values: &[f64]| {
                let mut order: Vec<usize> = (0..values.len()).collect();
                order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
                order[..100].iter().map(|node| counted[*node]).sum::<f64>()
            };
            let ours = best(&found.iter().map(|p| f64::from(*p)).collect::<Vec<_>>());
            assert!(ours > 0.97 * best(&counted), "{fanouts:?}: {ours} of {}", best(&counted));
        }
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        let temp = tempfile::tempdir().unwrap();
        let graph = graph(temp.path(), false, 0.3);
        let with = |n_threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            pool.install(|| inclusion(&graph, &options(&[5, 5], 16), &Quiet).unwrap().unwrap())
        };
        let [one, four] = [1, 4].map(|n| with(n).iter().map(|p| p.to_bits()).collect::<Vec<_>>());
        assert_eq!(one, four);
    }

    #[test]
    fn nothing_is_included_without_seeds() {
        let temp = tempfile::tempdir().unwrap();
        let graph = graph(temp.path(), false, 0.0);
        assert_eq!(inclusion(&graph, &options(&[5], 16), &Quiet).unwrap(), None);
        let error = inclusion(&graph, &options(&[], 16), &Quiet).unwrap_err().to_string();
        assert!(error.contains("at least one fanout"), "{error}");
    }
}
