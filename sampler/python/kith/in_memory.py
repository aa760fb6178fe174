"""A PyG graph in memory, as loaders sample it: from a temporary store."""

from __future__ import annotations

import os
import tempfile
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from .graph import Graph, _array, _int64
from .importing import from_edges
from .programs import remove

# Graphs that a loader still uses, by the identity of their `Data`, which they keep alive, and the name of the weights.
_GRAPHS: weakref.WeakValueDictionary[tuple[int, str | None], DataGraph] = weakref.WeakValueDictionary()


class DataGraph(Graph):
    """A graph whose nodes and edges have the attributes of a `Data`."""

    data: Data
    order: torch.Tensor
    """Place in `data.edge_index` of each edge of the store."""
    _weight_attr: str | None
    _written: list[tuple[Any, Any]]

    def is_current(self) -> bool:
        """True if what was written is still what `data` has."""
        return all(
            one is other and version == _version(other)
            for (one, version), other in zip(self._written, _tensors(self.data, self._weight_attr), strict=True)
        )

    def put_attributes(self, batch: Data, n_id: torch.Tensor, edges: torch.Tensor, x: torch.Tensor | None, pin_memory: bool) -> None:
        """Puts the attributes of nodes and edges into a batch, as PyG's loaders do. `edges` are ids in the store, which gave `x`."""
        e_id = self.order[edges]
        for name, value in self.data.to_dict().items():
            if name in ("edge_index", "num_nodes"):
                continue
            if name == "x" and x is not None:
                batch.x = x.to(value.device)
                continue
            if isinstance(value, np.ndarray):
                value = torch.from_numpy(value)
            if not isinstance(value, torch.Tensor):
                continue
            ids = n_id if self.data.is_node_attr(name) else e_id if self.data.is_edge_attr(name) else None
            if ids is not None:
                found = value.index_select(self.data.__cat_dim__(name, value), ids.to(value.device))
                batch[name] = found.pin_memory() if pin_memory and found.device.type == "cpu" else found
        if "e_id" not in batch:
            batch.e_id = e_id

    def __reduce__(self) -> Any:
        return graph_of, (self.data, self._weight_attr)


def graph_of(data: Graph | Data, weight_attr: str | None = None) -> Graph:
    """Returns a graph that loaders can sample."""
    if isinstance(data, Graph):
        if weight_attr not in (None, "edge_weight") and not isinstance(data, DataGraph):
            raise ValueError(f"weight_attr: expected 'edge_weight', found {weight_attr!r}: a store has one weight per edge")
        if weight_attr is not None and not data.has_edge_weights:
            raise ValueError("weight_attr: the graph has no edge weights: write it with edge_weight")
        return data
    if not isinstance(data, Data):
        raise TypeError(f"data: expected a kith.Graph or a torch_geometric.data.Data, found {type(data).__name__}")
    if data.get("edge_index") is None:
        raise ValueError("data: expected edge_index: of adj_t, use torch.stack([col, row]) of adj_t.coo()")
    graph = _GRAPHS.get((id(data), weight_attr))
    if graph is None or not graph.is_current():
        graph = _GRAPHS[id(data), weight_attr] = _write(data, weight_attr)
    return graph


def _write(data: Data, weight_attr: str | None) -> DataGraph:
    edges = _int64(data.edge_index, "edge_index")
    if (edges[0] == edges[1]).any():
        warnings.warn("the graph has self-loops, which kith never samples: add them in the model if it needs them", stacklevel=4)
    weights = None if weight_attr is None else np.asarray(_array(data[weight_attr]), dtype=np.float32).reshape(-1)
    folder = Path(tempfile.mkdtemp(prefix="kith-data-"))
    try:
        x = data.x if _is_plain(data.get("x")) else None
        from_edges(edges, out=folder / "store", num_nodes=data.num_nodes, x=x, edge_weight=weights, source="a PyG graph")
        graph = DataGraph(str(folder / "store"), 60.0, None, None)
    except BaseException:
        remove(folder, os.getpid())
        raise
    weakref.finalize(graph, remove, folder, os.getpid())
    # The store has edges by destination, then by source; equal ones by weight, then in their order.
    keys = (edges[0], edges[1]) if weights is None else (weights, edges[0], edges[1])
    graph.order = torch.from_numpy(np.lexsort(keys))
    graph.data, graph._weight_attr = data, weight_attr
    graph._written = [(tensor, _version(tensor)) for tensor in _tensors(data, weight_attr)]
    return graph


def _is_plain(x: Any) -> bool:
    """True if a store can hold these features as they are; others are gathered by PyTorch."""
    is_dense = isinstance(x, torch.Tensor) and x.layout == torch.strided and x.dim() == 2 and x.dtype == torch.float32
    return is_dense and not x.requires_grad and bool(x.isfinite().all())


def _tensors(data: Data, weight_attr: str | None) -> list[Any]:
    return [data.edge_index, data.get("x"), None if weight_attr is None else data[weight_attr]]


def _version(tensor: Any) -> int | None:
    return tensor._version if isinstance(tensor, torch.Tensor) and not tensor.is_inference() else None
