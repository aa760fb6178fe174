"""All-reduce between two processes on loopback: Kith's ring beside Gloo through `torch.distributed`, in interleaved
rounds. Run by deploy/bench.sh with a Python that has torch (deploy/pyg.sh).

    collective.py --collective COLLECTIVE_BENCH [--rounds N]

Both pairs of processes run through all rounds; one is idle while the other is measured. A round's figure is the
median call of rank 0; the last line has the medians of all rounds, in microseconds, and the ratio to Gloo's.
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


def gloo(rank, port):
    """One of Gloo's two processes: executes commands from stdin until its end."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, **{"world_size": 2})
    for line in sys.stdin:
        n_bytes, times = map(int, line.split())
        values = torch.full((n_bytes // 4,), 1e-30)
        micros = []
        for k in range(times + times // 10):
            started = time.perf_counter()
            dist.all_reduce(values)
            if k >= times // 10:
                micros.append((time.perf_counter() - started) * 1e6)
        print(json.dumps(dict(bytes=n_bytes, micros=round(statistics.median(micros), 1))), flush=True)
    dist.destroy_process_group()


class Pair:
    """Processes that read command lines; rank 0 answers each with a line."""

    def __init__(self, *commands):
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.processes = [subprocess.Popen([str(part) for part in command], **pipes) for command in commands]

    def micros(self, n_bytes, times):
        for process in self.processes:
            process.stdin.write(f"{n_bytes} {times}\n")
            process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for process in self.processes]
        return answers[0]["micros"]

    def end(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait(timeout=60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collective")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--gloo", nargs=2)
    args = parser.parse_args()
    if args.gloo:
        return gloo(int(args.gloo[0]), args.gloo[1])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = [sys.executable, __file__, "--gloo"]
    theirs, ours = Pair([*own, 0, port], [*own, 1, port]), Pair([args.collective])
    summary = []
    for n_bytes, times in SIZES.items():
        rounds = [(ours.micros(n_bytes, times), theirs.micros(n_bytes, times)) for _ in range(args.rounds)]
        middle = lambda values, digits: round(statistics.median(values), digits)
        summary.append(dict(bytes=n_bytes, ratio=middle((kith / peer for kith, peer in rounds), 2),
                            kith_micros=middle((kith for kith, _ in rounds), 1),
                            gloo_micros=middle((peer for _, peer in rounds), 1)))
        print(json.dumps(summary[-1]), flush=True)
    for pair in (ours, theirs):
        pair.end()


if __name__ == "__main__":
    main()
