"""Generated stores and their columns, for benchmarks against peers."""

import subprocess
from pathlib import Path

import numpy as np

# Graphs of the comparisons with peers: arguments of `kith data generate power-law`.
GRAPHS = {
    "arxiv-like": dict(nodes=169343, edges=1157799, classes=40, exponent=2.5, community=0),
    "products-like": dict(nodes=2449029, edges=61859140, classes=47, exponent=3.0, community=1000),
}


def make_store(kith, work, name, dim):
    """Generates one of the graphs with `dim` features; returns the path of its store."""
    store = Path(work) / f"store-{name}"
    options = GRAPHS[name] | dict(dim=dim, out=store)
    options = [str(part) for key, value in options.items() for part in ("--" + key, value)]
    subprocess.run([kith, "data", "generate", "power-law", *options],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return store


def column(store, name, dtype):
    """A whole column of a store."""
    (path,) = [path for path in Path(store).iterdir() if path.name.startswith(name + ".") and path.suffix != ".json"]
    return np.fromfile(path, dtype)
