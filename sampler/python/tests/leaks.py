"""Memory of loaders over many epochs, run by tests/python.rs: python leaks.py KITH KITH_SAMPLER."""

import gc
import os
import tempfile
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import kith
import numpy as np

N_EPOCHS = 1000


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grows_by(epoch: Callable[[], None]) -> tuple[int, int, int]:
    """Returns growth of resident memory, of Python's objects and of threads over 1,000 epochs, after 100 others."""
    for _ in range(100):
        epoch()
    gc.collect()
    tracemalloc.start()
    before = resident(), tracemalloc.get_traced_memory()[0], threading.active_count(), n_tasks()
    for _ in range(N_EPOCHS):
        epoch()
    gc.collect()
    after = resident(), tracemalloc.get_traced_memory()[0], threading.active_count(), n_tasks()
    tracemalloc.stop()
    return after[0] - before[0], after[1] - before[1], max(after[2] - before[2], after[3] - before[3])


def n_tasks() -> int:
    """Threads of this process, those of Rust included."""
    return len(os.listdir("/proc/self/task"))


def expect_nothing(epoch: Callable[[], None]) -> None:
    n_bytes, n_traced, n_threads = grows_by(epoch)
    assert n_bytes < 24 << 20, n_bytes
    assert n_traced < 1 << 20, n_traced
    assert n_threads <= 4, n_threads


def main() -> None:
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        y, x = random.integers(0, 3, 500), random.normal(size=(500, 64))
        graph = kith.from_edges(random.integers(0, 500, (2, 6000)), out=Path(folder) / "store", x=x, y=y)
        nodes = kith.NeighborLoader(graph, [5, 5], batch_size=100, num_workers=2)
        links = kith.LinkNeighborLoader(graph, [5], graph.edge_index[:, :300], neg_sampling="binary", batch_size=100)
        blocks = kith.BlockLoader(graph, [5, 5], batch_size=100)
        left = kith.NeighborLoader(graph, [5, 5], batch_size=100, num_workers=2)
        for name, epoch in {
            "nodes": lambda: [None for _ in nodes],
            "links_and_blocks": lambda: [None for loader in (links, blocks) for _ in loader],
            "iterators_that_are_left": lambda: next(iter(left)) and None,
        }.items():
            expect_nothing(epoch)
            print(f"ok {name}")


if __name__ == "__main__":
    main()
