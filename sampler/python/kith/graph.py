"""An open graph: a store, a partitioned graph, or sampling servers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from . import _kith

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

    `place` is the folder of a store or of a partitioned graph, or sampling servers (`grpc://HOST:PORT,HOST:PORT`). The other
    arguments are for servers; they mean what the options of `kith train` with these names mean. A token in the environment
    variable KITH_SAMPLER_TOKEN is used if there is no `token_file`.
    """
    if (tls_cert is None) != (tls_key is None) or (tls_ca is None and (tls_cert is not None or tls_name is not None)):
        raise ValueError("tls_cert, tls_key, tls_name: expected tls_ca too, and tls_cert together with tls_key")
    text = os.fspath(place)
    token = (None if token_file is None else Path(token_file), os.environ.get("KITH_SAMPLER_TOKEN") or None)
    tls = None
    if tls_ca is not None:
        identity = None if tls_cert is None or tls_key is None else (Path(tls_cert), Path(tls_key))
        tls = (Path(tls_ca), identity, tls_name)
    if text.startswith("grpc://"):
        servers = [server.strip().removeprefix("grpc://").rstrip("/") for server in text.split(",")]
        return Graph(_kith.Graph(None, [server for server in servers if server], timeout, token, tls), is_remote=True)
    if "://" in text:
        raise _kith.KithError(f"{text}: expected a folder or grpc://HOST:PORT: bring it here with `kith data pull`")
    return Graph(_kith.Graph(Path(text), [], timeout, token, tls))


class Graph:
    """A graph. Nodes are `0..num_nodes`."""

    def __init__(self, inner: _kith.Graph, *, is_remote: bool = False) -> None:
        self._opened, self._is_remote, self._process = inner, is_remote, os.getpid()
        self._y: np.ndarray | None = None

    @property
    def _inner(self) -> _kith.Graph:
        # Threads that talk to servers do not survive a fork.
        if self._is_remote and os.getpid() != self._process:
            raise _kith.KithError("the graph was opened before a fork: call kith.open in this process")
        return self._opened

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
        return np.asarray(self._inner.features(_int64(nodes).tobytes()))

    @property
    def y(self) -> np.ndarray | None:
        """Labels of all nodes, read-only; -1 (of several classes: 0, of targets: nan) for nodes without one.

        `None` if the graph has no labels, or no split: servers give labels by the parts of a split.
        """
        if self._y is None and self._inner.n_classes > 0 and self.splits:
            parts = [[np.asarray(array) for array in self._inner.seeds(None, part)] for part in PARTS]
            labels = parts[0][1]
            empty = {"classes": -1, "multi-label": 0, "targets": np.nan}[self._inner.label_kind]
            y = np.full((self.num_nodes, *labels.shape[1:]), empty, labels.dtype)
            for nodes, labels in parts:
                y[nodes] = labels
            y.flags.writeable = False
            self._y = y
        return self._y

    def __repr__(self) -> str:
        return f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, num_features={self.num_features})"


def _array(numbers: Any) -> np.ndarray:
    """Numbers of an array, a tensor on any device, or a list."""
    return np.asarray(numbers.detach().cpu().numpy() if hasattr(numbers, "detach") else numbers)


def _int64(numbers: Any, name: str = "nodes") -> np.ndarray:
    array = _array(numbers)
    if array.size > 0 and array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected whole numbers, found {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64)
