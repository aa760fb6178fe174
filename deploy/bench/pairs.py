"""CPU seconds of two commands that do the same work, in interleaved pairs.

    pairs.py --old COMMAND --new COMMAND [--pairs 20] [--before COMMAND] [--input TEXT]

Commands are shell lines; `--before` runs before each of them and is not counted, `--input` is their stdin. CPU seconds
include all processes that a command waited for. The order within a pair alternates. The last line has medians, the
median of the pairs' ratios (new / old), and the 95% interval of that median by order statistics, which assumes no
distribution.
"""
import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import time


def cpu_and_wall(command, text):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(command, shell=True, input=text, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wall = time.perf_counter() - started
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}: {command}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def interval(ratios):
    """The 95% interval of the median: the narrowest pair of symmetric order statistics."""
    n, ratios = len(ratios), sorted(ratios)
    cut = 0
    while 2 * sum(math.comb(n, k) for k in range(cut + 1)) / 2**n <= 0.05:
        cut += 1
    if cut == 0:
        return None
    return ratios[cut - 1], ratios[n - cut]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--old", required=True)
    parser.add_argument("--new", required=True)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--before", default="true")
    parser.add_argument("--input", default="")
    args = parser.parse_args()
    commands = dict(old=args.old, new=args.new)
    cpu, wall = dict(old=[], new=[]), dict(old=[], new=[])
    for number in range(args.pairs):
        for name in ["old", "new"] if number % 2 == 0 else ["new", "old"]:
            subprocess.run(args.before, shell=True, check=True)
            of_cpu, of_wall = cpu_and_wall(commands[name], args.input)
            cpu[name].append(of_cpu)
            wall[name].append(of_wall)
        print(json.dumps({name: [round(cpu[name][-1], 3), round(wall[name][-1], 3)] for name in cpu}), flush=True)
    ratios = [new / old for old, new in zip(cpu["old"], cpu["new"])]
    bounds = interval(ratios)
    median = {name: round(statistics.median(values), 3) for name, values in cpu.items()}
    walls = {name: round(statistics.median(values), 3) for name, values in wall.items()}
    print(json.dumps(dict(
        pairs=args.pairs, cpu_s=median, wall_s=walls, ratio=round(statistics.median(ratios), 4),
        interval=bounds and [round(bound, 4) for bound in bounds],
    )))


main()
