"""A mini-batch training step, beside PyG's layers on a batch of the same kind, with the same number of threads, in
interleaved rounds. Run by deploy/bench.sh with PyG's Python (deploy/pyg.sh).

    batches.py --kith target/release/kith --work DIR [--store STORE] [--models mx gat]

PyG's own loader needs pyg-lib, which is not on PyPI. Therefore its mini-batches are sampled here as the loader would
(all nodes and edges of both hops as one graph), and only its training step is timed: selection of features, forward,
loss, backward, Adam. Kith's time is that of whole steps of `kith train`, including sampling.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from step import Net
from stores import column

N_NODES, N_EDGES, DIM, N_CLASSES = 169343, 1157799, 128, 40
HEADS, FEATURES, OUT_HEADS, DROPOUT = 8, 16, 1, 0.2
FANOUTS, SEEDS = [10, 10], 1024

RUN_FILE = """[model]
kind = "{kind}"
{form}heads = 8
features = 16
out_heads = 1
dropout = 0.2
[optimizer]
learning_rate = 0.005
weight_decay = 0.0005

[train]
epochs = 1
mode = "mini-batch"
fanouts = [10, 10]
batch_size = 1024
edge_seeds = 0
"""


def draw_batch(indptr, indices, seeds, rng):
    """All nodes and edges of the hops around some seed nodes, as one graph; seed nodes first."""
    position = {int(node): place for place, node in enumerate(seeds)}
    frontier, sources, destinations = list(position), [], []
    for fanout in FANOUTS:
        found = []
        for node in frontier:
            neighbors = indices[indptr[node]:indptr[node + 1]]
            if len(neighbors) > fanout:
                neighbors = rng.choice(neighbors, fanout, replace=False)
            for neighbor in neighbors.tolist():
                if neighbor not in position:
                    position[neighbor] = len(position)
                    found.append(neighbor)
                sources.append(position[neighbor])
                destinations.append(position[node])
        frontier = found
    return torch.tensor(list(position)), torch.tensor([sources, destinations])


def pyg_stepper(store, model):
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    indptr, indices = column(store, "indptr", "<u8").astype(np.int64), column(store, "indices", "<u4").astype(np.int64)
    rows = torch.from_numpy(column(store, "features", "<f4").reshape(-1, DIM))
    labels = torch.from_numpy(column(store, "labels", "<u4").astype(np.int64))
    split = np.fromfile(next(Path(store).glob("split.*.u8")), "u1")
    seeds = rng.permutation(np.flatnonzero(split == 1))
    batches = [draw_batch(indptr, indices, seeds[k * SEEDS:(k + 1) * SEEDS], rng) for k in range(3)]
    net = Net(model, DIM, N_CLASSES, HEADS, FEATURES, OUT_HEADS, DROPOUT)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4)

    def step(number):
        nodes, edges = batches[number % len(batches)]
        started = time.perf_counter()
        optimizer.zero_grad()
        out, edge_loss = net(rows[nodes], edges)
        (F.cross_entropy(out[:SEEDS], labels[nodes[:SEEDS]]) + edge_loss).backward()
        optimizer.step()
        return (time.perf_counter() - started) * 1e3

    return step


def kith_steps(args, store, model):
    run, out = args.work / "batches.toml", args.work / "batches-run"
    kind, form = ("gat", "") if model == "gat" else ("supergat", f'form = "{model}"\n')
    run.write_text(RUN_FILE.format(kind=kind, form=form) + ("" if model == "gat" else "[edge_loss]\nweight = 4.0\n"))
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([args.kith, "train", run, "--store", store, "--out", out], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, env=dict(os.environ, RAYON_NUM_THREADS=str(args.threads)))
    lines = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    # The first steps fill the queue; the last one also evaluates.
    return statistics.median(line["micros"] / 1e3 for line in lines[5:-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kith")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--models", nargs="*", default=["mx", "gat"])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    store = args.store or args.work / "store-batches"
    if not store.exists():
        subprocess.run([args.kith, "data", "generate", "power-law", "--nodes", str(N_NODES), "--edges", str(N_EDGES),
                        "--dim", str(DIM), "--classes", str(N_CLASSES), "--out", store],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for model in args.models:
        step = pyg_stepper(store, model)
        step(0)
        theirs, ours = [], []
        for _ in range(args.rounds):
            theirs.append(statistics.median(step(number) for number in range(3)))
            ours.append(kith_steps(args, store, model))
        ratios = [a / b for a, b in zip(theirs, ours)]
        print(json.dumps(dict(model=model, pyg_ms=round(statistics.median(theirs), 1),
                              kith_ms=round(statistics.median(ours), 1), ratio=round(statistics.median(ratios), 1),
                              ratios=[round(ratio, 1) for ratio in ratios])), flush=True)


if __name__ == "__main__":
    main()
