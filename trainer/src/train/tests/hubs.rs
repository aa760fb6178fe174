//! Nodes with more neighbors than are held at a time: the same bits as with all of them at once, for any place of the
//! graph.

use std::sync::atomic::{AtomicUsize, Ordering};

use kith_client::{ClientError, FetchedRows, Info, RowCounts, Seeds, Shards, Whereabouts};
use kith_kernels::{
    LIST_PIECE,
    cuda::{GraphLists, Inference},
};
use kith_run::prediction::{Moment, What};
use kith_sampler::{
    Direction, Drawn, Hop,
    server::{Server, ServerConfig, ShardChoice},
};
use kith_store::{Cluster, Cut, Provenance, SplitPart, write_cluster};

use super::{batches::write_store, *};
use crate::{
    data::{matrix::rows_of, opened::Opened},
    distributed::world::on_worlds,
    engine::gpu::plan_of_inference,
    inference::{
        layerwise::{Ending, Prepared, walk},
        on_gpu,
        predict::{PredictedNodes, Question, predict},
        receptive::ReceptiveSets,
    },
    model::Model,
};

/// Neighbors of the hubs: some pieces; a list that ends at a cut; one whose loop is a piece of its own; and one that is
/// just short enough to be no hub.
const HUBS: [usize; 4] = [3 * LIST_PIECE + 77, 2 * LIST_PIECE - 1, 2 * LIST_PIECE, LIST_PIECE - 1];
const N_RING: usize = 3 * LIST_PIECE;

/// Models with residuals, which each node of a chunk has for itself, and a GIN, whose sums go through a perceptron.
const WITH_OPTIONS: [&[&str]; 3] = [
    &[
        "model=off",
        "model.kind=gat",
        "edge_loss=off",
        "model.hidden=4",
        "model.heads=2",
        "model.n_layers=3",
        "model.norm=layer",
        "model.residual=linear",
        "model.output_linear=true",
        "model.jumping=concat",
    ],
    &[
        "model=off",
        "model.kind=sage",
        "edge_loss=off",
        "model.hidden=6",
        "model.root_weight=true",
        "model.norm=batch",
        "model.activation=relu",
        "model.output_linear=true",
    ],
    &["model=off", "model.kind=gin", "edge_loss=off", "model.hidden=6"],
];

const MODELS: [&[&str]; 11] = [
    &["model.attention=mx"],
    &["model.attention=go"],
    &["model.kind=gat", "model.attention=dp", "edge_loss=off"],
    &["model.attention=sd"],
    &["model.attention=mx", "model.heads=18", "model.hidden=3", "model.out_heads=18"],
    &["model=off", "model.kind=gcn", "edge_loss=off"],
    &["model=off", "model.kind=sage", "edge_loss=off"],
    &["model=off", "model.kind=mlp", "edge_loss=off"],
    &["model=off", "model.kind=gcn", "model.hidden=40", "edge_loss=off"],
    &["model.kind=gat", "model.attention=v2", "edge_loss=off", "model.self_loops=false"],
    &["model=off", "model.kind=sage", "edge_loss=off", "model.self_loops=false"],
];

/// A ring, and hubs that know many nodes of it, some of them twice; if `is_mutual`, these know the hubs too.
fn graph_with_hubs(is_mutual: bool) -> GraphInput {
    let n_nodes = N_RING + HUBS.len();
    let beside = |node: usize| [1, N_RING - 1].map(|on| ((node + on) % N_RING) as u64).to_vec();
    let mut lists: Vec<Vec<u64>> = (0..N_RING).map(beside).collect();
    lists.resize(n_nodes, Vec::new());
    for (k, n_neighbors) in HUBS.iter().enumerate() {
        let hub = N_RING + k;
        for neighbor in (0..*n_neighbors).map(|place| (7 * place + k) % N_RING) {
            lists[hub].push(neighbor as u64);
            if is_mutual {
                lists[neighbor].push(hub as u64);
            }
        }
    }
    lists.iter_mut().for_each(|list| list.sort_unstable());
    let n_edges = lists.iter().map(|list| list.len() as u64).sum();
    let of = |node: u64| Ok::<_, BlockError>(lists[node as usize].iter().copied());
    let block = Arc::new(Block::full(n_nodes as u64, n_edges, of).unwrap());
    GraphInput { block, is_symmetric: is_mutual, ..graph(n_nodes, 0, 3) }
}

/// Counts the rows that were asked for, and the most at a time.
struct Watched<'a> {
    shards: &'a dyn Shards,
    most: AtomicUsize,
    n_rows: AtomicUsize,
}

impl Shards for Watched<'_> {
    fn info(&self) -> &Info {
        self.shards.info()
    }

    fn seeds(&self, split: Option<&str>, part: SplitPart) -> Result<Seeds, ClientError> {
        self.shards.seeds(split, part)
    }

    fn sample_hop(&self, hop: &Hop, frontier: &[u64], drawn: &mut Drawn) -> Result<(), ClientError> {
        self.shards.sample_hop(hop, frontier, drawn)
    }

    fn fetch_features(&self, nodes: &[u64], rows: &mut FetchedRows) -> Result<RowCounts, ClientError> {
        self.most.fetch_max(nodes.len(), Ordering::Relaxed);
        self.n_rows.fetch_add(nodes.len(), Ordering::Relaxed);
        self.shards.fetch_features(nodes, rows)
    }

    fn has_edges(&self, pairs: &[(u64, u64)], direction: Direction, found: &mut [bool]) -> Result<(), ClientError> {
        self.shards.has_edges(pairs, direction, found)
    }
}

/// The outputs of a layer for all nodes, and the most rows that were held.
fn outputs_of(model: &Model, shards: &dyn Shards, room: &Room, layer: usize) -> (Vec<u32>, usize) {
    let prepared = Prepared::all(model, shards, room, &mut World::alone(), layer + 1).unwrap();
    let watched = Watched { shards, most: AtomicUsize::new(0), n_rows: AtomicUsize::new(0) };
    let outputs = outputs_by_place(model, &watched, room, &mut World::alone(), (&prepared, layer));
    assert!(outputs.iter().map(|(place, _)| *place).eq(0..shards.info().n_nodes), "all nodes, in their order");
    (outputs.into_iter().flat_map(|(_, output)| output).collect(), watched.most.into_inner())
}

/// Outputs of a layer, bit for bit, by the places of the nodes of this rank.
fn outputs_by_place(
    model: &Model,
    shards: &dyn Shards,
    room: &Room,
    world: &mut World,
    (prepared, layer): (&Prepared, usize),
) -> Vec<(u64, Vec<u32>)> {
    let mut outputs = Vec::new();
    walk(model, shards, room, world, (prepared, Ending::Output), |seen| {
        let rows = rows_of(&seen.looked.output(model, layer)?)?;
        assert_eq!(rows.values.len(), rows.width * seen.places.len());
        let bits = |row: usize| rows.row(row).iter().map(|value| value.to_bits()).collect();
        outputs.extend(seen.places.iter().enumerate().map(|(row, place)| (*place, bits(row))));
        Ok(())
    })
    .unwrap();
    outputs
}

/// The store, its shards, and two servers of them.
fn graphs(dir: &Path) -> (Vec<(&'static str, Opened)>, Vec<Server>) {
    graphs_of(&graph_with_hubs(true), dir)
}

fn graphs_of(graph: &GraphInput, dir: &Path) -> (Vec<(&'static str, Opened)>, Vec<Server>) {
    let store = write_store(graph, dir);
    let owner: Vec<u16> = (0..store.n_nodes()).map(|node| (node * node % 7 % 3) as u16).collect();
    let (method, provenance) = ("by hand".to_owned(), Provenance::default());
    let cut = Cut { owner: &owner, n_shards: 3, inclusion: None, method, provenance };
    let cluster = dir.join("cluster");
    write_cluster(&store, &cut, &cluster, &|_| ()).unwrap();
    let serve = |shards: &[u32]| {
        let config = ServerConfig::new(cluster.clone(), ([127, 0, 0, 1], 0).into());
        let shards = ShardChoice::These(shards.to_vec());
        Server::start(&ServerConfig { shards, n_threads: 1, ..config }).unwrap()
    };
    let servers = vec![serve(&[0, 2]), serve(&[1])];
    let samplers = servers.iter().map(|server| server.address().to_string()).collect();
    let opened_cluster = Some(Arc::new(Cluster::open(&cluster).unwrap()));
    let shards = Opened::find(Whereabouts { cluster: opened_cluster, ..Whereabouts::default() }).unwrap();
    let remote = Opened::find(Whereabouts { samplers, ..Whereabouts::default() }).unwrap();
    (vec![("store", Opened::store(store)), ("shards", shards), ("servers", remote)], servers)
}

#[test]
fn a_hub_in_pieces_has_the_bits_of_the_whole() {
    crate::engine::device::start();
    let temp = tempfile::tempdir().unwrap();
    let (graphs, _servers) = graphs(temp.path());
    let n_nodes = N_RING + HUBS.len();
    // At least one piece, whatever is asked for.
    let pieces = |n_neighbors| Room { n_together: 200, n_neighbors, ..Room::default() };
    for model in MODELS.into_iter().chain(WITH_OPTIONS) {
        let config = config(model);
        let model = Model::new(&config, 5, N_CLASSES, 7, Device::Cpu).unwrap();
        for layer in [0, 1] {
            let (expected, most) = outputs_of(&model, &**graphs[0].1.shards(), &Room::default(), layer);
            assert_eq!(most, n_nodes, "all at once");
            for (name, opened) in &graphs {
                let (found, most) = outputs_of(&model, &**opened.shards(), &pieces(1), layer);
                assert!(found == expected, "{:?} layer {layer}, {name}", config.model);
                assert_eq!(most, 200, "rows of {name}");
            }
            let longer = pieces(2 * LIST_PIECE as u64 + 99);
            let (found, _) = outputs_of(&model, &**graphs[0].1.shards(), &longer, layer);
            assert!(found == expected, "{:?} layer {layer}", config.model);
        }
    }
}

/// Nodes to evaluate: two of the ring and a hub. Nodes of the ring read only the nodes beside them.
const WANTED: [u64; 3] = [5, 900, (N_RING + 3) as u64];

/// Only what some nodes depend on is fetched and computed, and their outputs have the same bits as those of all nodes.
#[test]
fn the_receptive_set_gives_the_same_bits() {
    crate::engine::device::start();
    let temp = tempfile::tempdir().unwrap();
    let (graphs, _servers) = graphs_of(&graph_with_hubs(false), temp.path());
    for model in MODELS {
        let config = config(model);
        let model = Model::new(&config, 5, N_CLASSES, 7, Device::Cpu).unwrap();
        let (all, _) = outputs_of(&model, &**graphs[0].1.shards(), &Room::default(), 1);
        let width = all.len() / (N_RING + HUBS.len());
        let expected: Vec<u32> =
            WANTED.iter().flat_map(|node| &all[*node as usize * width..][..width]).copied().collect();
        for (name, opened) in &graphs {
            let rooms = [
                Room::default(),
                Room { n_together: 200, n_neighbors: 1, ..Room::default() },
                Room { memory: Some(1 << 16), ..Room::default() },
                Room { memory: Some(1), n_together: 3, ..Room::default() },
            ];
            for room in rooms {
                let watched =
                    Watched { shards: &**opened.shards(), most: AtomicUsize::new(0), n_rows: AtomicUsize::new(0) };
                let world = &mut World::alone();
                let prepared = Prepared::of_nodes(&model, &watched, &room, world, (WANTED, 2)).unwrap();
                let found = outputs_by_place(&model, &watched, &room, world, (&prepared, 1));
                let found: Vec<u32> = found.into_iter().flat_map(|(_, output)| output).collect();
                assert!(found == expected, "{:?} of {name}, {room:?}", config.model);
                let counts = prepared.sets().counts();
                assert_eq!(counts[2], 3);
                assert!(counts[1] > 1000 && counts[1] < counts[0] && counts[0] < N_RING as u64, "{counts:?}");
                let n_rows = watched.n_rows.into_inner() as u64;
                match room.memory {
                    None => assert_eq!(n_rows, counts[0]),
                    Some(_) => assert!(n_rows > counts[0], "windows read some nodes again"),
                }
            }
        }
    }
}

/// Ranks find the sets together, each from its own chunks.
#[test]
fn ranks_find_the_same_receptive_set() {
    crate::engine::device::start();
    let temp = tempfile::tempdir().unwrap();
    let (graphs, _servers) = graphs_of(&graph_with_hubs(false), temp.path());
    let shards = &**graphs[0].1.shards();
    for (model, memory) in [(MODELS[0], None), (MODELS[5], None), (MODELS[0], Some(1 << 14)), (MODELS[5], Some(1))] {
        let room = Room { n_together: 7, memory, ..Room::default() };
        let found = |world: &mut World| {
            let model = Model::new(&config(model), 5, N_CLASSES, 7, Device::Cpu).unwrap();
            let prepared = Prepared::of_nodes(&model, shards, &room, world, (WANTED, 2)).unwrap();
            (prepared.sets().counts(), outputs_by_place(&model, shards, &room, world, (&prepared, 1)))
        };
        let expected = found(&mut World::alone());
        assert!(expected.0[0] < N_RING as u64 && expected.0[1] > 7 * 2, "{:?}", expected.0);
        for n_ranks in [2, 3] {
            let (counts, outputs): (Vec<_>, Vec<_>) = on_worlds(n_ranks, found).into_iter().unzip();
            counts.iter().for_each(|counts| assert_eq!(*counts, expected.0));
            let most = outputs.iter().map(Vec::len).max().unwrap();
            assert!(most < WANTED.len(), "{n_ranks} ranks divide the nodes");
            let mut outputs: Vec<_> = outputs.into_iter().flatten().collect();
            outputs.sort_unstable();
            assert!(outputs == expected.1, "{n_ranks} ranks, {room:?}");
        }
    }
}

/// The same on a GPU, with lists on the GPU and from the host, in chunks of any size.
#[test]
fn the_receptive_set_gives_the_same_bits_on_a_gpu() {
    crate::engine::device::start();
    let temp = tempfile::tempdir().unwrap();
    let (graphs, _servers) = graphs_of(&graph_with_hubs(false), temp.path());
    let shards = &**graphs[0].1.shards();
    let (indptr, sources) = shards.lists().unwrap().expect("a store has its lists");
    let n_nodes = N_RING + HUBS.len();
    let neighbors = |node: u64| &sources[indptr[node as usize] as usize..indptr[node as usize + 1] as usize];
    let some = ReceptiveSets::find(n_nodes as u64, WANTED, 2, |nodes, marks| {
        nodes.ids(0..nodes.len()).iter().for_each(|node| marks.add(neighbors(*node).iter().map(|id| u64::from(*id))));
        Ok(())
    });
    let (some, all) = (some.unwrap(), ReceptiveSets::all(n_nodes as u64, 2));
    for gpu in super::gpu::devices() {
        let lists = GraphLists::new(&gpu, indptr, sources).unwrap();
        for model in MODELS {
            let model = Model::new(&config(model), 5, N_CLASSES, 7, Device::Cpu).unwrap();
            let weights: Vec<f32> = Vec::try_from(model.weights().flat()).unwrap();
            let outputs = |sets: &ReceptiveSets, n_bytes, lists| {
                let plan = plan_of_inference(&model);
                let mut inference = on_gpu::inference_of(&gpu, &plan, n_nodes as u64, sets).unwrap();
                inference = inference.with_chunk_bytes(n_bytes);
                let mut found = Vec::new();
                let see = |inference: &Inference, _| {
                    found.extend(inference.outputs(1)?.iter().map(|value| value.to_bits()));
                    Ok(())
                };
                let mut beat = || Ok(());
                on_gpu::walk(&mut inference, &weights, shards, (None, lists), (&mut beat, sets), see).unwrap();
                found
            };
            let whole = outputs(&all, 1 << 30, Some(&lists));
            let width = whole.len() / n_nodes;
            let of = |node: &u64| whole[*node as usize * width..][..width].to_vec();
            let expected: Vec<u32> = WANTED.iter().flat_map(of).collect();
            for (n_bytes, lists) in [(1 << 30, Some(&lists)), (1 << 14, Some(&lists)), (1 << 30, None)] {
                let found = outputs(&some, n_bytes, lists);
                assert!(found == expected, "{:?} in {n_bytes} bytes, lists {}", model.config(), lists.is_some());
            }
        }
    }
}

/// Long lists in pieces, and nodes in chunks: nearly the CPU's numbers, and the same bits for every size of chunk, with lists on
/// the GPU and from the host.
#[test]
fn a_gpu_computes_hubs_and_chunks_like_the_cpu() {
    crate::engine::device::start();
    let temp = tempfile::tempdir().unwrap();
    let (graphs, _servers) = graphs(temp.path());
    let shards = &**graphs[0].1.shards();
    let (indptr, sources) = shards.lists().unwrap().expect("a store has its lists");
    for gpu in super::gpu::devices() {
        let lists = GraphLists::new(&gpu, indptr, sources).unwrap();
        for model in MODELS {
            let model = Model::new(&config(model), 5, N_CLASSES, 7, Device::Cpu).unwrap();
            let weights: Vec<f32> = Vec::try_from(model.weights().flat()).unwrap();
            for layer in [0, 1] {
                let outputs = |n_bytes, lists| {
                    let inference = Inference::new(&gpu, &plan_of_inference(&model), indptr.len() - 1).unwrap();
                    let (mut found, mut n_chunks) = (Vec::new(), 0);
                    let see = |inference: &Inference, _| {
                        n_chunks += 1;
                        found.extend(inference.outputs(layer)?);
                        Ok(())
                    };
                    let mut inference = inference.with_chunk_bytes(n_bytes);
                    let mut beat = || Ok(());
                    let sets = ReceptiveSets::all(indptr.len() as u64 - 1, layer + 1);
                    on_gpu::walk(&mut inference, &weights, shards, (None, lists), (&mut beat, &sets), see).unwrap();
                    (found, n_chunks)
                };
                let (found, n_chunks) = outputs(1 << 30, Some(&lists));
                assert_eq!(n_chunks, 1);
                let (chunked, n_chunks) = outputs(1 << 16, Some(&lists));
                assert!(n_chunks > 2 && chunked == found, "{:?}: {n_chunks} chunks", model.config());
                assert!(outputs(1 << 30, None).0 == found, "{:?}: lists of the host", model.config());
                let (expected, _) = outputs_of(&model, shards, &Room::default(), layer);
                assert_eq!(found.len(), expected.len());
                let off = found.iter().zip(expected).map(|(a, b)| (a - f32::from_bits(b)).abs()).fold(0.0, f32::max);
                assert!(off < 1e-5, "{:?} layer {layer}: {off}", model.config());
            }
        }
    }
}

#[test]
fn what_is_predicted_and_measured_of_a_hub_in_pieces_is_the_same() {
    crate::engine::device::start();
    let temp = tempfile::tempdir().unwrap();
    let (graphs, _servers) = graphs(temp.path());
    assert!(graphs.iter().all(|(_, opened)| opened.id_of(3).unwrap() == "26"), "users' ids come from servers too");
    let pieces = Room { n_together: 100, n_neighbors: 1, ..Room::default() };
    for model in [MODELS[0], MODELS[5], MODELS[6]] {
        let short = ["early_stop=off", "train.epochs=1", "train.mode=mini-batch", "train.batch_size=500"];
        let config = config(&[model, &short].concat());
        let mut answers = Vec::new();
        for (name, opened) in &graphs {
            let data = Data::load(opened, &config, 7).unwrap();
            for room in [Room::default(), pieces.clone()] {
                let dir = temp.path().join(format!("{}-{name}-{}", config.name(), room.n_neighbors));
                let records =
                    to_the_end(RunPlan { room: room.clone(), ..plan(&data, config.clone(), Some(&dir), false) });
                assert!(records.last().unwrap().measured.is_some());
                let checkpoint = &Checkpoints::of(&dir).last().unwrap();
                let ask = |what| {
                    let (layer, moment, device, room) = (None, Moment::Last, Device::Cpu, room.clone());
                    predict(&Question {
                        checkpoint,
                        opened,
                        what,
                        pairs: None,
                        nodes: &PredictedNodes::All,
                        layer,
                        moment,
                        device,
                        gpu: None,
                        room,
                    })
                    .unwrap()
                };
                answers.push((records, ask(What::Probabilities), ask(What::Embeddings)));
            }
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{}", config.name());
    }
}
