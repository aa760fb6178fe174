"""All-reduce between processes on loopback: Kith's ring beside Gloo through `torch.distributed`, in interleaved rounds.
Run by deploy/bench.sh with a Python that has torch (deploy/pyg.sh).

    collective.py --collective COLLECTIVE_BENCH [--rounds N] [--ranks N]

Both groups of processes (default: 2 ranks each, 1 thread per rank) run through all rounds; one is idle while the other
is measured. A round's figure is the median call of rank 0. Prints a line per size: the medians of all rounds, in
microseconds, and the median ratio to Gloo's. More than two ranks exchange gradients of small models: 100 KB and 1 MB.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

# Bytes, and calls per round.
SIZES = {4 << 10: 1000, 64 << 10: 500, 1 << 20: 200, 16 << 20: 20}
SIZES_OF_MANY = {100_000: 40, 1_000_000: 20}


def gloo(port, n_ranks):
    """Gloo's processes, forks of this one. Rank 0 executes commands from stdin until its end."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank = next((rank for rank in range(1, n_ranks) if os.fork() == 0), 0)
    dist.init_process_group("gloo", rank=rank, **{"world_size": n_ranks})
    while True:
        line = sys.stdin.readline() if rank == 0 else ""
        task = torch.tensor([int(number) for number in line.split()] or [0, 0])
        dist.broadcast(task, 0)
        n_bytes, times = task.tolist()
        if not times:
            break
        values = torch.full((n_bytes // 4,), 1e-30)
        micros = []
        for k in range(times + times // 10):
            started = time.perf_counter()
            dist.all_reduce(values)
            if k >= times // 10:
                micros.append((time.perf_counter() - started) * 1e6)
        if rank == 0:
            print(json.dumps(dict(bytes=n_bytes, micros=round(statistics.median(micros), 1))), flush=True)
    dist.destroy_process_group()


class Group:
    """Ranks of which the first one reads command lines and answers each with a line."""

    def __init__(self, n_ranks, command):
        env = os.environ | dict(OMP_NUM_THREADS="1", RAYON_NUM_THREADS="1", RANKS=str(n_ranks))
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.process = subprocess.Popen([str(part) for part in command], **pipes)

    def micros(self, n_bytes, times):
        self.process.stdin.write(f"{n_bytes} {times}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["micros"]

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collective")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--gloo", nargs=2)
    args = parser.parse_args()
    if args.gloo:
        return gloo(args.gloo[0], int(args.gloo[1]))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    theirs = Group(args.ranks, [sys.executable, __file__, "--gloo", port, args.ranks])
    ours = Group(args.ranks, [args.collective])
    summary = []
    for n_bytes, times in (SIZES if args.ranks == 2 else SIZES_OF_MANY).items():
        rounds = [(ours.micros(n_bytes, times), theirs.micros(n_bytes, times)) for _ in range(args.rounds)]
        middle = lambda values, digits: round(statistics.median(values), digits)
        summary.append(dict(ranks=args.ranks, bytes=n_bytes, ratio=middle((kith / peer for kith, peer in rounds), 2),
                            kith_micros=middle((kith for kith, _ in rounds), 1),
                            gloo_micros=middle((peer for _, peer in rounds), 1)))
        print(json.dumps(summary[-1]), flush=True)
    for group in (ours, theirs):
        group.end()


if __name__ == "__main__":
    main()
