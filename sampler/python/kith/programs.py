"""The programs of Kith: where they are, and how to run them as child processes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Any

from ._kith import KithError

BIN = Path(__file__).absolute().parent / "bin"
TORCH = "2.11"
# Commands that `kith` hands over to `kith-trainer`, which needs libtorch (trainer/cli/src/lib.rs).
TENSOR_COMMANDS = {"analyze", "bench", "devices", "export", "launch", "predict", "replay", "train", "tune"}
TICK, GRACE, MARGIN = 0.05, 30.0, 10.0  # Seconds between two looks, of --grace, and beyond it.


def run_program(arguments: list[str], goes_on: Callable[[], bool] = lambda: True, *, is_shown: bool = False, grace: float = GRACE) -> None:
    """Runs a command of `kith` while it goes on. It has ended when this returns or raises, and ends if this process is killed."""
    text, is_stopped, watch = bytearray(), False, None
    with tempfile.TemporaryFile() as log:

        def hear() -> None:
            text.extend(new := os.pread(log.fileno(), 1 << 24, len(text)))
            if is_shown:
                sys.stderr.write(new.decode(errors="replace"))

        # Ctrl-C goes to this process alone, which then ends the command.
        own: dict[str, Any] = {"stdout": log, "stderr": log, "start_new_session": True}
        child = Popen([found := program(), *arguments], stdin=DEVNULL, env=_environment(found, arguments), **own)
        try:
            # Its stdin ends without a line if this process is killed.
            watch = Popen(["sh", "-c", 'read line || kill -TERM "$0"', str(child.pid)], stdin=PIPE, **own)
            while child.returncode is None and not is_stopped:
                with contextlib.suppress(TimeoutExpired):
                    child.wait(TICK)
                hear()
                is_stopped = not goes_on()
        finally:
            try:
                child.terminate()
                with contextlib.suppress(TimeoutExpired):
                    child.wait(grace + MARGIN)
            finally:
                child.kill()
                child.wait()
                if watch is not None:
                    watch.communicate(b"\n")
        hear()
    code, lines = child.returncode, text.decode(errors="replace")
    if code != 0 and not (is_stopped and code == 75):  # 75: it ended as asked.
        errors = re.findall(r"^(?:rank|server) \d+ \| error: (.*)", lines, re.M) or re.findall(r"^error: (.*)", lines, re.M)
        end = f"kith was ended by signal {-code}" if code < 0 else f"kith ended with exit code {code}"
        raise KithError(errors[-1] if errors else "\n".join([end, *lines.splitlines()[-10:]]))


def program(name: str = "kith") -> Path:
    """Finds a program of Kith: beside that of KITH_PROGRAM, in this package, or in PATH."""
    given = os.environ.get("KITH_PROGRAM")
    beside = Path(given if name == "kith" else Path(given).with_name(name)) if given else None
    for path in [beside] if beside else [folder / name for folder in (BIN, *map(Path, os.get_exec_path()))]:
        if found := shutil.which(path.absolute()):
            with open(found, "rb") as file:  # The console script `kith` would start itself.
                if not re.match(rb"#!.*python", file.read(512), re.S):
                    return Path(found)
    raise KithError(f"{beside or f'{name} in PATH'}: expected a program of Kith, found none: set KITH_PROGRAM to the path of kith")


def _environment(found: Path, arguments: list[str]) -> dict[str, str]:
    """Environment of a program. Those of this package get the libraries of the installed PyTorch, which is not imported here."""
    if found.parent != BIN or not TENSOR_COMMANDS & {*arguments[:1]} or {"-h", "--help"} & {*arguments}:
        return dict(os.environ)
    spec = importlib.util.find_spec("torch")
    torch = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    version = torch and re.search(r"^__version__ = '(.*)'", (torch / "version.py").read_text(), re.M)
    if not torch or not version or not version[1].startswith(f"{TORCH}."):
        what = f"torch {version[1]}" if version else "no torch"
        raise KithError(f"found {what}: kith's programs need torch {TORCH}: pip install torch=={TORCH}.0")
    folders = [torch / "lib", *sorted(torch.parent.glob("nvidia/*/lib"))]
    nccl = torch.parent / "nvidia/nccl/lib/libnccl.so.2"
    if nccl.exists():  # `kith-trainer` opens libnccl.so.
        folders.append(_cache() / f"nccl-{zlib.crc32(bytes(nccl)):08x}")
        with contextlib.suppress(OSError):
            folders[-1].mkdir(parents=True, exist_ok=True)
            (folders[-1] / "libnccl.so").symlink_to(nccl)
    path = [*map(str, folders), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(path)}


def pull(url: str) -> Path:
    """Brings a folder from object storage to this machine, once, and returns where it is."""
    folder = _cache() / "pulled" / hashlib.sha256(url.encode()).hexdigest()[:16]
    # Graphs may be confidential: only this user can read the copy. Ranks of one host wait for the one that pulls it.
    folder.mkdir(0o700, parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run_program(["data", "pull", url, str(folder)])
    return folder


def main(name: str = "kith") -> None:
    """The console script `kith`: becomes the program."""
    try:
        os.execve(found := program(name), [name, *sys.argv[1:]], _environment(found, sys.argv[1:]))
    except KithError as error:
        sys.exit(f"error: {error}")


def main_sampler() -> None:
    main("kith-sampler")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kith")


def options_of(**options: Any) -> list[str]:
    """Returns options of a command: `True` stands alone, `None` and `False` are left out, and lists are several words."""
    given = [(f"--{name.replace('_', '-')}", value) for name, value in options.items() if value is not None and value is not False]
    return [word for name, value in given for word in ([name] if value is True else [name, str(value)])]


def remove(folder: Path, owner: int | None) -> None:
    """Removes a folder, if this process is its owner."""
    if owner == os.getpid():  # Not in a forked process.
        shutil.rmtree(folder, ignore_errors=True)
