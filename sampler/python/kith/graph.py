"""An open graph: a store, a partitioned graph, or sampling servers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from . import _kith
from .programs import pull

PARTS = ("train", "valid", "test", "none")


def open(
    place: str | os.PathLike[str],
    *,
    timeout: float = 60.0,
    token_file: str | os.PathLike[str] | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    tls_name: str | None = None,
) -> Graph:
    """Opens a graph.

    `place` is the folder of a store or of a partitioned graph, a URL of one in object storage (`s3://BUCKET/FOLDER`), or sampling
    servers (`grpc://HOST:PORT,HOST:PORT`). What is in object storage is brought to this machine first, into the cache of the program.

    The other arguments are for servers; they mean what the options of `kith train` with these names mean. A token in the environment
    variable KITH_SAMPLER_TOKEN is used if there is no `token_file`.
    """
    if (tls_cert is None) != (tls_key is None) or (tls_ca is None and (tls_cert is not None or tls_name is not None)):
        raise ValueError("tls_cert, tls_key, tls_name: expected tls_ca too, and tls_cert together with tls_key")
    text = os.fspath(place)
    tls = None
    if tls_ca is not None:
        identity = None if tls_cert is None or tls_key is None else (Path(tls_cert), Path(tls_key))
        tls = (Path(tls_ca), identity, tls_name)
    return Graph(text, timeout, None if token_file is None else Path(token_file), tls)


class Graph:
    """A graph. Nodes are `0..num_nodes`. Can be pickled, and used after a fork: it is opened again there."""

    def __init__(self, place: str, timeout: float, token_file: Path | None, tls: Any) -> None:
        self._arguments = (place, timeout, token_file, tls)
        self._opened, self._process = self._open(), os.getpid()
        self._y: np.ndarray | None = None

    def _open(self) -> _kith.Graph:
        place, timeout, token_file, tls = self._arguments
        token = (token_file, os.environ.get("KITH_SAMPLER_TOKEN") or None)
        if place.startswith("grpc://"):
            servers = [server.strip().removeprefix("grpc://").rstrip("/") for server in place.split(",")]
            return _kith.Graph(None, [server for server in servers if server], timeout, token, tls)
        if "://" in place:
            return _kith.Graph(pull(place), [], timeout, token, tls)
        if not Path(place).is_dir():
            hint = f": for servers, write grpc://{place}" if ":" in place else ""
            raise _kith.KithError(f"{place}: expected the folder of a store or of a partitioned graph, found none{hint}")
        return _kith.Graph(Path(place), [], timeout, token, tls)

    @property
    def _inner(self) -> _kith.Graph:
        # Threads that talk to servers do not survive a fork.
        if os.getpid() != self._process:
            self._opened, self._process = self._open(), os.getpid()
        return self._opened

    def __reduce__(self) -> Any:
        return Graph, self._arguments

    @property
    def place(self) -> str:
        """The folder or address that it was opened from."""
        return self._arguments[0]

    @property
    def num_nodes(self) -> int:
        return self._inner.n_nodes

    @property
    def num_edges(self) -> int:
        """Directed edges."""
        return self._inner.n_edges

    @property
    def num_features(self) -> int:
        return self._inner.dim

    @property
    def num_edge_features(self) -> int:
        return self._inner.edge_dim

    @property
    def has_edge_weights(self) -> bool:
        return self._inner.has_edge_weights

    @property
    def num_classes(self) -> int:
        return self._inner.n_classes

    @property
    def is_undirected(self) -> bool:
        return self._inner.is_symmetric

    @property
    def splits(self) -> list[str]:
        """Names of the splits; the first is the default."""
        return self._inner.splits

    @property
    def digest(self) -> str:
        """Identity of the store, whatever it is partitioned into."""
        return self._inner.digest

    def nodes(self, part: str, split: str | None = None) -> np.ndarray:
        """Nodes of a part of a split: train, valid, test or none. Nodes of `none` have labels, and are in no part."""
        return np.asarray(self._inner.seeds(split, part)[0])

    def features(self, nodes: Any) -> np.ndarray:
        """Features of nodes, in their order."""
        return np.asarray(self._inner.features(_int64(nodes)))

    @property
    def edge_index(self) -> np.ndarray:
        """Sources and destinations of all edges, in the order of `e_id`. Stores only: shards and servers have parts of it."""
        return np.asarray(self._inner.edge_index())

    @property
    def y(self) -> np.ndarray | None:
        """Labels of all nodes, read-only; -1 (of several classes: 0, of targets: nan) for nodes without one.

        `None` if there are no labels. Shards and servers give labels by the parts of a split: `None` if they have none.
        """
        if self._y is None and self._inner.n_classes > 0:
            labels = self._inner.labels()
            y = self._y_by_parts() if labels is None else np.asarray(labels)
            if y is not None:
                y = y[:, 0] if self._inner.label_kind == "targets" and y.shape[1] == 1 else y
                y = np.ascontiguousarray(y)
                y.flags.writeable = False
            self._y = y
        return self._y

    def _y_by_parts(self) -> np.ndarray | None:
        if not self.splits:
            return None
        parts = [[np.asarray(array) for array in self._inner.seeds(None, part)] for part in PARTS]
        labels = parts[0][1]
        empty = {"classes": -1, "multi-label": 0, "targets": np.nan}[self._inner.label_kind]
        y = np.full((self.num_nodes, *labels.shape[1:]), empty, labels.dtype)
        for nodes, labels in parts:
            y[nodes] = labels
        return y

    def __repr__(self) -> str:
        return f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, num_features={self.num_features})"


def _array(numbers: Any) -> np.ndarray:
    """Numbers of an array, a tensor on any device, or a list."""
    if hasattr(numbers, "detach"):
        numbers = numbers.detach().cpu()
        numbers = numbers.to_dense() if str(numbers.layout) != "torch.strided" else numbers
        numbers = (numbers.float() if str(numbers.dtype) == "torch.bfloat16" else numbers).numpy()
    return np.asarray(numbers)


def _int64(numbers: Any, name: str = "nodes") -> np.ndarray:
    array = _array(numbers)
    if array.size > 0 and array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected whole numbers, found {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64)
