from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .settings import Arrays, SampleConfig, StepConfig

class KithError(Exception): ...

class Array:
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

class Memory:
    def __init__(self, most: int, allocate: Callable[[list[tuple[list[int], str]]], list[tuple[Any, int]]] | None) -> None: ...
    def close(self) -> None: ...

class Labels:
    def __init__(self, array: np.ndarray) -> None: ...

class Graph:
    n_nodes: int
    n_edges: int
    dim: int
    n_classes: int
    label_kind: str
    is_symmetric: bool
    has_edge_weights: bool
    edge_dim: int
    splits: list[str]
    digest: str
    is_store: bool
    def __init__(
        self,
        folder: Path | None,
        servers: list[str],
        timeout: float,
        token: tuple[Path | None, str | None],
        tls: tuple[Path, tuple[Path, Path] | None, str | None] | None,
    ) -> None: ...
    def seeds(self, split: str | None, part: str) -> tuple[Array, Array]: ...
    def features(self, ids: np.ndarray) -> Array: ...
    def edge_index(self) -> Array: ...
    def labels(self) -> Array | None: ...

class Batch:
    step: int
    n_id: Any
    input_id: Any
    edge_index: Any
    e_id: Any
    edge_weight: Any
    edge_attr: Any
    x: Any
    y: Any
    pairs: Any
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    digest: str

class Loader:
    def __init__(
        self,
        graph: Graph,
        memory: Memory,
        labels: Labels | None,
        seeds: np.ndarray,
        negatives: tuple[str, float] | None,
        config: SampleConfig,
        steps: StepConfig,
        epoch: int,
        range: tuple[int, int],
    ) -> None: ...
    def __iter__(self) -> Loader: ...
    def __next__(self) -> Batch: ...

class Sampler:
    def __init__(self, graph: Graph, memory: Memory, config: SampleConfig) -> None: ...
    def sample(self, nodes: np.ndarray, step: int) -> Batch: ...

class BlockBatch:
    step: int
    n_id: Any
    n_seeds: int
    x: Any
    y: Any
    blocks: list[tuple[Any, Any, Any, int, int]]
    digest: str

class BlockLoader:
    def __init__(
        self,
        graph: Graph,
        memory: Memory,
        labels: Labels | None,
        seeds: np.ndarray,
        config: SampleConfig,
        steps: StepConfig,
        with_loops: bool,
        epoch: int,
        range: tuple[int, int],
    ) -> None: ...
    def __iter__(self) -> BlockLoader: ...
    def __next__(self) -> BlockBatch: ...

def write_store(out: Path, arrays: Arrays, memory_bytes: int) -> None: ...
