"""Processes of the soak, found and measured in /proc. Every process carries the soak's name in its environment."""

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

MARK = "KITH_SOAK"


@dataclass(frozen=True)
class Resources:
    """Resources of a process; memory in KiB."""

    rss: int
    anonymous: int
    descriptors: int
    threads: int


def resources(pid: int) -> Resources | None:
    """None: the process has ended, or is about to."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        numbers = [int(fields[name].split()[0]) for name in ("VmRSS", "RssAnon", "Threads")]
        return Resources(numbers[0], numbers[1], len(os.listdir(f"/proc/{pid}/fd")), numbers[2])
    except (OSError, KeyError, ValueError):
        return None


def environment(pid: int) -> dict[str, str]:
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries)
    return {name: value for name, _, value in pairs}


def arguments(pid: int) -> list[str]:
    try:
        return [part.decode(errors="replace") for part in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    except OSError:
        return []


def parent(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0


def marked(name: str, command: str | None = None) -> list[int]:
    """Processes with this mark, and with this subcommand of `kith` if one is given; zombies are left out."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (pid := int(entry)) != os.getpid() and environment(pid).get(MARK) == name:
            parts = arguments(pid)
            if command is None or (len(parts) > 1 and parts[1] == command):
                found.append(pid)
    return sorted(found)


def rank_of(pid: int) -> int | None:
    value = environment(pid).get("RANK")
    return int(value) if value is not None and value.isdigit() else None


def send(pid: int, name: str) -> bool:
    """Sends a signal; False if the process has ended."""
    try:
        os.kill(pid, getattr(signal, f"SIG{name}"))
    except ProcessLookupError:
        return False
    return True


def reap(own: set[int]) -> None:
    """Collects orphans that have ended, which are children of the first process of a PID namespace."""
    if os.getpid() != 1:
        return
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (pid := int(entry)) != 1 and pid not in own and parent(pid) == 1:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
