"""Tests of kith.train, kith.load and kith.predict: python runs.py KITH, with the package on PYTHONPATH."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import kith
import numpy as np
import torch
from kith import runs
from kith.runs import load, predict, train
from safetensors.torch import load_file
from torch_geometric.nn import GATConv

PROGRAM = str(Path(sys.argv[1]).absolute())
os.environ["KITH_PROGRAM"] = PROGRAM
ENDLESS = 1_000_000
N_NODES, N_CLASSES = 300, 4


def processes(text: str | Path) -> list[int]:
    """Processes with this text in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_found = str(text).encode() in (folder / "cmdline").read_bytes()
        except OSError:  # It has ended.
            continue
        if is_found and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


def children() -> list[str]:
    """Child processes of this one, zombies included."""
    tasks = Path("/proc/self/task").glob("*/children")
    return [child for task in tasks for child in task.read_text().split()]


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def error_of(call: Callable[[], object], kind: type[BaseException] = kith.KithError) -> str:
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("no error")


def steps_of(run: runs.Run) -> list[dict]:
    return [json.loads(line) for line in (run.place / "steps.jsonl").read_text().splitlines()]


def callbacks_see_every_epoch_once(store: Path, folder: Path) -> None:
    out, seen, others = folder / "seen", [], []
    run = train("gat", store, out=out, epochs=60, callbacks=[seen.append, others.append])
    assert [epoch["epoch"] for epoch in seen] == list(range(60)) and others == seen
    assert [epoch["valid"] for epoch in seen] == [step["valid"] for step in steps_of(run)]
    report = json.loads((out / "report.json").read_text())
    assert report["results"].items() <= run.results.items() and run.results["is_finished"]
    assert run.results["metric"] == "accuracy" and run.config["train"]["epochs"] == 60
    again = load(out)
    assert again.results == run.results and "epochs=60" in repr(again), repr(again)


def damaged_files_of_a_run_are_named(store: Path, folder: Path) -> None:
    out = folder / "damaged"
    run = train("gat", store, out=out, epochs=3)
    expected, curves = run.results, {name: list(curve) for name, curve in run.curves.items()}

    def are_curves_same() -> bool:
        return {name: list(curve) for name, curve in run.curves.items()} == curves

    readers = {"report.json": lambda: run.results == expected, "steps.jsonl": are_curves_same}
    for name, is_same in readers.items():
        whole = (out / name).read_bytes()
        refused = 0
        # Without its last line end, a file is one that a killed run left.
        for place in range(0, len(whole) - 1, 3):
            for mask in (1 << place % 8, 0xFF):
                (out / name).write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
                try:
                    assert is_same(), f"{name}: byte {place} ^ {mask}"
                except kith.KithError as error:
                    assert f"{out / name}: damaged: " in str(error), error
                    refused += 1
        assert refused > len(whole) // 2, f"{name}: {refused} of {len(whole)}"
        (out / name).write_bytes(whole)


def a_callback_ends_a_run_that_goes_on(store: Path, folder: Path) -> None:
    for number, answer in enumerate((False, np.bool_(False))):
        out, seen = folder / f"ended-{number}", []

        def callback(epoch: dict, seen: list = seen, answer: object = answer) -> object:
            seen.append(epoch["epoch"])
            assert len(seen) < 100, "the run goes on"
            return answer if epoch["epoch"] == 3 else None

        run = train("gat", store, out=out, epochs=ENDLESS, callbacks=callback)
        assert seen == [0, 1, 2, 3]
        assert list((out / "checkpoints").glob("*.safetensors")) and processes(out) == []
        curves, results = run.curves, run.results
        assert not results["is_finished"] and 4 <= results["epochs"] == len(curves["loss"]) < ENDLESS
        best = max(range(results["epochs"]), key=lambda epoch: (curves["valid"][epoch], epoch))
        assert (results["best_epoch"], results["test"]) == (best, curves["test"][best])
        assert "unfinished" in repr(run)

    def broken(epoch: dict) -> None:
        raise ZeroDivisionError("mine")

    out = folder / "broken"
    assert error_of(lambda: train("gat", store, out=out, epochs=ENDLESS, callbacks=broken), ZeroDivisionError) == "mine"
    assert list((out / "checkpoints").glob("*.safetensors")) and processes(out) == []


def a_run_resumes(store: Path, folder: Path) -> None:
    out, seen = folder / "resumed", []
    train("gat", store, out=out, epochs=ENDLESS, callbacks=lambda epoch: False)
    n_before = load(out).results["epochs"]
    n_epochs = n_before + 5
    run = train(None, store, out=out, epochs=n_epochs, resume=True, callbacks=lambda epoch: seen.append(epoch["epoch"]))
    assert seen == list(range(n_before, n_epochs)), (seen, n_before)
    straight = train("gat", store, epochs=n_epochs)
    for name in ("loss", "valid", "test"):
        assert np.array_equal(run.curves[name], straight.curves[name]), name
    expected = straight.weights(weights="last")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in run.weights(weights="last").items())
    assert run.results["is_finished"] and run.results["best_epoch"] == straight.results["best_epoch"]
    # A report of fewer steps than there are is old.
    with (out / "steps.jsonl").open("a") as file:
        later = {**steps_of(run)[-1], "epoch": n_epochs, "valid": 2.0}
        del later["crc32"]  # As an older version writes it.
        file.write(json.dumps(later) + "\n")
    assert (run.results["is_finished"], run.results["best_epoch"]) == (False, n_epochs)
    assert error_of(lambda: train("gat", store, resume=True), ValueError) == "resume: expected out, the folder of the run"


def a_file_that_is_cut_back_is_read_once(store: Path, folder: Path) -> None:
    place = folder / "cut"
    place.mkdir()
    file = place / "steps.jsonl"

    def lines(epochs: range, micros: int) -> str:
        known = {"loss": 1.0, "node_loss": None, "edge_losses": [], "valid_loss": 1.0, "valid": 0.5, "test": 0.5, "micros": micros}
        return "".join(json.dumps({"step": epoch, "epoch": epoch, **known}, separators=(",", ":")) + "\n" for epoch in epochs)

    reader = runs._Epochs(place)
    assert reader.read() == []
    file.write_text(lines(range(5), 10) + '{"step":5,')
    first = reader.read()
    assert [epoch["epoch"] for epoch in first] == list(range(5)) and np.isnan(first[0]["node_loss"])
    file.write_text(lines(range(3), 10))
    assert reader.read() == []
    file.write_text(lines(range(3), 10) + lines(range(3, 8), 123))
    assert [(epoch["epoch"], epoch["seconds"]) for epoch in reader.read()] == [(epoch, 123e-6) for epoch in (5, 6, 7)]
    file.write_text(lines(range(3), 10) + lines(range(3, 12), 1))
    assert [epoch["epoch"] for epoch in reader.read()] == [8, 9, 10, 11]
    assert reader.read() == []


def errors_are_the_sentences_of_the_program(store: Path, folder: Path) -> None:
    for options in ({}, {"ranks": 2, "batch_size": 64}):
        slices = {"train.slices": 2} if options else {}
        sentence = error_of(lambda: train("gat", store, epochs=1, set={"model.foo": 3, **slices}, **options))  # noqa: B023
        assert sentence.startswith("--set model.foo=3: a run file has no `model.foo`"), sentence
    assert "--not-an-option" in error_of(lambda: train("gat", store, not_an_option=True))
    assert "no such folder" in error_of(lambda: train("gat", folder / "nothing"))
    assert "steps.jsonl" in error_of(lambda: load(folder))
    assert "expected a folder" in error_of(lambda: train("gat", store, out="s3://bucket/run"))
    assert "seeds: an option that" in error_of(lambda: train("gat", store, seeds="1..3"), TypeError)
    place = "graph: expected a path, a URL or a graph of kith.open"
    assert error_of(lambda: train("gat", SimpleNamespace(place=None)), ValueError).startswith(place)
    assert error_of(lambda: predict(folder / "seen"), ValueError).startswith(place)
    script = folder / "kith"
    script.write_text("#!/bin/sh\nkill -KILL $$\n")
    script.chmod(0o755)
    os.environ["KITH_PROGRAM"] = str(script)
    try:
        assert error_of(lambda: train("gat", store)) == "kith was ended by signal 9"
    finally:
        os.environ["KITH_PROGRAM"] = PROGRAM


def settings_reach_the_run_file(store: Path, folder: Path) -> None:
    graph = kith.open(store)
    if getattr(graph, "place", None) is None:
        graph.place = str(store)
    given = {"train.fanouts": (3, np.int64(2)), "model.self_loops": False, "early_stop": None, "model.dropout": np.float32(0.5)}
    given |= {"optimizer.learning_rate": 1e-05, "train.mode": "mini-batch", "train.slices": 2}
    run = train("gat", graph, epochs=2, seed=7, set={"early_stop.patience": 9, **given}, batch_size=64, ranks=2)
    config = run.config
    assert config["train"]["fanouts"] == [3, 2] and config["train"]["batch_size"] == 64
    assert config["model"]["self_loops"] is False and config["model"]["dropout"] == 0.5
    assert config["optimizer"]["learning_rate"] == 1e-05 and "early_stop" not in config
    assert (run.results["seed"], run.results["epochs"]) == (7, 2)
    assert json.loads((run.place / "report.json").read_text())["n_ranks"] == 2


def curves_are_those_of_the_records(store: Path, folder: Path) -> None:
    settings = {"train.evaluate_every": 2, "train.fanouts": [4, 4]}
    run = train("supergat-mx", store, epochs=5, batch_size=64, set=settings)
    curves, steps = run.curves, steps_of(run)
    assert list(curves["epoch"]) == list(range(5)) and len(steps) == sum(curves["steps"]) > 5
    for epoch in range(5):
        own = [step for step in steps if step["epoch"] == epoch]
        assert curves["loss"][epoch] == np.mean([step["loss"] for step in own])
        assert curves["edge_loss_1"][epoch] == np.mean([step["edge_losses"][1] for step in own])
        assert np.isclose(curves["seconds"][epoch], sum(step["micros"] for step in own) / 1e6)
        is_evaluated = epoch in (1, 3, 4)
        assert curves["valid"][epoch] == own[-1]["valid"] if is_evaluated else np.isnan(curves["valid"][epoch])
    try:
        import pandas  # noqa: F401
    except ImportError:
        assert "pip install pandas" in error_of(run.curves_frame, ImportError)
    else:
        assert list(run.curves_frame()["loss"]) == list(curves["loss"])


def weights_are_those_of_the_export(store: Path, folder: Path) -> None:
    run = load(folder / "seen")
    for names, moment in (("kith", "last"), ("pyg", "best")):
        file = folder / f"{names}.safetensors"
        command = [PROGRAM, "export", run.place, "--to", names, "--weights", moment, "--out", file]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        expected, found = load_file(file), run.weights(names, moment)
        assert expected.keys() == found.keys() and len(found) > 0
        assert all(torch.equal(expected[name], tensor) for name, tensor in found.items())
    best = found
    started = train("gat", store, epochs=1, lr=1e-30, init=run).weights(weights="last")
    assert all(torch.allclose(tensor, started[name]) for name, tensor in best.items())


def weights_are_those_of_a_model_in_pyg(store: Path, folder: Path) -> None:
    run, graph = load(folder / "seen"), kith.open(store)
    weights, model = run.weights(), run.config["model"]
    indptr, sources = np.fromfile(store / "indptr.u64", "<u8").astype(np.int64), np.fromfile(store / "indices.u32", "<u4")
    edge_index = torch.tensor(np.stack([sources.astype(np.int64), np.repeat(np.arange(N_NODES), np.diff(indptr))]))
    hidden = model["heads"] * model["hidden"]

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [GATConv(graph.num_features, model["hidden"], model["heads"])]
            self.convs = torch.nn.ModuleList([*layers, GATConv(hidden, N_CLASSES, model["out_heads"], concat=False)])

    net = Net()
    net.load_state_dict(weights)
    x = torch.tensor(graph.features(np.arange(N_NODES)))
    with torch.no_grad():
        out = net.convs[1](torch.nn.functional.elu(net.convs[0](x, edge_index)), edge_index).softmax(-1).numpy()
    assert np.allclose(out, predict(run, store), atol=1e-5)


def predictions_have_the_accuracy_of_the_results(store: Path, folder: Path) -> None:
    run, graph = train("gat", store, epochs=12, lr=0.02), kith.open(store)
    probabilities = predict(run)
    assert probabilities.shape == (N_NODES, N_CLASSES) and np.allclose(probabilities.sum(1), 1)
    valid, test = graph.nodes("valid"), graph.nodes("test")
    accuracy = lambda out, nodes: float((out.argmax(1) == graph.y)[nodes].mean())  # noqa: E731
    for weights, names in (("best", ("valid", "test")), ("last", ("valid_last", "test_last"))):
        out = predict(str(run.place), store, weights=weights)
        assert np.allclose([accuracy(out, valid), accuracy(out, test)], [run.results[name] for name in names])
    assert np.array_equal(predict(run, store, nodes=torch.tensor([7, 2, 7])), probabilities[[7, 2, 7]])
    assert np.array_equal(predict(run, store, nodes=graph.y == 1), probabilities[graph.y == 1])
    assert predict(run, what="embeddings").shape == (N_NODES, 8 * 16)
    edge_index, alpha = predict(run, what="attention", layer=0)
    assert edge_index.shape == (2, graph.num_edges + N_NODES) and alpha.shape == (graph.num_edges + N_NODES, 8)
    sums = np.stack([np.bincount(edge_index[1], head) for head in alpha.T])
    assert np.allclose(sums, 1, atol=1e-5), "the weights of a destination sum to 1"
    assert "--what" in error_of(lambda: predict(run, what="nothing"))
    assert "expected probabilities" in error_of(lambda: predict(run, what="attention", nodes=[1]), ValueError)


def links_are_predicted(store: Path, folder: Path) -> None:
    run = train("gat", store, epochs=2, task="links")
    held_out = predict(run, what="links")
    assert set(held_out["part"]) == {"valid", "test"} and set(held_out["is_edge"]) == {0, 1}
    pairs, table = folder / "pairs.csv", folder / "links.csv"
    pairs.write_text("source,destination\n7,3\n0,299\n")
    found = predict(run, what="links", pairs=pairs)
    command = [PROGRAM, "predict", run.place, "--graph", store, "--what", "links", "--pairs", pairs, "--out", table]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    expected = np.loadtxt(table, delimiter=",", skiprows=1)
    assert expected[:, 0].tolist() == found["source"].tolist() == [7, 0] and found["destination"].tolist() == [3, 299]
    assert np.allclose(found["probability"], expected[:, 2]) and found.keys() == {"source", "destination", "probability"}


def temporary_folders_are_removed(store: Path, folder: Path) -> None:
    run = train("gat", store, epochs=1)
    place = run.place
    assert place.exists() and place.parent == Path(tempfile.gettempdir())
    forked = os.fork()
    if forked == 0:
        run._remove()
        os._exit(0)
    os.waitpid(forked, 0)
    assert place.exists(), "a forked process leaves it alone"
    del run
    gc.collect()
    assert not place.exists()
    try:
        train("gat", store, epochs=ENDLESS, callbacks=lambda epoch: 1 / 0)
        raise AssertionError("no error")
    except ZeroDivisionError:  # Its traceback holds the run.
        assert list(Path(tempfile.gettempdir()).glob("kith-*")) == []


def forked_to_train(store: Path, out: Path, **options: object) -> int:
    """A process that trains without end; it exits with 7 after KeyboardInterrupt."""
    forked = os.fork()
    if forked == 0:
        try:
            train("gat", store, out=out, epochs=ENDLESS, **options)
        except KeyboardInterrupt:
            os._exit(7)
        finally:
            os._exit(1)
    steps = out / "steps.jsonl"
    wait_for(lambda: steps.exists() and steps.stat().st_size > 0)
    return forked


def no_process_outlives_python(store: Path, folder: Path) -> None:
    several = {"ranks": 2, "batch_size": 64, "set": {"train.slices": 2}}
    for number, options in enumerate(({}, several)):
        out = folder / f"killed-{number}"
        process = forked_to_train(store, out, **options)
        assert processes(out)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        wait_for(lambda: processes(out) == [])  # noqa: B023
        assert list((out / "checkpoints").glob("*.safetensors")), "SIGTERM saves a checkpoint"
    assert children() == []


def ctrl_c_ends_the_run(store: Path, folder: Path) -> None:
    out = folder / "interrupted"
    process = forked_to_train(store, out)
    os.kill(process, signal.SIGINT)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 7 and processes(out) == []
    assert list((out / "checkpoints").glob("*.safetensors"))


def output_is_shown_on_request(store: Path, folder: Path) -> None:
    for verbose in (False, True):
        command = f"from kith.runs import train; train('gat', {str(store)!r}, epochs=2, verbose={verbose})"
        ran = subprocess.run([sys.executable, "-c", command], env=package(folder), capture_output=True, text=True, check=True)
        assert ran.stdout == "" and ("best epoch" in ran.stderr) == verbose, ran
        assert verbose or ran.stderr == "", ran.stderr


def package(folder: Path, torch_version: str | None = None) -> dict[str, str]:
    """Environment with a copy of the package, which imports no PyTorch, with programs in its `bin`, and with a fake PyTorch."""
    place = folder / f"package-{torch_version}"
    if not place.exists():
        own = Path(kith.__file__).parent
        shutil.copytree(own, place / "kith", ignore=shutil.ignore_patterns("bin", "__init__.py", "__pycache__"))
        (place / "kith/__init__.py").write_text("from ._kith import KithError\n")
        (place / "kith/bin").mkdir()
        for name in ("kith", "kith-sampler"):
            program = place / "kith/bin" / name
            program.write_text(f'#!/bin/sh\necho {name}\nfor word in "$@"; do echo "$word"; done\necho "$LD_LIBRARY_PATH"\n')
            program.chmod(0o755)
        if torch_version is not None:
            (place / "torch").mkdir()
            (place / "torch/__init__.py").write_text("raise AssertionError('imported')\n")
            (place / "torch/version.py").write_text(f"from typing import Optional\n__version__ = '{torch_version}'\n")
            nccl = place / "nvidia/nccl/lib"
            nccl.mkdir(parents=True)
            (nccl / "libnccl.so.2").write_text("")
    return {**os.environ, "PYTHONPATH": str(place), "HOME": str(folder / "home"), "PYTHONDONTWRITEBYTECODE": "1"}


def console_scripts_become_the_programs(store: Path, folder: Path) -> None:
    def called(version: str, *words: str, name: str = "main", **variables: str) -> subprocess.CompletedProcess:
        environment = {**package(folder, version), "LD_LIBRARY_PATH": "/before", **variables}
        if "KITH_PROGRAM" not in variables:
            del environment["KITH_PROGRAM"]
        command = [sys.executable, "-c", f"from kith.programs import {name}; {name}()", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    for words in (("data", "list"), ("train", "--help")):
        assert called("2.10.1", *words).stdout.splitlines() == ["kith", *words, "/before"]
    ran = called("2.10.1", "--graph", "a b", name="main_sampler")
    assert ran.stdout.splitlines() == ["kith-sampler", "--graph", "a b", "/before"]
    ran = called("2.10.1", "train", "gat")
    expected = "error: found torch 2.10.1: kith's programs need torch 2.11: pip install torch==2.11.0\n"
    assert (ran.returncode, ran.stderr, ran.stdout) == (1, expected, ""), ran
    for _ in range(2):
        ran = called("2.11.0+cpu", "train", "gat")
        place = folder / "package-2.11.0+cpu"
        *others, nccl, before = ran.stdout.splitlines()[3].split(":")
        assert others == [str(place / "torch/lib"), str(place / "nvidia/nccl/lib")] and before == "/before", ran
        assert Path(nccl, "libnccl.so").resolve() == place / "nvidia/nccl/lib/libnccl.so.2"
    # A console script must not start itself.
    scripts = folder / "scripts"
    scripts.mkdir()
    (scripts / "kith").write_text(f"#!{sys.executable}\nfrom kith.programs import main\nmain()\n")
    (scripts / "kith").chmod(0o755)
    for variables in ({"KITH_PROGRAM": str(scripts / "kith")}, {"PATH": f"{scripts}:/nowhere"}):
        shutil.rmtree(folder / "package-2.10.1/kith/bin", ignore_errors=True)
        ran = called("2.10.1", "data", "list", **variables)
        assert ran.returncode == 1 and "set KITH_PROGRAM to the path of kith" in ran.stderr, ran
    assert called("2.10.1", "--version", PATH=f"{scripts}:{Path(PROGRAM).parent}").stdout.startswith("kith 0")


def main() -> None:
    tests = [
        callbacks_see_every_epoch_once,
        damaged_files_of_a_run_are_named,
        a_callback_ends_a_run_that_goes_on,
        a_run_resumes,
        a_file_that_is_cut_back_is_read_once,
        errors_are_the_sentences_of_the_program,
        settings_reach_the_run_file,
        curves_are_those_of_the_records,
        weights_are_those_of_the_export,
        weights_are_those_of_a_model_in_pyg,
        predictions_have_the_accuracy_of_the_results,
        links_are_predicted,
        temporary_folders_are_removed,
        no_process_outlives_python,
        ctrl_c_ends_the_run,
        output_is_shown_on_request,
        console_scripts_become_the_programs,
    ]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as own:
        tempfile.tempdir = own  # Nothing of Kith may be left there.
        store = Path(folder) / "store"
        shape = ["--nodes", str(N_NODES), "--classes", str(N_CLASSES), "--dim", "8", "--degree", "6"]
        command = [PROGRAM, "data", "generate", "power-law", *shape, "--out", store]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for test in tests:
            test(store, Path(folder))
            gc.collect()
            assert children() == [], "no child process is left"
            left = list(Path(own).glob("kith-*"))
            assert left == [], f"left in the folder of temporary files: {left}"
            print(f"ok {test.__name__}", flush=True)
        tempfile.tempdir = None


if __name__ == "__main__":
    main()
