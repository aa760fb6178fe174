//! Blocks sampled on a GPU against those of the CPU: equal, bit for bit.

use std::{path::Path, sync::Arc};

use kith_block::Block;
use kith_client::{BlockMaker, LocalStore, Stock};
use kith_draw::{Name, Purpose, Stream};
use kith_kernels::cuda::{self, Gpu, GpuError, GraphLists, GraphSampler, SampledOnDevice};
use kith_sampler::{EdgeData, Fanout, Sampling};
use kith_store::{Contents, Graph, Provenance, StoreWriter};

/// An emulated GPU, and the one of this machine if there is one.
#[allow(clippy::print_stderr)]
fn devices() -> Vec<Gpu> {
    let real = match cuda::open(0) {
        Ok(gpu) => Some(gpu),
        Err(GpuError::Missing(sentence)) => {
            eprintln!("only the emulated GPU is tested: {sentence}");
            None
        }
        Err(error) => panic!("{error}"),
    };
    std::iter::once(kith_cuda_emulator::gpu()).chain(real).collect()
}

fn sampler_of(gpu: &Gpu, indptr: &[u64], sources: &[u32]) -> GraphSampler {
    GraphSampler::new(&Arc::new(GraphLists::new(gpu, indptr, sources).unwrap())).unwrap()
}

fn stream(layer: u32) -> Stream {
    Name { run_key: 9, purpose: Purpose::Generator, step: 0, layer }.stream()
}

/// A directed graph: every 97th node is a hub, and every node likes one of the hubs as a source; every tenth has no
/// neighbor; some edges are doubled, some lists hold their own node, once or twice.
fn lists(n_nodes: u64, hub: u64, most: u64) -> Vec<Vec<u64>> {
    (0..n_nodes)
        .map(|node| {
            let n_neighbors = match node {
                _ if node % 97 == 1 => hub + node,
                _ if node % 10 == 3 => 0,
                _ => stream(0).draws(node, 0, 0).below(most),
            };
            let mut list: Vec<u64> = (0..n_neighbors).map(|k| stream(1).draws(node, k, 0).below(n_nodes)).collect();
            if node % 10 != 3 {
                list.push(1 + stream(2).draws(node, 0, 0).below(n_nodes) / 97 * 97 % n_nodes);
            }
            if node % 7 == 1 {
                list.extend(list.first().copied());
            }
            list.extend(std::iter::repeat_n(node, (node % 5 / 3 * (1 + node % 2)) as usize));
            list.retain(|source| *source < n_nodes);
            list.sort_unstable();
            list
        })
        .collect()
}

fn bounds(lists: &[Vec<u64>]) -> Vec<u64> {
    let mut indptr = vec![0];
    lists.iter().for_each(|list| indptr.push(indptr.last().unwrap() + list.len() as u64));
    indptr
}

fn narrow(lists: &[Vec<u64>]) -> Vec<u32> {
    lists.concat().iter().map(|id| *id as u32).collect()
}

/// Weights of all edges: some are zero, in one list of seventeen all are.
fn weights(lists: &[Vec<u64>]) -> Vec<f32> {
    let of = |(node, list): (usize, &Vec<u64>)| -> Vec<f32> {
        let weight = |slot: usize| [0.0, 1.0, 0.25, 7.5, 1e-9, 1.0][(node + 5 * slot) % 6];
        (0..list.len()).map(|slot| if node % 17 == 4 { 0.0 } else { weight(slot) }).collect()
    };
    lists.iter().enumerate().flat_map(of).collect()
}

fn store(folder: &Path, lists: &[Vec<u64>]) -> LocalStore {
    let path = folder.join("store");
    let mut writer = StoreWriter::create(&path).unwrap();
    let indices = narrow(lists);
    writer.write("indptr", &bounds(lists)).unwrap();
    writer.write("indices", &indices).unwrap();
    writer.write("edge_weights", &weights(lists)).unwrap();
    // Said to be symmetric so that one set of lists is enough; hops read no other.
    let (n_nodes, n_edges) = (lists.len() as u64, indices.len() as u64);
    let contents = Contents { n_nodes, n_edges, is_symmetric: true, edge_weights: true, ..Contents::default() };
    writer.finish(contents, Provenance::default()).unwrap();
    LocalStore::new(Arc::new(Graph::open(&path).unwrap()))
}

fn roots(n_nodes: u64, n_roots: u64, step: u64) -> Vec<u64> {
    let order = kith_draw::Permutation::new(stream(3), step, n_nodes);
    (0..n_roots).map(|place| order.at(place)).collect()
}

/// Seeds and steps that use all of their bits.
fn name(step: usize) -> (u64, u64) {
    let step = step as u64;
    (42 | (step % 2) << 40, step | (step % 3) << 33)
}

fn compare(found: &SampledOnDevice, hop: usize, block: &Block, what: &str) {
    let ids = found.ids().unwrap();
    let found = found.hop(hop);
    let narrow = |bounds: &[usize]| bounds.iter().map(|bound| *bound as u32).collect::<Vec<u32>>();
    assert_eq!(
        (found.n_destinations(), found.n_sources(), found.n_edges()),
        (block.n_destinations(), block.n_sources(), block.n_edges()),
        "{what}: sizes"
    );
    assert_eq!(found.indptr().unwrap(), narrow(block.indptr()), "{what}: bounds");
    assert_eq!(found.sources().unwrap(), block.sources(), "{what}: sources");
    assert_eq!(&ids[..found.n_sources()], block.ids().unwrap(), "{what}: ids");
    let edge_destinations = found.edge_destinations().unwrap();
    for destination in 0..block.n_destinations() {
        let own = &edge_destinations[block.edges_into(destination)];
        assert!(own.iter().all(|found| *found as usize == destination), "{what}: destinations of edges");
    }
    assert_eq!(found.out_indptr().unwrap(), narrow(block.out_indptr()), "{what}: bounds by source");
    assert_eq!(found.destinations().unwrap(), block.destinations(), "{what}: destinations by source");
    assert_eq!(found.out_edges().unwrap(), block.out_edges(), "{what}: edges by source");
}

/// Samples with one sampler, batch after batch, and compares every block with the CPU's.
fn check(gpu: &Gpu, lists: &[Vec<u64>], most_unseen: Option<u64>, batches: &[(impl AsRef<[u32]>, u64)]) {
    let sampler = sampler_of(gpu, &bounds(lists), &narrow(lists));
    check_with(sampler, Sampling::Uniform, gpu, lists, most_unseen, batches);
}

/// The same with any sampler and sampling.
fn check_with(
    mut sampler: GraphSampler,
    sampling: Sampling,
    gpu: &Gpu,
    lists: &[Vec<u64>],
    most_unseen: Option<u64>,
    batches: &[(impl AsRef<[u32]>, u64)],
) {
    let temp = tempfile::tempdir().unwrap();
    let store = store(temp.path(), lists);
    let n_nodes = lists.len() as u64;
    let mut maker = BlockMaker::new(n_nodes, Stock::new(1));
    if let Some(most) = most_unseen {
        sampler = sampler.with_most_unseen(most);
    }
    for (step, (fanouts, n_roots)) in batches.iter().enumerate() {
        let name = name(step);
        let (fanouts, roots) = (fanouts.as_ref(), roots(n_nodes, *n_roots, step as u64));
        let all = |fanout: &u32| Fanout::at_most(*fanout).unwrap_or(Fanout::All);
        let cpu: Vec<Fanout> = fanouts.iter().map(all).collect();
        let expected = maker.sample(&store, name, &cpu, (sampling, EdgeData::NONE), &roots).unwrap();
        let fanouts: Vec<Option<u32>> = fanouts.iter().map(|fanout| (*fanout > 0).then_some(*fanout)).collect();
        let mut found = sampler.sample(name, &fanouts, &roots).unwrap();
        sampler.transpose(&mut found).unwrap();
        assert_eq!((found.n_hops(), found.n_nodes()), (fanouts.len(), expected.nodes.len()));
        assert_eq!(found.ids().unwrap(), *expected.nodes);
        let n_drawn: usize = expected.blocks.iter().map(|block| block.n_edges() - block.n_destinations()).sum();
        assert_eq!(found.n_drawn_edges(), n_drawn);
        for (hop, block) in expected.blocks.iter().rev().enumerate() {
            compare(&found, hop, block, &format!("{}, batch {step}, hop {hop} of {fanouts:?}", gpu.name()));
        }
        // Some are kept: the next batch then finds no memory to use again.
        if step % 3 != 1 {
            sampler.give_back(found);
        }
    }
}

#[test]
fn blocks_are_the_cpus() {
    let lists = lists(3000, 90, 40);
    for gpu in devices() {
        let batches: [(&[u32], u64); 9] = [
            (&[10, 5], 40),
            (&[15, 10, 5], 8),
            (&[1, 1, 1, 1], 300),
            (&[25, 10], 20),
            (&[64], 700),
            (&[16, 17], 30),
            (&[70, 4], 25),
            (&[0, 3], 15),
            (&[3, 0, 70], 5),
        ];
        check(&gpu, &lists, None, &batches);
    }
}

#[test]
fn weighted_blocks_are_the_cpus() {
    let lists = lists(3000, 90, 40);
    for gpu in devices() {
        let batches: [(&[u32], u64); 7] = [
            (&[10, 5], 40),
            (&[15, 10, 5], 8),
            (&[1, 1, 1, 1], 300),
            (&[25, 10], 20),
            (&[64], 700),
            (&[33, 32], 30),
            (&[0, 3], 15),
        ];
        for most_unseen in [None, Some(0)] {
            let on_gpu = GraphLists::weighted(&gpu, &bounds(&lists), &narrow(&lists), &weights(&lists)).unwrap();
            let sampler = GraphSampler::new(&Arc::new(on_gpu)).unwrap();
            check_with(sampler, Sampling::Weighted, &gpu, &lists, most_unseen, &batches);
        }
        let on_gpu = GraphLists::weighted(&gpu, &[0, 1, 2], &[1, 0], &[1.0, 2.0]).unwrap();
        let error = GraphSampler::new(&Arc::new(on_gpu)).unwrap().sample((1, 1), &[Some(65)], &[0]).unwrap_err();
        assert!(error.to_string().contains("a fanout of 65 is more than a GPU draws by weight (64)"), "{error}");
    }
}

/// Keys of weighted draws, bit for bit: 2^24 of them where there is time, or a GPU.
#[test]
fn keys_are_the_cpus() {
    for gpu in devices() {
        let is_long = std::env::var_os("KITH_SLOW").is_some() || gpu.name() != kith_cuda_emulator::gpu().name();
        let n = if is_long { 1 << 24 } else { 1 << 18 };
        let weights: Vec<f32> = (0..n).map(|slot| [1.0, 0.3, 1e-30, 3e38, 0.0, 17.0][slot % 6]).collect();
        let found = cuda::weighted_keys(&gpu, (42 << 33 | 5, 7 << 33 | 1), (2, 4_000_000_000), &weights).unwrap();
        let name = Name { run_key: 42 << 33 | 5, purpose: Purpose::WeightedNeighbor, step: 7 << 33 | 1, layer: 2 };
        let stream = name.stream();
        for (group, found) in found.chunks(kith_draw::N_EXPONENTIALS).enumerate() {
            let first = group * kith_draw::N_EXPONENTIALS;
            let numbers = kith_draw::exponentials(stream, 4_000_000_000, first as u64);
            for (place, key) in found.iter().enumerate() {
                let expected = numbers[place] / f64::from(weights[first + place]);
                assert_eq!(key.to_bits(), expected.to_bits(), "{}: slot {}", gpu.name(), first + place);
            }
        }
    }
}

/// Every hop is counted before room is made for it.
#[test]
fn hops_that_are_counted_first_are_the_same() {
    let lists = lists(1500, 120, 30);
    for gpu in devices() {
        let batches: [(&[u32], u64); 4] = [(&[5, 5], 3), (&[0, 0], 12), (&[70, 10, 2], 6), (&[5, 5], 50)];
        check(&gpu, &lists, Some(0), &batches);
    }
}

/// Many nodes draw one source: its list by source is as long as the batch.
#[test]
fn a_star_is_sampled_and_transposed() {
    let mut lists: Vec<Vec<u64>> = vec![vec![0]; 12_000];
    lists[0] = (0..12_000).collect();
    for gpu in devices() {
        let batches: [(&[u32], u64); 3] = [(&[2], 9000), (&[0, 10], 2), (&[64, 70], 3)];
        check(&gpu, &lists, None, &batches);
    }
}

#[test]
fn few_nodes_and_no_edges_are_sampled() {
    let lists = [vec![], vec![1, 1], vec![], vec![0, 1, 3]];
    for gpu in devices() {
        let batches: [(&[u32], u64); 5] = [(&[2, 2], 0), (&[2, 0], 4), (&[], 3), (&[1], 1), (&[2; 6], 2)];
        check(&gpu, &lists, None, &batches);
        check(&gpu, &[vec![], vec![]], None, &[([5, 0], 2)]);
    }
}

/// A list with exactly as many candidates as the fanout is taken without draws; with one more, something is drawn.
#[test]
fn lists_as_long_as_their_fanouts_are_taken() {
    let lengths = [1, 2, 16, 17, 18, 64, 65, 70, 71];
    let list = |node: u64| (0..100).filter(|source| *source != node).take(lengths[node as usize % 9]).collect();
    let lists: Vec<Vec<u64>> = (0..100).map(list).collect();
    for gpu in devices() {
        check(&gpu, &lists, None, &[1, 16, 17, 64, 65, 70].map(|fanout| ([fanout, fanout], 60)));
    }
}

/// A bounded draw skips words below 2^32 mod n, which are few unless a list is very long; this one is, and nearly all doubtful
/// words are skipped.
#[test]
fn skipped_words_are_skipped() {
    const N: u64 = (1 << 22) + 20;
    const N_STEPS: usize = 100;
    let mut lists = vec![vec![0]; 40];
    lists[0] = (0..N).map(|slot| 1 + slot * 39 / N).collect();
    let skips = |step: usize, hop: u32, k: u64| {
        let (run_key, step) = name(step);
        let mut words = Name { run_key, purpose: Purpose::Neighbor, step, layer: hop }.stream().draws(0, 0, 0);
        (N - k..N).any(|last| words.word().wrapping_mul(last as u32 + 1) < ((1u64 << 32) % (last + 1)) as u32)
    };
    let n_skipped = (0..N_STEPS).filter(|step| skips(*step, 0, 16) || skips(*step, 1, 40)).count();
    assert!(n_skipped > 3, "{n_skipped} batches have words to skip");
    for gpu in devices() {
        check(&gpu, &lists, None, &[([16, 40], 40); N_STEPS]);
    }
}

#[test]
fn bad_input_gets_a_sentence() {
    let gpu = kith_cuda_emulator::gpu();
    let mut sampler = sampler_of(&gpu, &[0, 1, 2], &[1, 0]);
    for (roots, part) in
        [(&[0, 2][..], "node 2 is outside the graph: it has 2 nodes"), (&[1, 0, 1], "node 1 is a root twice")]
    {
        let sentence = sampler.sample((1, 0), &[None], roots).unwrap_err().to_string();
        assert!(sentence.contains(part), "{sentence}");
    }
    let sentence = GraphLists::new(&gpu, &[0, 1], &[7]).unwrap_err().to_string();
    assert!(sentence.contains("node 7 is outside"), "{sentence}");
}
