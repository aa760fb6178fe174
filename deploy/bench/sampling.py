"""Sampling of Kith beside DGL's, on the same store, with the same fanouts and one thread, in interleaved rounds. Run by
deploy/bench.sh with DGL's Python (deploy/dgl.sh).

    sampling.py --kith target/release/kith --sampling SAMPLING_BENCH --work DIR [--stores DIR DIR] [--rounds N]

Both sample without replacement, expand all nodes so far at each hop, and relabel into blocks; Kith's blocks also
hold the transpose for backward, and a digest. Sampled edges are counted, without the self-loops that Kith adds.
DGL uses int64 ids: with int32 ids this version returns broken blocks on several threads.
"""
import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DGLBACKEND", "pytorch")

import dgl
import numpy as np
import torch

from stores import column, make_store

# Number of features.
DIMS = {"arxiv-like": 128, "products-like": 100}
FANOUTS = ["10,10", "15,10,5", "25,10"]
SEEDS = 1024


class Dgl:
    def __init__(self, store):
        indptr = torch.from_numpy(column(store, "indptr", "<u8").astype(np.int64))
        indices = torch.from_numpy(column(store, "indices", "<u4").astype(np.int64))
        n = len(indptr) - 1
        self.graph = dgl.graph(("csc", (indptr, indices, torch.empty(0, dtype=torch.int64))), **{"num_nodes": n})
        self.graph = self.graph.formats("csc")
        self.rows = torch.from_numpy(column(store, "features", "<f4").reshape(n, -1))
        split = np.fromfile(next(Path(store).glob("split.*.u8")), "u1")
        order = np.random.default_rng(1).permutation(np.flatnonzero(split == 1))
        self.batches = [torch.from_numpy(order[k:k + SEEDS]) for k in range(0, len(order) - SEEDS, SEEDS)]
        self.next = 0

    def rate(self, fanouts, n_batches, has_rows):
        """Million sampled edges per second."""
        sampler = dgl.dataloading.NeighborSampler([int(k) for k in fanouts.split(",")][::-1])
        n_edges, started = 0, time.perf_counter()
        for _ in range(n_batches):
            seeds = self.batches[self.next % len(self.batches)]
            self.next += 1
            nodes, _, blocks = sampler.sample_blocks(self.graph, seeds)
            n_edges += sum(block.number_of_edges() for block in blocks)
            if has_rows:
                torch.index_select(self.rows, 0, nodes)
        return n_edges / (time.perf_counter() - started) / 1e6


def kith_rates(args, store, fanouts, n_batches):
    command = [args.sampling, store, fanouts, n_batches, SEEDS, "batches,rows,blocks,two,named,generator"]
    ran = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    return json.loads(ran.stdout)["million_edges_per_s"]


def compare(args, name, store):
    """One line per fanouts: medians, and the median of the ratios of each round."""
    peer = Dgl(store)
    ratios = []
    for fanouts in FANOUTS:
        n_batches = args.batches if fanouts.count(",") == 1 else max(args.batches // 3, 2)
        for has_rows in (False, True):
            peer.rate(fanouts, 2, has_rows)
        theirs, ours = [], []
        for _ in range(args.rounds):
            ours.append(kith_rates(args, store, fanouts, n_batches))
            theirs.append([peer.rate(fanouts, n_batches, has_rows) for has_rows in (False, True)])
        middle = lambda values: round(statistics.median(values), 2)
        record = dict(
            graph=name, fanouts=fanouts,
            ratio=middle(kith["batches"] / dgl_[0] for kith, dgl_ in zip(ours, theirs)),
            ratio_rows=middle(kith["rows"] / dgl_[1] for kith, dgl_ in zip(ours, theirs)),
            ratio_blocks=middle(kith["blocks"] / dgl_[0] for kith, dgl_ in zip(ours, theirs)),
            two_threads=middle(kith["two"] / kith["blocks"] for kith in ours),
            cost_of_names=middle(kith["generator"] / kith["named"] for kith in ours),
            kith=middle(kith["batches"] for kith in ours), dgl=middle(dgl_[0] for dgl_ in theirs),
            kith_rows=middle(kith["rows"] for kith in ours), dgl_rows=middle(dgl_[1] for dgl_ in theirs))
        ratios.append(record)
        print(json.dumps(record), flush=True)
    return ratios


def main():
    parser = argparse.ArgumentParser()
    for name in ("--kith", "--sampling", "--work"):
        parser.add_argument(name)
    parser.add_argument("--stores", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dgl.utils.set_num_threads(1)
    stores = dict(zip(DIMS, args.stores))
    records = []
    for name in DIMS:
        store = stores.get(name) or make_store(args.kith, args.work, name, DIMS[name])
        records += compare(args, name, Path(store))
    mean = lambda key: round(statistics.mean(record[key] for record in records), 2)
    print(json.dumps(dict(mean_ratio=mean("ratio"), least_ratio=min(record["ratio"] for record in records),
                          mean_ratio_rows=mean("ratio_rows"), least_ratio_rows=min(r["ratio_rows"] for r in records),
                          two_threads=mean("two_threads"), cost_of_names=mean("cost_of_names"))))


if __name__ == "__main__":
    main()
