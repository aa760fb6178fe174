"""Tests of `import kith`, run by tests/python.rs: python loaders.py KITH KITH_SAMPLER, with the package on PYTHONPATH."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import kith
import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import k_hop_subgraph

PROGRAM, SAMPLER = sys.argv[1:3]
N_NODES, DIM, N_CLASSES = 600, 6, 4


def made(folder: Path) -> tuple[Data, kith.Graph]:
    """A PyG graph, directed, with self-loops and repeated edges, and its store."""
    random = np.random.default_rng(1)
    y = random.integers(0, N_CLASSES, N_NODES)
    ends = random.integers(0, N_NODES, (2, 5000))
    same = (y[ends[0]] == y[ends[1]]) | (random.random(5000) < 0.3)
    x = np.eye(DIM)[y % DIM] + random.normal(size=(N_NODES, DIM))
    part = random.integers(0, 3, N_NODES)
    data = Data(
        x=torch.tensor(x, dtype=torch.float32),
        edge_index=torch.tensor(ends[:, same]),
        y=torch.tensor(y),
        train_mask=torch.tensor(part == 0),
        val_mask=torch.tensor(part == 1),
        test_mask=torch.tensor(part == 2),
    )
    return data, kith.from_pyg(data, out=folder / "store")


def loader(graph: kith.Graph, num_neighbors: list[int], **options: object) -> kith.NeighborLoader:
    settings = {"split": "train", "batch_size": 32, "shuffle": True, "seed": 5} | options
    return kith.NeighborLoader(graph, num_neighbors, **settings)


def digests(batches: object) -> list[str]:
    return [batch.digest for batch in batches]


def a_store_is_the_graph_it_was_made_from(data: Data, graph: kith.Graph, folder: Path) -> None:
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (N_NODES, DIM, N_CLASSES)
    assert graph.num_edges == data.num_edges and not graph.is_undirected
    assert np.array_equal(graph.y, data.y.numpy())
    assert np.array_equal(graph.nodes("train"), data.train_mask.nonzero().flatten().numpy())
    assert np.array_equal(graph.features([7, 3, 7]), data.x[[7, 3, 7]].numpy())
    for changed, problem in [
        ({"y": data.y.repeat(3, 1).t()}, "y: expected 0 or 1 for each of several classes"),
        ({"y": data.y.reshape(10, 10, -1)}, "y: expected one or two dimensions"),
        ({"val_mask": data.train_mask}, "is in two masks"),
        ({"y": None}, "expected a label in y"),
    ]:
        other = data.clone()
        for name, value in changed.items():
            other[name] = value
        try:
            kith.from_pyg(other, out=folder / "other")
            raise AssertionError(f"{problem}: accepted")
        except (TypeError, ValueError) as error:
            assert problem in str(error), error
    try:
        kith.from_pyg(data, out=folder / "store")
        raise AssertionError("overwritten")
    except kith.KithError as error:
        assert "already exists" in str(error), error


def batches_are_samples_of_the_graph(data: Data, graph: kith.Graph, folder: Path) -> None:
    edges = set(map(tuple, data.edge_index.t().tolist()))
    fanouts = [5, 3]
    seen = []
    for batch in loader(graph, fanouts, num_workers=2):
        assert torch.equal(batch.x, data.x[batch.n_id]) and torch.equal(batch.y, data.y[batch.n_id])
        assert batch.n_id.unique().numel() == batch.num_nodes == sum(batch.num_sampled_nodes)
        seeds = graph.nodes("train")[batch.input_id.numpy()]
        assert batch.n_id[: batch.batch_size].tolist() == seeds.tolist()
        seen.extend(seeds.tolist())
        ids = batch.n_id[batch.edge_index]
        assert set(map(tuple, ids.t().tolist())) <= edges
        assert (ids[0] != ids[1]).all(), "self-loops are left to models"
        # Every node is expanded once, in the hop after the one that found it.
        first = end = 0
        for hop, n_edges in enumerate(batch.num_sampled_edges):
            own = batch.edge_index[1, end : end + n_edges]
            lower, upper = first, first + batch.num_sampled_nodes[hop]
            assert ((own >= lower) & (own < upper)).all()
            counts = torch.bincount(own, minlength=upper)[lower:upper]
            for position, count in enumerate(counts.tolist(), lower):
                node = int(batch.n_id[position])
                degree = int(((data.edge_index[1] == node) & (data.edge_index[0] != node)).sum())
                assert count == min(degree, fanouts[hop]), (node, count, degree)
            first, end = upper, end + n_edges
    assert sorted(seen) == graph.nodes("train").tolist(), "each seed node once"


def full_neighborhoods_are_those_of_pyg(data: Data, graph: kith.Graph, folder: Path) -> None:
    no_loops = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
    for batch in loader(graph, [-1, -1], batch_size=7):
        nodes, *_ = k_hop_subgraph(batch.n_id[: batch.batch_size], 2, no_loops, num_nodes=N_NODES)
        assert set(nodes.tolist()) == set(batch.n_id.tolist())
        one, *_ = k_hop_subgraph(batch.n_id[: batch.batch_size], 1, no_loops, num_nodes=N_NODES)
        inside = torch.isin(no_loops[1], one)
        assert int(inside.sum()) == batch.edge_index.shape[1], "all edges into nodes of the first hop"


def the_same_batches_come_from_anywhere(data: Data, graph: kith.Graph, folder: Path) -> None:
    expected = digests(loader(graph, [4, 4]))
    assert len(set(expected)) == len(expected) == len(loader(graph, [4, 4]))
    for num_workers in (1, 3, 7):
        assert digests(loader(graph, [4, 4], num_workers=num_workers)) == expected
    assert digests(loader(graph, [4, 4], seed=6)) != expected
    shards = folder / "shards"
    subprocess.run([PROGRAM, "partition", folder / "store", "--shards", "3", "--out", shards], check=True)
    assert digests(loader(kith.open(shards), [4, 4])) == expected
    command = [SAMPLER, "--graph", shards, "--shards", "0,1,2", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().rsplit(" on ", 1)[1].strip()
        served = kith.open(f"grpc://{address}")
        assert served.digest == graph.digest and np.array_equal(served.y, graph.y)
        batches = list(loader(served, [4, 4], num_workers=2))
        assert digests(batches) == expected
        assert torch.equal(batches[0].x, data.x[batches[0].n_id])
    finally:
        server.terminate()
        server.wait(20)


def epochs_differ_and_can_be_resumed(data: Data, graph: kith.Graph, folder: Path) -> None:
    straight = loader(graph, [4, 4])
    epochs = [digests(straight) for _ in range(3)]
    assert len({epoch[0] for epoch in epochs}) == 3
    left = loader(graph, [4, 4])
    digests(left)
    for n_taken, _ in enumerate(left, 1):
        if n_taken == 3:
            break
    assert digests(left) == epochs[2], "an iterator that was left: the next one has the next epoch"
    left = loader(graph, [4, 4])
    left.set_epoch(1)
    for n_taken, _ in enumerate(left, 1):
        if n_taken == 3:
            break
    again = loader(graph, [4, 4], num_workers=3)
    again.load_state_dict(left.state_dict())
    assert digests(again) == epochs[1][3:]
    assert digests(again) == epochs[2]
    assert again.replay(1, 2).digest == epochs[1][2]
    try:
        loader(graph, [4, 4], seed=6).load_state_dict(left.state_dict())
        raise AssertionError("state of another seed")
    except ValueError as error:
        assert "expected seed 6, found 5" in str(error)
    pairs = list(zip(loader(graph, [4, 4]), loader(graph, [4, 4]), strict=True))
    assert all(one.digest == other.digest for one, other in pairs)
    both = loader(graph, [4, 4])
    assert [(one.digest, other.digest) for one, other in zip(both, both, strict=True)] == list(zip(*epochs[:2], strict=True))
    saved = json.loads(json.dumps(left.state_dict()))
    again.load_state_dict(saved)
    assert digests(again) == epochs[1][3:]
    try:
        kith.NeighborLoader(graph, [4, 4], graph.nodes("train")[::-1].copy(), batch_size=32, shuffle=True, seed=5).load_state_dict(saved)
        raise AssertionError("state of other seeds")
    except ValueError as error:
        assert "expected seeds" in str(error)


def ranks_divide_the_seeds_of_every_step(data: Data, graph: kith.Graph, folder: Path) -> None:
    for world_size in (2, 3, 5):
        ranks = [list(loader(graph, [3], rank=rank, world_size=world_size)) for rank in range(world_size)]
        assert len({len(own) for own in ranks}) == 1, "as many batches on every rank"
        seen = [node for own in ranks for batch in own for node in batch.n_id[: batch.batch_size].tolist()]
        assert sorted(seen) == graph.nodes("train").tolist()
        sizes = [[batch.batch_size for batch in own] for own in ranks]
        assert all(max(step) - min(step) <= 1 for step in zip(*sizes, strict=True)), sizes
    full = list(loader(graph, [3], rank=1, world_size=2, drop_last=True))
    assert {batch.batch_size for batch in full} == {32}


def seeds_are_what_the_caller_gives(data: Data, graph: kith.Graph, folder: Path) -> None:
    nodes = torch.tensor([9, 2, 300, 41, 5])
    given = kith.NeighborLoader(graph, [2], nodes, batch_size=2)
    assert [batch.n_id[: batch.batch_size].tolist() for batch in given] == [[9, 2], [300, 41], [5]]
    assert [batch.input_id.tolist() for batch in given] == [[0, 1], [2, 3], [4]]
    mask = kith.NeighborLoader(graph, [2], data.val_mask, batch_size=1000)
    assert next(iter(mask)).n_id[: int(data.val_mask.sum())].tolist() == data.val_mask.nonzero().flatten().tolist()
    assert next(iter(mask)).input_id.tolist() == data.val_mask.nonzero().flatten().tolist(), "as in PyG: ids for masks"
    defaults = {"persistent_workers": True, "subgraph_type": "directional", "time_attr": None, "timeout": 0, "shuffle": None}
    everyone = kith.NeighborLoader(graph, [2], batch_size=np.int64(1000), **defaults)
    assert next(iter(everyone)).n_id[:N_NODES].tolist() == list(range(N_NODES))
    for given, problem in [
        ({"input_nodes": [0.5]}, "expected whole numbers"),
        ({"input_nodes": [[1, 2]]}, "expected one dimension"),
        ({"input_nodes": [True, False]}, "expected a mask of 600 nodes, found 2"),
        ({"split": "val"}, "expected train, valid or test"),
        ({"world_size": 2}, "expected both or none"),
        ({"batch_size": 0}, "expected a whole number from 1, found 0"),
        ({"batch_size": "64"}, "expected a whole number from 1, found '64'"),
        ({"input_nodes": [1, N_NODES]}, "expected seed nodes from 0 to 599, found 600"),
        ({"input_nodes": [-1]}, "expected seed nodes from 0 to 599, found -1"),
        ({"num_neighbors": [0]}, "num_neighbors: expected numbers from 1, or -1 for all neighbors, found [0]"),
        ({"rank": 2, "world_size": 2}, "rank: expected a number below world_size = 2, found 2"),
        ({"weight_attr": "edge_weight"}, "the graph has no edge weights"),
        ({"generator": torch.Generator()}, "generator: an argument that kith.NeighborLoader does not have: give a seed"),
        ({"disjoint": True}, "disjoint: expected False, found True"),
        ({"time_attr": "time"}, "time_attr: an argument that kith.NeighborLoader does not have"),
    ]:
        try:
            kith.NeighborLoader(graph, **({"num_neighbors": [2]} | given))
            raise AssertionError(f"{given}: accepted")
        except (TypeError, ValueError) as error:
            assert problem in str(error), error
    for place, problem in [(folder / "nothing", "found none"), ("127.0.0.1:7000", "for servers, write grpc://127.0.0.1:7000")]:
        try:
            kith.open(place)
            raise AssertionError(f"{place}: opened")
        except kith.KithError as error:
            assert problem in str(error), error
    for options, problem in [
        ({"input_nodes": [1, 1]}, "node 1 is a seed twice"),
        ({"input_nodes": [1, 1], "shuffle": True}, "node 1 is a seed twice"),
    ]:
        try:
            list(kith.NeighborLoader(graph, **({"num_neighbors": [2], "batch_size": 2} | options)))
            raise AssertionError(f"{options}: accepted")
        except kith.KithError as error:
            assert problem in str(error), error


def weights_come_with_their_edges(data: Data, graph: kith.Graph, folder: Path) -> None:
    random = np.random.default_rng(2)
    ends = np.unique(random.integers(0, 50, (2, 600)), axis=1)
    ends = ends[:, ends[0] != ends[1]]
    weights = random.random(ends.shape[1], dtype=np.float32) * (random.random(ends.shape[1]) < 0.5)
    weighted = kith.from_edges(ends, out=folder / "weighted", edge_weight=weights, x=np.ones((50, 2)))
    of_edge = {tuple(edge): weight for edge, weight in zip(ends.T.tolist(), weights.tolist(), strict=True)}
    n_zero = 0
    for attribute in (None, "edge_weight"):
        for batch in kith.NeighborLoader(weighted, [3, 3], np.arange(50), batch_size=10, weight_attr=attribute):
            ids = batch.n_id[batch.edge_index].t().tolist()
            found = batch.edge_weight.tolist()
            assert found == [of_edge[tuple(edge)] for edge in ids]
            n_zero += sum(weight == 0 for weight in found) if attribute is None else 0
            assert attribute is None or min(found) > 0, "weight 0 is never drawn"
    assert n_zero > 0
    lonely = kith.from_edges(np.array([[0], [1]]), out=folder / "lonely", edge_weight=[2.0], num_nodes=4)
    batch = next(iter(kith.NeighborLoader(lonely, [2], [2, 3], batch_size=2)))
    assert batch.edge_weight.shape == (0,) and batch.edge_index.shape == (2, 0)


def models_learn(data: Data, graph: kith.Graph, folder: Path) -> None:
    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([SAGEConv(DIM, 16), SAGEConv(16, N_CLASSES)])

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.layers[1](self.layers[0](x, edge_index).relu(), edge_index)

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train = loader(graph, [10, 10])
    for _ in range(25):
        for batch in train:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        out = model(data.x, data.edge_index).argmax(-1)
    accuracy = float((out == data.y)[data.test_mask].float().mean())
    assert accuracy > 0.5, accuracy


def nothing_is_kept_after_a_batch(data: Data, graph: kith.Graph, folder: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    batches = loader(graph, [10, 10], num_workers=2)
    for _ in range(30):
        digests(batches)
    before = resident()
    for _ in range(200):
        digests(batches)
    assert resident() - before < 30 << 20, resident() - before


def main() -> None:
    tests = [
        a_store_is_the_graph_it_was_made_from,
        batches_are_samples_of_the_graph,
        full_neighborhoods_are_those_of_pyg,
        the_same_batches_come_from_anywhere,
        epochs_differ_and_can_be_resumed,
        ranks_divide_the_seeds_of_every_step,
        seeds_are_what_the_caller_gives,
        weights_come_with_their_edges,
        models_learn,
        nothing_is_kept_after_a_batch,
    ]
    with tempfile.TemporaryDirectory() as folder:
        data, graph = made(Path(folder))
        for test in tests:
            test(data, graph, Path(folder))
            print(f"ok {test.__name__}")
        del graph


if __name__ == "__main__":
    main()
