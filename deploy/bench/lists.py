"""CSR from 100 M random directed edges: `kith data import` from disk to disk under --memory 2GiB, against
scipy's coo_matrix(...).tocsr() of the same edges in memory. Interleaved rounds; prints a line per round and the ratio."""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
import scipy
from scipy.sparse import coo_matrix


def time_scipy(edges, n_nodes):
    """Seconds to CSR with sorted, merged neighbor lists; row = destination."""
    source, destination = edges[:, 0].copy(), edges[:, 1].copy()
    ones = np.ones(len(edges), np.int8)
    started = time.perf_counter()
    csr = coo_matrix((ones, (destination, source)), shape=(n_nodes, n_nodes)).tocsr()
    seconds = time.perf_counter() - started
    return seconds, csr.nnz


def time_kith(kith, path, n_nodes, out, limit_bytes):
    """Seconds of the whole process, its peak private memory, and the stored edges. The system enforces the limit."""
    shutil.rmtree(out, ignore_errors=True)
    command = [kith, "data", "import", "--edges", path, "--ids", "dense", "--nodes", str(n_nodes), "--merge-duplicates",
               "--memory", str(limit_bytes), "--out", out, "--json"]
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes)))
    peak = 0
    while child.poll() is None:
        try:
            status = Path(f"/proc/{child.pid}/status").read_text()
            peak = max(peak, sum(int(line.split()[1]) for line in status.splitlines()
                                 if line.startswith(("RssAnon", "RssShmem"))) * 1024)
        except (OSError, ValueError):
            pass
        time.sleep(0.02)
    seconds = time.perf_counter() - started
    answer = child.stdout.read()
    if child.returncode != 0:
        raise SystemExit(f"kith failed with exit code {child.returncode}")
    return seconds, peak, json.loads(answer)["n_edges"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kith", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()

    edges = np.random.default_rng(1).integers(0, args.nodes, (args.edges, 2), dtype=np.int32)
    path = str(Path(args.work) / "edges.npy")
    np.save(path, edges)
    out = str(Path(args.work) / "lists")
    scipy_seconds, kith_seconds, peaks = [], [], []
    for _ in range(args.rounds):
        seconds, n_scipy = time_scipy(edges, args.nodes)
        scipy_seconds.append(seconds)
        seconds, peak, n_kith = time_kith(args.kith, path, args.nodes, out, 2 << 30)
        kith_seconds.append(seconds)
        peaks.append(peak)
        if n_scipy != n_kith:
            raise SystemExit(f"scipy keeps {n_scipy} edges, kith {n_kith}")
        print(f"scipy {scipy.__version__} {scipy_seconds[-1]:.1f} s, kith {kith_seconds[-1]:.1f} s, "
              f"peak private memory {peak / 2**20:.0f} MiB", flush=True)
    ratio = statistics.median(s / k for s, k in zip(scipy_seconds, kith_seconds))
    print(json.dumps({"n_edges": args.edges, "scipy_s": statistics.median(scipy_seconds),
                      "kith_s": statistics.median(kith_seconds), "ratio": round(ratio, 2),
                      "peak_private_mib": max(peaks) >> 20}))


main()
