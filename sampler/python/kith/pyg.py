"""Interfaces of PyG, for loaders and code that take their own samplers and stores."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, FeatureStore, TensorAttr
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, NegativeSampling, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample

from . import _kith
from .epochs import tensor
from .graph import Graph, _int64
from .in_memory import DataGraph, graph_of
from .settings import SampleConfig


class Sampler(BaseSampler):
    """Samples neighborhoods for PyG's `NodeLoader` and `LinkLoader`: see `kith.sampler`."""

    def __init__(self, graph: Graph, sampling: SampleConfig) -> None:
        self.graph, self._sampling, self._epoch = graph, sampling, 0
        self._made: tuple[int, _kith.Sampler] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Draws of another epoch for the same seed nodes."""
        self._epoch = epoch

    def _sample(self, seed: torch.Tensor, _time: Any = None) -> SamplerOutput:
        if self._made is None or self._made[0] != os.getpid():
            self._made = (os.getpid(), _kith.Sampler(self.graph._inner, _kith.Memory(0, None), self._sampling))
        nodes = _int64(seed)
        # Workers call in any order: what they draw depends on the seed nodes and the epoch.
        name = hashlib.blake2b(nodes.tobytes() + self._epoch.to_bytes(8, "little"), digest_size=8).digest()
        made = self._made[1].sample(nodes, int.from_bytes(name, "little") >> 1)
        row, col = tensor(made.edge_index)
        return SamplerOutput(
            node=tensor(made.n_id),
            row=row,
            col=col,
            edge=None if made.e_id is None else tensor(made.e_id),
            num_sampled_nodes=made.num_sampled_nodes,
            num_sampled_edges=made.num_sampled_edges,
        )

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput:
        out = self._sample(index.node)
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None, **_: Any) -> SamplerOutput:
        """Negatives are PyG's, drawn by PyTorch's generator."""
        return edge_sample(index, self._sample, self.graph.num_nodes, False, None, neg_sampling)

    @property
    def edge_permutation(self) -> torch.Tensor | None:
        """Returns the place of each edge in `Data.edge_index`, if the graph is one."""
        return self.graph.order if isinstance(self.graph, DataGraph) else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}


def sampler(
    data: Graph | Data, num_neighbors: Sequence[int], *, replace: bool = False, weight_attr: str | None = None, seed: int = 0
) -> Sampler:
    """Returns a PyG `BaseSampler`. The same seed nodes get the same neighbors, until `set_epoch` is called.

    >>> loader = NodeLoader((kith.features(graph), None), kith.sampler(graph, [15, 10]), input_nodes=nodes)
    >>> loader = LinkLoader(data, kith.sampler(data, [15, 10]), pairs)
    """
    graph = graph_of(data, weight_attr)
    sampling = SampleConfig(
        seed=seed,
        num_neighbors=[int(n) for n in num_neighbors],
        replace=replace,
        by_weight=weight_attr is not None,
        with_weights=False,
        with_edge_features=False,
        with_edge_ids=graph._inner.is_store,
        with_x=False,
    )
    return Sampler(graph, sampling)


class Features(FeatureStore):
    """Features and labels of a graph as a PyG `FeatureStore`, read-only: see `kith.features`."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.__dict__["graph"] = graph

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        graph = self.__dict__["graph"]
        names = ["x"] * (graph.num_features > 0) + ["y"] * (graph.y is not None)
        return [TensorAttr(None, name) for name in names]

    def _get_tensor(self, attr: TensorAttr) -> torch.Tensor | None:
        graph, index = self.__dict__["graph"], attr.index
        if index is None or isinstance(index, slice):
            nodes = np.arange(graph.num_nodes)[slice(None) if index is None else index]
        else:
            nodes = _int64(index)
        if attr.attr_name == "x" and graph.num_features > 0:
            return torch.from_numpy(graph.features(nodes))
        if attr.attr_name == "y" and graph.y is not None:
            return torch.from_numpy(graph.y[nodes])
        return None

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        graph = self.__dict__["graph"]
        if attr.attr_name == "x":
            return (graph.num_nodes, graph.num_features)
        return None if graph.y is None else tuple(graph.y.shape)

    def _put_tensor(self, _tensor: Any, attr: TensorAttr) -> bool:
        raise _kith.KithError(f"{attr.attr_name}: stores are read-only: write another with kith.from_edges")

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        raise _kith.KithError(f"{attr.attr_name}: stores are read-only: write another with kith.from_edges")


def features(graph: Graph) -> Features:
    """Returns the features (`x`) and labels (`y`) of a graph as a PyG `FeatureStore`."""
    if not isinstance(graph, Graph):
        raise TypeError(f"graph: expected a kith.Graph, found {type(graph).__name__}: a PyG Data is a FeatureStore itself")
    return Features(graph)
