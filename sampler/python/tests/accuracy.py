"""Accuracy of models in PyTorch with Kith's and PyG's loader: python accuracy.py KITH RAW DATASET [PYTHON_WITH_PYG_LIB].

Trains examples/nodes.py over 5 seeds with each. Without a Python that has pyg-lib, prints Kith's accuracy alone.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import kith
import numpy as np
import torch
from torch_geometric.data import Data

PROGRAM, RAW, DATASET = sys.argv[1:4]
PEER = sys.argv[4] if len(sys.argv) > 4 else ""
SCRIPT = Path(__file__).parents[1] / "examples/nodes.py"
SEEDS = range(5)
# At most this far apart, in points; beyond it, three standard errors of the difference count as noise.
MOST = 0.5


def main() -> None:
    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp)
        subprocess.run([PROGRAM, "data", "import", DATASET, "--from", RAW, "--out", folder / "store"], check=True, capture_output=True)
        graph = kith.open(folder / "store")
        data = Data(x=torch.from_numpy(graph.features(np.arange(graph.num_nodes))), edge_index=torch.from_numpy(graph.edge_index))
        data.y = torch.from_numpy(graph.y.copy())
        for name, part in (("train_mask", "train"), ("val_mask", "valid"), ("test_mask", "test")):
            data[name] = torch.zeros(graph.num_nodes, dtype=torch.bool)
            data[name][torch.from_numpy(graph.nodes(part))] = True
        torch.save(data, folder / "data.pt")
        ours = folder / "ours.py"
        ours.write_text(SCRIPT.read_text().replace("from torch_geometric.loader import", "from kith import"))
        for model in ("sage", "gat"):
            found: dict[str, list[float]] = {}
            for seed in SEEDS:
                for name, python, script in (("kith", sys.executable, ours), ("PyG", PEER, SCRIPT)):
                    if python:
                        command = [python, script, folder / "data.pt", "--model", model, "--seed", str(seed), "--epochs", "40"]
                        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                        found.setdefault(name, []).append(100 * float(ran.stdout.split()[-1]))
            means = {name: statistics.mean(values) for name, values in found.items()}
            print(DATASET, model, {name: f"{means[name]:.2f} ± {statistics.stdev(found[name]):.2f}" for name in found}, flush=True)
            assert means["kith"] > 70, means
            if PEER:
                noise = 3 * (sum(statistics.variance(values) for values in found.values()) / len(SEEDS)) ** 0.5
                assert abs(means["kith"] - means["PyG"]) < max(MOST, noise), (means, noise)


if __name__ == "__main__":
    main()
