//! Neighborhoods that expand every node once, for any graph: the draws are those of blocks.

mod graphs;

use std::{collections::HashSet, sync::Arc};

use graphs::{Edges, open};
use kith_client::{BlockMaker, ClientError, LocalStore, Neighborhood, NeighborhoodMaker, Stock};
use kith_sampler::{EdgeData, Fanout, Sampling};
use proptest::prelude::*;

const PLAIN: (Sampling, EdgeData) = (Sampling::Uniform, EdgeData::NONE);

fn fanouts() -> impl Strategy<Value = Vec<Fanout>> {
    let fanout = prop_oneof![Just(Fanout::All), (1u32..6).prop_map(|k| Fanout::at_most(k).unwrap())];
    prop::collection::vec(fanout, 1..4)
}

fn edges() -> impl Strategy<Value = Edges> {
    (2u64..60).prop_flat_map(|n| {
        prop::collection::vec((0..n, 0..n), 0..300).prop_map(move |edges| Edges::directed(n, &edges))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_node_is_expanded_once_by_the_draws_of_blocks(
        edges in edges(),
        fanouts in fanouts(),
        step in 0u64..1000,
        seeds in prop::collection::hash_set(0u64..60, 1..8),
    ) {
        let temp = tempfile::tempdir().unwrap();
        let graph = open(temp.path(), &edges);
        let seeds: Vec<u64> = seeds.into_iter().filter(|seed| *seed < graph.n_nodes()).collect();
        let shards = LocalStore::new(Arc::new(graph));
        let n_nodes = shards.graph().n_nodes();
        let mut maker = NeighborhoodMaker::new(n_nodes);
        let name = (7, step);
        let found = maker.sample(&shards, name, &fanouts, PLAIN, &seeds).unwrap().clone();
        prop_assert_eq!(maker.sample(&shards, name, &fanouts, PLAIN, &seeds).unwrap(), &found, "memory is used again");
        let Neighborhood { nodes, n_nodes: n_new, sources, destinations, n_edges, .. } = &found;
        prop_assert_eq!(nodes.iter().collect::<HashSet<_>>().len(), nodes.len(), "one position each");
        prop_assert_eq!(&nodes[..seeds.len()], &seeds[..]);
        prop_assert_eq!(n_new.iter().sum::<usize>(), nodes.len());
        prop_assert_eq!(n_edges.iter().sum::<usize>(), sources.len());
        let (mut first, mut edge) = (0, 0);
        for (hop, fanout) in fanouts.iter().enumerate() {
            let frontier = first..first + n_new[hop];
            // A block of this hop alone: as many hops as before it draw nothing else.
            let mut blocks = BlockMaker::new(n_nodes, Stock::new(0));
            let own = blocks.sample_by(1, (false, 0), &nodes[frontier.clone()], |_, roots, drawn| {
                let hop = kith_sampler::Hop {
                    run_key: 7,
                    step,
                    hop: hop as u32,
                    fanout: *fanout,
                    sampling: Sampling::Uniform,
                    edge_data: EdgeData::NONE,
                };
                kith_client::Shards::sample_hop(&shards, &hop, roots, drawn)
            });
            let own = own.unwrap();
            for (place, destination) in frontier.clone().enumerate() {
                let drawn = own.blocks[0].edges_into(place);
                let expected = own.blocks[0].sources()[drawn.start..drawn.end - 1].iter().map(|s| own.nodes[*s as usize]);
                for id in expected {
                    prop_assert_eq!((nodes[sources[edge] as usize], destinations[edge] as usize), (id, destination));
                    edge += 1;
                }
            }
            first = frontier.end;
        }
        prop_assert_eq!(edge, sources.len());
        let with_ids = EdgeData { ids: true, ..EdgeData::NONE };
        for sampling in [Sampling::Uniform, Sampling::WithReplacement] {
            let found = maker.sample(&shards, name, &fanouts, (sampling, with_ids), &seeds).unwrap();
            prop_assert_eq!(found.edge_ids.len(), found.sources.len());
            let lists = shards.graph().lists();
            for ((id, source), destination) in found.edge_ids.iter().zip(&found.sources).zip(&found.destinations) {
                let (start, end) = lists.bounds(found.nodes[*destination as usize]).unwrap();
                prop_assert!((start..end).contains(&(*id as usize)), "an edge into its destination");
                prop_assert_eq!(lists.indices().get(*id as usize), Some(found.nodes[*source as usize]));
            }
            let distinct: HashSet<_> = found.edge_ids.iter().collect();
            prop_assert!(sampling == Sampling::WithReplacement || distinct.len() == found.edge_ids.len());
        }
    }
}

#[test]
fn long_frontiers_have_edge_ids() {
    let temp = tempfile::tempdir().unwrap();
    let shards = LocalStore::new(Arc::new(open(temp.path(), &Edges::random(9000, 60_000, 5))));
    let (mut maker, seeds) = (NeighborhoodMaker::new(9000), (0..9000).collect::<Vec<u64>>());
    let config = (Sampling::Uniform, EdgeData { ids: true, ..EdgeData::NONE });
    let fanouts = [Fanout::at_most(3).unwrap()];
    let found = maker.sample(&shards, (1, 0), &fanouts, config, &seeds).unwrap();
    let sources = found.edge_ids.iter().map(|id| shards.graph().lists().indices().get(*id as usize).unwrap());
    assert!(sources.eq(found.sources.iter().map(|position| found.nodes[*position as usize])));
}

#[test]
fn seeds_differ_and_exist() {
    let temp = tempfile::tempdir().unwrap();
    let shards = LocalStore::new(Arc::new(open(temp.path(), &Edges::ring(9))));
    let mut maker = NeighborhoodMaker::new(9);
    let mut sample = |seeds: &[u64]| maker.sample(&shards, (1, 0), &[Fanout::All], PLAIN, seeds).cloned();
    assert!(matches!(sample(&[3, 4, 3]), Err(ClientError::SeedTwice { node: 3 })));
    assert!(sample(&[3, 9]).unwrap_err().to_string().contains('9'));
    let none = sample(&[]).unwrap();
    assert_eq!((none.nodes.len(), none.n_nodes, none.n_edges), (0, vec![0, 0], vec![0]));
}
