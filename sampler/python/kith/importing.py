"""Stores from graphs in memory."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import _kith
from .graph import Graph, _array, _int64, open

PARTS = (("train_mask", 1), ("val_mask", 2), ("test_mask", 3))


def from_edges(
    edge_index: Any,
    *,
    out: str | os.PathLike[str],
    num_nodes: int | None = None,
    x: Any = None,
    y: Any = None,
    edge_weight: Any = None,
    train_mask: Any = None,
    val_mask: Any = None,
    test_mask: Any = None,
    symmetrize: bool = False,
    merge_duplicates: bool = False,
    memory: int = 2 << 30,
    source: str = "arrays",
) -> Graph:
    """Writes a store from arrays or tensors, and opens it.

    `edge_index` has two rows: sources and destinations. `y` holds one class per node, -1 for none. Nodes in a mask need a class.
    """
    edges = _int64(edge_index, "edge_index")
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError(f"edge_index: expected shape (2, edges), found {edges.shape}")
    features, classes = _float32(x), None if y is None else _int64(y, "y")
    if classes is not None and classes.ndim != 1 and classes.shape[1:] != (1,):
        problem = "use `kith data import` for several classes or targets per node"
        raise ValueError(f"y: expected one class per node, found shape {classes.shape}: {problem}")
    classes = None if classes is None else classes.reshape(-1)
    if num_nodes is None:
        counts = [0 if edges.size == 0 else int(edges.max()) + 1]
        counts += [len(column) for column in (features, classes) if column is not None]
        num_nodes = max(counts)
    split = None if classes is None else np.zeros(num_nodes, np.uint8)
    for (name, number), mask in zip(PARTS, (train_mask, val_mask, test_mask), strict=True):
        if mask is None:
            continue
        mask = _array(mask).astype(bool)
        if mask.shape != (num_nodes,):
            raise ValueError(f"{name}: expected shape ({num_nodes},), found {mask.shape}")
        if split is None or (classes[mask] < 0).any():
            raise ValueError(f"{name}: expected a class in y for every node of the mask: give other seed nodes to the loader")
        if (split[mask] > 0).any():
            raise ValueError(f"{name}: node {np.flatnonzero(mask & (split > 0))[0]} is in two masks")
        split[mask] = number
    arrays = SimpleNamespace(
        n_nodes=num_nodes,
        edge_index=edges.tobytes(),
        edge_weight=None if edge_weight is None else _float32(edge_weight).reshape(-1).tobytes(),
        x=None if features is None else features.tobytes(),
        dim=0 if features is None else int(np.prod(features.shape[1:])),
        y=None if classes is None else classes.tobytes(),
        n_classes=0 if classes is None or classes.size == 0 else int(classes.max()) + 1,
        split=None if split is None else split.tobytes(),
        symmetrize=symmetrize,
        merge_duplicates=merge_duplicates,
        source=source,
    )
    _kith.write_store(Path(out), arrays, memory)
    return open(out)


def from_pyg(data: Any, *, out: str | os.PathLike[str], **options: Any) -> Graph:
    """Writes a store from a `torch_geometric.data.Data` with one type of nodes and edges, and opens it."""
    masks: dict[str, Any] = {name: getattr(data, name, None) for name, _ in PARTS}
    if getattr(data, "edge_attr", None) is not None:
        raise ValueError("edge_attr: not written yet: use `kith data import --edge-features`, or remove it from the data")
    return from_edges(
        data.edge_index,
        out=out,
        num_nodes=data.num_nodes,
        x=getattr(data, "x", None),
        y=getattr(data, "y", None),
        edge_weight=getattr(data, "edge_weight", None),
        **masks,
        source="a PyG graph",
        **options,
    )


def _float32(numbers: Any) -> np.ndarray | None:
    if numbers is None:
        return None
    return np.ascontiguousarray(_array(numbers), dtype=np.float32)
