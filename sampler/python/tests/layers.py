"""Tests of `kith.nn`, run by tests/python.rs: python layers.py [KITH], with the package on PYTHONPATH."""

import itertools
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import kith
import kith.nn
import numpy as np
import torch
import torch.nn.functional as F
from kith.nn import SuperGATConv, negative_sampling
from safetensors.torch import load_file
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GATConv
from torch_geometric.nn import SuperGATConv as PygConv

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else None
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def random_graph(n: int, n_edges: int, seed: int = 0) -> Tensor:
    """Directed edges with self-loops and repeated edges; the last 3 nodes have none."""
    return torch.randint(n - 3, (2, n_edges), generator=torch.Generator().manual_seed(seed))


def keys(edges: Tensor, n: int) -> Tensor:
    return edges[0] * n + edges[1]


def close(found: Tensor, expected: Tensor, most: float = 1e-5) -> None:
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert torch.allclose(found, expected, most, most), (found - expected).abs().max()


def results(layer: torch.nn.Module, x: Tensor, *given: Tensor) -> list[Tensor]:
    """Output, attention loss if there is one, and the gradients of both together."""
    x = x.clone().requires_grad_()
    out = layer(x, *given)
    total = (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum()
    losses = [layer.get_attention_loss()] if hasattr(layer, "get_attention_loss") and len(given) > 1 else []
    total = total + 3.0 * sum(losses)
    parameters = dict(sorted(layer.named_parameters()))
    return [out, *losses, *torch.autograd.grad(total, [x, *parameters.values()])]


def outputs_losses_and_gradients_are_those_of_pyg() -> None:
    torch.manual_seed(1)
    n = 40
    edges, negatives, x = random_graph(n, 200), torch.randint(n, (2, 70)), torch.randn(n, 6)
    options = itertools.product(("MX", "SD"), (1, 3), (True, False), (True, False), (True, False), (0.2, 0.5))
    for attention, heads, concat, loops, bias, slope in options:
        given = (6, 5, heads, concat, slope, 0.0, loops, bias, attention)
        theirs, ours = PygConv(*given), SuperGATConv(*given)
        if bias:
            torch.nn.init.normal_(theirs.bias)
        ours.load_state_dict(theirs.state_dict())
        for found, expected in zip(results(ours, x, edges, negatives), results(theirs, x, edges, negatives), strict=True):
            close(found, expected)
        assert len(results(ours, x, edges, negatives)) == 4 + 2 * (attention == "MX") + bias
        close(ours.eval()(x, edges), theirs.eval()(x, edges))
    theirs, ours = (kind(6, 5, heads=3, dropout=0.4) for kind in (PygConv, SuperGATConv))
    ours.load_state_dict(theirs.state_dict())
    dropped = []
    for layer in (theirs, ours):
        torch.manual_seed(8)
        dropped.append(layer(x, edges, negatives))
    close(*dropped)
    for heads, concat, loops in itertools.product((1, 3), (True, False), (True, False)):
        theirs = GATConv(6, 5, heads=heads, concat=concat, add_self_loops=loops)
        torch.nn.init.normal_(theirs.bias)
        ours = SuperGATConv(6, 5, heads=heads, concat=concat, add_self_loops=loops, attention_type="GO")
        ours.load_state_dict(theirs.state_dict())
        for found, expected in zip(results(ours, x, edges), results(theirs, x, edges), strict=True):
            close(found, expected)


def weights_are_exchanged_with_pyg() -> None:
    x, edges = torch.randn(30, 6), random_graph(30, 90)
    for attention, (heads, concat, bias) in itertools.product(("MX", "SD"), ((4, True, True), (2, False, True), (1, True, False))):
        given = (6, 5, heads, concat, 0.2, 0.0, True, bias, attention)
        theirs, ours = PygConv(*given).eval(), SuperGATConv(*given).eval()
        assert not torch.equal(ours(x, edges), theirs(x, edges))
        shapes = [{name: value.shape for name, value in layer.state_dict().items()} for layer in (ours, theirs)]
        assert shapes[0] == shapes[1]
        theirs.load_state_dict(ours.state_dict())
        close(ours(x, edges), theirs(x, edges))
        lazy = SuperGATConv(-1, *given[1:]).eval()
        lazy.load_state_dict(theirs.state_dict())
        close(lazy(x, edges), theirs(x, edges))
    lazy = SuperGATConv(-1, 50)
    assert lazy(x, edges).shape == (30, 50) and 0.9 < lazy.lin.weight.abs().max() / math.sqrt(6 / (6 + 50)) <= 1
    bound = math.sqrt(6 / (8 + 2 * 8))
    for attention, name in (("GO", "att_src"), ("GO", "att_dst"), ("MX", "att_l"), ("MX", "att_r")):
        largest = float(SuperGATConv(3, 8, heads=8, attention_type=attention).state_dict()[name].abs().max())
        assert 0.8 * bound < largest <= bound, "the bound of one tensor, heads × 2 · features"


def outputs_and_losses_are_those_of_a_worked_example() -> None:
    """Three nodes: their numbers were computed from the paper's formulas, without this code."""
    x = torch.tensor([[1, 0, 0.5, 0.5], [0.5, -1, 1, 0], [-1, 2, 0, -0.5]])
    edges, negatives = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([[0, 2], [2, 0]])
    of_destination, of_source = torch.tensor([[[0.1, 0.2], [0.5, -0.5]]]), torch.tensor([[[-0.3, 0.4], [0.25, 1.0]]])
    expected = {
        "GO": ([-0.283154, 0.984679, 0.590121, 0.167835], [0.153484, 0.576257], 0.659761),
        "DP": ([0.485130, -0.396353, 0.660078, 0.060436], [0.572604, -0.167958], 0.616375),
        "SD": ([0.424950, -0.223443, 0.615461, 0.047630], [0.520205, -0.087907], 0.610722),
        "MX": ([0.109436, 0.429381, 0.576961, 0.106889], [0.343198, 0.268135], 0.616375),
    }
    for device, (attention, (joined, mean, loss)) in itertools.product(DEVICES, expected.items()):
        for concat, row in ((True, joined), (False, mean)):
            layer = SuperGATConv(4, 2, heads=2, concat=concat, attention_type=attention)
            weights = {"lin.weight": torch.eye(4), "bias": torch.zeros(4 if concat else 2)}
            names = {"GO": ("att_src", "att_dst"), "MX": ("att_l", "att_r")}.get(attention, ())
            layer.load_state_dict(weights | dict(zip(names, (of_source, of_destination), strict=False)))
            out = layer.to(device)(x.to(device), edges.to(device), negatives.to(device))
            close(out[1].cpu(), torch.tensor(row), 2e-6)
            close(layer.get_attention_loss().cpu(), torch.tensor(loss), 2e-6)


def direct_loss(layer: SuperGATConv, x: Tensor, positives: list[list[int]], negatives: list[list[int]]) -> float:
    """The mean over pairs of -log sigmoid(±t), where t is the mean of the heads' logits: one pair after the other."""
    losses = []
    rows = (x.double() @ layer.lin.weight.detach().double().t()).view(len(x), layer.heads, layer.out_channels)
    for sign, (source, destination) in [(1, pair) for pair in positives] + [(-1, pair) for pair in negatives]:
        logits = []
        for head in range(layer.heads):
            h_j, h_i = rows[source, head], rows[destination, head]
            if layer.attention_type == "GO":
                logits.append(float((layer.att_src[0, head].double() @ h_j + layer.att_dst[0, head].double() @ h_i).detach()))
            else:
                scale = math.sqrt(layer.out_channels) if layer.attention_type == "SD" else 1.0
                logits.append(float(h_i @ h_j) / scale)
        losses.append(math.log1p(math.exp(-sign * sum(logits) / len(logits))))
    return sum(losses) / len(losses)


def the_attention_loss_is_that_of_the_definition() -> None:
    torch.manual_seed(3)
    n = 20
    edges, negatives, x = random_graph(n, 60), torch.randint(n, (2, 25)), torch.randn(n, 4)
    for attention, loops in itertools.product(kith.nn.ATTENTION_TYPES, (True, False)):
        layer = SuperGATConv(4, 3, heads=2, add_self_loops=loops, attention_type=attention, dropout=0.5)
        layer(x, edges, negatives)
        positives = edges.t().tolist()
        if loops:
            positives = [pair for pair in positives if pair[0] != pair[1]] + [[node, node] for node in range(n)]
        expected = direct_loss(layer, x, positives, negatives.t().tolist())
        assert abs(float(layer.get_attention_loss().detach()) - expected) < 1e-5, (attention, loops)
        layer.eval()
        assert float(layer.get_attention_loss()) == 0.0
        layer(x, edges, negatives)
        layer.train()
        assert float(layer.get_attention_loss()) == 0.0, "the last forward pass drew nothing"
    empty = SuperGATConv(4, 3, add_self_loops=False)
    out = empty(x, torch.empty(2, 0, dtype=torch.long))
    total = out.sum() + 4.0 * empty.get_attention_loss()
    total.backward()
    assert float(empty.get_attention_loss()) == 0.0 and float(total.detach()) == 0.0


def a_fraction_of_edges_and_negatives_together_is_exact() -> None:
    torch.manual_seed(4)
    n = 60
    edges, x = random_graph(n, 400), torch.randn(n, 4)
    n_edges = int((edges[0] != edges[1]).sum()) + n
    counts = set()
    for _ in range(30):
        layer = SuperGATConv(4, 3, heads=2, edge_sample_ratio=0.7, neg_sample_ratio=0.6)
        layer(x, edges)
        assert len(layer.att_x) == len(layer.att_y) == int(0.7 * (n_edges + int(0.6 * n_edges)))
        counts.add(int(layer.att_y.sum()))
    assert len(counts) > 5, "the mixture is drawn too"
    assert abs(np.mean(list(counts)) / (0.7 * n_edges) - 1) < 0.05
    # Given negatives are in the union too.
    layer(x, edges, torch.zeros(2, 100, dtype=torch.long))
    assert len(layer.att_x) == int(0.7 * (n_edges + 100)) and 0 < len(layer.att_y) - int(layer.att_y.sum()) < 100
    # Without a subset, all edges are positives.
    layer = SuperGATConv(4, 3, neg_sample_ratio=0.6)
    layer(x, edges)
    assert int(layer.att_y.sum()) == n_edges and len(layer.att_y) == n_edges + int(0.6 * n_edges)


def negatives_are_pairs_without_an_edge() -> None:
    n = 50
    edges = random_graph(n, 300)
    known, reverse = keys(edges, n), keys(edges.flip(0), n)
    for device, is_undirected in itertools.product(DEVICES, (False, True)):
        generator = torch.Generator().manual_seed(5)
        found = negative_sampling(edges.to(device), n, 400_000, is_undirected=is_undirected, generator=generator)
        assert found.device.type == device and found.shape == (2, 400_000)
        found = found.cpu()
        assert not torch.isin(keys(found, n), known).any() and (found[0] != found[1]).all()
        assert bool(torch.isin(keys(found, n), reverse).any()) == is_undirected
        again = negative_sampling(edges, n, 400_000, is_undirected=is_undirected, generator=torch.Generator().manual_seed(5))
        assert torch.equal(found, again), "draws of a generator are the same on every device"
        # All such pairs are as likely.
        allowed = torch.ones(n * n, dtype=torch.bool)
        allowed[known] = False
        allowed[torch.arange(n) * (n + 1)] = False
        if not is_undirected:
            allowed[reverse] = False
        counts = keys(found, n).bincount(minlength=n * n)
        expected = 400_000 / int(allowed.sum())
        assert (counts[~allowed] == 0).all() and ((counts[allowed] - expected).abs() < 6 * math.sqrt(expected)).all()
    assert negative_sampling(edges[:, :0], n, 100).shape == (2, 100)
    # Of 100 × 100 pairs all but 30 are edges. A pair that met edges in all 16 draws is left out.
    free = torch.tensor([[i, i + 1] for i in range(30)]).t()
    every = torch.cartesian_prod(torch.arange(100), torch.arange(100)).t()
    dense = every[:, ~torch.isin(keys(every, 100), keys(free, 100))]
    found = negative_sampling(dense, 100, 2000, is_undirected=True)
    assert 0 < found.shape[1] < 2000 and torch.isin(keys(found, 100), keys(free, 100)).all()
    assert negative_sampling(every, 100, 50).shape == (2, 0)
    layer = SuperGATConv(4, 3, is_undirected=True)
    layer(torch.randn(100, 4), dense)
    assert len(layer.att_y) - int(layer.att_y.sum()) <= 30, "at most as many as there are pairs without an edge"
    layer(torch.randn(100, 4), every)
    assert len(layer.att_y) == int(layer.att_y.sum()) == 10_000 and torch.isfinite(layer.get_attention_loss())


def negatives_of_a_batch_stay_in_their_graphs() -> None:
    sizes = [10, 1, 40, 25]
    batch = torch.repeat_interleave(torch.arange(4), torch.tensor(sizes))
    starts = [0, 10, 11, 51]
    edges = torch.cat([start + torch.randint(size, (2, 3 * size)) for start, size in zip(starts, sizes, strict=True)], 1)
    edges = torch.cat([edges[:, edges[0] != edges[1]], torch.arange(76).expand(2, 76)], 1)
    known = keys(torch.cat([edges, edges.flip(0)], 1), 76)
    layer = SuperGATConv(4, 3, neg_sample_ratio=0.5)
    kept, found = layer._pairs(edges, 76, None, batch, None)
    assert kept is None and torch.equal(batch[found[0]], batch[found[1]])
    assert not torch.isin(keys(found, 76), known).any()
    n_each = batch[edges[1]].bincount() // 2
    n_each[1] = 0  # A graph of one node has no other pair.
    assert batch[found[0]].bincount(minlength=4).tolist() == n_each.tolist()
    layer = SuperGATConv(4, 3, neg_sample_ratio=0.5, edge_sample_ratio=0.5)
    layer(torch.randn(76, 4), edges, batch=batch)
    assert len(layer.att_y) == (edges.shape[1] + int(n_each.sum())) // 2
    try:
        layer(torch.randn(76, 4), edges, batch=batch.flip(0))
        raise AssertionError("graphs in another order")
    except ValueError as error:
        assert "ascending" in str(error)


def wrong_arguments_are_refused() -> None:
    for given, problem in [
        ({"attention_type": "mx"}, "expected GO, DP, SD, MX, found mx"),
        ({"neg_sample_ratio": 0.0}, "neg_sample_ratio: expected a number above 0"),
        ({"edge_sample_ratio": 1.5}, "edge_sample_ratio: expected"),
    ]:
        try:
            SuperGATConv(4, 3, **given)
            raise AssertionError(f"{given}: accepted")
        except ValueError as error:
            assert problem in str(error), error
    try:
        SuperGATConv(4, 3)(torch.ones(3, 4), torch.ones(4, 2, dtype=torch.long))
        raise AssertionError("edges × 2: accepted")
    except ValueError as error:
        assert "expected shape (2, edges), found (4, 2)" in str(error)


class Net(torch.nn.Module):
    """Two layers as in a run of `kith train`."""

    def __init__(self, sizes: tuple[int, int, int], heads: tuple[int, int], **options: object) -> None:
        super().__init__()
        dim, hidden, n_classes = sizes
        first = SuperGATConv(dim, hidden, heads[0], **options)
        self.convs = torch.nn.ModuleList([first, SuperGATConv(heads[0] * hidden, n_classes, heads[1], False, **options)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.convs[1](F.elu(self.convs[0](x, edge_index)), edge_index)

    def attention_loss(self) -> Tensor:
        return self.convs[0].get_attention_loss() + self.convs[1].get_attention_loss()


def compiled_layers_compute_the_same() -> None:
    for ratio in (0.8, 1.0):
        layer = SuperGATConv(4, 3, heads=2, edge_sample_ratio=ratio)
        compiled = torch.compile(layer, backend="aot_eager")
        for n in (30, 40, 50):
            edges, x = random_graph(n, 3 * n), torch.randn(n, 4)
            results = []
            for forward in (compiled, layer):
                torch.manual_seed(n)
                out = forward(x, edges)
                loss = layer.get_attention_loss()
                results.append([out, loss, *torch.autograd.grad(out.sum() + loss, list(layer.parameters()))])
            for found, expected in zip(*results, strict=True):
                close(found, expected)


def attention_learns_to_find_edges() -> None:
    """Edges are within 20 groups, which features tell. A constant logit has a loss of 0.64."""
    group = torch.arange(200) % 20
    pairs = torch.cartesian_prod(torch.arange(200), torch.arange(200)).t()
    edges = pairs[:, (group[pairs[0]] == group[pairs[1]]) & (pairs[0] != pairs[1])]
    for attention in ("DP", "SD", "MX"):
        torch.manual_seed(0)
        layer = SuperGATConv(20, 8, heads=2, attention_type=attention, is_undirected=True, edge_sample_ratio=0.8)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
        losses = []
        for _ in range(60):
            layer(F.one_hot(group).float(), edges)
            losses.append(layer.get_attention_loss())
            optimizer.zero_grad()
            losses[-1].backward()
            optimizer.step()
        assert losses[0] > 0.5 and losses[-1] < 0.3, (attention, losses[0], losses[-1])


def models_learn_in_mini_batches(folder: Path) -> None:
    random = np.random.default_rng(1)
    n, n_classes = 600, 4
    y = random.integers(0, n_classes, n)
    ends = random.integers(0, n, (2, 16_000))
    ends = ends[:, (y[ends[0]] == y[ends[1]]) | (random.random(16_000) < 0.15)]
    part = random.integers(0, 3, n)
    masks = {name: torch.tensor(part == place) for place, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    x = np.eye(n_classes)[y] + random.normal(size=(n, n_classes))
    data = Data(x=torch.tensor(x, dtype=torch.float32), edge_index=torch.tensor(ends), y=torch.tensor(y), **masks)
    loader = kith.NeighborLoader(kith.from_pyg(data, out=folder / "learned"), [10, 10], split="train", batch_size=64, shuffle=True)
    for device, attention in itertools.product(DEVICES, kith.nn.ATTENTION_TYPES):
        torch.manual_seed(0)
        model = Net((n_classes, 8, n_classes), (4, 2), attention_type=attention, dropout=0.2, edge_sample_ratio=0.8).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(15):
            for batch in loader:
                batch = batch.to(device)
                out = model(batch.x, batch.edge_index)[: batch.batch_size]
                loss = F.cross_entropy(out, batch.y[: batch.batch_size]) + 0.5 * model.attention_loss()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        model.eval()
        with torch.no_grad():
            out = model(data.x.to(device), data.edge_index.to(device)).argmax(-1).cpu()
        accuracy = float((out == data.y)[data.test_mask].float().mean())
        assert accuracy > 0.75, (device, attention, accuracy)  # Without edges: 0.45.


def weights_and_losses_are_those_of_kith(folder: Path) -> None:
    def run(*command: object) -> None:
        subprocess.run([PROGRAM, *map(str, command)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    store = folder / "generated"
    run("data", "generate", "power-law", "--nodes", 300, "--dim", 12, "--classes", 5, "--directed", "--seed", 3, "--out", store)
    graph = kith.open(store)
    batch = next(iter(kith.NeighborLoader(graph, [-1, -1], np.arange(300), batch_size=300)))
    assert batch.edge_index.shape[1] == graph.num_edges and batch.n_id.tolist() == list(range(300))
    sizes = ["--hidden", 4, "--set", "model.heads=3", "--set", "model.out_heads=2", "--set", "train.mode=full-batch"]
    for attention in ("mx", "sd", "go", "dp"):
        made = folder / attention
        trained = ["train", f"supergat-{attention}", "--graph", store, *sizes]
        run(*trained, "--epochs", 2, "--lr", 0.05, "--out", made)
        names = "kith" if attention == "dp" else "pyg"  # PyG has no layer of dot products.
        run("export", made, "--to", names, "--out", folder / f"{attention}.safetensors")
        weights = load_file(folder / f"{attention}.safetensors")
        if attention == "dp":
            weights = {
                f"convs.{layer}.{theirs}": value.t().contiguous()
                for layer in (0, 1)
                for ours, theirs in (("weight", "lin.weight"), ("bias", "bias"))
                for value in (weights[f"layers.{layer}.{ours}"],)
            }
        model = Net((12, 4, 5), (3, 2), attention_type=attention.upper(), edge_sample_ratio=0.8)
        model.load_state_dict(weights)
        run("predict", made, "--graph", store, "--out", folder / f"{attention}.npy")
        expected = torch.tensor(np.load(folder / f"{attention}.npy"))
        ids = (folder / f"{attention}.ids.csv").read_text().split()[1:]
        assert ids == [str(node) for node in range(300)]
        model.eval()
        with torch.no_grad():
            close(model(batch.x, batch.edge_index).softmax(-1), expected, 1e-4)
        # The edge losses of many steps that change no weight, and those of as many forward passes.
        run(
            *trained,
            "--epochs",
            300,
            "--lr",
            1e-30,
            "--set",
            "model.dropout=0",
            "--init",
            made,
            "--out",
            folder / f"{attention}-still",
        )
        steps = (folder / f"{attention}-still" / "steps.jsonl").read_text().splitlines()
        theirs = np.array([json.loads(step)["edge_losses"] for step in steps])
        torch.manual_seed(0)
        model.train()
        ours = []
        with torch.no_grad():
            for _ in range(300):
                model(batch.x, batch.edge_index)
                ours.append([float(conv.get_attention_loss()) for conv in model.convs])
        difference = np.mean(ours, 0) - np.mean(theirs, 0)
        deviation = np.sqrt((np.var(ours, 0) + np.var(theirs, 0)) / 300)
        ratio = np.std(ours, 0) / np.std(theirs, 0)
        assert (np.abs(difference) < 4 * deviation).all() and (np.abs(np.log(ratio)) < 0.25).all(), (difference, deviation, ratio)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tests = [
        outputs_losses_and_gradients_are_those_of_pyg,
        weights_are_exchanged_with_pyg,
        outputs_and_losses_are_those_of_a_worked_example,
        the_attention_loss_is_that_of_the_definition,
        a_fraction_of_edges_and_negatives_together_is_exact,
        negatives_are_pairs_without_an_edge,
        negatives_of_a_batch_stay_in_their_graphs,
        wrong_arguments_are_refused,
        compiled_layers_compute_the_same,
        attention_learns_to_find_edges,
    ]
    for test in tests:
        test()
        print(f"ok {test.__name__}")
    with_folder = [models_learn_in_mini_batches] + ([weights_and_losses_are_those_of_kith] if PROGRAM else [])
    with tempfile.TemporaryDirectory() as folder:
        for test in with_folder:
            test(Path(folder))
            print(f"ok {test.__name__}")


if __name__ == "__main__":
    main()
