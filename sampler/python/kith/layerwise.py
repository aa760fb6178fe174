"""Exact inference with your own layers: one layer at a time over all nodes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from .graph import Graph
from .loader import NeighborLoader

Layer = Callable[..., torch.Tensor]


def layerwise(
    graph: Graph,
    layers: Sequence[Layer],
    *,
    device: str | torch.device = "cpu",
    batch_size: int = 4096,
    num_workers: int = 1,
    edge_arguments: Sequence[str] = (),
    memory: int = 4 << 30,
    out: str | os.PathLike[str] | None = None,
) -> torch.Tensor:
    """Returns the output of the last layer for every node, with all neighbors. Row i is that of node i.

    Each layer is called as `layer(x, edge_index)` with the nodes of a batch first in `x`, and gives a row for each node of `x`; only
    those of the batch are kept. Edges are those into the nodes of the batch: a layer that needs the degrees of sources (GCNConv) gets its
    norm as `edge_weight` of the graph instead. Put activations and norms into the layer, and call `model.eval()` first:

    >>> model.eval()
    >>> out = kith.layerwise(graph, [lambda x, edges: model.conv1(x, edges).relu(), model.conv2], device="cuda")

    batch_size: nodes whose neighbors are in memory at a time.
    edge_arguments: `edge_weight`, `edge_attr`: passed to each layer by these names.
    memory: outputs of a layer that take more bytes are kept in a file.
    out: an npy file for the result, which is mapped into memory (default: none, the result is in memory).
    """
    if len(layers) == 0:
        raise ValueError("layers: expected one or more, found none")
    there = {"edge_weight": graph.has_edge_weights, "edge_attr": graph.num_edge_features > 0}
    for name in edge_arguments:
        if not there.get(name, False):
            raise ValueError(f"edge_arguments: the graph has no {name}")
    loader = NeighborLoader(graph, [-1], batch_size=batch_size, num_workers=num_workers, pin_memory=str(device).startswith("cuda"))
    modules = [layer for layer in layers if isinstance(layer, torch.nn.Module)]
    were_training = [module.training for module in modules]
    with tempfile.TemporaryDirectory(prefix="kith-layerwise-") as folder:
        try:
            for module in modules:
                module.eval()
            previous: np.ndarray | None = None
            for number, layer in enumerate(layers):
                is_last = number + 1 == len(layers)
                rows = _Rows(graph.num_nodes, memory, Path(folder) / f"{number}.npy", out if is_last else None)
                loader._sampling = replace(loader._sampling, with_x=previous is None)
                with torch.no_grad():
                    for batch in loader:
                        x = batch.x if previous is None else torch.from_numpy(previous[batch.n_id.numpy()])
                        edges = {name: batch[name].to(device) for name in edge_arguments}
                        found = layer(x.to(device, non_blocking=True), batch.edge_index.to(device, non_blocking=True), **edges)
                        rows.put(batch.input_id.numpy(), found[: batch.batch_size])
                previous = rows.values
            assert previous is not None
            is_kept = out is not None or not isinstance(previous, np.memmap)
            return torch.from_numpy(previous if is_kept else np.array(previous))
        finally:
            for module, was_training in zip(modules, were_training, strict=True):
                module.train(was_training)


class _Rows:
    """Rows of all nodes, in memory or in a file."""

    def __init__(self, n: int, memory: int, path: Path, out: str | os.PathLike[str] | None) -> None:
        self._n, self._memory, self._path, self._out = n, memory, path, out
        self.values: np.ndarray | None = None

    def put(self, nodes: np.ndarray, rows: torch.Tensor) -> None:
        found = rows.float().cpu().numpy()
        if self.values is None:
            shape = (self._n, *found.shape[1:])
            path = self._out or (self._path if 4 * int(np.prod(shape)) > self._memory else None)
            if path is None:
                self.values = np.empty(shape, np.float32)
            else:
                self.values = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        self.values[nodes] = found
