"""Mini-batches with features on disk: Kith's store, which is mapped, beside GraphBolt's TorchBasedFeature of a mapped
array, in interleaved rounds with limited memory. Run by deploy/bench.sh with DGL's Python (deploy/dgl.sh).

    disk.py --kith target/release/kith --loader LOADER_BENCH --work DIR [--store DIR] [--rounds N] [--limits GIB..]

The graph has the size of ogbn-products: 2.4 M nodes, 123 M directed edges, 100 features (f32, 980 MB). Mini-batches
have 1,024 training nodes and fanouts [15, 10, 5]. Both expand all nodes so far at each hop, sample without replacement,
relabel, and return features and labels. Kith has two threads. GraphBolt has its graph in memory with ids of 32 bits,
and two threads, without worker processes and with two that sample; the better median counts. DGL 2.1.0, the newest on PyPI
for Linux, has no DiskBasedFeature (io_uring).

Each turn is a new process in a memory cgroup of its own (cgroup v1 or v2; needs root). Pages of files count towards the
limit, and those of the store are dropped before each turn. Limit 0: no cgroup, and all of the store is read beforehand.
Mini-batches are timed after the first ones. Prints a line per limit: medians of seed nodes per second, the median ratio
of the rounds, and the largest peak of memory in MiB, without pages of files (of all processes together).
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

SEEDS = 1024
FANOUTS = [15, 10, 5]
LOADERS = ["kith", "graphbolt, 0 workers", "graphbolt, 2 workers"]


def graphbolt(store, n_workers, n_first, n_batches):
    """Prints the speed of GraphBolt's loader."""
    import dgl.graphbolt as gb
    import torch
    from stores import column

    torch.set_num_threads(2)
    indptr = torch.from_numpy(column(store, "indptr", "<u8").view(np.int64))
    indices = torch.from_numpy(column(store, "indices", "<u4").view(np.int32))
    graph = gb.fused_csc_sampling_graph(indptr, indices)
    path = next(path for path in Path(store).glob("features.*") if path.suffix != ".json")
    rows = np.memmap(path, "<f4", "r+").reshape(len(indptr) - 1, -1)
    features = gb.BasicFeatureStore({("node", None, "feat"): gb.TorchBasedFeature(torch.from_numpy(rows))})
    split = np.fromfile(next(Path(store).glob("split.*.u8")), "u1")
    train = torch.from_numpy(np.flatnonzero(split == 1).astype(np.int32))
    labels = torch.from_numpy(column(store, "labels", "<u4").astype(np.int64))
    items = gb.ItemSet((train, labels[train]), names=("seed_nodes", "labels"))
    stream = gb.ItemSampler(items, batch_size=SEEDS, shuffle=True, drop_last=True)
    stream = stream.sample_neighbor(graph, FANOUTS[::-1]).fetch_feature(features, node_feature_keys=["feat"])
    loader = iter(gb.DataLoader(stream, num_workers=n_workers))
    n_nodes = n_edges = 0
    for number in range(n_first + n_batches):
        if number == n_first:
            n_nodes, n_edges, started = 0, 0, time.perf_counter()
        batch = next(loader)
        assert len(batch.node_features["feat"]) == len(batch.input_nodes) and len(batch.labels) == SEEDS
        n_nodes += len(batch.input_nodes)
        n_edges += sum(len(hop.sampled_csc.indices) for hop in batch.sampled_subgraphs)
    n_seeds = n_batches * SEEDS
    print(json.dumps(dict(seeds_per_s=round(n_seeds / (time.perf_counter() - started)),
                          edges_per_seed=round(n_edges / n_seeds, 1), nodes_per_seed=round(n_nodes / n_seeds, 1))),
          flush=True)
    os._exit(0)  # Without waiting for mini-batches that are being made.


class Group:
    """A memory cgroup of its own for the processes of a turn; `None` as the limit makes none."""

    def __init__(self, limit):
        self.path = None
        if not limit:
            return
        own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        v1 = [path for _, controllers, path in own if "memory" in controllers.split(",")]
        # Version 2 forbids groups below one with processes.
        parent = Path("/sys/fs/cgroup/memory" + v1[0]) if v1 else Path("/sys/fs/cgroup")
        self.path = parent / f"kith-bench-{os.getpid()}"
        self.path.mkdir()
        (self.path / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(limit))
        if not v1:
            (self.path / "memory.swap.max").write_text("0")

    def enter(self):
        """Called in a new process."""
        if self.path:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        for _ in range(50 if self.path else 0):
            try:
                return self.path.rmdir()
            except OSError:  # Its processes have just ended.
                time.sleep(0.1)


def family(pid):
    """A process and its descendants."""
    children = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        children += task.read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def own_memory(pid):
    """MiB of a process and its descendants: shared pages count once, pages of files do not count."""
    total = 0
    try:
        for each in family(pid):
            for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    total += int(line.split()[1])
    except (OSError, ValueError):  # It has just ended.
        pass
    return total / 1024


def read_all(store):
    for path in Path(store).rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                while file.read(16 << 20):
                    pass


def forget(store):
    """Drops the pages of a store from the page cache."""
    for path in Path(store).rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def turn(args, store, loader, limit):
    """One process: its speed, and its peak of memory."""
    read_all(store) if limit is None else forget(store)
    fanouts = ",".join(map(str, FANOUTS))
    if loader == "kith":
        command = [args.loader, 2, store]
        lines = f"{fanouts} {args.first} features\n{fanouts} {args.batches} features\n"
    else:
        n_workers = loader.split()[1]
        command, lines = [sys.executable, __file__, "--graphbolt", store, n_workers, args.first, args.batches], ""
    group, peak = Group(limit), 0.0
    process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, preexec_fn=group.enter, start_new_session=True,
                               env=os.environ | dict(OMP_NUM_THREADS="2", DGLBACKEND="pytorch"))
    process.stdin.write(lines)
    process.stdin.close()
    output = []
    reader = threading.Thread(target=lambda: output.extend(process.stdout))
    reader.start()
    deadline = time.monotonic() + args.patience
    while reader.is_alive() and time.monotonic() < deadline:
        peak = max(peak, own_memory(process.pid))
        reader.join(0.2)
    if reader.is_alive():
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    reader.join()
    group.remove()
    answers = [line for line in output if line.startswith("{")]
    if code or not answers:
        return dict(seeds_per_s=0, peak_mib=round(peak), failed=f"exit code {code}")  # Out of memory, or of patience.
    return json.loads(answers[-1]) | dict(peak_mib=round(peak))


def compare(args, store, limit):
    rounds = {loader: [] for loader in LOADERS}
    for _ in range(args.rounds):
        for loader in LOADERS:
            rounds[loader].append(turn(args, store, loader, limit))
            print(json.dumps(dict(loader=loader) | rounds[loader][-1]), file=sys.stderr, flush=True)
    rates = {loader: [each["seeds_per_s"] for each in turns] for loader, turns in rounds.items()}
    best = max(LOADERS[1:], key=lambda loader: statistics.median(rates[loader]))
    peak = lambda loader: max(each["peak_mib"] for each in rounds[loader])
    ratios = [round(one / other, 2) for one, other in zip(rates["kith"], rates[best]) if other]
    print(json.dumps(dict(
        limit_gib=limit and limit / 2**30, ratio=ratios and round(statistics.median(ratios), 2), rounds=ratios,
        kith=statistics.median(rates["kith"]), graphbolt=statistics.median(rates[best]), form=best,
        kith_peak_mib=peak("kith"), graphbolt_peak_mib=peak(best),
        forms={loader: statistics.median(rates[loader]) for loader in LOADERS[1:]},
        nodes_per_seed=[rounds[loader][-1].get("nodes_per_seed") for loader in ("kith", best)],
        edges_per_seed=[rounds[loader][-1].get("edges_per_seed") for loader in ("kith", best)])), flush=True)


def main():
    parser = argparse.ArgumentParser()
    for name in ("--kith", "--loader", "--work", "--store"):
        parser.add_argument(name)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first", type=int, default=5, help="mini-batches that are not timed")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--patience", type=float, default=300, help="seconds that a process may take")
    parser.add_argument("--limits", type=float, nargs="*", default=[2, 0], help="GiB; 0: no limit")
    parser.add_argument("--graphbolt", nargs=4)
    args = parser.parse_args()
    if args.graphbolt:
        store, *numbers = args.graphbolt
        return graphbolt(store, *map(int, numbers))
    from stores import make_store

    store = args.store or make_store(args.kith, args.work, "products-like", 100)
    for limit in args.limits:
        compare(args, store, int(limit * 2**30) or None)


if __name__ == "__main__":
    main()
