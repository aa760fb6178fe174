"""`make soak`: runs under random disturbances, for minutes or a night, on real processes.

    soak.py --kith target/release/kith [--minutes N] [--seed N] [--without KIND,…] [--json FILE] [--keep]

SOAK_MINUTES (default: 10), SOAK_SEED (default: drawn) and SOAK_JSON set the same. Each round trains one run with ranks
that read a partitioned graph from servers, two per shard, while disturbances of the round's plan happen (plan.py,
faults.py). The seed decides all plans.

Checked in every round:

- The run ends with the bits of the undisturbed run: step records, results, weights and moments of the optimizer.
- Until then, a process exits only with 0, 75, the code of a signal that it got, or 1 where the disk was full.
- After the last disturbance, a step is made within PROGRESS_LIMIT seconds, and the run ends within END_LIMIT seconds.
- At any moment: no checkpoint that was there is lost, and steps.jsonl has every step once, in order.
- No foreign file is changed or removed. No process, shared memory or temporary file is left. A process that got
  SIGKILL may leave one temporary folder.
- Servers exit with 0 after SIGTERM, and never by themselves. Their memory, descriptors and threads do not grow.

Where the system permits it, all processes are in namespaces of their own (PIDs, network, mounts): they end with this
script in any case, and they use no port and no file of the machine. Exit code: 0, 1 (a check failed), 130 (Ctrl-C).
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import faults
from plan import KINDS, SHARDS, Plan, draw
from processes import marked, reap, send
from relay import Relays
from run import Kept, Run, run_arguments
from servers import Secrets, Servers, SoakError, marked_environment, program_beside

INSIDE = "KITH_SOAK_INSIDE"
PROGRESS_LIMIT = 120.0
END_LIMIT = 400.0
# Time for the first step; disturbances then begin in any case.
FIRST_STEP_LIMIT = 60.0
# After the last disturbance, a run is started again this often at most.
MAX_STARTS = 6
# Runs must last longer than their disturbances, on fast machines too.
N_EPOCHS = 60
DISK = "size=12m"
# Growth over the whole soak, after the first fifth, that is not a leak: memory in KiB, descriptors, threads.
MOST_GROWTH = {"anonymous": 8192, "descriptors": 4, "threads": 2}
# Shorter soaks say nothing about growth.
MIN_SAMPLES = 6
GRAPH = ["--nodes", "3000", "--degree", "8", "--classes", "4", "--dim", "16", "--seed", "7"]


def slope(samples: list[tuple[float, float]]) -> float:
    """Least squares, per hour."""
    times, values = [time / 3600 for time, _ in samples], [value for _, value in samples]
    mean, middle = statistics.fmean(times), statistics.fmean(values)
    spread = sum((time - mean) ** 2 for time in times)
    return (
        sum((time - mean) * (value - middle) for time, value in zip(times, values, strict=True)) / spread
        if spread
        else 0.0
    )


class Soak:
    """All rounds."""

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        self.kith, self.seed, self.work = Path(options.kith).resolve(), options.seed, work
        self.is_inside = os.environ.get(INSIDE) is not None
        self.started = time.monotonic()
        for name in ("tmp", "home", "logs", "disk"):
            (work / name).mkdir()
        asked = frozenset(kind for kind in options.without.split(",") if kind)
        if not asked <= set(KINDS):
            raise SystemExit(f"no disturbances: {', '.join(sorted(asked - set(KINDS)))}; there are {', '.join(KINDS)}")
        self.without = self.prepare() | asked
        self.mark = f"{work.name}-servers"
        self.counts: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.n_starts = 0
        self.n_left_after_kill = 0
        self.oracles: dict[str, dict[str, Any]] = {}
        self.rounds: list[dict[str, Any]] = []
        # After each round: bytes of temporary files and of the run's disk, and shared memory.
        self.scratch: list[tuple[float, float]] = []
        self.relays = Relays()
        self.pools: dict[int, Servers] = {}
        self.current: Run | None = None
        self.memory_before = shared_memory()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S', time.gmtime())} {self.seconds:8.1f} s  {text}", flush=True)

    def prepare(self) -> frozenset[str]:
        """Sets up the namespaces; returns the kinds of disturbances that are not possible."""
        if not self.is_inside:
            self.say("no namespaces here: without network-down, network-slow and disk-full")
            return frozenset({"network-down", "network-slow", "disk-full"})
        faults.system("ip", "link", "set", "lo", "up")
        without = set()
        if not faults.system("mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(self.work / "disk")):
            without.add("disk-full")
        faults.system("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        if faults.system("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"):
            faults.system("tc", "qdisc", "del", "dev", "lo", "root")
        else:
            without.add("network-slow")
        self.say("in namespaces of its own; not possible here: " + (", ".join(sorted(without)) or "nothing"))
        return frozenset(without)

    def command(self, *arguments: str) -> None:
        environment = marked_environment(self.mark, self.work)
        done = subprocess.run([self.kith, *arguments], env=environment, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise SoakError(f"kith {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")

    def make(self) -> None:
        """The graph, its shards, and secrets. Servers start with the first round that needs them."""
        self.command("data", "generate", "power-law", *GRAPH, "--out", str(self.work / "store"))
        secrets = Secrets(self.kith, self.work / "secrets")
        sampler, environment = program_beside(self.kith), marked_environment(self.mark, self.work)
        for n_shards in SHARDS:
            graph = self.work / f"{n_shards}.shards"
            self.command("partition", str(self.work / "store"), "--shards", str(n_shards), "--out", str(graph))
            logs = self.work / "logs"
            pool = Servers(sampler, graph, n_shards, secrets, self.relays, logs, environment)
            self.pools[n_shards] = pool

    def oracle(self, plan: Plan) -> dict[str, Any]:
        """Results of the undisturbed run of one process, from the store."""
        if plan.configuration not in self.oracles:
            place = self.work / "disk" / "undisturbed"
            graph, arguments = str(self.work / "store"), run_arguments(plan, N_EPOCHS)
            self.command("train", *arguments, "--graph", graph, "--out", str(place))
            self.oracles[plan.configuration] = Kept(place, False).results()
            shutil.rmtree(place)
            n_steps = len(self.oracles[plan.configuration]["steps"])
            self.say(f"undisturbed run: {plan.configuration}, {n_steps} steps")
        return self.oracles[plan.configuration]

    def round(self, number: int) -> None:
        plan = draw(self.seed, number, self.without)
        oracle = self.oracle(plan)
        servers = self.pools[plan.n_shards]
        servers.start()
        run = self.current = Run(plan, self.kith, self.work, servers.addresses, servers.secrets, self.relays, N_EPOCHS)
        how = "kith launch" if plan.is_launched else "kith train"
        kept = "in a bucket" if plan.is_in_bucket else "in a folder"
        self.say(
            f"round {number}: {how}, {plan.n_ranks} ranks, {plan.n_shards} shards, {plan.configuration}, {kept}, "
            f"--rank-tls {plan.rank_tls}, --cache {plan.cache}, --sampler-timeout {plan.sampler_timeout}; "
            f"{len(plan.events)} disturbances"
        )
        scene = faults.Scene(run, servers, self.work / "disk", self.say_and_count)
        began = self.seconds
        self.until_complete(scene)
        results = run.kept.results()
        for name, expected in oracle.items():
            if results[name] != expected:
                raise SoakError(
                    f"{name} differ from those of the undisturbed run: {difference(expected, results[name])}"
                )
        servers.start()
        self.check_leftovers(scene)
        seconds = self.seconds - began
        self.say(f"round {number}: complete after {seconds:.1f} s and {run.n_starts} starts; the bits are the same")
        self.n_starts += run.n_starts
        self.rounds.append(
            {"round": number, "seconds": round(seconds, 1), "starts": run.n_starts, "how": how, "kept": kept}
        )
        run.end()
        run.remove()
        self.current = None
        self.measure_between_rounds()

    def say_and_count(self, text: str) -> None:
        kind = text.partition(":")[0]
        if faults.LEFT_OUT in text:
            self.left_out[kind] += 1
        else:
            self.counts[kind] += 1
        self.say(f"  {text}")

    def until_complete(self, scene: faults.Scene) -> None:
        run, servers = scene.run, scene.servers
        run.start()
        waiting = list(run.plan.events)
        # Disturbances that go on, each with the time of its next step.
        active: list[tuple[float, faults.Waits]] = []
        next_event = time.monotonic() + run.plan.events[0].gap
        # A run in a bucket shows its first steps with its first checkpoint.
        first_step_by = time.monotonic() + FIRST_STEP_LIMIT
        quiet_since, steps_then, starts_then = time.monotonic(), 0, 0
        next_look = next_measure = 0.0
        try:
            while True:
                now = time.monotonic()
                if run.most_steps == 0 and not run.plan.is_early and now < first_step_by:
                    next_event = now + run.plan.events[0].gap
                if waiting and now >= next_event:
                    event = waiting.pop(0)
                    active.append((now, faults.play(scene, event)))
                    next_event = now + (waiting[0].gap if waiting else 0)
                active = [entry for entry in (step(entry, now) for entry in active) if entry is not None]
                servers.poll()
                reap({process.pid for process in run.processes.values()} | {server.pid for server in servers.all})
                if now >= next_look:
                    run.look()
                    next_look = now + 0.3
                if now >= next_measure:
                    servers.measure()
                    next_measure = now + 2
                is_over = run.poll()
                if is_over:
                    run.look()
                    who = "kith launch" if run.plan.is_launched else "kith train"
                    self.codes.update(f"{who}: {code}" for code in run.codes)
                    if run.is_complete:
                        break
                    self.say(
                        f"  the run ended with {run.codes}, checkpoint {run.acknowledged}: start {run.n_starts + 1}"
                    )
                    run.start()
                if waiting or active:
                    quiet_since, steps_then, starts_then = now, run.most_steps, run.n_starts
                elif run.most_steps == steps_then and now - quiet_since > PROGRESS_LIMIT:
                    raise SoakError(f"no step within {PROGRESS_LIMIT} s after the last disturbance\n{run.said()}")
                elif now - quiet_since > END_LIMIT or run.n_starts - starts_then > MAX_STARTS:
                    raise SoakError(f"the run does not end although nothing disturbs it\n{run.said()}")
                time.sleep(0.05)
            self.left_out.update(event.kind for event in waiting)
            # Disturbances that have begun end as planned: servers come back, secrets are replaced.
            while active:
                active = [entry for entry in (step(entry, time.monotonic()) for entry in active) if entry is not None]
                servers.poll()
                time.sleep(0.05)
        finally:
            for _, waits in active:
                waits.close()
            faults.restore(scene)

    def check_leftovers(self, scene: faults.Scene) -> None:
        """Foreign files, processes, temporary files and shared memory after a run."""
        for path, text in scene.foreign.items():
            if not path.exists() or path.read_text() != text:
                raise SoakError(f"the foreign file {path} was {'changed' if path.exists() else 'removed'}")
        if marked(scene.run.mark):
            raise SoakError(f"processes are left: {marked(scene.run.mark)}")
        temporary = self.work / "tmp"
        left = [path for path in temporary.iterdir() if path not in scene.foreign]
        n_kills = len(scene.run.signaled["KILL"])
        # A launcher that is killed takes all ranks with it; a rank that is killed has one folder at most.
        if len(left) > n_kills * max(1, scene.run.plan.n_ranks if scene.run.plan.is_launched else 1):
            raise SoakError(f"temporary files are left, after {n_kills} SIGKILL: {[path.name for path in left]}")
        self.n_left_after_kill += len(left)
        for path in temporary.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in scene.foreign:
            path.unlink(missing_ok=True)
        others = shared_memory() - self.memory_before
        if others:
            raise SoakError(f"shared memory is left: {sorted(others)}")

    def measure_between_rounds(self) -> None:
        """When no client is connected, a server's resources are those that it keeps."""
        time.sleep(1.5)
        for pool in self.pools.values():
            if pool.has_started:
                pool.poll()
                pool.sample(self.seconds)
        used = sum(path.stat().st_size for name in ("tmp", "disk", "home") for path in files(self.work / name))
        self.scratch.append((self.seconds, float(used)))

    def growth(self) -> list[dict[str, Any]]:
        """Slope and growth of every server that lived from the start to the end."""
        found = []
        for n_shards, pool in self.pools.items():
            samples = pool.samples[len(pool.samples) // 5 :]
            if len(samples) < MIN_SAMPLES:
                continue
            for name, most in MOST_GROWTH.items():
                points = [(at, float(getattr(values, name))) for at, values in samples]
                per_hour, hours = slope(points), (points[-1][0] - points[0][0]) / 3600
                found.append(
                    {
                        "server": f"first of {n_shards} shards",
                        "what": name,
                        "first": points[0][1],
                        "last": points[-1][1],
                        "per_hour": round(per_hour, 2),
                        "hours": round(hours, 3),
                        "peak_of_all": getattr(pool.peak, name),
                        "is_flat": per_hour * hours <= most,
                    }
                )
        if len(self.scratch) >= MIN_SAMPLES:
            first, last = self.scratch[0][1], self.scratch[-1][1]
            row = {"server": "scratch files", "what": "bytes", "first": first, "last": last, "peak_of_all": 0}
            hours = round((self.scratch[-1][0] - self.scratch[0][0]) / 3600, 3)
            found.append({**row, "per_hour": round(slope(self.scratch), 2), "hours": hours, "is_flat": last <= first})
        return found

    def end(self) -> None:
        """Ends every process, whatever state it is in."""
        if self.current is not None:
            self.current.end()
        for pid in marked(self.mark):
            send(pid, "KILL")
        for pool in self.pools.values():
            for server in pool.all:
                if server.process is not None:
                    server.process.wait(timeout=30)
        self.relays.close()

    def summary(self, problem: str | None) -> dict[str, Any]:
        growth = self.growth()
        if problem is None and not all(row["is_flat"] for row in growth):
            problem = "resources of a server grow"
        return {
            "seed": self.seed,
            "minutes": round(self.seconds / 60, 2),
            "namespaces": self.is_inside,
            "without": sorted(self.without),
            "rounds": self.rounds,
            "disturbances": dict(sorted(self.counts.items())),
            "left_out": dict(sorted(self.left_out.items())),
            "starts": self.n_starts,
            "server_starts": sum(server.n_lives for pool in self.pools.values() for server in pool.all),
            "exit_codes": dict(sorted(self.codes.items())),
            "folders_left_by_sigkill": self.n_left_after_kill,
            "resources": growth,
            "problem": problem,
        }


def step(entry: tuple[float, faults.Waits], now: float) -> tuple[float, faults.Waits] | None:
    """The next step of a disturbance, if its time has come; None if it is over."""
    at, waits = entry
    if now < at:
        return entry
    try:
        return now + next(waits), waits
    except StopIteration:
        return None


def difference(expected: Any, found: Any) -> str:
    """The first place where two results differ."""
    if isinstance(expected, list) and isinstance(found, list):
        for place, (own, other) in enumerate(zip(expected, found, strict=False)):
            if own != other:
                return f"at {place}: {own} and {other}"
        return f"{len(expected)} and {len(found)} entries"
    return f"{expected} and {found}"


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def shared_memory() -> set[str]:
    with contextlib.suppress(OSError):
        return {name for name in os.listdir("/dev/shm") if not name.startswith(".tmp")}
    return set()


def show(summary: dict[str, Any]) -> None:
    print(f"\nseed {summary['seed']}, {summary['minutes']:.1f} minutes, {len(summary['rounds'])} rounds, "
          f"{summary['starts']} starts of runs, {summary['server_starts']} starts of servers")  # fmt: skip
    print(f"\n{'disturbance':<24}{'number':>8}{'left out':>10}")
    for kind in sorted({*summary["disturbances"], *summary["left_out"]}):
        print(f"{kind:<24}{summary['disturbances'].get(kind, 0):>8}{summary['left_out'].get(kind, 0):>10}")
    print(f"{'all':<24}{sum(summary['disturbances'].values()):>8}{sum(summary['left_out'].values()):>10}")
    print(f"\n{'exit code':<24}{'number':>8}")
    for code, number in summary["exit_codes"].items():
        print(f"{code:<24}{number:>8}")
    print(f"\nfolders left by SIGKILL: {summary['folders_left_by_sigkill']}")
    print(f"\n{'resource, between rounds':<38}{'first':>10}{'last':>10}{'per hour':>12}{'hours':>8}{'peak':>10}")
    for row in summary["resources"]:
        name = f"{row['server']}: {row['what']}" + (" KiB" if row["what"] == "anonymous" else "")
        print(f"{name:<38}{row['first']:>10.0f}{row['last']:>10.0f}{row['per_hour']:>12.2f}{row['hours']:>8.2f}"
              f"{row['peak_of_all']:>10}{'' if row['is_flat'] else '  grows'}")  # fmt: skip
    print(f"\n{'failed: ' + summary['problem'] if summary['problem'] else 'all checks passed'}")


def soak(options: argparse.Namespace, work: Path) -> int:
    """Runs rounds until the time is over; the last round is completed."""
    own = Soak(options, work)
    own.say(f"seed {own.seed}: SOAK_SEED={own.seed} repeats the plan")
    problem, code = None, 0
    try:
        own.make()
        number = 0
        while number == 0 or own.seconds < options.minutes * 60:
            own.round(number)
            number += 1
        for pool in own.pools.values():
            if pool.has_started:
                pool.stop()
    except SoakError as error:
        problem, code = str(error), 1
        own.say(f"failed in round {len(own.rounds)}: {error}")
    except KeyboardInterrupt:
        problem, code = "stopped by a signal", 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        own.end()
    summary = own.summary(problem)
    show(summary)
    if options.json:
        Path(options.json).write_text(json.dumps(summary, indent=2) + "\n")
    return code or (1 if summary["problem"] else 0)


def interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def in_namespaces(options: argparse.Namespace, work: Path) -> int | None:
    """Runs this script in namespaces of its own; None if the system does not permit them."""
    enter = [
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    if not faults.system(*enter, "true"):
        return None
    arguments = ["--kith", options.kith, "--minutes", str(options.minutes), "--seed", str(options.seed)]
    arguments += ["--without", options.without, *(["--json", options.json] if options.json else [])]
    environment = {**os.environ, INSIDE: str(work)}
    # Not in the foreground's process group: a Ctrl-C is passed on once, to the script inside.
    inner = subprocess.Popen(
        [*enter, sys.executable, "-B", __file__, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return inner.wait()
    except KeyboardInterrupt:
        # It may have got the signal, too, and be gone.
        with contextlib.suppress(FileNotFoundError):
            for child in Path(f"/proc/{inner.pid}/task/{inner.pid}/children").read_text().split():
                send(int(child), "INT")
        try:
            return inner.wait(timeout=60)
        except subprocess.TimeoutExpired:
            return 130
    finally:
        # With it, the kernel ends all processes of the namespace.
        inner.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description="Trains under random disturbances.")
    parser.add_argument("--kith", required=True, help="the program; kith-sampler and kith-trainer are beside it")
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("SOAK_MINUTES") or 10))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SOAK_SEED") or random.randrange(1 << 32)))
    parser.add_argument("--json", default=os.environ.get("SOAK_JSON"), help="file for a summary that programs can read")
    parser.add_argument("--without", default="", help="kinds of disturbances to leave out, with commas between them")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and runs")
    options = parser.parse_args()
    options.kith = str(Path(options.kith).resolve())
    options.json = str(Path(options.json).resolve()) if options.json else None
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    inside = os.environ.get(INSIDE)
    if inside is not None:
        return soak(options, Path(inside))
    work = Path(tempfile.mkdtemp(prefix="kith-soak-"))
    code: int | None = 1
    try:
        code = in_namespaces(options, work)
        if code is None:
            code = soak(options, work)
        return code
    except KeyboardInterrupt:
        return 130
    finally:
        if options.keep or code == 1:
            print(f"logs and runs: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
