"""One full-batch training step of PyG on a GPU, in its fastest form: the peer in `kith bench kernels --peers`.

    kernels.py FOLDER NODES DIM CLASSES MODEL HEADS FEATURES OUT_HEADS DROPOUT STEPS

GAT, GATv2, GCN, GraphSAGE and GIN are compiled with torch.compile; if that fails, they run eagerly, and the answer says so. SuperGAT draws its
negatives as random pairs on the GPU instead of rejecting edges, which takes PyG seconds.
"""
import json
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv, SuperGATConv
from torch_geometric.nn.conv import supergat_conv

folder, n, dim, n_classes, model, heads, features, out_heads, dropout, n_steps = sys.argv[1:]
n, dim, n_classes, heads, features, out_heads, n_steps = map(
    int, (n, dim, n_classes, heads, features, out_heads, n_steps))
dropout = float(dropout)


def layer(width, out, n_heads, concat):
    if model == "gcn":
        return GCNConv(width, out)
    if model == "sage":
        return SAGEConv(width, out)
    if model == "gin":
        return GINConv(torch.nn.Sequential(torch.nn.Linear(width, out), torch.nn.ReLU(), torch.nn.Linear(out, out)))
    if model == "gatv2":
        return GATv2Conv(width, out, heads=n_heads, concat=concat, dropout=dropout)
    if model == "gat":
        return GATConv(width, out, heads=n_heads, concat=concat, dropout=dropout)
    return SuperGATConv(width, out, heads=n_heads, concat=concat, dropout=dropout, attention_type="MX",
                        edge_sample_ratio=0.8, neg_sample_ratio=0.5, is_undirected=True)


def random_pairs(edge_index, *_, **options):
    return torch.randint(0, n, (2, int(options["num_neg_samples"])), device=edge_index.device)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = layer(dim, features, heads, True)
        self.last = layer(heads * features, n_classes, out_heads, False)

    def forward(self, x, edge_index):
        x = F.dropout(x, dropout, self.training)
        x = F.elu(self.first(x, edge_index))
        x = F.dropout(x, dropout, self.training)
        return self.last(x, edge_index)


class DeepNet(torch.nn.Module):
    """Five layers, with batch norm, linear residuals and a linear layer at the end."""

    def __init__(self):
        super().__init__()
        widths = [dim] + [features] * 5
        self.convs = torch.nn.ModuleList(GATConv(a, b, heads=1, dropout=0.1) for a, b in zip(widths, widths[1:]))
        self.residuals = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(b) for b in widths[1:])
        self.output = torch.nn.Linear(features, n_classes)

    def forward(self, x, edge_index):
        for conv, residual, norm in zip(self.convs, self.residuals, self.norms):
            x = F.dropout(F.relu(norm(conv(x, edge_index) + residual(x))), dropout, self.training)
        return self.output(x)


torch.manual_seed(0)
edges = torch.from_numpy(np.fromfile(f"{folder}/edges.u32", "<u4").astype(np.int64).reshape(-1, 2).T.copy()).cuda()
x = torch.from_numpy(np.fromfile(f"{folder}/rows.f32", "<f4").reshape(n, dim)).cuda()
labels = torch.from_numpy(np.fromfile(f"{folder}/classes.i64", "<i8")).cuda()
train = torch.from_numpy(np.flatnonzero(np.arange(n) % 5 < 3)).cuda()


def timed(compiles):
    """Median time of a step."""
    net = (DeepNet() if model == "deep-gat" else Net()).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4)
    called = torch.compile(net) if compiles else net

    def step():
        torch.cuda.synchronize()
        started = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(called(x, edges)[train], labels[train])
        if model == "mx":
            loss = loss + net.first.get_attention_loss() + net.last.get_attention_loss()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - started) * 1e3

    for _ in range(3):
        step()
    torch.cuda.reset_peak_memory_stats()
    return statistics.median(step() for _ in range(n_steps))


if model == "mx":
    supergat_conv.negative_sampling = random_pairs
    form, milliseconds = "random pairs", timed(False)
else:
    try:
        form, milliseconds = "compiled", timed(True)
    except Exception:  # The compiler needs a C compiler and a known device.
        form, milliseconds = "eager", timed(False)
print(json.dumps(dict(milliseconds=milliseconds, memory_bytes=torch.cuda.max_memory_allocated(), form=form,
                      torch=torch.__version__)))
