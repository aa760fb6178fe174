"""Sampling from two partitions over loopback: two `kith-sampler` servers beside two servers of DGL's DistGraph, in
interleaved rounds. Run by deploy/bench.sh with DGL's Python (deploy/dgl.sh).

    distributed.py --kith target/release/kith --loader LOADER_BENCH --work DIR [--rounds N] [--batches N]

Mini-batches of 1,024 training nodes of an arxiv-like graph, without features. Both partition with METIS, expand all
nodes so far at each hop, sample without replacement and relabel into blocks. Every server has one thread. Kith's client
has two threads and asks servers for everything. DGL's client reads the first partition in shared memory, as a trainer
on that machine does, and asks a server for the second one. Of the forms of DGL below, the best median counts.

Prints a line per fanouts: medians of seed nodes per second, and the median ratio of the rounds. `local` is DGL with
seed nodes of the first partition only, most of whose neighbors need no server.
"""
import argparse
import json
import multiprocessing
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SEEDS = 1024
FANOUTS = ["10,10", "15,10,5"]
# Partitions of GraphBolt or of DGL, sampling processes beside the client, threads of the client.
FORMS = {
    "dgl": (False, 0, 1),
    "dgl, 2 samplers": (False, 2, 1),
    "graphbolt": (True, 0, 1),
    "graphbolt, 2 threads": (True, 0, 2),
    "graphbolt, 2 samplers": (True, 2, 1),
}


def partition(store, out):
    """Two METIS parts of a store, in both of DGL's formats, and the new ids of its training nodes."""
    import dgl
    import torch
    from stores import column

    indptr = torch.from_numpy(column(store, "indptr", "<u8").astype(np.int64))
    indices = torch.from_numpy(column(store, "indices", "<u4").astype(np.int64))
    graph = dgl.graph(("csc", (indptr, indices, torch.empty(0, dtype=torch.int64))), **{"num_nodes": len(indptr) - 1})
    ids, _ = dgl.distributed.partition_graph(graph, "kith", 2, str(out), part_method="metis", return_mapping=True,
                                             use_graphbolt=True)
    split = np.fromfile(next(Path(store).glob("split.*.u8")), "u1")
    np.save(out / "train.npy", np.flatnonzero(split[ids.numpy()] == 1))


def serve(number, addresses, parts, use_graphbolt, n_clients):
    import dgl
    from dgl.distributed.dist_graph import DistGraphServer

    dgl.distributed.rpc.reset()
    # Both servers are on one machine, but only the first one is on the client's.
    server = DistGraphServer(number, addresses, 1, n_clients, parts, disable_shared_mem=number != 0,
                             graph_format=["csc"], use_graphbolt=use_graphbolt)
    server.start()


class Blocks:
    """Makes the blocks of a mini-batch; sent to the sampling processes."""

    def __init__(self, graph, fanouts):
        self.graph, self.fanouts = graph, fanouts

    def __call__(self, seeds):
        import dgl
        import torch

        nodes, blocks = torch.as_tensor(seeds), []
        for fanout in self.fanouts:
            sampled = self.graph.sample_neighbors(nodes, fanout)
            blocks.insert(0, dgl.to_block(sampled, nodes))
            nodes = blocks[0].srcdata[dgl.NID]
        return nodes, blocks


def sample(addresses, parts, name, n_samplers, n_threads):
    """The client: answers lines `FANOUTS BATCHES all|local`."""
    os.environ.update(DGL_DIST_MODE="distributed", DGL_NUM_SERVER="1", DGL_NUM_SAMPLER=str(n_samplers))
    import dgl
    import torch

    torch.set_num_threads(n_threads)
    dgl.utils.set_num_threads(n_threads)
    dgl.distributed.initialize(addresses)
    graph = dgl.distributed.DistGraph(name, part_config=parts)
    train = torch.from_numpy(np.load(Path(parts).parent / "train.npy"))
    generator = torch.Generator().manual_seed(1)
    loaders = {}

    def batches(fanouts, which):
        seeds = train if which == "all" else train[graph.get_partition_book().nid2partid(train) == 0]
        epochs = [seeds[torch.randperm(len(seeds), generator=generator)] for _ in range(30)]
        blocks = Blocks(graph, [int(k) for k in fanouts.split(",")])
        return dgl.distributed.DistDataLoader(torch.cat(epochs), SEEDS, collate_fn=blocks, drop_last=True)

    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        fanouts, n_batches, which = line.split()
        if (fanouts, which) not in loaders:
            loader = batches(fanouts, which)
            loaders[fanouts, which] = loader, iter(loader)
        loader, stream = loaders[fanouts, which]
        # Mini-batches that were made between rounds do not count.
        for _ in range(loader.queue_size + 1):
            next(stream)
        n_nodes, n_edges, started = 0, 0, time.perf_counter()
        for _ in range(int(n_batches)):
            nodes, blocks = next(stream)
            n_nodes += len(nodes)
            n_edges += sum(block.number_of_edges() for block in blocks)
        n_seeds = int(n_batches) * SEEDS
        print(json.dumps(dict(seeds_per_s=round(n_seeds / (time.perf_counter() - started)),
                              edges_per_seed=round(n_edges / n_seeds, 1),
                              nodes_per_seed=round(n_nodes / n_seeds, 1))), flush=True)
    for sampler in multiprocessing.active_children():
        sampler.kill()
    os._exit(0)


class Asked:
    """A client, which answers lines with lines of JSON, among others; and its servers."""

    def __init__(self, command, servers, **more):
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, start_new_session=True, **more)
        self.servers = servers

    def answer(self):
        for line in self.process.stdout:
            try:
                return json.loads(line)
            except ValueError:
                pass
        raise SystemExit(f"{self.process.args} ended with {self.process.wait()}")

    def ask(self, line):
        self.signal(signal.SIGCONT)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.answer()
        self.signal(signal.SIGSTOP)
        return answer

    def signal(self, number):
        """To the client with its samplers, and to the servers: those of DGL poll even if nobody asks."""
        for process in (self.process, *self.servers):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:  # It has ended.
                pass

    def end(self):
        self.signal(signal.SIGCONT)
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        time.sleep(0.3)  # Python removes its semaphores.
        self.signal(signal.SIGKILL)
        for process in (self.process, *self.servers):
            process.wait()


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start_dgl(form, work, started):
    """Two servers and a client of one form; each form has a graph of its own name in shared memory."""
    number = list(FORMS).index(form)
    use_graphbolt, n_samplers, n_threads = FORMS[form]
    name, addresses = f"kith{os.getpid()}x{number}", work / f"addresses-{number}.txt"
    addresses.write_text("".join(f"127.0.0.1 {port}\n" for port in free_ports(2)))
    parts = work / "dgl" / f"{name}.json"
    parts.write_text(json.dumps(json.loads((work / "dgl" / "kith.json").read_text()) | dict(graph_name=name)))
    log = open(work / f"dgl-{number}.log", "w")
    own = [sys.executable, __file__]
    env = os.environ | dict(OMP_NUM_THREADS="1", DGLBACKEND="pytorch")
    commands = [[*own, "--serve", server, addresses, parts, int(use_graphbolt), 1 + n_samplers] for server in range(2)]
    servers = [subprocess.Popen([str(part) for part in command], env=env, stdout=log, stderr=log,
                                start_new_session=True) for command in commands]
    env["OMP_NUM_THREADS"] = str(n_threads)
    client = Asked([*own, "--sample", addresses, parts, name, n_samplers, n_threads], servers, env=env, stderr=log)
    started[form] = client
    client.answer()
    client.signal(signal.SIGSTOP)


def start_kith(args, work):
    servers, addresses = [], []
    for shard in range(2):
        command = [Path(args.kith).with_name("kith-sampler"), "--graph", work / "shards", "--shards", shard,
                   "--listen", "127.0.0.1:0", "--threads", 1]
        servers.append(subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True,
                                        start_new_session=True))
        addresses.append(servers[-1].stdout.readline().split()[-1])
    return Asked([args.loader, 2, ",".join(addresses)], servers)


def compare(args, kith, peers):
    median = lambda values: round(statistics.median(values), 1)
    for fanouts in FANOUTS:
        n_batches = args.batches if fanouts.count(",") == 1 else max(args.batches // 3, 2)
        ours, theirs, local = [], {form: [] for form in peers}, {form: [] for form in peers}
        for number in range(args.rounds + 1):
            turn = kith.ask(f"{fanouts} {4 * n_batches} blocks")
            turns = {form: [peer.ask(f"{fanouts} {n_batches} {which}") for which in ("all", "local")]
                     for form, peer in peers.items()}
            if number == 0:  # Only warms up.
                continue
            ours.append(turn)
            for form, (everywhere, here) in turns.items():
                theirs[form].append(everywhere)
                local[form].append(here)
        rates = lambda rounds: [each["seeds_per_s"] for each in rounds]
        medians = {form: median(rates(rounds)) for form, rounds in theirs.items()}
        best = max(medians, key=medians.get)
        best_local = max(local, key=lambda form: median(rates(local[form])))
        ratios = [one / other for one, other in zip(rates(ours), rates(theirs[best]))]
        ratios_local = [one / other for one, other in zip(rates(ours), rates(local[best_local]))]
        record = dict(fanouts=fanouts, ratio=median(ratios), rounds=[round(ratio, 1) for ratio in ratios],
                      kith=median(rates(ours)), dgl=medians[best], form=best, local=median(rates(local[best_local])),
                      local_form=best_local, ratio_local=median(ratios_local), forms=medians,
                      edges_per_seed=[ours[-1]["edges_per_seed"], theirs[best][-1]["edges_per_seed"]])
        print(json.dumps(record), flush=True)


def main():
    parser = argparse.ArgumentParser()
    for name in ("--kith", "--loader", "--work"):
        parser.add_argument(name)
    parser.add_argument("--store", help="an arxiv-like store that exists already")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--partition", nargs=2)
    parser.add_argument("--serve", nargs=5)
    parser.add_argument("--sample", nargs=5)
    args = parser.parse_args()
    if args.partition:
        return partition(args.partition[0], Path(args.partition[1]))
    if args.serve:
        number, addresses, parts, use_graphbolt, n_clients = args.serve
        return serve(int(number), addresses, parts, use_graphbolt == "1", int(n_clients))
    if args.sample:
        addresses, parts, name, n_samplers, n_threads = args.sample
        return sample(addresses, parts, name, int(n_samplers), int(n_threads))
    from stores import make_store

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    work = Path(args.work) / "distributed"
    work.mkdir(parents=True, exist_ok=True)
    store = args.store or make_store(args.kith, work, "arxiv-like", 1)
    subprocess.run([args.kith, "partition", store, "--shards", "2", "--out", work / "shards"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # In a process of its own: servers and clients need another state of DGL.
    subprocess.run([sys.executable, __file__, "--partition", store, work / "dgl"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started = {"kith": start_kith(args, work)}
    try:
        for form in args.forms:
            start_dgl(form, work, started)
        compare(args, started["kith"], {form: started[form] for form in args.forms})
    finally:
        for each in started.values():
            each.end()
        for left in Path("/dev/shm").glob(f"*kith{os.getpid()}x*"):
            left.unlink()


if __name__ == "__main__":
    main()
