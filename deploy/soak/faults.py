"""Disturbances. Each is a generator that begins one, yields the seconds to wait, and makes its effects undone.

What a disturbance cannot do at its moment (no rank runs, no server serves) it leaves out, and says so.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from plan import Event
from processes import send
from relay import Line
from run import Run
from servers import Server, Servers, SoakError

Item = TypeVar("Item")
Waits = Generator[float, None, None]
# Time for a server to use new files; it looks at them every second.
RELOAD_LIMIT = 60.0
# Servers look at their token file every second; machines are busy.
TOKEN_WAIT = 4.0
# Time for a run to make its folder, and for servers to serve.
PATIENCE = 60.0
LEFT_OUT = "left out"


@dataclass
class Scene:
    """Processes, lines and disks that disturbances act on."""

    run: Run
    servers: Servers
    disk: Path
    say: Callable[[str], None]
    # Files that Kith did not write, and what they hold.
    foreign: dict[Path, str] = field(default_factory=dict)
    # At most one rotation of secrets at a time, and no paused server meanwhile: servers must be able to read files.
    is_rotating: bool = False
    n_paused: int = 0


def play(scene: Scene, event: Event) -> Waits:
    """The disturbance of an event."""
    kind, _, rest = event.kind.partition("-")
    return {
        "rank": on_rank,
        "launcher": on_launcher,
        "server": on_server,
        "servers": servers_away,
        "rolling": rolling_restart,
        "line": on_line,
        "network": on_network,
        "disk": disk_full,
        "certificates": certificates_rotated,
        "tokens": tokens_rotated,
        "foreign": foreign_files,
    }[kind](scene, event, rest)


def pick(items: list[Item], target: float) -> Item:
    return items[int(target * len(items))]


def on_rank(scene: Scene, event: Event, what: str) -> Waits:
    ranks = scene.run.ranks()
    if not ranks:
        scene.say(f"{event.kind}: {LEFT_OUT}: no rank runs")
        return
    pid = pick(ranks, event.target)
    name = f"rank {ranks.index(pid)} of {len(ranks)}, process {pid}"
    yield from signal_process(scene, event, what, pid, name)


def on_launcher(scene: Scene, event: Event, what: str) -> Waits:
    pid = scene.run.launcher()
    if pid is None:
        scene.say(f"{event.kind}: {LEFT_OUT}: no launcher runs")
        return
    yield from signal_process(scene, event, what, pid, f"process {pid}")


def signal_process(scene: Scene, event: Event, what: str, pid: int, name: str) -> Waits:
    signal = {"kill": "KILL", "pause": "STOP", "terminate": "TERM", "interrupt": "INT"}[what]
    scene.say(f"{event.kind}: {name}" + (f", {event.duration} s" if what == "pause" else ""))
    if not scene.run.signal(pid, signal):
        scene.say(f"{event.kind}: {LEFT_OUT}: process {pid} has ended")
        return
    if what == "pause":
        try:
            yield event.duration
        finally:
            scene.run.signal(pid, "CONT")


def on_server(scene: Scene, event: Event, what: str) -> Waits:
    while what == "pause" and scene.is_rotating:
        yield 0.2
    found = [server for server in scene.servers.all if server.is_serving and not server.is_paused]
    if what != "pause":
        found = [server for server in found if not server.is_witness]
    if not found:
        scene.say(f"{event.kind}: {LEFT_OUT}: no server serves")
        return
    server = pick(found, event.target)
    scene.say(f"{event.kind}: {server.name}, {event.duration} s")
    if what == "pause":
        yield from paused(scene, server, event.duration)
        return
    server.end("KILL" if what == "kill" else "TERM")
    yield event.duration
    yield from started(server)


def paused(scene: Scene, server: Server, duration: float) -> Waits:
    scene.n_paused += 1
    server.pause()
    try:
        yield duration
    finally:
        server.go_on()
        scene.n_paused -= 1


def started(server: Server) -> Waits:
    """Starts a server that was ended, and waits until it serves. Its limits are in `Server.poll`."""
    while not server.is_serving:
        server.start()
        yield 0.1


def servers_away(scene: Scene, event: Event, _: str) -> Waits:
    """No server can be reached: connections are reset, and new ones are refused."""
    scene.say(f"{event.kind}: {event.duration} s")
    lines = [server.line for server in scene.servers.all]
    for line in lines:
        line.is_refusing = True
        line.reset()
    try:
        yield event.duration
    finally:
        for line in lines:
            line.is_refusing = False


def rolling_restart(scene: Scene, event: Event, _: str) -> Waits:
    """Drains and starts one server after the other, as an upgrade does."""
    scene.say(f"{event.kind}: {len(scene.servers.all) - 1} servers")
    for server in scene.servers.all:
        if server.is_serving and not server.is_witness:
            server.end("TERM")
            yield 0.1
        if not server.is_serving:
            yield from started(server)


def on_line(scene: Scene, event: Event, what: str) -> Waits:
    """Faults of one line, of all lines to one replica of every shard, or of all lines."""
    lines: list[Line] = [server.line for server in scene.servers.all]
    half = len(lines) // 2
    choices = [[line] for line in lines] + [lines[:half], lines[half:], lines]
    if scene.run.line is not None:
        # As often as all lines to servers together.
        choices += [[scene.run.line]] * len(choices)
    chosen = pick(choices, event.target)
    name = chosen[0].name if len(chosen) == 1 else f"{len(chosen)} lines"
    n_connections = sum(len(line.writers) // 2 for line in chosen)
    scene.say(f"{event.kind}: {name}, {n_connections} connections, {event.duration} s")
    try:
        for line in chosen:
            if what == "cut":
                line.cut()
            elif what == "slow":
                line.delay = 0.005 + 0.1 * (event.target * 7 % 1)
            elif what == "trickle":
                line.rate = 20_000
            elif what == "reset":
                line.reset()
            else:
                line.half_close()
        if what in ("cut", "slow", "trickle"):
            yield event.duration
    finally:
        for line in chosen:
            line.restore()


def system(*command: str) -> bool:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, capture_output=True, timeout=20).returncode == 0
    return False


def on_network(scene: Scene, event: Event, what: str) -> Waits:
    """The whole network of the soak's namespace is down, or slow and lossy."""
    scene.say(f"{event.kind}: {event.duration} s")
    if what == "down":
        begin, end = ["ip", "link", "set", "lo", "down"], ["ip", "link", "set", "lo", "up"]
    else:
        queue = ["tc", "qdisc", "add", "dev", "lo", "root", "netem"]
        begin, end = [*queue, "delay", "20ms", "10ms", "loss", "2%"], ["tc", "qdisc", "del", "dev", "lo", "root"]
    if not system(*begin):
        raise SoakError(f"{' '.join(begin)} failed")
    try:
        yield event.duration
    finally:
        if not system(*end):
            raise SoakError(f"{' '.join(end)} failed")


def disk_full(scene: Scene, event: Event, _: str) -> Waits:
    """The disk of the run is full, for a while or until the run has ended."""
    run, ballast = scene.run, scene.disk / "ballast"
    if ballast.exists():
        scene.say(f"{event.kind}: {LEFT_OUT}: the disk is full already")
        return
    n_starts = run.n_starts
    run.met_full_disk = True
    n_bytes = 0
    try:
        with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                n_bytes += file.write(bytes(4096))
        scene.say(f"{event.kind}: {n_bytes >> 10} KiB of ballast, {event.duration} s")
        waited = 0.0
        while waited < event.duration and run.n_starts == n_starts:
            # Space that old checkpoints leave is taken too.
            with open(ballast, "ab", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            run.met_full_disk = True
            yield 0.1
            waited += 0.1
    finally:
        os.unlink(ballast)


def calm(scene: Scene) -> Waits:
    """Waits for a moment at which all servers serve."""
    waited = 0.0
    while scene.is_rotating or scene.n_paused or not scene.servers.are_calm:
        if waited > PATIENCE:
            return
        yield 0.2
        waited += 0.2


def certificates_rotated(scene: Scene, event: Event, _: str) -> Waits:
    """A new authority and certificate: trainers trust both authorities, servers change, trainers trust the new one."""
    yield from calm(scene)
    if scene.is_rotating or scene.n_paused or not scene.servers.are_calm:
        scene.say(f"{event.kind}: {LEFT_OUT}: some servers do not serve")
        return
    scene.is_rotating = True
    try:
        secrets = scene.servers.secrets
        made = secrets.make()
        scene.say(f"{event.kind}: number {secrets.n_made}")
        new = (made / "ca.crt").read_text()
        secrets.write("ca.crt", secrets.authority + new)
        yield 1.0
        secrets.use_certificate(made)
        waited = 0.0
        # A server that was started meanwhile has the new one too.
        rest = [server for server in scene.servers.all if server.is_serving]
        while rest:
            yield 0.5
            waited += 0.5
            rest = [server for server in rest if server.is_serving and not server.has_certificate(secrets.certificate)]
            if waited > RELOAD_LIMIT:
                raise SoakError(f"servers do not use the new certificate: {[server.name for server in rest]}")
        secrets.authority = new
        secrets.write("ca.crt", new)
        # Lines that are open stay open: only a new connection shows a certificate.
        for server in scene.servers.all:
            server.line.reset()
    finally:
        scene.is_rotating = False


def tokens_rotated(scene: Scene, event: Event, _: str) -> Waits:
    """A new token: servers take both, trainers send the new one, servers take the new one alone."""
    yield from calm(scene)
    if scene.is_rotating or scene.n_paused or not scene.servers.are_calm:
        scene.say(f"{event.kind}: {LEFT_OUT}: some servers do not serve")
        return
    scene.is_rotating = True
    try:
        secrets = scene.servers.secrets
        new = (secrets.make() / "sampler-token").read_text()
        scene.say(f"{event.kind}: number {secrets.n_made}")
        secrets.write("server-tokens", secrets.token.rstrip("\n") + "\n" + new)
        yield TOKEN_WAIT
        secrets.write("client-token", new)
        yield 0.1
        secrets.write("server-tokens", new)
        secrets.token = new
        yield TOKEN_WAIT
    finally:
        scene.is_rotating = False


def foreign_files(scene: Scene, event: Event, _: str) -> Waits:
    """Puts files beside those of the run, with names like them."""
    place = scene.run.kept.place
    waited = 0.0
    while not (place / "checkpoints").is_dir():
        if waited > PATIENCE:
            scene.say(f"{event.kind}: {LEFT_OUT}: the run has no folder")
            return
        yield 0.1
        waited += 0.1
    names = ["notes.txt", "steps.jsonl.bak", "report.json~", "checkpoints/notes", "checkpoints/step-7.safetensors.bak"]
    names += ["checkpoints/step-5.safetensors~0123456789abcdef-3", "../beside.txt", "../../../tmp/foreign.txt"]
    text = f"not Kith's: round {scene.run.plan.number}\n"
    n_made = 0
    for name in names:
        path = Path(os.path.normpath(place / name))
        with contextlib.suppress(OSError):
            # A full disk: a file without its text is foreign too.
            path.touch(exist_ok=True)
            scene.foreign[path] = ""
            path.write_text(text)
            scene.foreign[path] = text
            n_made += 1
    scene.say(f"{event.kind}: {n_made} files")


def restore(scene: Scene) -> None:
    """Whatever disturbances were interrupted: all processes go on, all lines are whole."""
    for pid in scene.run.ranks():
        send(pid, "CONT")
    for server in scene.servers.all:
        server.go_on()
        server.line.is_refusing = False
        server.line.restore()
