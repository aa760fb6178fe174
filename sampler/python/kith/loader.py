"""Neighbor loaders with the arguments of PyG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from . import _kith
from .graph import Graph, _array, _int64

PARTS = ("train", "valid", "test")
# Arguments of PyG that change nothing here: workers are threads.
IGNORED = ("filter_per_worker", "is_sorted", "multiprocessing_context", "persistent_workers", "worker_init_fn")


class NeighborLoader:
    """Mini-batches of seed nodes and their sampled neighbors, like those of `torch_geometric.loader.NeighborLoader`.

    Every node is expanded once. Samples depend on `seed`, the step, the hop and the node alone: the same batches come from any number of
    workers, from a store, its shards and its servers.

    Arguments with the names of PyG have PyG's meaning. Others:

    split, part: seed nodes of a split instead of `input_nodes`: `part` is train, valid or test, and `split` the name of the split (default:
        the first). `split="train"` alone means this part of the first split. Without all three, every node is a seed node.
    seed: seed of all random draws (default: 0).
    num_workers: number of threads that sample ahead; 0 means 1.
    rank, world_size: rank and number of ranks of data-parallel training, which divide the seed nodes of every step. Default: those of
        `torch.distributed` for nodes of a split; given `input_nodes` are the rank's own.
    """

    def __init__(
        self,
        data: Graph,
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
        for name in ignored:
            if name not in IGNORED:
                raise TypeError(f"{name}: an argument that kith.NeighborLoader does not have")
        if part is None and split in PARTS:
            split, part = None, split
        self.graph = data
        self._seeds = self._find_seeds(input_nodes, split, part)
        if (rank is None) != (world_size is None):
            raise ValueError("rank, world_size: expected both or none")
        if rank is None and part is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        if replace and weight_attr is not None:
            raise ValueError("replace=True and weight_attr cannot be combined")
        for name, value, least in (("batch_size", batch_size, 1), ("seed", seed, 0), ("num_workers", num_workers, 0)):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name}: expected a whole number from {least}, found {value}")
        self._settings = SimpleNamespace(
            seed=seed,
            batch_size=batch_size,
            world_size=1 if world_size is None else world_size,
            rank=0 if rank is None else rank,
            shuffle=shuffle,
            drop_last=drop_last,
            num_neighbors=list(num_neighbors),
            replace=replace,
            by_weight=weight_attr is not None,
            with_weights=data._inner.has_edge_weights,
            with_edge_features=data._inner.edge_dim > 0,
            with_x=data.num_features > 0,
            num_threads=max(1, num_workers),
            depth=prefetch_factor or 2,
        )
        self.transform = transform
        self.pin_memory = pin_memory and torch.cuda.is_available()
        # Epoch and step of the next batch, and whether an iterator is to start there.
        self._position, self._is_next = (0, 0), True

    def _find_seeds(self, input_nodes: Any, split: str | None, part: str | None) -> np.ndarray:
        if part is not None:
            if input_nodes is not None:
                raise ValueError("expected input_nodes or a part of a split, found both")
            return _int64(self.graph.nodes(part, split))
        if split is not None:
            raise ValueError(f"split: expected train, valid or test, or a part too, found {split}")
        if input_nodes is None:
            return np.arange(self.graph.num_nodes, dtype=np.int64)
        nodes = _array(input_nodes)
        if nodes.ndim != 1:
            raise ValueError(f"input_nodes: expected one dimension, found shape {nodes.shape}")
        if nodes.dtype == np.bool_:
            if len(nodes) != self.graph.num_nodes:
                raise ValueError(f"input_nodes: expected a mask of {self.graph.num_nodes} nodes, found {len(nodes)}")
            return np.flatnonzero(nodes).astype(np.int64)
        return _int64(nodes, "input_nodes")

    def __len__(self) -> int:
        per_step = self._settings.batch_size * self._settings.world_size
        whole, rest = divmod(len(self._seeds), per_step)
        return whole + (rest > 0 and not self._settings.drop_last)

    def __iter__(self) -> Iterator[Data]:
        """Returns the batches of the next epoch; after `load_state_dict`, the rest of the epoch."""
        epoch, step = self._position
        if not self._is_next and step > 0:  # An earlier iterator was left before its end.
            epoch, step = epoch + 1, 0
        self._is_next, self._position = False, (epoch, step)
        return self._batches(epoch, step)

    def _batches(self, epoch: int, first: int) -> Iterator[Data]:
        for step, made in enumerate(self._start(epoch, first, len(self)), first + 1):
            batch = self._batch(made)
            self._position = (epoch, step) if step < len(self) else (epoch + 1, 0)
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iterator. The step of `load_state_dict` stays if it is of this epoch."""
        if not (self._is_next and self._position[0] == epoch):
            self._position, self._is_next = (epoch, 0), True

    def replay(self, epoch: int, step: int) -> Data:
        """Returns batch `step` of `epoch`."""
        if not 0 <= step < len(self):
            raise IndexError(f"step: expected 0 to {len(self) - 1}, found {step}")
        return self._batch(next(self._start(epoch, step, step + 1)))

    def state_dict(self) -> dict[str, Any]:
        """Returns the position in the order of batches, for a checkpoint."""
        epoch, step = self._position
        return {"epoch": epoch, "step": step, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on after the last batch before `state_dict`."""
        for name, own in self._identity().items():
            if state[name] != own:
                raise ValueError(f"state of another loader: expected {name} {own}, found {state[name]}")
        self._position, self._is_next = (state["epoch"], state["step"]), True

    def _identity(self) -> dict[str, Any]:
        """Returns all that decides the batches of a rank, but its number."""
        names = ("seed", "batch_size", "world_size", "shuffle", "drop_last", "num_neighbors", "replace", "by_weight")
        settings = {name: getattr(self._settings, name) for name in names}
        return {**settings, "n_seeds": len(self._seeds), "graph": self.graph.digest}

    def _start(self, epoch: int, first: int, last: int) -> _kith.Loader:
        return _kith.Loader(self.graph._inner, self._seeds.tobytes(), self._settings, epoch, (first, last))

    def _batch(self, made: _kith.Batch) -> Data:
        batch = Data(edge_index=self._tensor(made.edge_index))
        if made.x is not None:
            batch.x = self._tensor(made.x)
        if made.edge_attr is not None:
            self._put_edge_data(batch, self._tensor(made.edge_attr))
        batch.n_id = self._tensor(made.n_id)
        batch.input_id = self._tensor(made.input_id)
        if self.graph.y is not None:
            batch.y = self._pinned(torch.from_numpy(self.graph.y[np.asarray(made.n_id)]))
        batch.batch_size = len(batch.input_id)
        batch.num_nodes = len(batch.n_id)
        batch.num_sampled_nodes = made.num_sampled_nodes
        batch.num_sampled_edges = made.num_sampled_edges
        batch.digest = made.digest
        return batch if self.transform is None else self.transform(batch)

    def _put_edge_data(self, batch: Data, numbers: torch.Tensor) -> None:
        n_weights = int(self._settings.with_weights)
        if n_weights > 0:
            batch.edge_weight = numbers[:, 0].contiguous()
        if numbers.shape[1] > n_weights:
            batch.edge_attr = numbers[:, n_weights:].contiguous()

    def _tensor(self, array: _kith.Array) -> torch.Tensor:
        return self._pinned(torch.from_numpy(np.asarray(array)))

    def _pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory() if self.pin_memory else tensor
