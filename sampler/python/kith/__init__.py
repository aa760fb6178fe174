"""Graphs and neighbor loaders for models that are written in PyTorch.

>>> graph = kith.open("stores/arxiv")
>>> loader = kith.NeighborLoader(graph, num_neighbors=[15, 10], split="train", batch_size=1024)
>>> for batch in loader:
...     out = model(batch.x, batch.edge_index)[: batch.batch_size]
"""

from ._kith import KithError
from .graph import Graph, open
from .importing import from_edges, from_pyg
from .loader import NeighborLoader

__all__ = ["Graph", "KithError", "NeighborLoader", "from_edges", "from_pyg", "open"]
