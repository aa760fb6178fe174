"""Tests of the parts of `import kith` that stand in for PyG's and DGL's, run by tests/python.rs: python drop_in.py KITH KITH_SAMPLER."""

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import kith
import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.sampler import NegativeSampling

PROGRAM, SAMPLER = sys.argv[1:3]
N_NODES, DIM, N_CLASSES = 400, 5, 3


def made() -> Data:
    """A directed PyG graph with self-loops, repeated edges, and attributes of all kinds."""
    random = np.random.default_rng(3)
    part = random.integers(0, 3, N_NODES)
    n_edges = 3000
    return Data(
        x=torch.tensor(random.normal(size=(N_NODES, DIM)), dtype=torch.float32),
        edge_index=torch.tensor(random.integers(0, N_NODES, (2, n_edges))),
        edge_attr=torch.tensor(random.normal(size=(n_edges, 2)), dtype=torch.float32),
        edge_weight=torch.tensor(random.random(n_edges), dtype=torch.float32),
        y=torch.tensor(random.integers(0, N_CLASSES, N_NODES)),
        age=torch.tensor(random.integers(0, 99, N_NODES)),
        name="a graph",
        train_mask=torch.tensor(part == 0),
        val_mask=torch.tensor(part == 1),
        test_mask=torch.tensor(part == 2),
    )


def a_pyg_graph_can_be_given_to_a_loader(data: Data, graph: kith.Graph, folder: Path) -> None:
    for options in ({}, {"weight_attr": "edge_weight"}, {"replace": True}):
        loader = kith.NeighborLoader(data, [4, 3], data.train_mask, batch_size=16, shuffle=True, num_workers=2, **options)
        for batch in loader:
            assert batch.name == "a graph" and batch.batch is None
            for name in ("x", "y", "age", "train_mask"):
                assert torch.equal(batch[name], data[name][batch.n_id]), name
            assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
            assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
            assert torch.equal(batch.edge_weight, data.edge_weight[batch.e_id])
            assert options or batch.e_id.unique().numel() == batch.e_id.numel()
    kept = kith.NeighborLoader(data, [4])
    assert kith.NeighborLoader(data, [4, 4]).graph is kept.graph, "one temporary store"
    store = Path(kept.graph.place)
    assert store.exists()
    del loader, kept
    assert not store.exists(), "gone with its last loader"


def parallel_edges_keep_their_weights(data: Data, graph: kith.Graph, folder: Path) -> None:
    random = np.random.default_rng(4)
    multi = Data(edge_index=torch.tensor(random.integers(0, 6, (2, 300))), num_nodes=6)
    multi.weight = torch.tensor(random.random(300) * (random.random(300) < 0.5), dtype=torch.float32)
    for batch in kith.NeighborLoader(multi, [9], batch_size=6, weight_attr="weight"):
        assert (batch.weight > 0).all(), "an edge of weight 0 is never drawn"
        assert torch.equal(batch.n_id[batch.edge_index], multi.edge_index[:, batch.e_id])


def a_changed_graph_is_written_again(data: Data, graph: kith.Graph, folder: Path) -> None:
    changed = data.clone()
    loaders = []
    for number in range(20):
        changed.x = data.x + number
        changed.edge_index = data.edge_index[:, torch.rand(data.num_edges) < 0.5]
        changed.edge_attr = changed.edge_weight = None
        loaders.append(kith.NeighborLoader(changed, [5], batch_size=50))
        batch = next(iter(loaders[-1]))
        assert torch.equal(batch.x, changed.x[batch.n_id])
        assert torch.equal(batch.n_id[batch.edge_index], changed.edge_index[:, batch.e_id])
    changed.x += 1
    assert torch.equal(next(iter(kith.NeighborLoader(changed, [5]))).x[:1], changed.x[:1]), "in place"
    own = data.clone()
    own.n_id = torch.arange(N_NODES) + 1000
    batch = next(iter(kith.NeighborLoader(own, [5], [7, 8], batch_size=2)))
    assert batch.n_id[:2].tolist() == [1007, 1008], "as in PyG: attributes of the user stay"
    sparse = data.clone()
    sparse.x = data.x.to_sparse_coo()
    learned = data.clone()
    learned.x = data.x.clone().requires_grad_()
    for other in (sparse, learned):
        batch = next(iter(kith.NeighborLoader(other, [5], [3], batch_size=1)))
        assert torch.equal(batch.x.to_dense()[0].detach(), data.x[3])
    assert batch.x.requires_grad


def edge_ids_are_places_in_the_store(data: Data, graph: kith.Graph, folder: Path) -> None:
    edges = torch.from_numpy(graph.edge_index)
    assert edges.shape == data.edge_index.shape
    assert sorted(map(tuple, edges.t().tolist())) == sorted(map(tuple, data.edge_index.t().tolist()))
    for batch in kith.NeighborLoader(graph, [5, 5], split="train", batch_size=32):
        assert torch.equal(batch.n_id[batch.edge_index], edges[:, batch.e_id])
    shards = kith.open(shards_of(folder))
    assert "e_id" not in next(iter(kith.NeighborLoader(shards, [5], split="train")))
    try:
        _ = shards.edge_index
        raise AssertionError("shards have no list of all edges")
    except kith.KithError as error:
        assert "open it instead of its shards" in str(error), error


def shards_of(folder: Path) -> Path:
    shards = folder / "shards"
    if not shards.exists():
        subprocess.run([PROGRAM, "partition", folder / "store", "--shards", "2", "--out", shards], check=True)
    return shards


def a_store_holds_all_that_pyg_has(data: Data, graph: kith.Graph, folder: Path) -> None:
    edges = {}
    for source, destination, weight, features in zip(
        *data.edge_index.tolist(), data.edge_weight.tolist(), data.edge_attr.tolist(), strict=True
    ):
        edges.setdefault((source, destination), []).append([weight, *features])
    for batch in kith.NeighborLoader(graph, [-1], batch_size=50):
        ends = batch.n_id[batch.edge_index].t().tolist()
        found = torch.cat([batch.edge_weight[:, None], batch.edge_attr], 1).tolist()
        assert all(own in edges[tuple(pair)] for pair, own in zip(ends, found, strict=True))
    several = torch.tensor(np.random.default_rng(5).integers(0, 2, (N_NODES, 70)))
    numbers = torch.where(data.y[:, None] == 0, torch.nan, data.x[:, :2])
    for name, y in (("several", several), ("numbers", numbers), ("floats", several.float()), ("number", numbers[:, 0])):
        other = kith.from_pyg(data, out=folder / name, y=y, train_mask=None, val_mask=None, test_mask=None)
        assert np.array_equal(other.y, y.float().numpy(), equal_nan=True), name
        assert other.num_classes == y[0].numel()
        batch = next(iter(kith.NeighborLoader(other, [2], batch_size=7)))
        assert torch.equal(batch.y.nan_to_num(9), y[batch.n_id].float().nan_to_num(9))


def pairs_come_with_their_neighbors(data: Data, graph: kith.Graph, folder: Path) -> None:
    pairs = data.edge_index[:, :500]
    labels = torch.arange(500) % 4
    for source in (graph, data):
        seen = []
        for batch in kith.LinkNeighborLoader(source, [3, 3], pairs, labels, batch_size=64, shuffle=True, num_workers=2):
            assert torch.equal(batch.n_id[batch.edge_label_index], pairs[:, batch.input_id])
            assert torch.equal(batch.edge_label, labels[batch.input_id])
            assert torch.equal(batch.x, data.x[batch.n_id])
            assert batch.num_sampled_nodes[0] == batch.edge_label_index.unique().numel()
            seen += batch.input_id.tolist()
        assert sorted(seen) == list(range(500))
    everything = kith.LinkNeighborLoader(graph, [1], batch_size=500)
    assert sum(batch.edge_label_index.shape[1] for batch in everything) == graph.num_edges


def negatives_are_those_of_pyg(data: Data, graph: kith.Graph, folder: Path) -> None:
    pairs, zeros = data.edge_index[:, :300], torch.zeros(300, dtype=torch.long)
    options = {"batch_size": 50, "seed": 8}
    binary = list(kith.LinkNeighborLoader(graph, [3], pairs, neg_sampling_ratio=1.5, **options))
    assert all(batch.edge_label.tolist() == [1.0] * 50 + [0.0] * 75 for batch in binary)
    labeled = next(iter(kith.LinkNeighborLoader(graph, [3], pairs, zeros, neg_sampling="binary", **options)))
    assert labeled.edge_label.tolist() == [1] * 50 + [0] * 50
    assert torch.equal(labeled.n_id[labeled.edge_label_index][:, :50], pairs[:, :50])
    ends = torch.cat([batch.n_id[batch.edge_label_index[:, 50:]].flatten() for batch in binary])
    counts = torch.bincount(ends, minlength=N_NODES).double()
    mean = len(ends) / N_NODES
    assert ((counts - mean) ** 2).sum() / mean < N_NODES + 5 * (2 * N_NODES) ** 0.5, "each node alike"
    triplet = list(kith.LinkNeighborLoader(graph, [3], pairs, neg_sampling=NegativeSampling("triplet", 4), **options))
    for first, batch in zip(range(0, 300, 50), triplet, strict=True):
        own = pairs[:, first : first + 50]
        assert torch.equal(batch.n_id[batch.src_index], own[0]) and torch.equal(batch.n_id[batch.dst_pos_index], own[1])
        assert batch.dst_neg_index.shape == (50, 4) and "edge_label_index" not in batch
    one = next(iter(kith.LinkNeighborLoader(graph, [3], pairs, neg_sampling="triplet", **options)))
    assert one.dst_neg_index.shape == (50,)
    for other in (kith.open(shards_of(folder)), graph):
        again = kith.LinkNeighborLoader(other, [3], pairs, neg_sampling_ratio=1.5, num_workers=3, **options)
        assert [batch.digest for batch in again] == [batch.digest for batch in binary]
    # A pair has its negatives, on whichever rank.
    ranks = [
        kith.LinkNeighborLoader(graph, [3], pairs, neg_sampling="binary", rank=rank, world_size=2, seed=8, batch_size=25) for rank in (0, 1)
    ]
    whole = kith.LinkNeighborLoader(graph, [3], pairs, neg_sampling="binary", **options)
    for together, own in zip(whole, zip(*ranks, strict=True), strict=True):
        found = torch.cat([batch.n_id[batch.edge_label_index][:, 25:] for batch in own], 1)
        assert torch.equal(found, together.n_id[together.edge_label_index][:, 50:])
    # The last step has fewer pairs than ranks.
    few = [kith.LinkNeighborLoader(graph, [3], pairs[:, :7], neg_sampling="triplet", rank=r, world_size=3, batch_size=2) for r in range(3)]
    assert [[len(batch.dst_neg_index) for batch in own] for own in few] == [[2, 1], [2, 0], [2, 0]]
    for arguments, problem in [
        ({"edge_label": zeros, "neg_sampling": "triplet"}, "expected none with triplets"),
        ({"edge_label": zeros[:5]}, "expected 300 labels, found 5"),
        ({"edge_label_index": [1, 2]}, "expected shape (2, pairs)"),
        ({"neg_sampling": NegativeSampling("binary", 1, torch.ones(N_NODES))}, "draws negatives uniformly"),
    ]:
        try:
            kith.LinkNeighborLoader(graph, [3], **({"edge_label_index": pairs} | arguments))
            raise AssertionError(f"{problem}: accepted")
        except ValueError as error:
            assert problem in str(error), error


def blocks_are_those_of_the_program(data: Data, graph: kith.Graph, folder: Path) -> None:
    run = folder / "run"
    command = [PROGRAM, "train", "gat", "--graph", folder / "store", "--epochs", "2", "--batch-size", "32", "--out", run, "--seed", "11"]
    subprocess.run([*command, "--set", "train.fanouts=[5, 3]", "--layers", "2", "--hidden", "4"], check=True, capture_output=True)
    recorded = [digest for line in (run / "steps.jsonl").read_text().splitlines() for digest in json.loads(line)["digests"]]
    for num_workers in (1, 3):
        loader = kith.BlockLoader(graph, [5, 3], split="train", batch_size=32, seed=11, num_workers=num_workers)
        assert [batch.digest for _ in range(2) for batch in loader] == recorded
    assert [
        batch.digest for batch in kith.BlockLoader(kith.open(shards_of(folder)), [5, 3], split="train", batch_size=32, seed=11)
    ] == recorded[: len(loader)]


def blocks_expand_every_node_again(data: Data, graph: kith.Graph, folder: Path) -> None:
    edges = set(map(tuple, data.edge_index.t().tolist()))
    seen = []
    for batch in kith.BlockLoader(graph, [3, 2], split="train", batch_size=20):
        assert [block.num_dst for block in batch.blocks] == [batch.blocks[1].num_src, batch.batch_size]
        assert batch.blocks[0].num_src == len(batch.n_id) and torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.y, data.y[batch.output_nodes])
        seen += batch.output_nodes.tolist()
        for block, fanout in zip(batch.blocks, [2, 3], strict=True):
            ids = batch.n_id[block.edge_index]
            assert set(map(tuple, ids.t().tolist())) <= edges and (ids[0] != ids[1]).all()
            counts = torch.bincount(block.edge_index[1], minlength=block.num_dst).tolist()
            for node, count in zip(batch.n_id.tolist(), counts, strict=False):
                degree = int(((data.edge_index[1] == node) & (data.edge_index[0] != node)).sum())
                assert count == min(degree, fanout)
            assert block.edge_weight.shape == (block.edge_index.shape[1],) and block.edge_attr.shape == (block.edge_index.shape[1], 2)
    assert sorted(seen) == graph.nodes("train").tolist()
    plain, looped = (next(iter(kith.BlockLoader(graph, [3], [5, 9], batch_size=2, add_self_loops=loops))) for loops in (False, True))
    assert looped.digest == plain.digest
    assert looped.blocks[0].edge_index.shape[1] == plain.blocks[0].edge_index.shape[1] + 2
    conv = SAGEConv(DIM, 4)
    x = batch.x
    for block in batch.blocks:
        x = conv((x, x[: block.num_dst]), block.edge_index) if block is batch.blocks[0] else x[: block.num_dst]
    assert x.shape == (batch.batch_size, 4)
    assert batch.to("cpu").blocks[0].edge_index is not None


def pyg_loaders_take_a_sampler_and_a_feature_store(data: Data, graph: kith.Graph, folder: Path) -> None:
    nodes = torch.from_numpy(graph.nodes("train"))
    for num_workers in (0, 2):
        loader = NodeLoader(
            (kith.features(graph), None), kith.sampler(graph, [4, 2]), input_nodes=nodes, batch_size=30, num_workers=num_workers
        )
        batches = list(loader)
        for first, batch in zip(range(0, len(nodes), 30), batches, strict=True):
            assert torch.equal(batch.n_id[: batch.batch_size], nodes[first : first + 30])
            assert torch.equal(batch.x, data.x[batch.n_id]) and torch.equal(batch.y, data.y[batch.n_id])
            assert torch.equal(batch.n_id[batch.edge_index], torch.from_numpy(graph.edge_index)[:, batch.e_id])
        if num_workers == 0:
            expected = [batch.n_id.tolist() for batch in batches]
        assert [batch.n_id.tolist() for batch in batches] == expected, "the same from worker processes"
    sampler = kith.sampler(graph, [4, 2])
    sampler.set_epoch(1)
    other = next(iter(NodeLoader((kith.features(graph), None), sampler, input_nodes=nodes, batch_size=30)))
    assert other.n_id.tolist() != expected[0]
    links = LinkLoader(data, kith.sampler(data, [4]), data.edge_index[:, :40], neg_sampling="binary", batch_size=20)
    for first, batch in zip((0, 20), links, strict=True):
        assert torch.equal(batch.n_id[batch.edge_label_index][:, :20], data.edge_index[:, first : first + 20])
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    store = kith.features(graph)
    assert store.get_tensor_size(attr_name="x", group_name=None, index=None) == (N_NODES, DIM)
    try:
        store.put_tensor(data.x, group_name=None, attr_name="x", index=None)
        raise AssertionError("written")
    except kith.KithError as error:
        assert "read-only" in str(error)


def layers_of_all_nodes_are_exact(data: Data, graph: kith.Graph, folder: Path) -> None:
    torch.manual_seed(0)
    first, second = SAGEConv(DIM, 8), SAGEConv(8, 4)
    no_loops = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
    second.train()
    with torch.no_grad():
        expected = second(first(data.x, no_loops).relu(), no_loops)
    layers = [lambda x, edges: first(x, edges).relu(), second]
    for options in ({"batch_size": 37}, {"memory": 0}, {"out": folder / "out.npy", "num_workers": 2}):
        found = kith.layerwise(graph, layers, **options)
        assert torch.allclose(found, expected, atol=1e-5), options
    assert np.allclose(np.load(folder / "out.npy"), expected.numpy(), atol=1e-5)
    assert second.training
    weighted = kith.layerwise(
        graph,
        [lambda x, edges, edge_weight: torch.zeros(len(x), 1).index_add(0, edges[1], edge_weight[:, None])],
        edge_arguments=["edge_weight"],
    )
    sums = torch.zeros(N_NODES).index_add(0, no_loops[1], data.edge_weight[data.edge_index[0] != data.edge_index[1]])
    assert torch.allclose(weighted[:, 0], sums, atol=1e-4)


def graphs_and_loaders_can_be_sent_to_processes(data: Data, graph: kith.Graph, folder: Path) -> None:
    expected = first_digest(kith.NeighborLoader(graph, [3], split="train", batch_size=9))
    sent = pickle.loads(pickle.dumps(kith.NeighborLoader(graph, [3], split="train", batch_size=9)))
    assert first_digest(sent) == expected
    assert first_digest(pickle.loads(pickle.dumps(kith.NeighborLoader(data, [3], data.train_mask, batch_size=9)))) is not None
    server = Server(shards_of(folder))
    try:
        served = kith.open(server.place)
        loader = kith.NeighborLoader(served, [3], split="train", batch_size=9)
        assert first_digest(loader) == expected
        time.sleep(0.5)  # Its threads have ended: nobody but the graph holds the connections.
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            queue = context.Queue()
            process = context.Process(target=send_first_digest, args=(loader, queue))
            process.start()
            assert queue.get(timeout=60) == expected, method
            process.join(20)
    finally:
        server.end()


def forks_leave_the_parent_alone(data: Data, graph: kith.Graph, folder: Path) -> None:
    loader = kith.NeighborLoader(data, [3], data.train_mask, batch_size=9)
    batches = iter(loader)
    next(batches)
    child = os.fork()
    if child == 0:
        try:
            next(batches)
            os._exit(1)
        except kith.KithError as error:
            found = "made before a fork" in str(error) and first_digest(loader) is not None
            del loader, batches
            sys.stdout.flush()
            os._exit(0 if found else 2)
    assert os.waitpid(child, 0)[1] == 0
    assert Path(loader.graph.place).exists(), "the store of the parent"
    assert next(batches) is not None
    # Frontiers that are long enough for several threads, of which forked workers have none.
    random = np.random.default_rng(0)
    large = Data(edge_index=torch.tensor(random.integers(0, 30_000, (2, 300_000))), x=torch.ones(30_000, 2))
    loader = NodeLoader(large, kith.sampler(large, [10, 5]), batch_size=2000, num_workers=1, timeout=60)
    assert sum(batch.batch_size for batch in loader) == 30_000


END_EARLY = """
import sys, torch, kith
import kith.epochs

def ordinary_tensors(wanted):
    tensors = [torch.empty(shape, dtype=torch.float32 if kind == '<f4' else torch.int64) for shape, kind in wanted]
    return [(tensor, tensor.data_ptr()) for tensor in tensors]

kith.epochs._pinned_tensors = ordinary_tensors
graph = kith.open(sys.argv[1])
loader = kith.NeighborLoader(graph, [5, 5], batch_size=5, num_workers=4)
loader.pin_memory = True  # As with a GPU, but in ordinary memory.
batches = iter(loader)
assert next(batches).x.shape[1] == 5
"""


def a_program_may_end_in_the_middle_of_an_epoch(data: Data, graph: kith.Graph, folder: Path) -> None:
    for _ in range(4):
        subprocess.run([sys.executable, "-c", END_EARLY, folder / "store"], check=True, timeout=60)


def first_digest(loader: kith.NeighborLoader) -> str:
    return next(iter(loader)).digest


def send_first_digest(loader: kith.NeighborLoader, queue: object) -> None:
    loader.set_epoch(0)
    queue.put(first_digest(loader))


class Server:
    def __init__(self, shards: Path) -> None:
        command = [SAMPLER, "--graph", shards, "--shards", "0,1", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.place = "grpc://" + self.process.stdout.readline().rsplit(" on ", 1)[1].strip()

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait(20)


def control_c_ends_a_wait_within_a_second(data: Data, graph: kith.Graph, folder: Path) -> None:
    server = Server(shards_of(folder))
    try:
        served = kith.open(server.place, timeout=50)
        server.process.send_signal(signal.SIGSTOP)
        waits = (lambda: next(iter(kith.NeighborLoader(served, [3]))), lambda: served.features([1]), lambda: kith.open(server.place))
        for wait in waits:
            timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
            started = time.monotonic()
            timer.start()
            try:
                wait()
                raise AssertionError("a stopped server answered")
            except KeyboardInterrupt:
                assert time.monotonic() - started < 1.5
    finally:
        server.end()


def networkx_and_others_become_stores(data: Data, graph: kith.Graph, folder: Path) -> None:
    import networkx

    club = networkx.karate_club_graph()
    store = kith.from_networkx(club, out=folder / "club", weight="weight")
    assert (store.num_nodes, store.num_edges, store.is_undirected) == (34, 156, True)
    batch = next(iter(kith.NeighborLoader(store, [-1], batch_size=34)))
    weights = {
        tuple(edge): weight for edge, weight in zip(batch.n_id[batch.edge_index].t().tolist(), batch.edge_weight.tolist(), strict=True)
    }
    assert all(weights[a, b] == weights[b, a] == w for a, b, w in club.edges(data="weight"))

    class Ogb:
        name = "ogbn-none"

        def __getitem__(self, _: int) -> tuple[dict[str, object], np.ndarray]:
            edges = np.array([[0, 1, 2, 1], [1, 2, 3, 0]])
            return {"edge_index": edges, "num_nodes": 4, "node_feat": np.ones((4, 2), np.float32)}, np.array(
                [[1.0], [np.nan], [0.0], [2.0]]
            )

        def get_idx_split(self) -> dict[str, np.ndarray]:
            return {"train": np.array([0]), "valid": np.array([2]), "test": np.array([3])}

    ogb = kith.from_ogb(Ogb(), out=folder / "ogb")
    assert ogb.num_edges == 6 and ogb.is_undirected and ogb.y.tolist() == [1, -1, 0, 2]
    assert [ogb.nodes(part).tolist() for part in ("train", "valid", "test")] == [[0], [2], [3]]
    (folder / "edges.csv").write_text("source,destination\na,b\nb,c\n")
    (folder / "labels.csv").write_text("id,label\na,0\nb,1\nc,0\n")
    table = kith.from_parquet(folder / "edges.csv", labels=folder / "labels.csv", symmetrize=True, out=folder / "table")
    assert table.num_edges == 4 and table.num_classes == 2
    try:
        kith.from_parquet(folder / "nothing.csv", out=folder / "nothing")
        raise AssertionError("read")
    except kith.KithError as error:
        assert "nothing.csv" in str(error), error


def object_storage_is_brought_here_once(data: Data, graph: kith.Graph, folder: Path) -> None:
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    place = f"file://{folder}/bucket/graph"
    subprocess.run([PROGRAM, "data", "push", folder / "store", place], check=True, capture_output=True)
    for _ in range(2):
        pulled = kith.open(place)
        assert pulled.digest == graph.digest and pulled.place == place
    assert len(list((folder / "cache/kith/pulled").glob("*/manifest.json"))) == 1
    assert kith.NeighborLoader(pulled, [2], batch_size=3).replay(0, 1).n_id is not None


def main() -> None:
    tests = [
        a_pyg_graph_can_be_given_to_a_loader,
        parallel_edges_keep_their_weights,
        a_changed_graph_is_written_again,
        edge_ids_are_places_in_the_store,
        a_store_holds_all_that_pyg_has,
        pairs_come_with_their_neighbors,
        negatives_are_those_of_pyg,
        blocks_are_those_of_the_program,
        blocks_expand_every_node_again,
        pyg_loaders_take_a_sampler_and_a_feature_store,
        layers_of_all_nodes_are_exact,
        graphs_and_loaders_can_be_sent_to_processes,
        forks_leave_the_parent_alone,
        a_program_may_end_in_the_middle_of_an_epoch,
        control_c_ends_a_wait_within_a_second,
        networkx_and_others_become_stores,
        object_storage_is_brought_here_once,
    ]
    warnings.filterwarnings("ignore", "the graph has self-loops")
    with tempfile.TemporaryDirectory() as folder:
        data = made()
        graph = kith.from_pyg(data, out=Path(folder) / "store")
        for test in tests:
            test(data, graph, Path(folder))
            print(f"ok {test.__name__}", flush=True)


if __name__ == "__main__":
    main()
