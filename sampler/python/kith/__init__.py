"""Graphs and neighbor loaders for models that are written in PyTorch.

>>> graph = kith.open("stores/arxiv")
>>> loader = kith.NeighborLoader(graph, num_neighbors=[15, 10], split="train", batch_size=1024)
>>> for batch in loader:
...     out = model(batch.x, batch.edge_index)[: batch.batch_size]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._kith import KithError
from .graph import Graph
from .graph import open as open
from .importing import from_dgl, from_edges, from_networkx, from_ogb, from_parquet, from_pyg
from .runs import Run, load, predict, train

if TYPE_CHECKING:
    from . import nn
    from .blocks import Block, BlockBatch, BlockLoader
    from .layerwise import layerwise
    from .loader import LinkNeighborLoader, NeighborLoader
    from .pyg import features, sampler

# What needs PyTorch, or PyG, is imported when it is used.
_MODULES = {
    "Block": "blocks",
    "BlockBatch": "blocks",
    "BlockLoader": "blocks",
    "LinkNeighborLoader": "loader",
    "NeighborLoader": "loader",
    "features": "pyg",
    "layerwise": "layerwise",
    "nn": "nn",
    "sampler": "pyg",
}

# Without `open`, which `from kith import *` would put in the place of Python's.
__all__ = [
    "Block",
    "BlockBatch",
    "BlockLoader",
    "Graph",
    "KithError",
    "LinkNeighborLoader",
    "NeighborLoader",
    "Run",
    "features",
    "from_dgl",
    "from_edges",
    "from_networkx",
    "from_ogb",
    "from_parquet",
    "from_pyg",
    "layerwise",
    "load",
    "nn",
    "predict",
    "sampler",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'kith' has no attribute {name!r}")
    try:
        module = importlib.import_module(f".{_MODULES[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name != "torch_geometric":
            raise
        raise ModuleNotFoundError(f"kith.{name} needs PyG: pip install torch_geometric", name=error.name) from None
    value = module if name == "nn" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
