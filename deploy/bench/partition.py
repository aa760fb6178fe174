"""Partitioning of Kith beside pymetis, on the same store, in interleaved rounds. Run by deploy/bench.sh with pymetis's
Python (deploy/pymetis.sh).

    partition.py --kith target/release/kith --work DIR [--stores DIR DIR] [--rounds N] [--large]

METIS with one constraint (nodes) is compared with pymetis; Kith's default (nodes, edges and training nodes within 5%)
and its streaming method are listed, too. Times are those of assigning nodes, from a mapped store or from
arrays in memory; memory is the peak of a process that does nothing else. --large adds a graph of 120 million neighbors,
where METIS takes minutes and 9 GB.
"""
import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from stores import column, make_store

# Numbers of shards.
SHARDS = {"arxiv-like": (2, 4, 8, 16), "products-like": (2, 8)}


def peer(store, n_shards):
    """Runs pymetis in this process and prints its time and memory."""
    import pymetis

    indptr = column(store, "indptr", "<u8").astype(np.int32)
    indices = column(store, "indices", "<u4").astype(np.int32)
    started = time.perf_counter()
    arrays = {"xadj": indptr, "adjncy": indices}
    n_cut, owner = pymetis.part_graph(n_shards, **arrays, options=pymetis.Options(seed=42), recursive=False)
    seconds = time.perf_counter() - started
    sizes = np.bincount(np.asarray(owner), minlength=n_shards)
    print(json.dumps(dict(seconds=seconds, cut=200 * n_cut / len(indices), nodes=sizes.max() / sizes.mean(),
                          peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)))


def theirs(store, n_shards):
    ran = subprocess.run([sys.executable, __file__, "--peer", store, str(n_shards)],
                         check=True, capture_output=True, text=True)
    return json.loads(ran.stdout)


def ours(args, store, n_shards, method, balance="all"):
    out = Path(args.work) / "cluster"
    shutil.rmtree(out, ignore_errors=True)
    command = [args.kith, "partition", store, "--shards", n_shards, "--method", method, "--balance", balance,
               "--out", out, "--json"]
    ran = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    shutil.rmtree(out)
    report = json.loads(ran.stdout)["report"]
    return dict(seconds=report["seconds"], cut=report["cut_percent"], peak=report["peak_bytes"],
                passes=report["n_passes"], edges=report["n_edges"], balanced=report["is_balanced"],
                balance=max(report["balance"].values()))


def middle(values):
    return round(statistics.median(values), 3)


def compare(args, name, store):
    """One line per number of shards: medians, and the medians of the ratios of each round."""
    for n_shards in SHARDS[name]:
        rounds = []
        for _ in range(args.rounds if name == "arxiv-like" else 1):
            rounds.append(dict(peer=theirs(store, n_shards), nodes=ours(args, store, n_shards, "metis", "nodes"),
                               metis=ours(args, store, n_shards, "metis"), stream=ours(args, store, n_shards, "stream")))
        of = lambda who, what: middle(one[who][what] for one in rounds)
        ratio = lambda who, other, what: middle(one[who][what] / one[other][what] for one in rounds)
        stream = rounds[0]["stream"]
        print(json.dumps(dict(
            graph=name, shards=n_shards,
            time_ratio=ratio("nodes", "peer", "seconds"), cut_ratio=ratio("nodes", "peer", "cut"),
            memory_ratio=ratio("nodes", "peer", "peak"),
            seconds=dict(pymetis=of("peer", "seconds"), nodes=of("nodes", "seconds"), default=of("metis", "seconds"),
                         stream=of("stream", "seconds")),
            cut=dict(pymetis=of("peer", "cut"), nodes=of("nodes", "cut"), default=of("metis", "cut"),
                     stream=of("stream", "cut")),
            mib={who: round(of(who, "peak") / 2**20) for who in ("peer", "nodes", "metis", "stream")},
            worst_balance=dict(pymetis_nodes=of("peer", "nodes"), default=of("metis", "balance"),
                               stream=of("stream", "balance")),
            stream_cut_ratio=ratio("stream", "nodes", "cut"), stream_passes=stream["passes"],
            stream_million_edges_per_s=round(stream["edges"] * stream["passes"] / of("stream", "seconds") / 1e6, 1),
        )), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", nargs=2)
    for name in ("--kith", "--work"):
        parser.add_argument(name)
    parser.add_argument("--stores", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    if args.peer:
        return peer(args.peer[0], int(args.peer[1]))
    stores = dict(zip(SHARDS, args.stores))
    for name in SHARDS:
        if name == "arxiv-like" or args.large:
            compare(args, name, stores.get(name) or make_store(args.kith, args.work, name, dim=8))


if __name__ == "__main__":
    main()
