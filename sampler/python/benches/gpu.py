"""Share of a training step that a GPU waits for `kith.NeighborLoader`: python gpu.py [--workers 8].

Trains PyG's GAT with two layers on a random graph of the size of ogbn-arxiv, fanouts 15 and 10, 1,024 seed nodes per batch, and prints
milliseconds per step: waiting for the loader, copying to the GPU, computing. Each is measured with the GPU idle before and after it.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import kith
import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv

N_NODES, N_EDGES, N_TRAIN, DIM, N_CLASSES = 169_343, 1_166_243, 90_941, 128, 40


class Net(torch.nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = GATConv(DIM, hidden, heads=heads), GATConv(hidden * heads, N_CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.second(F.elu(self.first(x, edge_index)), edge_index)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=8)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    degrees = random.pareto(1.7, N_NODES) + 1
    ends = np.stack([random.choice(N_NODES, N_EDGES, p=degrees / degrees.sum()), random.integers(0, N_NODES, N_EDGES)])
    mask = np.zeros(N_NODES, bool)
    mask[random.permutation(N_NODES)[:N_TRAIN]] = True
    with tempfile.TemporaryDirectory() as folder:
        graph = kith.from_edges(
            ends,
            out=Path(folder) / "store",
            x=random.normal(size=(N_NODES, DIM)),
            y=random.integers(0, N_CLASSES, N_NODES),
            train_mask=mask,
            symmetrize=True,
            merge_duplicates=True,
        )
        for hidden, heads in ((32, 4), (64, 4), (32, 8)):
            model = Net(hidden, heads).cuda()
            optimizer = torch.optim.Adam(model.parameters())
            loader = kith.NeighborLoader(
                graph, [15, 10], split="train", batch_size=1024, shuffle=True, num_workers=options.workers, pin_memory=True
            )
            times = []
            for _ in range(2):
                batches = iter(loader)
                while True:
                    marks = [time.perf_counter()]
                    batch = next(batches, None)
                    if batch is None:
                        break
                    marks.append(time.perf_counter())
                    batch = batch.to("cuda", non_blocking=True)
                    torch.cuda.synchronize()
                    marks.append(time.perf_counter())
                    optimizer.zero_grad()
                    out = model(batch.x, batch.edge_index)[: batch.batch_size]
                    F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
                    optimizer.step()
                    torch.cuda.synchronize()
                    marks.append(time.perf_counter())
                    times.append(np.diff(marks))
            # The first epoch compiles kernels and fills memory, and so do the first batches.
            wait, copy, step = 1000 * np.mean(times[len(loader) + 5 :], 0)
            found = {"wait_ms": wait, "copy_ms": copy, "step_ms": step, "wait_share": wait / (wait + copy + step)}
            found = {name: round(float(value), 3) for name, value in found.items()}
            print(json.dumps({"hidden": hidden, "heads": heads, **found}), flush=True)


if __name__ == "__main__":
    main()
