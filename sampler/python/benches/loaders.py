"""Mini-batches per second of whole loaders, in turns: python loaders.py STORE LOADER=PYTHON... [--fanouts 15,10] [--no-features].

LOADER is kith (every node is expanded once), kith-blocks (every node so far at each hop), pyg, or dgl; PYTHON can import it, and kith.
PyG's needs pyg-lib, which is not on PyPI. Seed nodes are shuffled nodes of the store. Prints one line per run, then medians.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np


def seeds_of(n_nodes: int, n: int) -> np.ndarray:
    return np.random.default_rng(1).permutation(n_nodes)[:n]


def kith_loader(options: argparse.Namespace, graph: Any, seeds: np.ndarray) -> tuple[Iterable[Any], Callable[[Any], tuple[int, int]]]:
    import kith

    if options.one == "kith":
        loader = kith.NeighborLoader(
            graph, options.fanouts, seeds, batch_size=options.batch_size, shuffle=True, drop_last=True, num_workers=options.workers
        )
    else:
        loader = kith.BlockLoader(graph, options.fanouts, seeds, batch_size=options.batch_size, drop_last=True, num_workers=options.workers)
    loader._sampling = replace(loader._sampling, with_x=not options.no_features)

    def count(batch: Any) -> tuple[int, int]:
        if options.one == "kith":
            return batch.edge_index.shape[1], len(batch.n_id)
        return sum(block.edge_index.shape[1] for block in batch.blocks), len(batch.n_id)

    return loader, count


def pyg_loader(options: argparse.Namespace, graph: Any, seeds: np.ndarray) -> tuple[Iterable[Any], Callable[[Any], tuple[int, int]]]:
    import torch
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    data = Data(edge_index=torch.from_numpy(graph.edge_index), num_nodes=graph.num_nodes)
    if not options.no_features:
        data.x = torch.from_numpy(graph.features(np.arange(graph.num_nodes)))
        data.y = torch.from_numpy(graph.y.copy())
    loader = NeighborLoader(
        data,
        options.fanouts,
        torch.from_numpy(seeds),
        batch_size=options.batch_size,
        shuffle=True,
        drop_last=True,
        is_sorted=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    return loader, lambda batch: (batch.edge_index.shape[1], batch.num_nodes)


def dgl_loader(options: argparse.Namespace, graph: Any, seeds: np.ndarray) -> tuple[Iterable[Any], Callable[[Any], tuple[int, int]]]:
    import dgl
    import torch

    sources, destinations = torch.from_numpy(graph.edge_index)
    indptr = torch.zeros(graph.num_nodes + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(destinations, minlength=graph.num_nodes), 0, out=indptr[1:])
    stored = dgl.graph(("csc", (indptr, sources.contiguous(), torch.empty(0, dtype=torch.int64))), num_nodes=graph.num_nodes)
    stored = stored.formats("csc")
    prefetch = {}
    if not options.no_features:
        stored.ndata["feat"] = torch.from_numpy(graph.features(np.arange(graph.num_nodes)))
        stored.ndata["label"] = torch.from_numpy(graph.y.copy())
        prefetch = {"prefetch_node_feats": ["feat"], "prefetch_labels": ["label"]}
    sampler = dgl.dataloading.NeighborSampler(options.fanouts[::-1], **prefetch)
    loader = dgl.dataloading.DataLoader(
        stored,
        torch.from_numpy(seeds),
        sampler,
        batch_size=options.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )

    def count(batch: Any) -> tuple[int, int]:
        nodes, _, blocks = batch
        if not options.no_features:
            assert len(blocks[0].srcdata["feat"]) == len(nodes)
        return sum(block.num_edges() for block in blocks), len(nodes)

    return loader, count


def measure(options: argparse.Namespace) -> dict[str, Any]:
    import kith

    warnings.filterwarnings("ignore")
    graph = kith.open(options.store)
    seeds = seeds_of(graph.num_nodes, options.seeds)
    make = {"pyg": pyg_loader, "dgl": dgl_loader}.get(options.one, kith_loader)
    loader, count = make(options, graph, seeds)

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    stream = batches()
    for _ in range(10):
        count(next(stream))
    n_edges = n_nodes = 0
    started = time.perf_counter()
    for _ in range(options.batches):
        edges, nodes = count(next(stream))
        n_edges, n_nodes = n_edges + edges, n_nodes + nodes
    seconds = time.perf_counter() - started
    found = {"batches/s": options.batches / seconds, "million edges/s": n_edges / seconds / 1e6}
    found |= {"edges": n_edges / options.batches, "nodes": n_nodes / options.batches}
    return {"loader": options.one, "workers": options.workers, **{name: round(value, 2) for name, value in found.items()}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("loaders", nargs="*")
    parser.add_argument("--fanouts", type=lambda text: [int(part) for part in text.split(",")], default=[15, 10])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-features", action="store_true")
    parser.add_argument("--one", help="measures this loader in this process")
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options)))
        return
    rates: dict[tuple[str, int], list[float]] = {}
    own = [word for word in sys.argv[1:] if word not in options.loaders]
    for _ in range(options.rounds):
        for loader in options.loaders:
            name, python = loader.split("=", 1)
            # Peers have worker processes: the better of none and two counts.
            for workers in [options.workers] if name.startswith("kith") else [0, options.workers]:
                command = [python, __file__, *own, "--one", name, "--workers", str(workers)]
                found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
                rates.setdefault((name, workers), []).append(found["batches/s"])
                print(json.dumps(found), flush=True)
    for (name, workers), found in rates.items():
        print(f"{name:12} {workers} workers: {statistics.median(found):8.2f} batches/s (median of {found})")


if __name__ == "__main__":
    main()
