#!/usr/bin/env python3
"""Cost of logs and metrics: CPU seconds per seed node of a run on a sampling server, of two builds, in interleaved pairs.

    watching.py --before DIR --now DIR [--pairs 20] [--epochs 3] [--work DIR]

A folder has the programs kith, kith-trainer and kith-sampler of a build. Each round runs a server and a rank that trains from it, of both
builds, in alternating order, and adds up the CPU time of all their processes. The ratio of a pair is now to before. The interval of
the median ratio is that of the sign test: the ratios at fixed places of their order, which holds for any distribution.
"""
import argparse
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

NODES, BATCH = 100_000, 1024
SETTINGS = ["train.mode=mini-batch", "train.fanouts=[10, 10]", "train.slices=1", "early_stop=off"]


def run(command):
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make(kith, work):
    store, graph = work / "store", work / "graph.shards"
    run([kith, "data", "generate", "power-law", "--out", store, "--nodes", NODES, "--degree", 20, "--classes", 8, "--dim", 64,
         "--seed", 7])
    run([kith, "partition", store, "--shards", 2, "--method", "hash", "--out", graph])
    return graph


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cost(programs, graph, epochs, work):
    """CPU seconds per seed node of one run: of the server, and of the rank. Both serve metrics."""
    out = work / "run"
    shutil.rmtree(out, ignore_errors=True)
    before = cpu_seconds()
    server = subprocess.Popen([programs / "kith-sampler", "--graph", graph, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = server.stdout.readline().split(" on ")[1].split()[0]
        settings = [word for setting in [*SETTINGS, f"train.epochs={epochs}"] for word in ("--set", setting)]
        run([programs / "kith", "train", "partition-graph/gat", "--graph", f"grpc://{address}", "--batch-size", BATCH, "--cache", "0",
             "--metrics", "127.0.0.1:0", "--out", out, *settings])
    finally:
        server.terminate()
        server.wait(timeout=60)
    seeds = sum(json.loads(line)["n_seeds"] for line in (out / "steps.jsonl").read_text().splitlines())
    return (cpu_seconds() - before) / seeds


def interval(ratios):
    """Places of the median's interval of at least 95 %, in sorted ratios; all of them if there are fewer than six."""
    n, tail, places = len(ratios), 0.0, 0
    while places < n // 2:
        tail += math.comb(n, places) / 2**n
        if tail > 0.025:
            break
        places += 1
    ordered = sorted(ratios)
    return ordered[max(places - 1, 0)], ordered[n - max(places, 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--now", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    os.environ.pop("KITH_LOG", None)
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        work = Path(folder)
        graph = make(args.now / "kith", work)
        for programs in (args.before, args.now):
            cost(programs, graph, 1, work)  # Files are in memory from here on.
        ratios = []
        for pair in range(args.pairs):
            builds = [("before", args.before), ("now", args.now)]
            found = {name: cost(programs, graph, args.epochs, work) for name, programs in builds[:: 1 if pair % 2 == 0 else -1]}
            ratios.append(found["now"] / found["before"])
            print(f"pair {pair + 1}: before {found['before'] * 1e6:.2f}, now {found['now'] * 1e6:.2f} CPU µs per seed node, "
                  f"ratio {ratios[-1]:.4f}", flush=True)
    low, high = interval(ratios)
    print(json.dumps({"pairs": len(ratios), "median_ratio": round(statistics.median(ratios), 4), "low": round(low, 4),
                      "high": round(high, 4)}))


if __name__ == "__main__":
    main()
