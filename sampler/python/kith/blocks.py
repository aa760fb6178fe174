"""Loader of the program's own mini-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from . import _kith
from .epochs import Epochs, optional_tensor, seed_nodes, split_and_part, tensor
from .graph import Graph


@dataclass(frozen=True)
class Block:
    """Edges of one layer. Destinations are the first nodes among the sources.

    >>> x = conv((x, x[: block.num_dst]), block.edge_index)
    """

    edge_index: torch.Tensor
    num_src: int
    num_dst: int
    edge_weight: torch.Tensor | None = None
    edge_attr: torch.Tensor | None = None

    def to(self, device: Any, non_blocking: bool = False) -> Block:
        """Returns the block on a device."""
        return _moved(self, device, non_blocking)

    def to_dgl(self) -> Any:
        """Returns a block of DGL."""
        import dgl

        ends = (self.edge_index[0], self.edge_index[1])
        block = dgl.create_block(ends, num_src_nodes=self.num_src, num_dst_nodes=self.num_dst, device=self.edge_index.device)
        for name, value in (("w", self.edge_weight), ("feat", self.edge_attr)):
            if value is not None:
                block.edata[name] = value
        return block


@dataclass(frozen=True)
class BlockBatch:
    """A mini-batch of the program: a block for each layer, from the input to the output."""

    n_id: torch.Tensor
    """Ids of all nodes; the seed nodes come first, ascending."""
    batch_size: int
    """Number of seed nodes."""
    blocks: tuple[Block, ...]
    x: torch.Tensor | None
    """Features of all nodes."""
    y: torch.Tensor | None
    """Labels of the seed nodes."""
    digest: str
    """Equal for equal mini-batches, and to the digest in `steps.jsonl` of a run of the program."""

    @property
    def input_nodes(self) -> torch.Tensor:
        return self.n_id

    @property
    def output_nodes(self) -> torch.Tensor:
        return self.n_id[: self.batch_size]

    def to(self, device: Any, non_blocking: bool = False) -> BlockBatch:
        """Returns the mini-batch on a device."""
        moved: BlockBatch = _moved(self, device, non_blocking)
        return replace(moved, blocks=tuple(block.to(device, non_blocking) for block in self.blocks))

    def to_dgl(self) -> tuple[torch.Tensor, torch.Tensor, list[Any]]:
        """Returns what DGL's loader gives: input nodes, output nodes, blocks. Features are `srcdata["feat"]` of the first block."""
        blocks = [block.to_dgl() for block in self.blocks]
        if self.x is not None:
            blocks[0].srcdata["feat"] = self.x
        if self.y is not None:
            blocks[-1].dstdata["label"] = self.y
        return self.input_nodes, self.output_nodes, blocks


def _moved(whole: Any, device: Any, non_blocking: bool) -> Any:
    values = {field.name: getattr(whole, field.name) for field in fields(whole)}
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    return replace(whole, **{name: value.to(device, non_blocking=non_blocking) for name, value in tensors.items()})


class BlockLoader(Epochs[BlockBatch]):
    """Mini-batches as `kith train` makes them: at each hop, every node so far is expanded again, as by DGL's `NeighborSampler`.

    The order of seed nodes is drawn anew in each epoch. For the same `seed`, a digest equals that of a run of the program with
    `train.batch_size` = `batch_size` × `world_size`, `train.slices` = `world_size`, the same `train.fanouts`, no edge seeds and no edge
    loss.

    num_neighbors: fanout of each layer, from the seed nodes outwards; -1 takes all neighbors.
    input_nodes, split, part: as for `NeighborLoader`.
    add_self_loops: True adds the self-loop of each destination, as the program's layers have it.
    """

    def __init__(
        self,
        graph: Graph,
        num_neighbors: Sequence[int],
        input_nodes: Any = None,
        *,
        split: str | None = None,
        part: str | None = None,
        batch_size: int = 1,
        drop_last: bool = False,
        replace: bool = False,
        weight_attr: str | None = None,
        add_self_loops: bool = False,
        seed: int = 42,
        num_workers: int = 0,
        prefetch_factor: int | None = None,
        pin_memory: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if not isinstance(graph, Graph):
            raise TypeError(f"graph: expected a kith.Graph, found {type(graph).__name__}: write it with kith.from_pyg or kith.from_dgl")
        if weight_attr not in (None, "edge_weight"):
            raise ValueError(f"weight_attr: expected 'edge_weight', found {weight_attr!r}")
        split, part = split_and_part(split, part)
        super().__init__(
            graph,
            num_neighbors,
            np.unique(seed_nodes(graph, input_nodes, split, part)),
            batch_size=batch_size,
            shuffle=True,
            drop_last=drop_last,
            replace=replace,
            weight_attr=weight_attr,
            with_edge_ids=False,
            seed=seed,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
            pin_memory=pin_memory,
            rank=rank,
            world_size=world_size,
            is_divided=part is not None,
            ignored={},
        )
        self._add_self_loops = add_self_loops

    def _start(self, epoch: int, first: int, last: int) -> Iterator[_kith.BlockBatch]:
        if len(self._seeds) == 0:
            return iter(())
        labels = None if self.graph.y is None else _kith.Labels(self.graph.y)
        arguments = (labels, self._seeds, self._sampling, self._steps, self._add_self_loops, epoch, (first, last))
        return _kith.BlockLoader(self.graph._inner, self._memory, *arguments)

    def _batch(self, made: _kith.BlockBatch) -> BlockBatch:
        return BlockBatch(
            n_id=tensor(made.n_id),
            batch_size=made.n_seeds,
            blocks=tuple(
                Block(tensor(edge_index), num_src, num_dst, optional_tensor(weight), optional_tensor(features))
                for edge_index, weight, features, num_src, num_dst in made.blocks
            ),
            x=optional_tensor(made.x),
            y=optional_tensor(made.y),
            digest=made.digest,
        )
