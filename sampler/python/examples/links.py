"""Trains GraphSAGE to predict links on mini-batches of edges: python links.py DATA.pt [--epochs N] [--seed N].

DATA.pt is an undirected `torch_geometric.data.Data`, saved by `torch.save`. For Kith's loader, change the import of LinkNeighborLoader to
`from kith import LinkNeighborLoader`.
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv
from torch_geometric.transforms import RandomLinkSplit

from torch_geometric.loader import LinkNeighborLoader  # isort: skip


class Net(torch.nn.Module):
    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(n_features, 64), SAGEConv(64, 32)])

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


def scores(nodes: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    return (nodes[pairs[0]] * nodes[pairs[1]]).sum(-1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    data = torch.load(options.data, weights_only=False)
    split = RandomLinkSplit(0.05, 0.1, is_undirected=True, add_negative_train_samples=False)
    train_data, _, test_data = split(data)

    train = LinkNeighborLoader(
        train_data,
        num_neighbors=[15, 10],
        edge_label_index=train_data.edge_label_index,
        edge_label=train_data.edge_label,
        neg_sampling_ratio=1.0,
        batch_size=options.batch_size,
        shuffle=True,
    )
    model = Net(data.num_features)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(options.epochs):
        model.train()
        for batch in train:
            optimizer.zero_grad()
            out = scores(model(batch.x, batch.edge_index), batch.edge_label_index)
            F.binary_cross_entropy_with_logits(out, batch.edge_label.clamp(max=1.0)).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        out = scores(model(test_data.x, test_data.edge_index), test_data.edge_label_index)
    edges, others = out[test_data.edge_label == 1], out[test_data.edge_label == 0]
    auc = (edges[:, None] > others[None, :]).float().mean()
    print(f"test auc {auc:.4f}")


if __name__ == "__main__":
    main()
