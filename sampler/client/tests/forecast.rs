//! Compares the forecast from a few mini-batches with the run.
#![allow(missing_docs)]

use std::sync::Arc;

use kith_client::{BatchConfig, BatchMaker, Found, LocalStore, Plan, PlanConfig, Sharded, Shards, Stock, forecast};
use kith_partition::{
    assign::{AssignOptions, Balance, Method},
    cluster::{PartitionOptions, partition},
    csr::MIN_MEMORY_BYTES,
    generate::{EdgeAmount, PowerLaw, power_law},
    inclusion::InclusionOptions,
    progress::Quiet,
    split::Fractions,
};
use kith_sampler::{EdgeData, Fanout, Sampling};
use kith_store::{Cluster, Dtype, Graph, SplitPart};

const WORLD: usize = 4;

#[test]
fn a_few_batches_tell_what_an_epoch_fetches() {
    let temp = tempfile::tempdir().unwrap();
    let (store, out) = (temp.path().join("store"), temp.path().join("cluster"));
    let made = PowerLaw {
        n_nodes: 20_000,
        edges: EdgeAmount::AverageDegree(12.0),
        exponent: 2.5,
        n_classes: 5,
        homophily: 0.6,
        communities: None,
        is_directed: false,
        has_weights: false,
        dim: 4,
        dtype: Dtype::F32,
        split: Fractions { train: 0.5, valid: 0.2, test: 0.2 },
        run_key: 3,
    };
    power_law(&made, &store, MIN_MEMORY_BYTES, &Quiet).unwrap();
    let graph = Arc::new(Graph::open(&store).unwrap());
    let fanouts = [8, 4];
    let options = PartitionOptions {
        assign: AssignOptions { n_shards: 4, method: Method::Stream, balance: Balance::All, run_key: 1 },
        inclusion: Some(InclusionOptions {
            fanouts: fanouts.map(std::num::NonZeroU32::new).to_vec(),
            seeds_per_step: 400,
        }),
    };
    partition(&graph, &out, &options, &Quiet).unwrap();
    let cluster = Arc::new(Cluster::open(&out).unwrap());
    let sharded = Arc::new(Sharded::local(Arc::clone(&cluster)).unwrap());

    // The best fifth of all nodes, for every rank the same ones.
    let mut order: Vec<usize> = (0..20_000).collect();
    let inclusion = cluster.inclusion().unwrap().unwrap();
    order.sort_by(|a, b| inclusion[*b].total_cmp(&inclusion[*a]));
    let mut is_cached = vec![false; 20_000];
    order[..4000].iter().for_each(|node| is_cached[*node] = true);
    let find = |rank: usize, node: u64| {
        if cluster.owners().of(node).unwrap() as usize % WORLD == rank {
            Found::Local
        } else if is_cached[node as usize] {
            Found::Cached
        } else {
            Found::Remote
        }
    };
    let config = PlanConfig { run_key: 9, seeds_per_step: 400, edge_seeds: 0, slices: WORLD };
    let batches = BatchConfig {
        fanouts: fanouts.map(|n| Fanout::at_most(n).unwrap()).to_vec(),
        sampling: Sampling::Uniform,
        edge_data: EdgeData::NONE,
        pairs: None,
        links: None,
        has_rows: true,
        by_hash: false,
    };
    let seeds = Arc::new(sharded.seeds(None, SplitPart::Train).unwrap());
    let plan = Arc::new(Plan::new(config, 20_000, seeds).unwrap());
    let expected = forecast(sharded.clone(), plan.clone(), batches.clone(), 3, find).unwrap();
    let of_store = forecast(Arc::new(LocalStore::new(graph)), plan.clone(), batches.clone(), 3, find).unwrap();
    assert_eq!(expected, of_store, "a store says what its shards say");
    assert_eq!(expected.n_steps, 3);

    let mut rows = 0.0;
    let mut maker = BatchMaker::new(sharded.clone(), plan.clone(), batches, Stock::new(1));
    let n_steps = plan.steps_per_epoch();
    let mut counts = [0.0; 3];
    for step in 0..n_steps {
        for rank in 0..WORLD {
            let batch = maker.make(step, rank).unwrap();
            rows += batch.row_counts.local as f64 / n_steps as f64;
            for node in batch.nodes.iter() {
                counts[find(rank, *node) as usize] += 1.0 / n_steps as f64;
            }
        }
    }
    let [local, cached, remote] = counts;
    for (what, expected, measured) in [
        ("rows", expected.rows, rows),
        ("local", expected.local_rows, local),
        ("cached", expected.cached_rows, cached),
        ("remote", expected.remote_rows, remote),
    ] {
        assert!((expected / measured - 1.0).abs() < 0.15, "{what}: {expected} expected, {measured} measured");
    }
    // Much more than the fifth that any fifth of the nodes would catch.
    assert!(expected.cached_rows > 0.4 * (expected.remote_rows + expected.cached_rows), "{expected:?}");
    assert!(expected.remote_drawn > expected.remote_frontier, "{expected:?}");
}
