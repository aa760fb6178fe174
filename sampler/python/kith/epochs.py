"""Batches in epochs: what all loaders share."""

from __future__ import annotations

import atexit
import math
import operator
import os
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from . import _kith
from .graph import Graph, _array, _int64
from .settings import SampleConfig, StepConfig

Batch = TypeVar("Batch")
PARTS = ("train", "valid", "test")
# Arguments of PyG that change nothing here: workers are threads, and lists are sorted.
IGNORED = ("filter_per_worker", "is_sorted", "multiprocessing_context", "persistent_workers", "timeout", "worker_init_fn")
# Arguments of PyG with one value that is taken.
FIXED = {"disjoint": False, "directed": True, "subgraph_type": "directional", "temporal_strategy": "uniform"}
# Memories that may ask Python for pinned tensors.
_MEMORIES: weakref.WeakSet[Any] = weakref.WeakSet()


class Epochs(ABC, Generic[Batch]):
    """Batches of one epoch after the other, and a position that can be saved.

    num_workers: number of threads that sample ahead; 0 means 1.
    prefetch_factor: batches that wait for each thread (default: 2).
    rank, world_size: rank and number of ranks of data-parallel training, which divide the seeds of every step.
    """

    def __init__(
        self,
        graph: Graph,
        num_neighbors: Sequence[int],
        seeds: np.ndarray,
        *,
        batch_size: int,
        shuffle: bool,
        drop_last: bool,
        replace: bool,
        weight_attr: str | None,
        with_edge_ids: bool,
        seed: int,
        num_workers: int,
        prefetch_factor: int | None,
        pin_memory: bool,
        rank: int | None,
        world_size: int | None,
        is_divided: bool,
        ignored: dict[str, Any],
    ) -> None:
        self._check_ignored(ignored)
        if isinstance(num_neighbors, dict):
            raise ValueError("num_neighbors: expected a list: kith has graphs with one type of nodes and edges")
        if (rank is None) != (world_size is None):
            raise ValueError("rank, world_size: expected both or none")
        if replace and weight_attr is not None:
            raise ValueError("replace=True and weight_attr cannot be combined: leave one of them out")
        num_neighbors = [operator.index(n) for n in num_neighbors]
        if any(n < 1 and n != -1 for n in num_neighbors):
            raise ValueError(f"num_neighbors: expected numbers from 1, or -1 for all neighbors, found {num_neighbors}")
        self.graph = graph
        self._seeds = seeds
        self._check_seeds()
        self._sampling = SampleConfig(
            seed=_index("seed", seed, 0),
            num_neighbors=num_neighbors,
            replace=bool(replace),
            by_weight=weight_attr is not None,
            with_weights=graph.has_edge_weights,
            with_edge_features=graph.num_edge_features > 0,
            with_edge_ids=with_edge_ids,
            with_x=graph.num_features > 0,
        )
        self._given_steps = StepConfig(
            batch_size=_index("batch_size", batch_size, 1),
            world_size=1 if world_size is None else _index("world_size", world_size, 1),
            rank=0 if rank is None else _index("rank", rank, 0),
            shuffle=bool(shuffle),
            drop_last=bool(drop_last),
            num_threads=max(1, _index("num_workers", num_workers, 0)),
            depth=_index("prefetch_factor", prefetch_factor or 2, 1),
        )
        if self._given_steps.rank >= self._given_steps.world_size:
            raise ValueError(f"rank: expected a number below world_size = {world_size}, found {rank}")
        # Ranks of `torch.distributed` share the seeds.
        self._is_divided = is_divided and rank is None
        self.num_workers, self.pin_memory = num_workers, pin_memory and torch.cuda.is_available()
        # Epoch and first step of the next iterator, and epoch and step of the next batch.
        self._next = self._position = (0, 0)
        self._memory_here: tuple[int, _kith.Memory] | None = None

    def _check_ignored(self, ignored: dict[str, Any]) -> None:
        for name, value in ignored.items():
            if name in FIXED:
                if getattr(value, "value", value) != FIXED[name]:
                    raise ValueError(f"{name}: expected {FIXED[name]!r}, found {value!r}: kith has no other")
            elif name not in IGNORED and value is not None:
                hint = ": give a seed" if name == "generator" else ""
                raise TypeError(f"{name}: an argument that kith.{type(self).__name__} does not have{hint}")

    def _check_seeds(self) -> None:
        outside = self._seeds[(self._seeds < 0) | (self._seeds >= self.graph.num_nodes)]
        if outside.size > 0:
            raise ValueError(f"expected seed nodes from 0 to {self.graph.num_nodes - 1}, found {outside.flat[0]}")

    @abstractmethod
    def _start(self, epoch: int, first: int, last: int) -> Iterator[Any]:
        """Starts to make the batches of steps `first..last` of an epoch."""

    @abstractmethod
    def _batch(self, made: Any) -> Batch:
        """Turns arrays into a batch."""

    @property
    def _steps(self) -> StepConfig:
        if self._is_divided and torch.distributed.is_available() and torch.distributed.is_initialized():
            return replace(self._given_steps, rank=torch.distributed.get_rank(), world_size=torch.distributed.get_world_size())
        return self._given_steps

    @property
    def dataset(self) -> range:
        """Numbers of the seeds, as PyG's loaders have them."""
        return range(self._seeds.shape[-1])

    @property
    def batch_size(self) -> int:
        return self._given_steps.batch_size

    @property
    def drop_last(self) -> bool:
        return self._given_steps.drop_last

    def __len__(self) -> int:
        steps = self._steps
        n, per_step = len(self.dataset), steps.batch_size * steps.world_size
        return n // per_step if steps.drop_last else math.ceil(n / per_step)

    def __iter__(self) -> Iterator[Batch]:
        """Returns the batches of the next epoch; after `load_state_dict`, the rest of the epoch."""
        epoch, first = self._position = self._next
        self._next = (epoch + 1, 0)
        return self._batches(epoch, first)

    def _batches(self, epoch: int, first: int) -> Iterator[Batch]:
        for step, made in enumerate(self._start(epoch, first, len(self)), first + 1):
            batch = self._batch(made)
            self._position = (epoch, step) if step < len(self) else (epoch + 1, 0)
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iterator. The step of `load_state_dict` stays if it is of this epoch."""
        if self._next[0] != epoch:
            self._next = self._position = (epoch, 0)

    def replay(self, epoch: int, step: int) -> Batch:
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
            if state.get(name) != own:
                raise ValueError(f"state of another loader: expected {name} {own}, found {state.get(name)}")
        self._next = self._position = (state["epoch"], state["step"])

    def _identity(self) -> dict[str, Any]:
        """Returns all that decides the batches of a rank, but its number."""
        settings = {**vars(self._sampling), **vars(self._steps)}
        names = ("seed", "batch_size", "world_size", "shuffle", "drop_last", "num_neighbors", "replace", "by_weight")
        seeds = f"{len(self.dataset)}-{zlib.crc32(self._seeds.tobytes()):08x}"
        return {**{name: settings[name] for name in names}, "seeds": seeds, "graph": self.graph.digest}

    @property
    def _memory(self) -> _kith.Memory:
        # A fork has its own: a lock may have been held elsewhere.
        if self._memory_here is None or self._memory_here[0] != os.getpid():
            steps = self._given_steps
            memory = _kith.Memory(steps.num_threads * (steps.depth + 2) + 2, _pinned_tensors if self.pin_memory else None)
            if self.pin_memory:
                _MEMORIES.add(memory)
            self._memory_here = (os.getpid(), memory)
        return self._memory_here[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memory_here": None}


def _index(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name}: expected a whole number from {least}, found {value!r}")
    return number


def split_and_part(split: str | None, part: str | None) -> tuple[str | None, str | None]:
    """Returns the name of a split and a part of it: `split="train"` alone is that part of the first split."""
    return (None, split) if part is None and split in PARTS else (split, part)


def seed_nodes(graph: Graph, nodes: Any, split: str | None, part: str | None) -> np.ndarray:
    """Returns seed nodes: given ones, those of a mask or of a part of a split, or all."""
    if part is not None:
        if nodes is not None:
            raise ValueError("expected input_nodes or a part of a split, found both")
        if not graph.splits:
            raise ValueError("split: the graph has none: give input_nodes, such as data.train_mask")
        return _int64(graph.nodes(part, split))
    if split is not None:
        raise ValueError(f"split: expected train, valid or test, or a part too, found {split}")
    if nodes is None:
        return np.arange(graph.num_nodes, dtype=np.int64)
    nodes = _array(nodes)
    if nodes.ndim != 1:
        raise ValueError(f"input_nodes: expected one dimension, found shape {nodes.shape}")
    if nodes.dtype == np.bool_:
        if len(nodes) != graph.num_nodes:
            raise ValueError(f"input_nodes: expected a mask of {graph.num_nodes} nodes, found {len(nodes)}")
        return np.flatnonzero(nodes).astype(np.int64)
    return _int64(nodes, "input_nodes")


def tensor(column: Any) -> torch.Tensor:
    """Returns numbers that Rust filled, without a copy."""
    return column if isinstance(column, torch.Tensor) else torch.from_numpy(np.asarray(column))


def optional_tensor(column: Any) -> torch.Tensor | None:
    return None if column is None else tensor(column)


def _pinned_tensors(wanted: list[tuple[list[int], str]]) -> list[tuple[torch.Tensor, int]]:
    """Returns pinned tensors of these shapes and types, and their addresses. Threads of loaders fill them."""
    types = {"<f4": torch.float32, "<i8": torch.int64}
    tensors = [torch.empty(shape, dtype=types[kind], pin_memory=True) for shape, kind in wanted]
    return [(pinned, pinned.data_ptr()) for pinned in tensors]


@atexit.register
def _close_memories() -> None:
    """Threads that are left must not call Python while it ends."""
    for memory in list(_MEMORIES):
        memory.close()
