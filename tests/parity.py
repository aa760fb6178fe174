"""PyG's own layers on what Kith left in some folders: same weights, same graph, same pairs, nothing dropped.

    parity.py FOLDER...

Each folder holds case.json, weights.safetensors (in PyG's names) and graph.safetensors; answers.safetensors,
gradients.safetensors, returned.safetensors (the weights again, as PyG spells them) and theirs.safetensors (weights that PyG began with) come
back. A case with options of layers has Kith's names of weights, and nothing is returned.
"""

import json
import sys
from pathlib import Path

import torch
import torch_geometric
from safetensors.torch import load_file, save_file
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, GraphNorm, SAGEConv, SuperGATConv


def gin_layer(dim, width, bias=True):
    linear = lambda dim: torch.nn.Linear(dim, width, bias=bias)
    return GINConv(torch.nn.Sequential(linear(dim), torch.nn.ReLU(), linear(width)))


def with_loops(kind, edges, n_nodes, has_loops=True):
    """Kith adds a self-loop to every node, or none. Of PyG's layers, SAGEConv does not, and GINConv adds the node itself."""
    if kind in ("sage", "gin") or not has_loops:
        edges, _ = torch_geometric.utils.remove_self_loops(edges)
    if kind == "sage" and has_loops:
        edges, _ = torch_geometric.utils.add_self_loops(edges, None, None, n_nodes)
    return edges


class Net(torch.nn.Module):
    def __init__(self, case):
        super().__init__()
        self.case = case
        self.convs = torch.nn.ModuleList(self.layer(**shape) for shape in case["layers"])

    def layer(self, dim, heads, features, concat):
        kind = self.case["kind"]
        if kind == "gcn":
            return GCNConv(dim, features)
        if kind == "sage":
            return SAGEConv(dim, features)
        if kind == "gin":
            return gin_layer(dim, features)
        if self.case["form"] == "go":
            return GATConv(dim, features, heads=heads, concat=concat)
        if self.case["form"] == "v2":
            return GATv2Conv(dim, features, heads=heads, concat=concat)
        return SuperGATConv(dim, features, heads=heads, concat=concat, attention_type=self.case["form"].upper())

    def forward(self, rows, edges, negatives):
        losses = []
        edges = with_loops(self.case["kind"], edges, rows.size(0))
        for place, conv in enumerate(self.convs):
            if place > 0:
                rows = torch.nn.functional.elu(rows)
            if isinstance(conv, SuperGATConv):
                rows = conv(rows, edges, neg_edge_index=negatives[place])
                losses.append(conv.get_attention_loss())
            else:
                rows = conv(rows, edges)
        return rows, losses


class Built(torch.nn.Module):
    """A model with norms, residuals and linear layers, out of PyG's and PyTorch's own, with Kith's names of weights."""

    NORMS = {"layer": torch.nn.LayerNorm, "batch": torch.nn.BatchNorm1d, "graph": GraphNorm}
    ACTIVATIONS = {
        "elu": torch.nn.ELU, "relu": torch.nn.ReLU, "gelu": torch.nn.GELU, "leaky-relu": torch.nn.LeakyReLU, "prelu": torch.nn.PReLU,
    }

    def __init__(self, case):
        super().__init__()
        self.case = case
        own = case["options"]
        shapes = case["layers"]
        width = shapes[0]["heads"] * shapes[0]["features"]
        self.convs = torch.nn.ModuleList(self.layer(**shape) for shape in shapes)
        widths = [shape["heads"] * shape["features"] if shape["concat"] else shape["features"] for shape in shapes]
        pairs = list(zip(shapes, widths))
        if own["residual"] == "linear":
            self.residuals = torch.nn.ModuleList(torch.nn.Linear(shape["dim"], out) for shape, out in pairs)
        hidden = [out for shape, out in pairs if shape["concat"]]
        if own["norm"] != "none":
            self.norms = torch.nn.ModuleList(self.NORMS[own["norm"]](out) for out in hidden)
        self.activations = torch.nn.ModuleList(self.ACTIVATIONS[own["activation"]]() for _ in hidden)
        if own["input_linear"]:
            self.input = torch.nn.Linear(case["dim"], width)
        if own["output_linear"]:
            carried = width * len(shapes) if own["jumping"] == "concat" else width
            self.output = torch.nn.Linear(carried, case["n_classes"])

    def layer(self, dim, heads, features, concat):
        kind, bias, loops = self.case["kind"], self.case["options"]["bias"], self.case["options"]["self_loops"]
        own = self.case["options"]
        edge_dim = own["edge_dim"] + int(own["edge_weights"]) or None
        if kind == "gin":
            return gin_layer(dim, features, bias)
        if kind == "gat" and self.case["form"] == "v2":
            return GATv2Conv(dim, features, heads=heads, concat=concat, bias=bias, add_self_loops=loops, edge_dim=edge_dim)
        if kind == "gcn":
            return GCNConv(dim, features, bias=bias, add_self_loops=loops)
        if kind == "sage":
            return SAGEConv(dim, features, bias=bias)
        return GATConv(dim, features, heads=heads, concat=concat, bias=bias, add_self_loops=loops, edge_dim=edge_dim)

    def convolve(self, conv, rows, edges, weights, features):
        """PyG's layer; SAGEConv and GINConv take no weights of edges, so their sums are written out."""
        if isinstance(conv, (GATConv, GATv2Conv)):
            numbers = [part for part in (weights, features) if part is not None]
            return conv(rows, edges, torch.cat(numbers, dim=-1) if numbers else None)
        if weights is None:
            return conv(rows, edges)
        weights = weights.squeeze(-1)
        if isinstance(conv, GCNConv):
            return conv(rows, edges, weights)
        sums = torch.zeros_like(rows).index_add(0, edges[1], weights.unsqueeze(-1) * rows[edges[0]])
        if isinstance(conv, GINConv):
            return conv.nn(rows + sums)
        degrees = torch.zeros(rows.size(0), dtype=rows.dtype).index_add(0, edges[1], weights)
        return conv.lin_l(sums / degrees.masked_fill(degrees == 0, 1).unsqueeze(-1)) + conv.lin_r(rows)

    def forward(self, rows, edges, _negatives, weights=None, edge_features=None):
        own = self.case["options"]
        if not own["edge_weights"]:
            weights = None
        if not own["edge_dim"]:
            edge_features = None
        n_edges = edges.size(1)
        edges = with_loops(self.case["kind"], edges, rows.size(0), own["self_loops"])
        if weights is not None:  # The graph has no self-loops: those of SAGEConv are new, and weigh 1.
            weights = torch.cat([weights, torch.ones(edges.size(1) - n_edges, 1, dtype=weights.dtype)])
        if own["input_linear"]:
            rows = self.input(rows)
        all_rows = []
        for place, conv in enumerate(self.convs):
            out = self.convolve(conv, rows, edges, weights, edge_features)
            is_features = place == 0 and not own["input_linear"]
            if own["residual"] == "linear":
                out = out + self.residuals[place](rows)
            elif own["residual"] == "identity" and not is_features and rows.shape == out.shape:
                out = out + rows
            if self.case["layers"][place]["concat"]:
                if own["norm"] != "none":
                    out = self.norms[place](out)
                out = self.activations[place](out)
            rows = out
            all_rows.append(rows)
        if own["jumping"] == "sum":
            rows = sum(all_rows)
        elif own["jumping"] == "max":
            rows = torch.stack(all_rows).max(dim=0).values
        elif own["jumping"] == "concat":
            rows = torch.cat(all_rows, dim=-1)
        return (self.output(rows) if own["output_linear"] else rows), []

    def ours(self):
        """Kith's name of each weight, the weight, and how Kith holds it."""
        kind, turned = self.case["kind"], lambda tensor: tensor.t()
        for place, conv in enumerate(self.convs):
            if kind == "gin":
                for name, linear in [("", conv.nn[0]), ("second.", conv.nn[2])]:
                    yield f"layers.{place}.{name}weight", linear.weight, turned
                    if linear.bias is not None:
                        yield f"layers.{place}.{name}bias", linear.bias, None
                continue
            if isinstance(conv, GATv2Conv):
                yield f"layers.{place}.attention", conv.att, lambda tensor: tensor.reshape(tensor.shape[-2:])
                yield f"layers.{place}.target.weight", conv.lin_r.weight, turned
                if conv.lin_r.bias is not None:
                    yield f"layers.{place}.target.bias", conv.lin_r.bias, None
            has_sides = hasattr(conv, "lin_l")
            weight = conv.lin_l.weight if has_sides else conv.lin.weight
            yield f"layers.{place}.weight", weight, turned
            if kind == "sage":
                yield f"roots.{place}.weight", conv.lin_r.weight, turned
            if isinstance(conv, GATConv):
                yield f"layers.{place}.attention", (conv.att_dst, conv.att_src), None
            if getattr(conv, "lin_edge", None) is not None:
                yield f"layers.{place}.edge.weight", conv.lin_edge.weight, turned
                if isinstance(conv, GATConv):
                    yield f"layers.{place}.edge.attention", conv.att_edge, lambda tensor: tensor.reshape(tensor.shape[-2:])
            if self.case["options"]["bias"]:
                yield f"layers.{place}.bias", conv.lin_l.bias if kind == "sage" else conv.bias, None
        for name, linear in [("input", getattr(self, "input", None)), ("output", getattr(self, "output", None))]:
            if linear is not None:
                yield f"{name}.weight", linear.weight, turned
                yield f"{name}.bias", linear.bias, None
        for place, linear in enumerate(getattr(self, "residuals", [])):
            yield f"residuals.{place}.weight", linear.weight, turned
            yield f"residuals.{place}.bias", linear.bias, None
        for place, norm in enumerate(getattr(self, "norms", [])):
            yield f"norms.{place}.weight", norm.weight, None
            yield f"norms.{place}.bias", norm.bias, None
            if isinstance(norm, GraphNorm):
                yield f"norms.{place}.mean_scale", norm.mean_scale, None
            if isinstance(norm, torch.nn.BatchNorm1d):
                yield f"norms.{place}.mean", norm.running_mean, None
                yield f"norms.{place}.variance", norm.running_var, None
        for place, activation in enumerate(self.activations):
            if isinstance(activation, torch.nn.PReLU):
                yield f"activations.{place}.slope", activation.weight, None

    @torch.no_grad()
    def load(self, weights):
        left = set(weights)
        for name, weight, turn in self.ours():
            left.remove(name)
            if isinstance(weight, tuple):
                half = weight[0].size(-1)
                weight[0].copy_(weights[name][:, :half].unsqueeze(0))
                weight[1].copy_(weights[name][:, half:].unsqueeze(0))
            else:
                weight.copy_(turn(weights[name]) if turn else weights[name])
        assert not left, left

    def gradients(self):
        """By Kith's names; of running statistics, what a step observed."""
        found = {}
        for name, weight, turn in self.ours():
            if isinstance(weight, tuple):
                found[name] = torch.cat([half.grad[0] for half in weight], dim=-1)
            elif name.endswith((".mean", ".variance")):
                found[name] = weight
            else:
                found[name] = turn(weight.grad) if turn else weight.grad
        return {name: tensor.contiguous() for name, tensor in found.items()}


def run_built(folder, case):
    net = Built(case).double()  # Gradients of biases before a norm are differences of large numbers.
    for conv in net.convs:
        if isinstance(conv, GATv2Conv) and conv.lin_l.bias is not None:
            torch.nn.init.zeros_(conv.lin_l.bias)  # Kith has one bias in scores.
    net.load({name: tensor.double() for name, tensor in load_file(folder / "weights.safetensors").items()})
    graph = load_file(folder / "graph.safetensors")
    graph = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in graph.items()}
    net.eval()
    with torch.no_grad():
        evaluated, _ = net(graph["rows"], graph["edges"], None, graph.get("weights"), graph.get("edge_features"))
    net.train()
    logits, _ = net(graph["rows"], graph["edges"], None, graph.get("weights"), graph.get("edge_features"))
    (logits * graph["logits_gradient"]).sum().backward()
    answers = {"logits": logits.detach(), "evaluated": evaluated}
    for name, tensors in [("answers", answers), ("gradients", net.gradients())]:
        save_file({name: tensor.float() for name, tensor in tensors.items()}, folder / f"{name}.safetensors")


def run(folder):
    case = json.loads((folder / "case.json").read_text())
    if "options" in case:
        return run_built(folder, case)
    net = Net(case)
    net.load_state_dict(load_file(folder / "weights.safetensors"), strict=True)
    net.train()  # With dropout 0; only then does PyG compute the edge loss.
    graph = load_file(folder / "graph.safetensors")
    negatives = [graph[f"negatives.{place}"] for place in range(len(net.convs))]
    rows = graph["rows"].requires_grad_()
    logits, losses = net(rows, graph["edges"], negatives)
    total = (logits * graph["logits_gradient"]).sum()
    for loss in losses:
        total = total + case["edge_loss_weight"] * loss
    total.backward()

    answers = {"logits": logits.detach()}
    answers.update({f"edge_loss.{place}": loss.detach().reshape(1) for place, loss in enumerate(losses)})
    save_file(answers, folder / "answers.safetensors")
    save_file({name: weight.grad for name, weight in net.named_parameters()}, folder / "gradients.safetensors")
    save_file(net.state_dict(), folder / "returned.safetensors")

    theirs = Net(case)
    with torch.no_grad():
        for weight in theirs.parameters():  # GIN's ε is a buffer.
            weight.add_(torch.linspace(-0.1, 0.1, weight.numel()).view_as(weight))  # Biases begin at zero.
    theirs.eval()
    with torch.no_grad():
        logits, _ = theirs(graph["rows"].detach(), graph["edges"], negatives)
    save_file(theirs.state_dict(), folder / "theirs.safetensors")
    save_file({"logits": logits}, folder / "their-answers.safetensors")


for name in sys.argv[1:]:
    run(Path(name))
