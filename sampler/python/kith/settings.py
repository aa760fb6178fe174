"""Settings that Rust reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SampleConfig:
    """Settings of the samples of a batch."""

    seed: int
    num_neighbors: list[int]
    replace: bool
    by_weight: bool
    with_weights: bool
    with_edge_features: bool
    with_edge_ids: bool
    with_x: bool


@dataclass(frozen=True)
class StepConfig:
    """Settings of the steps of a rank."""

    batch_size: int
    world_size: int
    rank: int
    shuffle: bool
    drop_last: bool
    num_threads: int
    depth: int


@dataclass(frozen=True)
class Arrays:
    """A graph that becomes a store."""

    n_nodes: int
    edge_index: np.ndarray
    edge_weight: np.ndarray | None
    edge_attr: np.ndarray | None
    edge_dim: int
    x: np.ndarray | None
    dim: int
    y: np.ndarray | None
    y_rows: np.ndarray | None
    y_kind: str
    n_classes: int
    split: np.ndarray | None
    symmetrize: bool
    merge_duplicates: bool
    source: str
