"""One full-batch training step of Kith beside PyG's, on the same graph, with the same number of threads, in interleaved
rounds. Run by deploy/bench.sh with PyG's Python (deploy/pyg.sh).

    step.py --kith target/release/kith --step STEP_BENCH --work DIR [--sizes cora pubmed arxiv] [--models mx gat]

A step is forward, loss, backward and Adam. Graphs have the sizes of real ones: random with heavy tails, generated here,
imported by Kith, and read back from the store for PyG, so that both have the same edges and features.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, SuperGATConv

from stores import column

# nodes, directed edges, features, share of nonzero features, classes, heads, features per head, heads of the last
# layer, dropout, steps per round of PyG and of Kith
SIZES = {
    "cora": (2708, 10556, 1433, 0.0127, 7, 8, 8, 8, 0.6, 8, 60),
    "pubmed": (19717, 88648, 500, 0.1, 3, 8, 8, 8, 0.6, 4, 16),
    "arxiv": (169343, 2315598, 128, 1.0, 40, 8, 16, 1, 0.2, 1, 4),
}


def make_store(kith, work, size):
    n, n_edges, dim, density, n_classes = SIZES[size][:5]
    rng = np.random.default_rng(1)
    popularity = rng.pareto(1.8, n) + 1
    wanted = n_edges // 2
    ends = rng.choice(n, size=(2, int(wanted * 1.3)), p=popularity / popularity.sum())
    ends = np.sort(ends[:, ends[0] != ends[1]], axis=0)
    ends = np.unique(ends, axis=1)
    ends = ends[:, rng.permutation(ends.shape[1])[:wanted]]
    rows = rng.standard_normal((n, dim), dtype=np.float32) if density == 1 else (
        rng.random((n, dim), dtype=np.float32) < density).astype(np.float32)
    np.save(work / "edges.npy", ends.T.astype(np.int64))
    np.save(work / "rows.npy", rows)
    np.save(work / "labels.npy", rng.integers(0, n_classes, n))
    store = work / f"store-{size}"
    subprocess.run([kith, "data", "import", "--edges", work / "edges.npy", "--features", work / "rows.npy", "--labels",
                    work / "labels.npy", "--split", "0.6/0.2/0.2", "--symmetrize", "--out", store],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return store, rows


class Net(torch.nn.Module):
    def __init__(self, model, dim, n_classes, heads, features, out_heads, dropout):
        super().__init__()
        self.dropout = dropout
        self.is_taught = model != "gat"
        conv, options = GATConv, dict(dropout=dropout)
        if self.is_taught:
            conv = SuperGATConv
            options.update(attention_type=model.upper(), edge_sample_ratio=0.8, neg_sample_ratio=0.5,
                           is_undirected=True)
        self.first = conv(dim, features, heads=heads, concat=True, **options)
        self.last = conv(heads * features, n_classes, heads=out_heads, concat=False, **options)

    def forward(self, x, edge_index):
        x = F.dropout(x, self.dropout, self.training)
        x = F.elu(self.first(x, edge_index))
        x = F.dropout(x, self.dropout, self.training)
        x = self.last(x, edge_index)
        loss = self.first.get_attention_loss() + self.last.get_attention_loss() if self.is_taught else 0.0
        return x, loss


def pyg_stepper(store, rows, size, model):
    n, _, dim, _, n_classes, heads, features, out_heads, dropout, *_ = SIZES[size]
    torch.manual_seed(0)
    indptr = column(store, "indptr", "<u8").astype(np.int64)
    sources = column(store, "indices", "<u4").astype(np.int64)
    destinations = np.repeat(np.arange(n), np.diff(indptr))
    edge_index = torch.from_numpy(np.stack([sources, destinations]))
    x = torch.from_numpy(rows)
    labels = torch.from_numpy(column(store, "labels", "<u4").astype(np.int64))
    split = np.fromfile(next(Path(store).glob("split.*.u8")), "u1")
    train = torch.from_numpy(np.flatnonzero(split == 1))
    net = Net(model, dim, n_classes, heads, features, out_heads, dropout)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4)

    def step():
        started = time.perf_counter()
        optimizer.zero_grad()
        out, edge_loss = net(x, edge_index)
        (F.cross_entropy(out[train], labels[train]) + edge_loss).backward()
        optimizer.step()
        return (time.perf_counter() - started) * 1e3

    return step


def peak_mib():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024


def compare(args, size, model):
    """Runs in its own process, so that the memory peak is of one configuration."""
    store, rows = Path(args.store), np.load(Path(args.work) / "rows.npy")
    *_, heads, features, out_heads, dropout, n_pyg, n_kith = SIZES[size]
    step = pyg_stepper(store, rows, size, model)
    step()
    kind = "gat" if model == "gat" else f"supergat-{model}"
    command = [args.step, store, kind, heads, features, out_heads, dropout, n_kith + 2]
    theirs, ours, peak = [], [], 0
    for _ in range(args.rounds):
        theirs.append(statistics.median(step() for _ in range(n_pyg)))
        found = json.loads(subprocess.run([str(part) for part in command], check=True, capture_output=True,
                                          text=True).stdout)
        ours.append(found["step_ms"])
        peak = max(peak, found["peak_mib"])
    ratios = [a / b for a, b in zip(theirs, ours)]
    print(json.dumps(dict(size=size, model=model, pyg_ms=round(statistics.median(theirs), 2),
                          kith_ms=round(statistics.median(ours), 2), ratio=round(statistics.median(ratios), 1),
                          ratios=[round(ratio, 1) for ratio in ratios], pyg_peak_mib=peak_mib(), kith_peak_mib=peak,
                          last=found)), flush=True)


def main():
    parser = argparse.ArgumentParser()
    for name in ("--kith", "--step", "--work", "--store"):
        parser.add_argument(name)
    parser.add_argument("--sizes", nargs="*", default=list(SIZES))
    parser.add_argument("--models", nargs="*", default=["mx", "gat"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one", nargs=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    if args.one:
        return compare(args, *args.one)
    work = Path(args.work)
    for size in args.sizes:
        store, _ = make_store(args.kith, work, size)
        for model in args.models:
            subprocess.run([sys.executable, __file__, "--step", args.step, "--work", work, "--store", store,
                            "--rounds", str(args.rounds), "--threads", str(args.threads), "--one", size, model],
                           check=True)


if __name__ == "__main__":
    main()
