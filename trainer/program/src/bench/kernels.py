"""One full-batch training step of PyG on a GPU: the peer in `kith bench kernels --peers`.

    kernels.py FOLDER NODES DIM CLASSES MODEL HEADS FEATURES OUT_HEADS DROPOUT STEPS
"""
import json
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, SuperGATConv

folder, n, dim, n_classes, model, heads, features, out_heads, dropout, n_steps = sys.argv[1:]
n, dim, n_classes, heads, features, out_heads, n_steps = map(
    int, (n, dim, n_classes, heads, features, out_heads, n_steps))
dropout = float(dropout)
is_taught = model == "mx"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        conv, options = GATConv, dict(dropout=dropout)
        if is_taught:
            conv = SuperGATConv
            options.update(attention_type="MX", edge_sample_ratio=0.8, neg_sample_ratio=0.5, is_undirected=True)
        self.first = conv(dim, features, heads=heads, concat=True, **options)
        self.last = conv(heads * features, n_classes, heads=out_heads, concat=False, **options)

    def forward(self, x, edge_index):
        x = F.dropout(x, dropout, self.training)
        x = F.elu(self.first(x, edge_index))
        x = F.dropout(x, dropout, self.training)
        x = self.last(x, edge_index)
        return x, self.first.get_attention_loss() + self.last.get_attention_loss() if is_taught else 0.0


torch.manual_seed(0)
edges = torch.from_numpy(np.fromfile(f"{folder}/edges.u32", "<u4").astype(np.int64).reshape(-1, 2).T.copy()).cuda()
x = torch.from_numpy(np.fromfile(f"{folder}/rows.f32", "<f4").reshape(n, dim)).cuda()
labels = torch.from_numpy(np.fromfile(f"{folder}/classes.i64", "<i8")).cuda()
train = torch.from_numpy(np.flatnonzero(np.arange(n) % 5 < 3)).cuda()
net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4)


def step():
    torch.cuda.synchronize()
    started = time.perf_counter()
    optimizer.zero_grad()
    out, edge_loss = net(x, edges)
    (F.cross_entropy(out[train], labels[train]) + edge_loss).backward()
    optimizer.step()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) * 1e3


step()
torch.cuda.reset_peak_memory_stats()
times = [step() for _ in range(n_steps)]
print(json.dumps(dict(milliseconds=statistics.median(times), memory_bytes=torch.cuda.max_memory_allocated(),
                      torch=torch.__version__)))
