"""Neighbor loaders with the arguments of PyG."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.sampler import NegativeSampling

from . import _kith
from .epochs import Epochs, optional_tensor, seed_nodes, split_and_part, tensor
from .graph import Graph, _array, _int64
from .in_memory import DataGraph, graph_of


class _Neighborhoods(Epochs[Data]):
    """Batches of neighborhoods that expand every node once."""

    data: Graph | Data
    transform: Callable[[Data], Data] | None

    def _data(self, made: _kith.Batch) -> Data:
        """Returns nodes, edges and all that belongs to them."""
        n_id, graph = tensor(made.n_id), self.graph
        if isinstance(graph, DataGraph):
            batch = copy.copy(graph.data)
            batch.edge_index = tensor(made.edge_index).to(graph.data.edge_index.device)
            graph.put_attributes(batch, n_id, tensor(made.e_id), optional_tensor(made.x), self.pin_memory)
        else:
            batch = Data(edge_index=tensor(made.edge_index))
            for name in ("x", "y", "edge_weight", "edge_attr", "e_id"):
                if (column := getattr(made, name)) is not None:
                    batch[name] = tensor(column)
        if "n_id" not in batch:
            batch.n_id = n_id
        batch.num_nodes = len(n_id)
        batch.num_sampled_nodes, batch.num_sampled_edges = made.num_sampled_nodes, made.num_sampled_edges
        batch.input_id = tensor(made.input_id)
        batch.digest = made.digest
        return batch

    def _labels(self) -> _kith.Labels | None:
        y = None if isinstance(self.graph, DataGraph) else self.graph.y
        return None if y is None else _kith.Labels(y)


class NeighborLoader(_Neighborhoods):
    """Mini-batches of seed nodes and their sampled neighbors, like those of `torch_geometric.loader.NeighborLoader`.

    Every node is expanded once. Samples depend on `seed`, the step, the hop and the node alone: the same batches come from any number of
    workers, from a store, its shards and its servers.

    Arguments with the names of PyG have PyG's meaning. Others:

    data: a `kith.Graph`, or a PyG `Data`, which is written to a temporary store.
    split, part: seed nodes of a split instead of `input_nodes`: `part` is train, valid or test, and `split` the name of the split (default:
        the first). `split="train"` alone means this part of the first split. Without all three, every node is a seed node.
    weight_attr: draws by edge weight: `"edge_weight"`, or an attribute of a `Data`.
    seed: seed of all random draws (default: 0). `torch.manual_seed` does not change it.
    num_workers: number of threads that sample ahead; 0 means 1.
    rank, world_size: rank and number of ranks of data-parallel training, which divide the seed nodes of every step. Default: those of
        `torch.distributed` for nodes of a split; given `input_nodes` are not divided.
    """

    def __init__(
        self,
        data: Graph | Data,
        num_neighbors: Sequence[int],
        input_nodes: Any = None,
        *,
        split: str | None = None,
        part: str | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        replace: bool = False,
        weight_attr: str | None = None,
        seed: int = 0,
        num_workers: int = 0,
        prefetch_factor: int | None = None,
        pin_memory: bool = False,
        transform: Callable[[Data], Data] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        **ignored: Any,
    ) -> None:
        graph = graph_of(data, weight_attr)
        split, part = split_and_part(split, part)
        super().__init__(
            graph,
            num_neighbors,
            seed_nodes(graph, input_nodes, split, part),
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            replace=replace,
            weight_attr=weight_attr,
            with_edge_ids=graph._inner.is_store,
            seed=seed,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
            pin_memory=pin_memory,
            rank=rank,
            world_size=world_size,
            is_divided=part is not None,
            ignored=ignored,
        )
        self.data, self.input_nodes, self.transform = data, input_nodes, transform
        # In PyG, the seed nodes of a mask are known by their ids.
        self._is_mask = input_nodes is not None and _array(input_nodes).dtype == np.bool_

    def _start(self, epoch: int, first: int, last: int) -> Iterator[_kith.Batch]:
        arguments = (self._labels(), self._seeds, None, self._sampling, self._steps, epoch, (first, last))
        return _kith.Loader(self.graph._inner, self._memory, *arguments)

    def _batch(self, made: _kith.Batch) -> Data:
        batch = self._data(made)
        batch.batch_size = len(batch.input_id)
        if self._is_mask:
            batch.input_id = tensor(made.n_id)[: batch.batch_size]
        return batch if self.transform is None else self.transform(batch)


class LinkNeighborLoader(_Neighborhoods):
    """Mini-batches of pairs of nodes and their sampled neighbors, like those of `torch_geometric.loader.LinkNeighborLoader`.

    Arguments with the names of PyG have PyG's meaning; for others see `NeighborLoader`. `edge_label_index` holds the pairs (default: all
    edges of the graph, which must be a store then). Negatives depend on `seed`, the step and the pair alone. As in PyG, they are any
    nodes: some may be neighbors.
    """

    def __init__(
        self,
        data: Graph | Data,
        num_neighbors: Sequence[int],
        edge_label_index: Any = None,
        edge_label: Any = None,
        *,
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        replace: bool = False,
        weight_attr: str | None = None,
        seed: int = 0,
        num_workers: int = 0,
        prefetch_factor: int | None = None,
        pin_memory: bool = False,
        transform: Callable[[Data], Data] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        **ignored: Any,
    ) -> None:
        graph = graph_of(data, weight_attr)
        super().__init__(
            graph,
            num_neighbors,
            _pairs(data.edge_index if edge_label_index is None else edge_label_index),
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            replace=replace,
            weight_attr=weight_attr,
            with_edge_ids=graph._inner.is_store,
            seed=seed,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
            pin_memory=pin_memory,
            rank=rank,
            world_size=world_size,
            is_divided=False,
            ignored=ignored,
        )
        self.data, self.transform = data, transform
        if neg_sampling_ratio:
            neg_sampling = NegativeSampling("binary", neg_sampling_ratio)
        self.neg_sampling = NegativeSampling.cast(neg_sampling)
        if self.neg_sampling is not None and (self.neg_sampling.src_weight, self.neg_sampling.dst_weight) != (None, None):
            raise ValueError("neg_sampling: expected no src_weight and no dst_weight: kith draws negatives uniformly")
        self._edge_label = None if edge_label is None else torch.as_tensor(edge_label).cpu()
        self._check_labels()

    def _check_labels(self) -> None:
        if self._edge_label is None:
            return
        if self._has_triplets:
            raise ValueError("edge_label: expected none with triplets: src_index, dst_pos_index and dst_neg_index say what is what")
        if len(self._edge_label) != len(self.dataset):
            raise ValueError(f"edge_label: expected {len(self.dataset)} labels, found {len(self._edge_label)}")
        # 0 is the label of negatives.
        if self.neg_sampling is not None and len(self._edge_label) > 0 and self._edge_label.min() == 0:
            self._edge_label = self._edge_label + 1

    @property
    def _has_triplets(self) -> bool:
        return self.neg_sampling is not None and self.neg_sampling.is_triplet()

    def _negatives(self) -> list[Any]:
        return ["none", 0.0] if self.neg_sampling is None else [self.neg_sampling.mode.value, float(self.neg_sampling.amount)]

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "negatives": self._negatives()}

    def _start(self, epoch: int, first: int, last: int) -> Iterator[_kith.Batch]:
        mode, amount = self._negatives()
        arguments = (self._labels(), self._seeds, (mode, amount), self._sampling, self._steps, epoch, (first, last))
        return _kith.Loader(self.graph._inner, self._memory, *arguments)

    def _batch(self, made: _kith.Batch) -> Data:
        batch = self._data(made)
        pairs, n = tensor(made.pairs), len(batch.input_id)
        if self._has_triplets:
            if "edge_label_index" in batch:
                del batch.edge_label_index
            batch.src_index, batch.dst_pos_index = pairs[:n], pairs[n : 2 * n]
            batch.dst_neg_index = pairs[2 * n :].view(n, int(self.neg_sampling.amount)).squeeze(-1)
        else:
            batch.edge_label_index = pairs.view(2, -1)
            batch.edge_label = self._labels_of(batch.input_id, batch.edge_label_index.shape[1])
        return batch if self.transform is None else self.transform(batch)

    def _labels_of(self, pairs: torch.Tensor, n_all: int) -> torch.Tensor | None:
        if self.neg_sampling is None:
            return None if self._edge_label is None else self._edge_label[pairs]
        labels = torch.ones(len(pairs)) if self._edge_label is None else self._edge_label[pairs]
        return torch.cat([labels, labels.new_zeros((n_all - len(pairs), *labels.shape[1:]))])


def _pairs(given: Any) -> np.ndarray:
    pairs = _int64(given, "edge_label_index")
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        raise ValueError(f"edge_label_index: expected shape (2, pairs), found {pairs.shape}")
    return pairs
