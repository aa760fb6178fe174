"""Stores from graphs of others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from . import _kith
from .graph import Graph, _array, _int64, open
from .programs import options_of, run_program
from .settings import Arrays

MASKS = (("train_mask", 1), ("val_mask", 2), ("test_mask", 3))


def from_edges(
    edge_index: Any,
    *,
    out: str | os.PathLike[str],
    num_nodes: int | None = None,
    x: Any = None,
    y: Any = None,
    edge_weight: Any = None,
    edge_attr: Any = None,
    train_mask: Any = None,
    val_mask: Any = None,
    test_mask: Any = None,
    symmetrize: bool = False,
    merge_duplicates: bool = False,
    memory: int = 2 << 30,
    source: str = "arrays",
) -> Graph:
    """Writes a store from arrays or tensors, and opens it. Nobody may change them meanwhile.

    edge_index: two rows: sources and destinations.
    x: features, which are kept as float32.
    y: one class per node, -1 for none; or a row of several classes per node (whole numbers or booleans, 1 for each class that it has); or
        numbers to predict (floats, nan for none), one or a row per node. Floats that are all 0 or 1 are several classes if there are
        several per node. Nodes in a mask need a label.
    symmetrize: adds the reverse of every edge. merge_duplicates: merges equal edges into one.
    memory: bytes that sorting may take.
    """
    edges = _int64(edge_index, "edge_index")
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError(f"edge_index: expected shape (2, edges), found {edges.shape}")
    features = _float32(x)
    labels = None if y is None else _array(y)
    if num_nodes is None:
        counts = [0 if edges.size == 0 else int(edges.max()) + 1]
        counts += [len(column) for column in (features, labels) if column is not None]
        num_nodes = max(counts)
    kind, labels, has_label = _labels(labels)
    weights, attributes = _float32(edge_weight), _float32(edge_attr)
    if attributes is not None:
        attributes = attributes.reshape(len(attributes), -1)
    arrays = Arrays(
        n_nodes=num_nodes,
        edge_index=edges,
        edge_weight=None if weights is None else weights.reshape(-1),
        edge_attr=attributes,
        edge_dim=0 if attributes is None else attributes.shape[1],
        x=features,
        dim=0 if features is None else int(np.prod(features.shape[1:])),
        y=labels if kind == "classes" else None,
        y_rows=None if kind == "classes" else labels,
        y_kind=kind,
        n_classes=_n_classes(kind, labels),
        split=_split(num_nodes, has_label, (train_mask, val_mask, test_mask)),
        symmetrize=symmetrize,
        merge_duplicates=merge_duplicates,
        source=source,
    )
    _kith.write_store(Path(out), arrays, memory)
    return open(out)


def from_pyg(data: Any, *, out: str | os.PathLike[str], **options: Any) -> Graph:
    """Writes a store from a `torch_geometric.data.Data` with one type of nodes and edges, and opens it.

    Options are those of `from_edges`, and come before the attributes of `data`.
    """
    names = ("x", "y", "edge_weight", "edge_attr", *(name for name, _ in MASKS))
    columns: dict[str, Any] = {name: getattr(data, name, None) for name in names if name not in options}
    return from_edges(data.edge_index, out=out, num_nodes=data.num_nodes, source="a PyG graph", **columns, **options)


def from_dgl(graph: Any, *, out: str | os.PathLike[str], **options: Any) -> Graph:
    """Writes a store from a DGL graph with one type of nodes and edges, and opens it. Options are those of `from_edges`.

    Takes `ndata` feat, label and the masks, and `edata` w or weight, and feat, if they are there.
    """
    sources, destinations = graph.edges(order="eid")
    names = {"x": ("feat", "x"), "y": ("label", "y"), **{name: (name,) for name, _ in MASKS}}
    columns = _first(graph.ndata, names) | _first(graph.edata, {"edge_weight": ("w", "weight"), "edge_attr": ("feat",)})
    columns = {name: value for name, value in columns.items() if name not in options}
    edges = np.stack([_int64(sources), _int64(destinations)])
    return from_edges(edges, out=out, num_nodes=graph.num_nodes(), source="a DGL graph", **columns, **options)


def from_networkx(graph: Any, *, out: str | os.PathLike[str], weight: str | None = None, **options: Any) -> Graph:
    """Writes a store from a NetworkX graph, and opens it: node i is the i-th of `graph.nodes`. Options are those of `from_edges`.

    Undirected edges become two directed ones. `weight` names the attribute with the weights of edges.
    """
    numbers = {node: number for number, node in enumerate(graph.nodes)}
    ends = [(numbers[a], numbers[b]) for a, b in graph.edges()]
    edges = np.array(ends, np.int64).reshape(-1, 2).T
    if weight is not None:
        options["edge_weight"] = np.array([value for _, _, value in graph.edges(data=weight)], np.float32)
    options = {"symmetrize": not graph.is_directed(), **options}
    return from_edges(edges, out=out, num_nodes=len(numbers), source="a NetworkX graph", **options)


def from_ogb(dataset: Any, *, out: str | os.PathLike[str], symmetrize: bool | None = None, **options: Any) -> Graph:
    """Writes a store from an `ogb.nodeproppred.NodePropPredDataset` (or its PyG form), with its split, and opens it.

    symmetrize: default: True for graphs that OGB calls directed, such as ogbn-arxiv. Equal edges are merged then.
    """
    first = dataset[0]
    if isinstance(first, tuple):
        graph, labels = first
        edges, n, features = graph["edge_index"], int(graph["num_nodes"]), graph.get("node_feat")
    else:
        edges, n, features, labels = first.edge_index, int(first.num_nodes), first.x, first.y
    masks = {}
    for (name, _), part in zip(MASKS, ("train", "valid", "test"), strict=True):
        mask = np.zeros(n, bool)
        mask[_int64(dataset.get_idx_split()[part])] = True
        masks[name] = mask
    y = _array(labels).reshape(n, -1)
    if y.dtype.kind == "f" and not np.isnan(y).all() and (y[~np.isnan(y)] % 1 == 0).all():
        y = np.where(np.isnan(y), -1, y).astype(np.int64)
    if symmetrize is None:
        symmetrize = not bool(getattr(dataset, "is_undirected", False)) and not _is_symmetric(_int64(edges), n)
    options = {"x": features, "y": y[:, 0] if y.shape[1] == 1 else y, "merge_duplicates": symmetrize, **masks, **options}
    return from_edges(edges, out=out, num_nodes=n, symmetrize=symmetrize, source=f"{dataset.name} of OGB", **options)


def from_parquet(edges: Any, *, out: str | os.PathLike[str], **options: Any) -> Graph:
    """Writes a store from tables, and opens it: runs `kith data import`, which reads tables larger than memory, and any node ids.

    `edges` is a Parquet, csv or npy file, or a list or folder of them. Options are those of the command, with underscores:
    `features=…, labels=…, targets=…, split=…, edge_weights=…, symmetrize=True`.
    """
    run_program(["data", "import", *options_of(edges=edges, **options, out=out)])
    return open(out)


def _labels(y: np.ndarray | None) -> tuple[str, np.ndarray | None, np.ndarray | None]:
    """Returns the kind of labels, the labels, and for each node whether it has one."""
    if y is None:
        return "classes", None, None
    if y.ndim > 2:
        raise ValueError(f"y: expected one or two dimensions, found shape {y.shape}")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 1 and y.dtype.kind in "iub":
        classes = np.ascontiguousarray(y, np.int64)
        return "classes", classes, classes >= 0
    rows = np.ascontiguousarray(y.reshape(len(y), -1), np.float32)
    if y.ndim == 2 and (y.dtype.kind in "iub" or np.isin(rows, (0.0, 1.0)).all()):
        if not np.isin(rows, (0.0, 1.0)).all():
            raise ValueError("y: expected 0 or 1 for each of several classes: give floats for numbers to predict")
        return "multi-label", rows, np.ones(len(rows), bool)
    return "targets", rows, np.logical_not(np.isnan(rows).all(1))


def _n_classes(kind: str, labels: np.ndarray | None) -> int:
    if labels is None or labels.size == 0:
        return 0
    return int(labels.max()) + 1 if kind == "classes" else labels.shape[1]


def _split(num_nodes: int, has_label: np.ndarray | None, masks: tuple[Any, ...]) -> np.ndarray | None:
    if has_label is None and all(mask is None for mask in masks):
        return None
    split = np.zeros(num_nodes, np.uint8)
    for (name, number), mask in zip(MASKS, masks, strict=True):
        if mask is None:
            continue
        mask = _array(mask).astype(bool)
        if mask.shape != (num_nodes,):
            hint = f": choose one split, such as {name}=data.{name}[:, 0]" if mask.ndim == 2 else ""
            raise ValueError(f"{name}: expected shape ({num_nodes},), found {mask.shape}{hint}")
        if has_label is None or not has_label[mask].all():
            raise ValueError(f"{name}: expected a label in y for every node of the mask: give other seed nodes to the loader")
        if (split[mask] > 0).any():
            raise ValueError(f"{name}: node {np.flatnonzero(mask & (split > 0))[0]} is in two masks")
        split[mask] = number
    return None if all(mask is None for mask in masks) else split


def _first(columns: Any, names: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """Returns the first column that is there for each name."""
    found = {name: next((columns[key] for key in keys if key in columns), None) for name, keys in names.items()}
    return {name: column for name, column in found.items() if column is not None}


def _is_symmetric(edges: np.ndarray, n: int) -> bool:
    return np.array_equal(np.unique(edges[0] * n + edges[1]), np.unique(edges[1] * n + edges[0]))


def _float32(numbers: Any) -> np.ndarray | None:
    return None if numbers is None else np.ascontiguousarray(_array(numbers), dtype=np.float32)
