"""Trains GraphSAGE or GAT on mini-batches of nodes: python nodes.py DATA.pt [--model gat] [--epochs N] [--seed N].

DATA.pt is a `torch_geometric.data.Data` with masks, saved by `torch.save`. For Kith's loader, change the import of NeighborLoader to
`from kith import NeighborLoader`.
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, SAGEConv

from torch_geometric.loader import NeighborLoader  # isort: skip


class Net(torch.nn.Module):
    def __init__(self, model: str, n_features: int, n_classes: int) -> None:
        super().__init__()
        if model == "gat":
            self.convs = torch.nn.ModuleList([GATConv(n_features, 8, heads=8, dropout=0.6), GATConv(64, n_classes, dropout=0.6)])
        else:
            self.convs = torch.nn.ModuleList([SAGEConv(n_features, 64), SAGEConv(64, n_classes)])

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for i, conv in enumerate(self.convs):
            x = conv(F.dropout(x, 0.6, self.training), edge_index)
            x = x.relu() if i + 1 < len(self.convs) else x
        return x


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--model", choices=["gat", "sage"], default="sage")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    data = torch.load(options.data, weights_only=False)

    train = NeighborLoader(data, [15, 10], data.train_mask, batch_size=options.batch_size, shuffle=True)
    model = Net(options.model, data.num_features, int(data.y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
    best = test = 0.0
    for _ in range(options.epochs):
        model.train()
        for batch in train:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            is_right = model(data.x, data.edge_index).argmax(-1) == data.y
        valid = float(is_right[data.val_mask].float().mean())
        if valid > best:
            best, test = valid, float(is_right[data.test_mask].float().mean())
    print(f"test accuracy {test:.4f}")


if __name__ == "__main__":
    main()
