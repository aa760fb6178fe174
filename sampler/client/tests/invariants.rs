//! Invariants of every plan and every block, for any graph.

mod graphs;

use std::{collections::HashSet, sync::Arc};

use graphs::{Edges, open};
use kith_block::Block;
use kith_client::{BlockMaker, Labels, LocalStore, Plan, PlanConfig, SampledBlocks, Seeds, Stock};
use kith_sampler::{EdgeData, Fanout, Sampling};
use kith_store::Graph;
use proptest::prelude::*;

fn fanouts() -> impl Strategy<Value = Vec<Fanout>> {
    let fanout = prop_oneof![Just(Fanout::All), (1u32..8).prop_map(|k| Fanout::at_most(k).unwrap())];
    prop::collection::vec(fanout, 1..4)
}

fn edges() -> impl Strategy<Value = Edges> {
    (2u64..60).prop_flat_map(|n| {
        prop::collection::vec((0..n, 0..n), 0..300).prop_map(move |edges| Edges::directed(n, &edges))
    })
}

/// Checks a block against the graph and its fanout.
fn check_block(graph: &Graph, block: &Block, fanout: Fanout) {
    let ids = block.ids().expect("sampled blocks have ids");
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "every node has one position");
    let mut next_new = block.n_destinations();
    for destination in 0..block.n_destinations() {
        let (own, drawn) = block.sources()[block.edges_into(destination)].split_last().unwrap();
        assert_eq!(*own as usize, destination, "the loop is last");
        let node = ids[destination];
        let mut candidates: Vec<u64> = graph.lists().of(node).unwrap().iter().filter(|id| *id != node).collect();
        let expected = match fanout {
            Fanout::All => candidates.len(),
            Fanout::AtMost(k) => candidates.len().min(k.get() as usize),
        };
        assert_eq!(drawn.len(), expected);
        for source in drawn {
            // Each drawn edge is one of the list's, parallel ones as often as they are there.
            let id = ids[*source as usize];
            let place = candidates.iter().position(|candidate| *candidate == id).expect("a drawn edge exists");
            candidates.swap_remove(place);
            assert!(*source as usize <= next_new, "positions are in the order of first appearance");
            next_new += usize::from(*source as usize == next_new);
        }
    }
    assert_eq!(next_new, block.n_sources());
    // By source, the same edges: each once, in the order of destinations, and found from both sides.
    assert_eq!(block.out_indptr().len(), block.n_sources() + 1);
    assert_eq!(block.out_indptr()[block.n_sources()], block.n_edges());
    for source in 0..block.n_sources() {
        let places = block.out_indptr()[source]..block.out_indptr()[source + 1];
        assert!(block.out_edges()[places.clone()].is_sorted());
        for place in places {
            let edge = block.out_edges()[place] as usize;
            assert_eq!(block.sources()[edge] as usize, source);
            assert!(block.edges_into(block.destinations()[place] as usize).contains(&edge));
            assert_eq!(block.out_places()[edge] as usize, place);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn blocks_are_blocks(edges in edges(), fanouts in fanouts(), roots in prop::collection::btree_set(0u64..60, 0..20)) {
        let temp = tempfile::tempdir().unwrap();
        let shards = LocalStore::new(Arc::new(open(temp.path(), &edges)));
        let roots: Vec<u64> = roots.into_iter().filter(|root| *root < edges.n_nodes).collect();
        let stock = Stock::new(2);
        let mut maker = BlockMaker::new(edges.n_nodes, stock.clone());
        // Again and again in the same memory.
        for step in 0..3 {
            let sampled = maker.sample(&shards, (1, step), &fanouts, (Sampling::Uniform, EdgeData::NONE), &roots).unwrap();
            let SampledBlocks { blocks, nodes } = &sampled;
            prop_assert_eq!(blocks.len(), fanouts.len());
            let last = blocks.last().unwrap();
            prop_assert_eq!(&last.ids().unwrap()[..last.n_destinations()], &roots[..]);
            prop_assert_eq!(blocks[0].ids().unwrap(), &nodes[..]);
            for pair in blocks.windows(2) {
                prop_assert_eq!(&pair[0].ids().unwrap()[..pair[0].n_destinations()], pair[1].ids().unwrap());
            }
            for (block, fanout) in blocks.iter().rev().zip(&fanouts) {
                check_block(shards.graph(), block, *fanout);
            }
            stock.give_back_blocks(sampled);
        }
    }

    #[test]
    fn every_seed_comes_once_per_epoch(
        seeds in prop::collection::btree_set(0u64..500, 1..200),
        per_step in 1usize..80,
        edge_seeds in 0usize..90,
        slices in 1usize..9,
        n_spare in 0u64..50,
    ) {
        let ids: Vec<u64> = seeds.into_iter().collect();
        let n_nodes = ids.last().unwrap() + 1 + n_spare;
        let classes = vec![0; ids.len()];
        let seeds = Arc::new(Seeds::new(ids.clone(), Labels::Classes(classes)).unwrap());
        let per_step = per_step.min(ids.len());
        let edge_seeds = edge_seeds.min(n_nodes as usize);
        let config = PlanConfig { run_key: 5, seeds_per_step: per_step, edge_seeds, slices };
        let plan = Plan::new(config, n_nodes, Arc::clone(&seeds)).unwrap();
        let whole = Plan::new(PlanConfig { slices: 1, ..config }, n_nodes, seeds).unwrap();
        let (mut orders, mut all_edge_seeds) = (Vec::new(), Vec::new());
        for epoch in 0..3 {
            let mut order = Vec::new();
            for step in epoch * plan.steps_per_epoch()..(epoch + 1) * plan.steps_per_epoch() {
                let step = plan.step(step);
                prop_assert_eq!(step.epoch, epoch);
                let parts: Vec<_> = (0..slices).map(|slice| step.slice(slice)).collect();
                for sizes in [
                    parts.iter().map(|part| part.seeds.len()).collect::<Vec<_>>(),
                    parts.iter().map(|part| part.edge_seeds.len()).collect(),
                ] {
                    prop_assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[0] - sizes[slices - 1] <= 1);
                }
                let seeds: Vec<u32> = parts.iter().flat_map(|part| part.seeds.clone()).collect();
                let of_edges: Vec<u64> = parts.iter().flat_map(|part| part.edge_seeds.clone()).collect();
                prop_assert_eq!((seeds.len(), of_edges.len()), (step.n_seeds(), edge_seeds));
                // Slices only cut: together they are the step.
                let whole = whole.step(step.step).slice(0);
                prop_assert_eq!((&whole.seeds, &whole.edge_seeds), (&seeds, &of_edges));
                order.extend(seeds);
                all_edge_seeds.extend(of_edges);
            }
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..ids.len() as u32).collect::<Vec<_>>());
            orders.push(order);
        }
        if ids.len() > 20 {
            prop_assert!(orders[0] != orders[1] && orders[1] != orders[2]);
        }
        // Edge seeds: every node once per pass.
        for pass in all_edge_seeds.chunks(n_nodes as usize) {
            prop_assert_eq!(pass.iter().collect::<HashSet<_>>().len(), pass.len());
            prop_assert!(pass.iter().all(|node| *node < n_nodes));
        }
    }
}

/// The order of seeds is the order of (draw, id), spelled out.
#[test]
fn seeds_come_in_the_order_of_their_draws() {
    use kith_draw::{Name, Purpose};
    let ids: Vec<u64> = (0..100).map(|k| k * k).collect();
    let seeds = Arc::new(Seeds::new(ids.clone(), Labels::Classes(vec![0; 100])).unwrap());
    let config = PlanConfig { run_key: 9, seeds_per_step: 10, edge_seeds: 0, slices: 1 };
    let plan = Plan::new(config, 10_000, seeds).unwrap();
    let stream = Name { run_key: 9, purpose: Purpose::SeedOrder, step: 0, layer: 0 }.stream();
    for epoch in [0, 7] {
        let mut expected = ids.clone();
        expected.sort_by_key(|id| (stream.draws(epoch, *id, 0).double_word(), *id));
        let found: Vec<u64> = plan.order(epoch).iter().map(|place| ids[*place as usize]).collect();
        assert_eq!(found, expected);
    }
}
