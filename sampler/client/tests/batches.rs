//! Mini-batches through the interface of a trainer.

mod graphs;

use std::sync::Arc;

use graphs::{Edges, StoredRows, open};
use kith_block::{Block, BlockError, PairConfig, Subset};
use kith_client::{
    Batch, BatchConfig, BatchMaker, FetchedRows, Job, LocalStore, Plan, PlanConfig, Prefetch, PrefetchConfig, Shards,
    Stock,
};
use kith_sampler::{EdgeData, Fanout, Sampling};
use kith_store::{Graph, SplitPart};

const PAIRS: PairConfig = PairConfig { negatives: 0.5, kept: 0.8, subset: Subset::Union, excludes_reverse: false };

fn config(fanouts: &[u32]) -> BatchConfig {
    let fanouts = fanouts.iter().map(|k| if *k == 0 { Fanout::All } else { Fanout::at_most(*k).unwrap() }).collect();
    BatchConfig {
        fanouts,
        sampling: Sampling::Uniform,
        edge_data: EdgeData::NONE,
        pairs: Some(PAIRS),
        links: None,
        has_rows: true,
        by_hash: false,
    }
}

fn plan(shards: &LocalStore, seeds_per_step: usize, edge_seeds: usize, slices: usize) -> Arc<Plan> {
    let seeds = Arc::new(shards.seeds(None, SplitPart::Train).unwrap());
    let config = PlanConfig { run_key: 42, seeds_per_step, edge_seeds, slices };
    Arc::new(Plan::new(config, shards.info().n_nodes, seeds).unwrap())
}

fn digests(shards: &Arc<LocalStore>, plan: &Arc<Plan>, config: &BatchConfig, n_threads: usize, n: u64) -> Vec<u64> {
    let slices = plan.config().slices;
    let jobs = (0..n).flat_map(move |step| (0..slices).map(move |slice| Job { step, slice }));
    let prefetch = PrefetchConfig { n_threads, depth: 2 };
    let batches = Prefetch::start(Arc::clone(shards), Arc::clone(plan), config.clone(), prefetch, jobs).unwrap();
    batches.map(|batch| batch.unwrap().digest).collect()
}

fn make(graph: Graph, seeds_per_step: usize, edge_seeds: usize, config: BatchConfig, step: u64) -> Batch {
    let shards = Arc::new(LocalStore::new(Arc::new(graph)));
    let plan = plan(&shards, seeds_per_step, edge_seeds, 1);
    BatchMaker::new(shards, plan, config, Stock::new(1)).make(step, 0).unwrap()
}

/// A star with three leaves and a chain behind one of them: 0 ← 1, 2, 3; 1 ← 4; 4 ← 5. Written out by hand.
#[test]
fn blocks_of_a_small_graph() {
    let edges = Edges::directed(6, &[(1, 0), (2, 0), (3, 0), (4, 1), (5, 4), (0, 0), (4, 4), (4, 1)]);
    let temp = tempfile::tempdir().unwrap();
    let batch = make(open(temp.path(), &edges.train(&[0])), 1, 0, config(&[0, 0]), 0);
    let [input, output] = &batch.blocks[..] else { panic!("two layers") };
    assert_eq!(batch.roots(), [0]);
    assert_eq!((output.indptr(), output.sources()), (&[0, 4][..], &[1, 2, 3, 0][..]));
    // 0 is expanded again; 1 has the parallel edge from 4 twice; 2 and 3 have only their loops; stored loops are gone.
    assert_eq!(*batch.nodes, [0, 1, 2, 3, 4]);
    assert_eq!(input.indptr(), [0, 4, 7, 8, 9]);
    assert_eq!(input.sources(), [1, 2, 3, 0, 4, 4, 1, 2, 3]);
    assert_eq!(input.out_indptr(), [0, 1, 3, 5, 7, 9]);
    assert_eq!(input.destinations(), [0, 0, 1, 0, 2, 0, 3, 1, 1]);
    assert_eq!((input.n_sources(), output.n_sources()), (5, 4));
    assert_eq!(output.ids(), Some(&[0, 1, 2, 3][..]));
    assert_eq!(batch.seeds, [0]);
    assert_eq!(batch.labels, kith_client::Labels::Classes(vec![0]));
    assert_eq!(batch.rows.values, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5]);
    assert_eq!(batch.n_drawn_edges(), 3 + 5);
}

#[test]
fn seeds_and_edge_seeds_are_roots_by_id() {
    let temp = tempfile::tempdir().unwrap();
    let edges = Edges::ring(20).train(&[3, 7, 11, 15]);
    let batch = make(open(temp.path(), &edges), 4, 6, config(&[2]), 0);
    let roots = batch.roots();
    assert!(roots.windows(2).all(|pair| pair[0] < pair[1]) && (6..=10).contains(&roots.len()), "{roots:?}");
    let seeds: Vec<u64> = batch.seeds.iter().map(|position| roots[*position as usize]).collect();
    assert_eq!(seeds, [3, 7, 11, 15]);
    let kith_client::Labels::Classes(classes) = &batch.labels else { panic!("one class per node") };
    for (root, class) in roots.iter().zip(classes) {
        let is_seed = seeds.contains(root);
        assert_eq!(*class, if is_seed { (*root % 3) as i64 } else { -1 });
    }
}

/// With all neighbors and all nodes as roots, every block is the full graph's, and so are its pairs.
#[test]
fn all_neighbors_of_all_nodes_are_the_full_graph() {
    for edges in [Edges::random(60, 300, 1), Edges::random(60, 300, 2).symmetric()] {
        let temp = tempfile::tempdir().unwrap();
        let graph = open(temp.path(), &edges.train(&(0..60).collect::<Vec<_>>()));
        let of = |node| Ok::<_, BlockError>(graph.lists().of(node).unwrap().iter());
        let full = Block::full(60, graph.n_edges(), of).unwrap();
        let is_symmetric = graph.is_symmetric();
        let mut config = config(&[0, 0]);
        config.pairs = Some(PairConfig { excludes_reverse: !is_symmetric, ..PAIRS });
        let batch = make(graph, 60, 10, config.clone(), 0);
        assert_eq!(*batch.nodes, (0..60).collect::<Vec<u64>>());
        for (layer, (block, pairs)) in batch.blocks.iter().zip(&batch.pairs).enumerate() {
            assert_eq!((block.indptr(), block.sources()), (full.indptr(), full.sources()));
            assert_eq!((block.out_edges(), block.out_places()), (full.out_edges(), full.out_places()));
            let expected =
                kith_block::Pairs::draw(42, 0, layer as u32, &full, config.pairs.unwrap(), |u, v| full.has_edge(u, v));
            assert_eq!(pairs.negatives(), expected.negatives());
            assert!((0..full.n_edges()).all(|edge| pairs.keeps(edge) == expected.keeps(edge)));
        }
    }
}

/// Golden, for any number of threads: what was drawn for these graphs is drawn for ever.
#[test]
fn digests_of_batches_stay() {
    let temp = tempfile::tempdir().unwrap();
    let edges = Edges::random(500, 4000, 3).train(&(0..200).collect::<Vec<_>>());
    let shards = Arc::new(LocalStore::new(Arc::new(open(temp.path(), &edges))));
    let mut kept = Vec::new();
    for (config, slices) in [
        (config(&[3, 2]), 1),
        (config(&[10, 10, 5]), 3),
        (BatchConfig { sampling: Sampling::WithReplacement, ..config(&[4]) }, 1),
    ] {
        let plan = plan(&shards, 64, 32, slices);
        let found = digests(&shards, &plan, &config, 1, 8);
        for n_threads in [2, 8] {
            assert_eq!(digests(&shards, &plan, &config, n_threads, 8), found);
        }
        kept.extend([found[0], *found.last().unwrap()]);
    }
    assert_eq!(
        kept,
        [
            14001599217227614267,
            2903322568390283825,
            3828025626073341426,
            1801753582889302808,
            11342830193165673693,
            15921288911605136885,
        ]
    );
}

#[test]
fn digests_of_cora_stay() {
    let Some(cora) = graphs::cora() else { return };
    let shards = Arc::new(LocalStore::new(Arc::new(Graph::open(&cora.path).unwrap())));
    let plan = plan(&shards, 140, 1024, 2);
    let found = digests(&shards, &plan, &config(&[10, 10]), 1, 4);
    for n_threads in [2, 8] {
        assert_eq!(digests(&shards, &plan, &config(&[10, 10]), n_threads, 4), found);
    }
    assert_eq!(found[..2], [2688399980937937875, 65287356025108998]);
    // Rows stay sparse.
    let mut maker = BatchMaker::new(shards, plan, config(&[10, 10]), Stock::new(1));
    let batch = maker.make(0, 1).unwrap();
    assert!(batch.rows.is_sparse() && batch.rows.dim == 1433);
    assert_eq!(batch.rows.indptr.len(), batch.nodes.len() + 1);
}

#[test]
fn bad_input_gets_a_sentence() {
    let temp = tempfile::tempdir().unwrap();
    let graph = Arc::new(open(temp.path(), &Edges::ring(10).train(&[1, 2])));
    let shards = LocalStore::new(graph);
    let seeds = Arc::new(shards.seeds(None, SplitPart::Train).unwrap());
    let good = PlanConfig { run_key: 1, seeds_per_step: 2, edge_seeds: 0, slices: 1 };
    for (config, n_nodes, part) in [
        (PlanConfig { seeds_per_step: 0, ..good }, 10, "batch_size = 0 makes no step"),
        (PlanConfig { seeds_per_step: 3, ..good }, 10, "batch_size = 3 is more than the 2 seed nodes"),
        (PlanConfig { edge_seeds: 11, ..good }, 10, "edge_seeds = 11 is more than the graph's 10 nodes"),
        (PlanConfig { slices: 0, ..good }, 10, "slices = 0"),
        (good, 2, "seed 2 is outside the graph"),
    ] {
        let sentence = Plan::new(config, n_nodes, Arc::clone(&seeds)).unwrap_err().to_string();
        assert!(sentence.contains(part), "{sentence}");
    }
    let none = Arc::new(shards.seeds(None, SplitPart::Test).unwrap());
    assert!(Plan::new(good, 10, none).unwrap_err().to_string().contains("no seed"));
    let sentence = shards.seeds(Some("other"), SplitPart::Train).unwrap_err().to_string();
    assert!(sentence.contains("no split named other; there are main"), "{sentence}");
}

/// Five hundred epochs leave memory as they found it.
#[test]
#[cfg(target_os = "linux")]
fn memory_is_flat() {
    let temp = tempfile::tempdir().unwrap();
    let edges = Edges::random(3000, 12_000, 4).train(&(0..140).collect::<Vec<_>>());
    let shards = Arc::new(LocalStore::new(Arc::new(open(temp.path(), &edges))));
    let plan = plan(&shards, 140, 500, 1);
    let jobs = (0..500).map(|step| Job { step, slice: 0 });
    let prefetch = PrefetchConfig { n_threads: 2, depth: 2 };
    let mut batches = Prefetch::start(Arc::clone(&shards), plan, config(&[10, 10]), prefetch, jobs).unwrap();
    let resident_kib = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let mut warm = 0;
    for epoch in 0..500 {
        let batch = batches.next().unwrap().unwrap();
        assert_eq!(batch.epoch, epoch);
        batches.give_back(batch);
        if epoch == 100 {
            warm = resident_kib();
        }
    }
    let grown = resident_kib().saturating_sub(warm);
    // The threads' lead at this moment accounts for a few batches, half a MiB each.
    assert!(grown < 16 << 10, "{grown} KiB more after 500 epochs than after 100");
}

/// Many rows are read on several threads, into the places where one thread would put them.
#[test]
fn many_rows_are_read_in_their_order() {
    for stored in [StoredRows::F32, StoredRows::F16, StoredRows::Bf16, StoredRows::Sparse] {
        let edges = Edges { rows: stored, ..Edges::ring(50) };
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::new(Arc::new(open(temp.path(), &edges)));
        let nodes: Vec<u64> = (0..100_003u64).map(|k| k * k % 50).collect();
        let (mut many, mut one) = (FetchedRows::default(), FetchedRows::default());
        store.fetch_features(&nodes, &mut many).unwrap();
        let mut values = Vec::new();
        for node in nodes.chunks(1) {
            store.fetch_features(node, &mut one).unwrap();
            values.extend_from_slice(&one.values);
        }
        assert!(many.values == values, "{stored:?}");
    }
}
