"""Two ranks against one, and the cost of checkpoints, on a graph of arxiv's size. Run by deploy/bench.sh.

    ranks.py --kith KITH --work DIR [--rounds N] [--store STORE]

Every process has one kernel thread and one core. In each round: one rank alone; two independent runs of one rank, one
per core, which show how the machine itself scales to two processes; two ranks of one run; and one rank that
saves a checkpoint every 50 steps. Figures are mean step times in milliseconds, after the first steps; the last line has
the medians of all rounds and their ratios.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
from pathlib import Path

RUN = """
[model]
kind = "supergat"
attention = "mx"
heads = 8
hidden = 16
out_heads = 8
dropout = 0.2
[optimizer]
learning_rate = 0.01
weight_decay = 5e-4

[train]
epochs = 1
mode = "mini-batch"
fanouts = [15, 10]
batch_size = 1024
slices = 2
[edge_loss]
weight = 4.0
"""
# Uncounted steps: caches are cold at first, and the last one also evaluates.
FIRST = 5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kith", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store")
    args = parser.parse_args()
    work = Path(args.work)
    store = args.store
    if store is None:
        store = work / "ranked"
        options = dict(nodes=169343, edges=1157799, classes=40, exponent=2.5, dim=128, out=store)
        options = [str(part) for key, value in options.items() for part in ("--" + key, value)]
        subprocess.run([args.kith, "data", "generate", "power-law", *options], check=True, stderr=subprocess.DEVNULL)
    (work / "ranks.toml").write_text(RUN)
    rounds = []
    for number in range(args.rounds):
        def world(name, n_ranks, core=0, more=()):
            return World(args.kith, work, store, f"{name}-{number}", n_ranks, core, more)

        one = world("one", 1).step()
        apart = [world("first", 1, 0), world("second", 1, 1)]
        apart = statistics.mean(each.step() for each in apart)
        two = world("two", 2).step()
        saving = world("saving", 1, 0, ["--set", "train.checkpoint_every_steps=50"]).step()
        rounds.append(dict(one=one, apart=apart, two=two, saving=saving))
        print(json.dumps({key: round(value, 2) for key, value in rounds[-1].items()}), flush=True)
    median = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
    over = lambda a, b: round(statistics.median(each[a] / each[b] for each in rounds), 3)
    print(json.dumps(dict(
        step_ms={key: round(value, 2) for key, value in median.items()},
        two_ranks=over("one", "two"),
        machine=round(2 * over("one", "apart"), 3),
        saving=over("saving", "one"),
    )))


class World:
    """Ranks of one run, started at once."""

    def __init__(self, kith, work, store, name, n_ranks, core, more):
        self.out = work / name
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.ranks = []
        for rank in range(n_ranks):
            env = os.environ | dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                                    RAYON_NUM_THREADS="1", **{"WORLD_SIZE": str(n_ranks)})
            command = ["taskset", "-c", str(core + rank), kith, "train", work / "ranks.toml", "--store", store,
                       "--out", self.out, *more]
            self.ranks.append(subprocess.Popen([str(part) for part in command], env=env,
                                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def step(self):
        """Mean time of a step, in milliseconds."""
        if any([rank.wait(600) for rank in self.ranks]):
            raise SystemExit(f"a rank of {self.out} failed")
        lines = [json.loads(line) for line in (self.out / "steps.jsonl").read_text().splitlines()]
        # The time of a checkpoint is recorded with the next step.
        return statistics.mean(line["micros"] + line["phases"][0].get("save", 0) for line in lines[FIRST:-1]) / 1e3


if __name__ == "__main__":
    main()
