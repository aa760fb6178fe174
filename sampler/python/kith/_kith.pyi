from pathlib import Path
from typing import Any

class KithError(Exception): ...

class Array:
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

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
    def __init__(
        self,
        folder: Path | None,
        servers: list[str],
        timeout: float,
        token: tuple[Path | None, str | None],
        tls: tuple[Path, tuple[Path, Path] | None, str | None] | None,
    ) -> None: ...
    def seeds(self, split: str | None, part: str) -> tuple[Array, Array]: ...
    def features(self, ids: bytes) -> Array: ...

class Batch:
    step: int
    n_id: Array
    input_id: Array
    edge_index: Array
    edge_attr: Array | None
    x: Array | None
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    digest: str

class Loader:
    def __init__(self, graph: Graph, seeds: bytes, settings: Any, epoch: int, steps: tuple[int, int]) -> None: ...
    def __iter__(self) -> Loader: ...
    def __next__(self) -> Batch: ...

def write_store(out: Path, arrays: Any, memory_bytes: int) -> None: ...
