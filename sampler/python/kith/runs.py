"""Training, runs and predictions. The programs of Kith do the work, as child processes."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import json
import os
import re
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._kith import KithError
from .graph import Graph, _array
from .programs import GRACE, options_of, remove, run_program

Place = str | os.PathLike[str]
AnyGraph = str | os.PathLike[str] | Graph
Callback = Callable[[dict[str, Any]], Any]
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}


def train(
    config: Place | None,
    graph: AnyGraph,
    *,
    out: Place | None = None,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    epochs: int | None = None,
    resume: bool = False,
    init: Place | Run | None = None,
    device: str | None = None,
    callbacks: Callback | Iterable[Callback] = (),
    ranks: int = 1,
    verbose: bool = False,
    **options: Any,
) -> Run:
    """Trains a model, as `kith train` does, and returns its run.

    >>> run = kith.train("gat", "stores/cora", out="runs/cora", epochs=100, set={"model.heads": 4, "early_stop.patience": 20})
    >>> run.results["test"], run.curves["valid"], run.weights()

    config: a model (`gat`), a preset (`cora/supergat-mx`) or a run file; `None` with `resume=True` or `attention="auto"`.
    graph: a folder, a URL, sampling servers (`grpc://HOST:PORT`) or an open graph.
    out: folder of the run (default: a temporary one, removed together with the returned object).
    set: keys of the run file and their values. A string is what `--set` takes, and `None` removes a section.
    resume: continues from the newest checkpoint in `out`; starts if there is none.
    init: initial weights: a safetensors file, or a run.
    callbacks: called with a dict after every epoch: `epoch`, `steps`, mean losses of its steps, `seconds`, and if it was evaluated,
        `valid_loss`, `valid` and `test`. With `resume`, epochs that `out` holds already are left out. A callback that returns
        False or raises ends the run, which saves a checkpoint first.
    ranks: number of processes that share every step (`kith launch`).
    verbose: prints the program's output to stderr.
    options: other options of `kith train`, with underscores: `lr=0.01`, `batch_size=1024`, `token_file=…`.
    """
    for name in {"list_presets", "print", "seeds"} & options.keys():
        raise TypeError(f"{name}: an option that kith.train does not have: it makes one run")
    if out is None and resume:
        raise ValueError("resume: expected out, the folder of the run")
    place = _graph_place(graph)
    run = Run(tempfile.mkdtemp(prefix="kith-") if out is None else out, place, is_temporary=out is None)
    command = ["train"] if ranks == 1 else ["launch", "--ranks", str(ranks)]
    command += options_of(graph=place, out=run.place, seed=seed, epochs=epochs, resume=resume, device=device, **options)
    command += options_of(init=getattr(init, "place", init)) + ([] if config is None else [os.fspath(config)])
    for key, value in (set or {}).items():
        text = "off" if value is None else json.dumps(value, default=lambda array: array.tolist())
        command += ["--set", f"{key}={value if isinstance(value, str) else text}"]
    called = [callbacks] if callable(callbacks) else list(callbacks)
    reader = _Epochs(run.place)
    reader.read()  # Epochs of an earlier start.

    def goes_on() -> bool:
        for epoch in reader.read():
            answers = [callback(dict(epoch)) for callback in called]
            if any(isinstance(answer, (bool, np.bool_)) and not answer for answer in answers):
                return False
        return True

    with contextlib.ExitStack() as failed:
        failed.callback(run._remove)
        run_program(command, goes_on, is_shown=verbose, grace=float(options.get("grace", GRACE)))
        failed.pop_all()
    return run


def load(place: Place) -> Run:
    """Opens the folder of a run, finished or not."""
    run = Run(place)
    if not (run.place / "steps.jsonl").exists():
        inner = ", ".join(sorted(path.parent.name for path in run.place.glob("run-*/steps.jsonl")))
        raise KithError(f"{run.place}: expected steps.jsonl of one run, found {f'the runs {inner}' if inner else 'no such file'}")
    return run


class Run:
    """The folder of a run. Its files are read at each access."""

    def __init__(self, place: Place, graph: str | None = None, *, is_temporary: bool = False) -> None:
        if "://" in os.fspath(place):
            raise KithError(f"{place}: expected a folder: `kith data pull` brings a run here, `kith data push` takes it there")
        self.place, self.graph = Path(place).absolute(), graph
        self._remove = weakref.finalize(self, remove, self.place, os.getpid() if is_temporary else None)

    @property
    def config(self) -> dict[str, Any]:
        """The run file, with every default written out: `run.config["model"]["heads"]`."""
        name = next((name for name in ("tomllib", "tomli") if importlib.util.find_spec(name)), None)
        if name is None:
            raise ImportError("run.config reads a TOML file: use Python 3.11, or `pip install tomli`")
        return importlib.import_module(name).loads((self.place / "run.toml").read_text("utf-8"))

    @property
    def results(self) -> dict[str, Any]:
        """`best_epoch`, `valid` and `test` of that epoch, `test_last`, `metric` …; without a report of all steps, those so far."""
        with contextlib.suppress(FileNotFoundError):
            report = _read_object(self.place / "report.json", (self.place / "report.json").read_bytes(), b": ")
            if report["results"]["steps"] == (self.place / "steps.jsonl").read_bytes().count(b"\n"):
                return {"is_finished": True, **{name: report[name] for name in ("model", "seed", "metric")}, **report["results"]}
        epochs = _Epochs(self.place).read()
        found: dict[str, Any] = {"is_finished": False, "epochs": len(epochs), "steps": sum(epoch["steps"] for epoch in epochs)}
        evaluated = [epoch for epoch in epochs if "valid" in epoch]
        if evaluated:
            sign = -1 if re.search(r'^metric = "(mae|rmse)"', (self.place / "run.toml").read_text("utf-8"), re.M) else 1
            best = max(evaluated, key=lambda epoch: (sign * epoch["valid"], epoch["epoch"]))
            found |= {"best_epoch": best["epoch"], "valid": best["valid"], "test": best["test"]}
            found |= {f"{name}_last": evaluated[-1][name] for name in ("valid", "test", "valid_loss")}
        return found

    @property
    def curves(self) -> dict[str, np.ndarray]:
        """Numbers of every finished epoch, by the names that callbacks get; nan where an epoch was not evaluated."""
        epochs = _Epochs(self.place).read()
        names = dict.fromkeys(name for epoch in epochs for name in epoch)
        return {name: np.array([epoch.get(name, np.nan) for epoch in epochs]) for name in names}

    def curves_frame(self) -> Any:
        """The curves as a `pandas.DataFrame` with one line per epoch."""
        if importlib.util.find_spec("pandas") is None:
            raise ImportError("curves_frame returns a pandas.DataFrame: `pip install pandas`, or use run.curves")
        return importlib.import_module("pandas").DataFrame(self.curves)

    def weights(self, names: str = "pyg", weights: str = "best") -> dict[str, Any]:
        """Tensors of the best or the last epoch, for `load_state_dict`. Kith's own names, `names="kith"`, work for every model."""
        import torch

        with tempfile.TemporaryDirectory(prefix="kith-") as folder:
            file = Path(folder) / "weights.safetensors"
            run_program(["export", str(self.place), *options_of(to=names, weights=weights, out=file)])
            data, tensors = bytearray(file.read_bytes()), {}
        begin = 8 + int.from_bytes(data[:8], "little")  # The header is JSON, after its length.
        for name, entry in json.loads(data[8:begin]).items():
            if name != "__metadata__":
                if entry["dtype"] not in DTYPES:
                    raise KithError(f"{name}: expected numbers of type {', '.join(DTYPES)}, found {entry['dtype']}")
                first, end = entry["data_offsets"]
                dtype = getattr(torch, DTYPES[entry["dtype"]])
                tensors[name] = torch.frombuffer(data[begin + first : begin + end], dtype=dtype).reshape(entry["shape"])
        return tensors

    def __repr__(self) -> str:
        results = self.results
        words = [str(self.place), results.get("model", "unfinished"), f"epochs={results['epochs']}"]
        words += [f"{name}={results[name]:.4g}" for name in ("best_epoch", "valid", "test") if name in results]
        return f"Run({', '.join(words)})"


def predict(run: Run | Place, graph: AnyGraph | None = None, what: str = "probabilities", nodes: Any = None, **options: Any) -> Any:
    """Predicts with a trained model, as `kith predict` does.

    run: a run, its folder, or a checkpoint.
    graph: as in `kith.train` (default: the graph of a run that `kith.train` returned).
    what: one of
        probabilities, targets, embeddings: an array in which row i belongs to node i, or to `nodes[i]` (numbers or a mask);
        attention: (edge_index, alpha) of a `layer` (default: the last), as `return_attention_weights` of PyG, with self-loops;
        links: a dict of arrays: `source`, `destination` and `probability` of `pairs`, a csv file; default: of the pairs that the
            run held out, with `part` and `is_edge`. Edges and pairs have the node ids of your tables (default: 0..num_nodes).
    options: other options of `kith predict`: `weights="last"`, `device="cuda"`, `any_store=True` (not the graph of the run).
    """
    if nodes is not None and what in ("attention", "links"):
        raise ValueError(f"nodes: expected probabilities, targets or embeddings, found {what}")
    place, known = (run.place, run.graph) if isinstance(run, Run) else (run, None)
    with tempfile.TemporaryDirectory(prefix="kith-") as folder:
        file = Path(folder) / "out.npy"
        run_program(["predict", os.fspath(place), *options_of(graph=_graph_place(graph or known), what=what, out=file, **options)])
        values = np.load(file)
        if what not in ("attention", "links"):
            return values if nodes is None else values[_array(nodes)]
        with file.with_suffix(".ids.csv").open(newline="", encoding="utf-8") as ids:
            columns = {
                name: np.array([int(text) for text in column] if all(map(str.isdecimal, column)) else column)
                for name, *column in zip(*csv.reader(ids), strict=True)
            }
    if what == "attention":
        return np.stack([columns["source"], columns["destination"]]), values
    return {**columns, "probability": values[:, 0]}


class _Epochs:
    """Reads the finished epochs of `steps.jsonl`, each once, while the file grows."""

    def __init__(self, place: Path) -> None:
        self._file, self._offset, self._line, self._n_seen = place / "steps.jsonl", 0, b"", 0
        self._steps: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        text, epochs = self._line, []
        with contextlib.suppress(FileNotFoundError), self._file.open("rb") as file:
            file.seek(self._offset - len(self._line))
            text = file.read()
            if not text.startswith(self._line):  # A start from a checkpoint has cut the file back.
                self._offset, self._line, self._steps = 0, b"", []
                file.seek(0)
                text = file.read()
        for line in text[len(self._line) : text.rfind(b"\n") + 1].splitlines(keepends=True):
            self._offset, self._line = self._offset + len(line), line
            step = _read_object(self._file, line)
            if self._steps and step["epoch"] != self._steps[0]["epoch"]:
                epochs.append(self._end())
            self._steps.append(step)
            if "valid" in step:  # Evaluated, after the last step of the epoch.
                epochs.append(self._end())
        fresh = [epoch for epoch in epochs if epoch["epoch"] >= self._n_seen]
        self._n_seen = fresh[-1]["epoch"] + 1 if fresh else self._n_seen
        return fresh

    def _end(self) -> dict[str, Any]:
        steps, self._steps = self._steps, []
        losses = {name: [step[name] for step in steps] for name in ("loss", "node_loss")}
        for layer in range(len(steps[0]["edge_losses"])):
            losses[f"edge_loss_{layer}"] = [step["edge_losses"][layer] for step in steps]
        numbers = {name: sum(column) / len(steps) for name, column in losses.items()}
        numbers |= {name: steps[-1][name] for name in ("valid_loss", "valid", "test") if name in steps[-1]}
        return {"epoch": steps[0]["epoch"], "steps": len(steps), **numbers, "seconds": sum(step["micros"] for step in steps) / 1e6}


def _read_object(file: Path, text: bytes, before_null: bytes = b"") -> dict[str, Any]:
    """Reads a JSON object that ends with the CRC-32 of its text; objects of older versions do not. null is nan."""
    before, field, after = text.strip().rpartition(b'"crc32":')
    begin = after.find(b'"') + 1
    blank = before + field + after[:begin] + b"0" * 8 + after[begin + 8 :]
    if field and after[begin : begin + 8] != b"%08x" % zlib.crc32(blank):
        raise KithError(f"{file}: damaged: an object in it does not have its checksum: restore the file from a copy")
    try:
        return dict(json.loads(text.replace(before_null + b"null", before_null + b"NaN")))
    except ValueError as error:
        raise KithError(f"{file}: damaged: {error}") from error


def _graph_place(graph: Any) -> str:
    place = graph if isinstance(graph, (str, os.PathLike)) else getattr(graph, "place", None)
    if place is None:
        raise ValueError(f"graph: expected a path, a URL or a graph of kith.open, found {graph!r}")
    return os.fspath(place) if "://" in os.fspath(place) else os.path.abspath(place)
