"""PyG's own layers on what Kith left in some folders: same weights, same graph, same pairs, nothing dropped.

    parity.py FOLDER...

Each folder holds case.json, weights.safetensors (in PyG's names) and graph.safetensors; answers.safetensors,
gradients.safetensors and returned.safetensors (the weights again, as PyG spells them) come back.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch_geometric.nn import GATConv, SuperGATConv


class Net(torch.nn.Module):
    def __init__(self, case):
        super().__init__()
        self.case = case
        self.convs = torch.nn.ModuleList(self.layer(**shape) for shape in case["layers"])

    def layer(self, dim, heads, features, concat):
        if self.case["form"] == "go":
            return GATConv(dim, features, heads=heads, concat=concat)
        return SuperGATConv(dim, features, heads=heads, concat=concat, attention_type=self.case["form"].upper())

    def forward(self, rows, edges, negatives):
        losses = []
        for place, conv in enumerate(self.convs):
            if place > 0:
                rows = torch.nn.functional.elu(rows)
            if isinstance(conv, SuperGATConv):
                rows = conv(rows, edges, neg_edge_index=negatives[place])
                losses.append(conv.get_attention_loss())
            else:
                rows = conv(rows, edges)
        return rows, losses


def run(folder):
    case = json.loads((folder / "case.json").read_text())
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


for name in sys.argv[1:]:
    run(Path(name))
