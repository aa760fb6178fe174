"""Sampling servers of one partitioned graph, two per shard, and the certificates and tokens that all servers share.

Trainers reach every server through a line (relay.py). The first server of a graph is never ended, so that its memory,
descriptors and threads show slow growth over the whole soak; it is paused, cut off and given new secrets as the others.
"""

import contextlib
import os
import re
import shutil
import ssl
import subprocess
import time
from pathlib import Path

from processes import MARK, Resources, resources, send
from relay import Relays

N_REPLICAS = 2
START_LIMIT = 90.0
# `--max-drain`, and the time that a busy machine adds.
DRAIN = 5
DRAIN_LIMIT = 45.0


class SoakError(Exception):
    """A promise of Kith that was broken."""


class Secrets:
    """Certificates and tokens. Files are replaced by a rename, as a secrets manager does."""

    def __init__(self, kith: Path, folder: Path) -> None:
        self.kith, self.folder, self.n_made = kith, folder, 0
        folder.mkdir()
        made = self.make()
        self.authority, self.token = (made / "ca.crt").read_text(), (made / "sampler-token").read_text()
        self.certificate = (made / "tls.crt").read_text()
        self.write("ca.crt", self.authority)
        self.use_certificate(made)
        self.write("server-tokens", self.token)
        self.write("client-token", self.token)

    def make(self) -> Path:
        self.n_made += 1
        made = self.folder / f"made-{self.n_made}"
        subprocess.run([self.kith, "secrets", "--names", "localhost,127.0.0.1", made], check=True, capture_output=True)
        return made

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def write(self, name: str, text: str) -> None:
        draft = self.folder / f"{name}.new"
        draft.touch(mode=0o600)
        draft.write_text(text)
        draft.rename(self.folder / name)

    def use_certificate(self, made: Path) -> None:
        self.certificate = (made / "tls.crt").read_text()
        self.write("tls.key", (made / "tls.key").read_text())
        self.write("tls.crt", self.certificate)


class Server:
    """One server, over all of its lives."""

    def __init__(self, servers: "Servers", shard: int, replica: int) -> None:
        self.servers, self.shard, self.replica = servers, shard, replica
        self.name = f"{servers.n_shards} shards, shard {shard}, replica {replica}"
        self.line = servers.relays.open(self.name)
        self.process: subprocess.Popen[bytes] | None = None
        self.log = Path()
        self.port = 0
        self.n_lives = 0
        # Changes with every signal: the exit codes that are right now, and when it must have ended.
        self.right_codes: set[int] = set()
        self.deadline = 0.0
        self.is_paused = False

    @property
    def is_witness(self) -> bool:
        return self.shard == 0 and self.replica == 0

    @property
    def is_serving(self) -> bool:
        return self.process is not None and self.port > 0 and not self.right_codes

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    def start(self) -> None:
        if self.process is not None:
            return
        soak = self.servers
        self.n_lives += 1
        self.log = soak.logs / f"server-{soak.n_shards}-{self.shard}-{self.replica}.{self.n_lives}.log"
        command = [str(soak.program), "--graph", str(soak.graph), "--shards", str(self.shard), "--threads", "1"]
        command += ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--max-drain", str(DRAIN)]
        command += ["--tls-cert", soak.secrets.path("tls.crt"), "--tls-key", soak.secrets.path("tls.key")]
        command += ["--token-file", soak.secrets.path("server-tokens")]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=soak.environment, start_new_session=True
            )
        self.port, self.right_codes, self.is_paused = 0, set(), False
        self.deadline = time.monotonic() + START_LIMIT

    def end(self, name: str) -> None:
        """Sends SIGKILL or SIGTERM to a server that serves."""
        self.right_codes = {-9} if name == "KILL" else {0}
        self.deadline = time.monotonic() + DRAIN_LIMIT
        send(self.pid, name)
        # A paused server ends as soon as it goes on.
        self.go_on()

    def pause(self) -> None:
        self.is_paused = send(self.pid, "STOP")

    def go_on(self) -> None:
        self.is_paused = False
        if self.process is not None:
            send(self.pid, "CONT")

    def poll(self) -> None:
        """Looks for its end and for its address."""
        if self.process is None:
            return
        code = self.process.poll()
        if code is not None:
            text = self.log.read_text(errors="replace")
            if code not in self.right_codes or "panicked" in text:
                raise SoakError(f"server ({self.name}) ended with {code}:\n{text[-2000:]}")
            self.process, self.port, self.line.target = None, 0, None
        elif self.port == 0:
            found = re.search(r"on 127\.0\.0\.1:(\d+) \(metrics", self.log.read_text(errors="replace"))
            if found:
                self.port = self.line.target = int(found.group(1))
        if self.process is not None and (self.port == 0 or self.right_codes) and time.monotonic() > self.deadline:
            state = "does not end" if self.right_codes else "does not start"
            raise SoakError(f"server ({self.name}) {state}:\n{self.log.read_text(errors='replace')[-2000:]}")

    def has_certificate(self, text: str) -> bool:
        """True if a new connection gets this certificate."""
        with contextlib.suppress(OSError):
            found = ssl.get_server_certificate(("127.0.0.1", self.port), timeout=5)
            return found.split() == text.split()
        return False


class Servers:
    """All servers of one partitioned graph."""

    def __init__(
        self,
        program: Path,
        graph: Path,
        n_shards: int,
        secrets: Secrets,
        relays: Relays,
        logs: Path,
        env: dict[str, str],
    ) -> None:
        self.program, self.graph, self.n_shards, self.secrets, self.relays = program, graph, n_shards, secrets, relays
        self.logs = logs
        self.environment = env
        self.all = [Server(self, shard, replica) for replica in range(N_REPLICAS) for shard in range(n_shards)]
        # Of the witness, between rounds: seconds since the start of the soak, and its resources then.
        self.samples: list[tuple[float, Resources]] = []
        # Highest values of any server at any time.
        self.peak = Resources(0, 0, 0, 0)

    @property
    def addresses(self) -> str:
        return ",".join(f"127.0.0.1:{server.line.port}" for server in self.all)

    @property
    def has_started(self) -> bool:
        return any(server.n_lives > 0 for server in self.all)

    @property
    def are_calm(self) -> bool:
        """True if every server serves and none is paused."""
        return all(server.is_serving and not server.is_paused for server in self.all)

    def poll(self) -> None:
        for server in self.all:
            server.poll()

    def start(self) -> None:
        """Starts those that are away, and waits for all."""
        for server in self.all:
            server.go_on()
        while not self.are_calm:
            self.poll()
            for server in self.all:
                server.start()
            time.sleep(0.05)

    def measure(self) -> None:
        for server in self.all:
            found = resources(server.pid) if server.is_serving else None
            if found is not None:
                self.peak = Resources(
                    max(self.peak.rss, found.rss),
                    max(self.peak.anonymous, found.anonymous),
                    max(self.peak.descriptors, found.descriptors),
                    max(self.peak.threads, found.threads),
                )

    def sample(self, seconds: float) -> None:
        found = resources(self.all[0].pid)
        if found is not None:
            self.samples.append((seconds, found))

    def stop(self) -> None:
        """Ends all servers with SIGTERM: each must exit with 0."""
        self.start()
        for server in self.all:
            server.end("TERM")
        while any(server.process is not None for server in self.all):
            self.poll()
            time.sleep(0.02)
        for server in self.all:
            server.line.close()


def program_beside(kith: Path) -> Path:
    found = shutil.which("kith-sampler", path=str(kith.parent))
    if found is None:
        raise SystemExit(f"no kith-sampler beside {kith}: run make build")
    return Path(found)


def marked_environment(name: str, work: Path) -> dict[str, str]:
    """The environment of a process of the soak: own folders for temporary files, and no settings of the caller."""
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LD_LIBRARY_PATH", "LANG")}
    return {**kept, MARK: name, "TMPDIR": str(work / "tmp"), "HOME": str(work / "home"), "RAYON_NUM_THREADS": "1"}
