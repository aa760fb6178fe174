"""One run: its processes, its exit codes, and what its folder must show at any moment."""

import hashlib
import json
import re
import shutil
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

from plan import N_SLICES, Plan
from processes import marked, parent, rank_of, send
from relay import Relays
from servers import Secrets, SoakError, marked_environment

# Of ranks; some pauses and cuts are longer.
HEARTBEAT = 5
GRACE = 15
# Time for all processes of a run to end after the first one.
ALONE = 180.0
SETTINGS = [
    "train.mode=mini-batch",
    "train.fanouts=[5, 5]",
    "train.batch_size=60",
    "train.evaluate_every=2",
    "train.checkpoint_every=1000",
    "train.checkpoint_every_steps=5",
    "early_stop=off",
    f"train.slices={N_SLICES}",
]
# A step record has these, and they differ from run to run.
OWN_OF_A_RUN = ("micros", "phases", "sent_bytes", "slices", "crc32")
BUG = re.compile(r"panicked|this is a bug|exit code 70")
DISK_IS_FULL = re.compile(r"No space left|no space|os error 28")


def run_arguments(plan: Plan, n_epochs: int) -> list[str]:
    settings = [*SETTINGS, f"train.epochs={n_epochs}"]
    if plan.model != "gcn":
        settings.append("train.edge_seeds=50")
    parts = [f"partition-graph/{plan.model}", "--seed", str(plan.run_seed)]
    return parts + [part for setting in settings for part in ("--set", setting)]


def tensors(data: bytes) -> dict[str, str]:
    """Digest of each tensor of a safetensors file."""
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            found[name] = hashlib.sha256(data[8 + length + begin : 8 + length + end]).hexdigest()
    return found


class Kept:
    """The files of a run, in a folder or in a bucket."""

    def __init__(self, place: Path, is_in_bucket: bool) -> None:
        self.place, self.is_in_bucket = place, is_in_bucket

    def names(self) -> dict[str, Path]:
        """Files by name. In a bucket: the objects of the current listing."""
        if not self.is_in_bucket:
            found = [*self.place.glob("*"), *self.place.glob("checkpoints/*")]
            return {str(path.relative_to(self.place)): path for path in found}
        try:
            text = (self.place / "kith-files.json").read_text()
        except FileNotFoundError:
            return {}
        try:
            return {entry["name"]: self.place / entry["object"] for entry in json.loads(text)["files"]}
        except ValueError as error:
            raise SoakError(f"a reader met a torn listing: {error}") from None

    def newest_checkpoint(self) -> int:
        steps = [re.fullmatch(r"checkpoints/step-(\d+)\.safetensors", name) for name in self.names()]
        return max((int(step.group(1)) for step in steps if step), default=0)

    def text(self, name: str) -> str | None:
        """None if it is not there, or was replaced while it was read."""
        path = self.names().get(name)
        try:
            return path.read_text() if path is not None else None
        except FileNotFoundError:
            return None

    def results(self) -> dict[str, Any]:
        """All that must have the same bits in every run of this configuration."""
        files = self.names()
        steps = [json.loads(line) for line in files["steps.jsonl"].read_text().splitlines()]
        for step in steps:
            for name in OWN_OF_A_RUN:
                step.pop(name, None)
        report = json.loads(files["report.json"].read_text())
        results = {name: value for name, value in report["results"].items() if not name.startswith("seconds")}
        newest = files[f"checkpoints/step-{self.newest_checkpoint()}.safetensors"]
        return {
            "steps": steps,
            "results": results,
            "confusion": report.get("confusion"),
            "n_negatives_left_out": report["n_negatives_left_out"],
            "tensors": tensors(newest.read_bytes()),
        }


class Run:
    """A run that is started again until it is complete."""

    def __init__(
        self, plan: Plan, kith: Path, work: Path, addresses: str, secrets: Secrets, relays: Relays, n_epochs: int
    ) -> None:
        self.plan, self.kith, self.work, self.n_epochs = plan, kith, work, n_epochs
        self.folder = work / "disk" / f"round-{plan.number}"
        self.folder.mkdir()
        self.kept = Kept(self.folder / "run", plan.is_in_bucket)
        self.out = f"file://{self.folder}/run" if plan.is_in_bucket else str(self.folder / "run")
        self.addresses, self.secrets = addresses, secrets
        self.mark = f"{work.name}-round-{plan.number}"
        # The line to rank 0; `kith launch` connects its ranks itself.
        self.line = None if plan.is_launched else relays.open(f"rank 0 of round {plan.number}")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}
        self.n_starts = 0
        self.first_end = 0.0
        self.codes: list[int] = []
        # Processes that got these signals.
        self.signaled: dict[str, set[int]] = {name: set() for name in ("KILL", "TERM", "INT")}
        # True if the disk was full at any time since the processes started.
        self.met_full_disk = False
        self.acknowledged = 0
        self.most_steps = 0

    def start(self) -> None:
        self.n_starts += 1
        self.processes, self.logs, self.first_end, self.met_full_disk = {}, {}, 0.0, False
        shared = [*run_arguments(self.plan, self.n_epochs), "--out", self.out, "--resume"]
        shared += ["--graph", f"grpc://{self.addresses}", "--sampler-timeout", str(self.plan.sampler_timeout)]
        shared += ["--tls-ca", self.secrets.path("ca.crt"), "--token-file", self.secrets.path("client-token")]
        shared += ["--cache", str(self.plan.cache), "--rank-tls", self.plan.rank_tls, "--grace", str(GRACE)]
        shared += ["--heartbeat-timeout", str(HEARTBEAT), "--join-timeout", "20", "--exchange-timeout", "60"]
        environment = {**marked_environment(self.mark, self.work), "KITH_TOKEN": "a token of this soak alone"}
        if self.plan.is_launched:
            self.spawn("launcher", ["launch", "--ranks", str(self.plan.n_ranks), *shared], environment)
            return
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        if self.line is not None:
            self.line.target = port
        for rank in range(self.plan.n_ranks):
            place = port if rank == 0 or self.line is None else self.line.port
            own = {"RANK": str(rank), "WORLD_SIZE": str(self.plan.n_ranks), "LOCAL_WORLD_SIZE": str(self.plan.n_ranks)}
            own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(place)}
            self.spawn(f"rank {rank}", ["train", *shared], {**environment, **own})

    def spawn(self, name: str, arguments: list[str], environment: dict[str, str]) -> None:
        log = self.work / "logs" / f"round-{self.plan.number}-{name.replace(' ', '-')}.{self.n_starts}.log"
        self.logs[name] = log
        with open(log, "wb") as file:
            self.processes[name] = subprocess.Popen(
                [str(self.kith), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                start_new_session=True,
            )

    def ranks(self) -> list[int]:
        """Ranks that run, in order."""
        all_found = marked(self.mark, "train")
        found = [(rank_of(pid), pid) for pid in all_found if parent(pid) not in all_found]
        return [pid for rank, pid in sorted((rank, pid) for rank, pid in found if rank is not None)]

    def launcher(self) -> int | None:
        process = self.processes.get("launcher")
        return process.pid if process is not None and process.poll() is None else None

    def signal(self, pid: int, name: str) -> bool:
        if name in self.signaled:
            self.signaled[name].add(pid)
        return send(pid, name)

    def look(self) -> None:
        """Checks the records and checkpoints of a run at any moment."""
        newest = self.kept.newest_checkpoint()
        if newest < self.acknowledged:
            raise SoakError(f"checkpoint {self.acknowledged} was lost: the newest one is {newest}")
        text = self.kept.text("steps.jsonl")
        if text is not None:
            whole = text[: text.rfind("\n") + 1].splitlines()
            numbers = [int(line[8 : line.index(",")]) for line in whole]
            if numbers != list(range(len(numbers))):
                raise SoakError(f"steps.jsonl does not have each step once, in order: {numbers}")
            # A checkpoint after a signal may leave out the evaluation of its last step: that record is written later.
            if len(numbers) < newest - 1:
                raise SoakError(f"steps.jsonl has {len(numbers)} steps, and checkpoint {newest} counts on more")
            self.most_steps = max(self.most_steps, len(numbers))
        self.acknowledged = newest

    def poll(self) -> bool:
        """True if all of its processes have ended; their codes are then in `codes`."""
        codes = {name: process.poll() for name, process in self.processes.items()}
        if all(code is None for code in codes.values()):
            return False
        self.first_end = self.first_end or time.monotonic()
        rest = marked(self.mark)
        if rest:
            if time.monotonic() - self.first_end > ALONE:
                raise SoakError(f"processes do not end, although others of the run did: {rest}, {codes}\n{self.said()}")
            return False
        if any(code is None for code in codes.values()):
            return False
        is_full = self.met_full_disk and DISK_IS_FULL.search(self.said(1 << 20)) is not None
        for name, code in codes.items():
            pid = self.processes[name].pid
            is_right = code in (0, 75) or (code == 1 and is_full)
            is_right |= code == -9 and pid in self.signaled["KILL"]
            is_right |= code == -15 and pid in self.signaled["TERM"]
            is_right |= code in (130, -2) and pid in self.signaled["INT"]
            if not is_right:
                raise SoakError(f"{name} ended with {code}\n{self.said()}")
        if BUG.search(self.said(1 << 20)):
            raise SoakError(f"a process reported a bug\n{self.said()}")
        self.codes = [code for code in codes.values() if code is not None]
        return True

    @property
    def is_complete(self) -> bool:
        return all(code == 0 for code in self.codes)

    def said(self, most: int = 4000) -> str:
        return "\n".join(f"--- {name}\n{log.read_text(errors='replace')[-most:]}" for name, log in self.logs.items())

    def end(self) -> None:
        """Kills what runs still."""
        for pid in marked(self.mark):
            send(pid, "KILL")
        for process in self.processes.values():
            process.wait(timeout=ALONE)
        if self.line is not None:
            self.line.close()
            self.line = None

    def remove(self) -> None:
        shutil.rmtree(self.folder)
