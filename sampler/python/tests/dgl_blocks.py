"""Blocks as DGL's, in an environment without PyG, run by tests/python.rs: python dgl_blocks.py KITH KITH_SAMPLER."""

import tempfile
from pathlib import Path

import dgl
import kith
import numpy as np
import torch
from dgl.nn import SAGEConv

N_NODES = 300


def made(folder: Path) -> tuple[dgl.DGLGraph, kith.Graph]:
    random = np.random.default_rng(0)
    y = random.integers(0, 3, N_NODES)
    ends = random.integers(0, N_NODES, (2, 6000))
    ends = ends[:, (y[ends[0]] == y[ends[1]]) & (ends[0] != ends[1])]
    graph = dgl.graph((torch.tensor(ends[0]), torch.tensor(ends[1])), num_nodes=N_NODES)
    graph.ndata["feat"] = torch.tensor(np.eye(6)[y] + 0.5 * random.normal(size=(N_NODES, 6)), dtype=torch.float32)
    graph.ndata["label"] = torch.tensor(y)
    graph.ndata["train_mask"] = torch.tensor(random.random(N_NODES) < 0.5)
    graph.edata["w"] = torch.tensor(random.random(ends.shape[1]), dtype=torch.float32)
    return graph, kith.from_dgl(graph, out=folder / "store")


def a_store_is_the_dgl_graph(graph: dgl.DGLGraph, store: kith.Graph) -> None:
    assert (store.num_nodes, store.num_edges) == (graph.num_nodes(), graph.num_edges())
    assert np.array_equal(store.y, graph.ndata["label"].numpy()) and store.has_edge_weights
    assert np.array_equal(store.features(range(N_NODES)), graph.ndata["feat"].numpy())
    assert np.array_equal(store.nodes("train"), graph.ndata["train_mask"].nonzero().flatten().numpy())


def blocks_are_dgls(graph: dgl.DGLGraph, store: kith.Graph) -> None:
    edges = zip(*(ends.tolist() for ends in graph.edges()), strict=True)
    weights = dict(zip(edges, graph.edata["w"].tolist(), strict=True))
    for batch in kith.BlockLoader(store, [4, 3], split="train", batch_size=20):
        input_nodes, output_nodes, blocks = batch.to_dgl()
        assert torch.equal(blocks[0].srcdata["feat"], graph.ndata["feat"][input_nodes])
        assert torch.equal(blocks[-1].dstdata["label"], graph.ndata["label"][output_nodes])
        for block, fanout in zip(blocks, [3, 4], strict=True):
            sources, destinations = block.edges()
            ids = list(zip(input_nodes[sources].tolist(), input_nodes[destinations].tolist(), strict=True))
            multiple = {edge for edge in ids if graph.edge_ids(*edge, return_uv=True)[2].numel() > 1}
            found = block.edata["w"].tolist()
            assert all(weights[edge] == weight for edge, weight in zip(ids, found, strict=True) if edge not in multiple)
            expected = graph.in_degrees(input_nodes[: block.num_dst_nodes()]).clamp(max=fanout)
            assert torch.equal(block.in_degrees(), expected.to(block.in_degrees().dtype))


def models_of_dgl_learn(graph: dgl.DGLGraph, store: kith.Graph) -> None:
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([SAGEConv(6, 16, "mean"), SAGEConv(16, 3, "mean")])
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.02)
    loader = kith.BlockLoader(store, [10, 10], split="train", batch_size=32)
    for _ in range(15):
        for batch in loader:
            _, _, blocks = batch.to_dgl()
            hidden = layers[0](blocks[0], blocks[0].srcdata["feat"]).relu()
            loss = torch.nn.functional.cross_entropy(layers[1](blocks[1], hidden), blocks[1].dstdata["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        out = layers[1](graph, layers[0](graph, graph.ndata["feat"]).relu()).argmax(-1)
    accuracy = float((out == graph.ndata["label"])[~graph.ndata["train_mask"]].float().mean())
    assert accuracy > 0.85, accuracy


def main() -> None:
    try:
        _ = kith.NeighborLoader
        raise AssertionError("PyG is here")
    except ModuleNotFoundError as error:
        assert "pip install torch_geometric" in str(error), error
    with tempfile.TemporaryDirectory() as folder:
        graph, store = made(Path(folder))
        for test in (a_store_is_the_dgl_graph, blocks_are_dgls, models_of_dgl_learn):
            test(graph, store)
            print(f"ok {test.__name__}")


if __name__ == "__main__":
    main()
