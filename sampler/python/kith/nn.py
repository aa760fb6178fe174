"""Layers with the arguments and weights of PyG's."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from torch.nn import Parameter

ATTENTION_TYPES = ("GO", "DP", "SD", "MX")
MAX_ATTEMPTS = 16  # Draws for one negative before it is left out.


def _reset(lin: torch.nn.Linear) -> None:
    if lin.in_features > 0:
        torch.nn.init.xavier_uniform_(lin.weight)


class _Lazy(torch.nn.LazyLinear):
    """A linear layer that takes its width from its first input."""

    def reset_parameters(self) -> None:
        _reset(self)


class SuperGATConv(torch.nn.Module):
    """Graph attention that is also trained to predict edges, with the arguments and weights of `torch_geometric.nn.SuperGATConv`.

    Beside MX and SD, `attention_type` can be DP (dot product, without attention vectors) and GO (that of GAT, with the weights of
    `torch_geometric.nn.GATConv`). Initial attention vectors are those of the paper, from a narrower interval than PyG's.

    is_undirected: True if every edge has its reverse. Otherwise reverses of edges are not drawn as negatives either.
    """

    att_l: Parameter | None
    att_r: Parameter | None
    att_src: Parameter | None
    att_dst: Parameter | None
    bias: Parameter | None
    att_x: Tensor | None
    att_y: Tensor | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        bias: bool = True,
        attention_type: str = "MX",
        neg_sample_ratio: float = 0.5,
        edge_sample_ratio: float = 1.0,
        is_undirected: bool = False,
    ) -> None:
        super().__init__()
        if attention_type not in ATTENTION_TYPES:
            raise ValueError(f"attention_type: expected {', '.join(ATTENTION_TYPES)}, found {attention_type}")
        if not neg_sample_ratio > 0.0:
            raise ValueError(f"neg_sample_ratio: expected a number above 0, found {neg_sample_ratio}")
        if not 0.0 < edge_sample_ratio <= 1.0:
            raise ValueError(f"edge_sample_ratio: expected a number above 0, up to 1, found {edge_sample_ratio}")
        self.in_channels, self.out_channels, self.heads, self.concat = in_channels, out_channels, heads, concat
        self.negative_slope, self.dropout, self.add_self_loops = negative_slope, dropout, add_self_loops
        self.attention_type, self.is_undirected = attention_type, is_undirected
        self.neg_sample_ratio, self.edge_sample_ratio = neg_sample_ratio, edge_sample_ratio
        width = heads * out_channels
        self.lin = _Lazy(width, bias=False) if in_channels < 0 else torch.nn.Linear(in_channels, width, bias=False)
        for name in ("att_src", "att_dst") if attention_type == "GO" else ("att_l", "att_r"):
            has_vectors = attention_type in ("GO", "MX")
            self.register_parameter(name, Parameter(torch.empty(1, heads, out_channels)) if has_vectors else None)
        self.register_parameter("bias", Parameter(torch.empty(width if concat else out_channels)) if bias else None)
        # Logits of the pairs of the attention loss, pairs × heads, and 1 for each edge, 0 for each negative.
        self.att_x = self.att_y = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _reset(self.lin)
        # The bound of both vectors of all heads as one tensor.
        bound = math.sqrt(6.0 / (self.heads + 2 * self.out_channels))
        for vectors in self._vectors() or ():
            torch.nn.init.uniform_(vectors, -bound, bound)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        neg_edge_index: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        generator: Generator | None = None,
    ) -> Tensor:
        """Returns the output of all nodes. In training, also draws the pairs of the attention loss.

        neg_edge_index: negatives instead of drawn ones.
        batch: number of each node's graph, ascending; negatives then connect nodes of one graph.
        generator: source of the draws of pairs (default: that of PyTorch).
        """
        if edge_index.dim() != 2 or edge_index.size(0) != 2:
            raise ValueError(f"edge_index: expected shape (2, edges), found {tuple(edge_index.shape)}")
        n = x.size(0)
        if self.add_self_loops:
            loops = torch.arange(n, dtype=edge_index.dtype, device=edge_index.device).expand(2, n)
            edge_index = torch.cat([edge_index[:, edge_index[0] != edge_index[1]], loops], 1)
        hidden: Tensor = self.lin(x).view(n, self.heads, self.out_channels)
        logits = self._logits(hidden, edge_index)
        scores = self._linear(hidden, edge_index) * logits.sigmoid() if self.attention_type == "MX" else logits
        alpha = _softmax(F.leaky_relu(scores, self.negative_slope), edge_index[1], n)
        alpha = F.dropout(alpha, self.dropout, self.training)
        messages = hidden.index_select(0, edge_index[0]) * alpha.unsqueeze(-1)
        out = messages.new_zeros(hidden.shape).index_add(0, edge_index[1], messages)
        self.att_x = self.att_y = None
        if self.training:
            kept, negatives = self._pairs(edge_index, n, neg_edge_index, batch, generator)
            positives = logits if kept is None else logits.index_select(0, kept)
            self.att_x = torch.cat([positives, self._logits(hidden, negatives)])
            self.att_y = (torch.arange(len(self.att_x), device=x.device) < len(positives)).to(self.att_x.dtype)
        out = out.flatten(1) if self.concat else out.mean(1)
        return out if self.bias is None else out + self.bias

    def get_attention_loss(self) -> Tensor:
        """Returns the paper's edge loss of the last forward pass; 0 in evaluation, and if no pair was drawn.

        It is the mean binary cross-entropy of pairs: an exact fraction `edge_sample_ratio` of edges and negatives together. PyG
        instead keeps each edge with this probability, and all of fewer negatives. With `edge_sample_ratio=1` and the same
        negatives, both losses are equal.
        """
        if not self.training or self.att_x is None or self.att_y is None or len(self.att_x) == 0:
            return torch.zeros((), device=self.lin.weight.device)
        return F.binary_cross_entropy_with_logits(self.att_x.mean(-1), self.att_y)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}, type={self.attention_type}"

    def _vectors(self) -> tuple[Parameter, Parameter] | None:
        """Attention vectors of sources and of destinations."""
        vectors = (self.att_src, self.att_dst) if self.attention_type == "GO" else (self.att_l, self.att_r)
        return None if vectors[0] is None or vectors[1] is None else (vectors[0], vectors[1])

    def _linear(self, hidden: Tensor, pairs: Tensor) -> Tensor:
        """GAT's scores of pairs (source, destination), pairs × heads."""
        vectors = self._vectors()
        assert vectors is not None
        of_source, of_destination = ((hidden * vector).sum(-1) for vector in vectors)
        return of_source.index_select(0, pairs[0]) + of_destination.index_select(0, pairs[1])

    def _logits(self, hidden: Tensor, pairs: Tensor) -> Tensor:
        """Logits of the attention loss, pairs × heads."""
        if self.attention_type == "GO":
            return self._linear(hidden, pairs)
        products = (hidden.index_select(0, pairs[1]) * hidden.index_select(0, pairs[0])).sum(-1)
        return products / math.sqrt(self.out_channels) if self.attention_type == "SD" else products

    @torch.compiler.disable  # type: ignore
    def _pairs(
        self, edges: Tensor, n: int, negatives: Tensor | None, batch: Tensor | None, generator: Generator | None
    ) -> tuple[Tensor | None, Tensor]:
        """Draws the pairs of the attention loss: places of edges (`None`: all edges), and negatives."""
        n_edges, ranges = edges.size(1), None
        if negatives is not None:
            n_negatives = negatives.size(1)
        elif batch is None:
            n_negatives = max(0, min(int(self.neg_sample_ratio * n_edges), n * n - n_edges))
        else:
            ranges = self._ranges(edges, batch)
            n_negatives = ranges.size(1)
        kept = None
        if self.edge_sample_ratio < 1.0:
            device = edges.device if generator is None else generator.device
            n_pairs = n_edges + n_negatives
            drawn = torch.randperm(n_pairs, generator=generator, device=device).to(edges.device)
            drawn = drawn[: int(self.edge_sample_ratio * n_pairs)]
            kept, others = drawn[drawn < n_edges], drawn[drawn >= n_edges] - n_edges
            n_negatives = len(others)
            negatives = None if negatives is None else negatives[:, others]
            ranges = None if ranges is None else ranges[:, others]
        if negatives is None:
            negatives = negative_sampling(edges, n, n_negatives, is_undirected=self.is_undirected, ranges=ranges, generator=generator)
        return kept, negatives

    def _ranges(self, edges: Tensor, batch: Tensor) -> Tensor:
        """First node and number of nodes of the graph of each negative: negatives of a graph are a fraction of its own edges."""
        if bool((batch[1:] < batch[:-1]).any()):
            raise ValueError("batch: expected ascending numbers")
        sizes = batch.bincount()
        n_edges = batch[edges[1]].bincount(minlength=len(sizes))
        n_negatives = (self.neg_sample_ratio * n_edges.double()).long().minimum(sizes * sizes - n_edges).clamp(min=0)
        return torch.stack([sizes.cumsum(0) - sizes, sizes]).repeat_interleave(n_negatives, 1)


def negative_sampling(
    edge_index: Tensor,
    num_nodes: int,
    num_neg_samples: int,
    *,
    is_undirected: bool = False,
    ranges: Tensor | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Draws pairs of nodes without an edge, independently and uniformly: shape (2, pairs). No pair is a self-loop.

    A pair that is an edge is drawn again, at most 15 times, and then left out: dense graphs can have fewer pairs than asked for.

    is_undirected: True if every edge has its reverse. Otherwise no pair is the reverse of an edge either.
    ranges: for each pair, first node and number of nodes that it is drawn from, shape (2, pairs) (default: all nodes).
    generator: source of the draws (default: that of PyTorch), on any device.
    """
    source, destination = edge_index.long()
    keys = [source * num_nodes + destination] + ([] if is_undirected else [destination * num_nodes + source])
    # The last key is above those of all pairs.
    known = _sorted(F.pad(torch.cat(keys), (0, 1), value=num_nodes * num_nodes))
    device = edge_index.device if generator is None else generator.device
    found, n_missing = [edge_index.new_empty(2, 0, dtype=torch.long)], num_neg_samples
    for _ in range(MAX_ATTEMPTS):
        if n_missing <= 0:
            break
        high = num_nodes if ranges is None else 1 << 62
        drawn = torch.randint(high, (2, n_missing), generator=generator, device=device).to(edge_index.device)
        drawn = drawn if ranges is None else drawn % ranges[1] + ranges[0]
        wanted = drawn[0] * num_nodes + drawn[1]
        is_refused = (drawn[0] == drawn[1]) | (known[torch.searchsorted(known, wanted)] == wanted)
        found.append(drawn[:, ~is_refused])
        n_missing -= found[-1].size(1)
        ranges = None if ranges is None else ranges[:, is_refused]
    return torch.cat(found, 1)


def _softmax(scores: Tensor, groups: Tensor, n_groups: int) -> Tensor:
    """Softmax of scores, edges × heads, within each group."""
    shape = (n_groups, scores.size(1))
    # The largest score only keeps exponents small: it needs no gradient.
    largest = scores.new_full(shape, -math.inf).scatter_reduce(0, groups.unsqueeze(1).expand_as(scores), scores.detach(), "amax")
    exps = (scores - largest.index_select(0, groups)).exp()
    sums = exps.new_zeros(shape).index_add(0, groups, exps) + 1e-16
    return exps / sums.index_select(0, groups)


def _sorted(keys: Tensor) -> Tensor:
    # On CPUs, NumPy sorts whole numbers 20 times as fast as PyTorch.
    return torch.from_numpy(np.sort(keys.numpy())) if keys.device.type == "cpu" else keys.sort().values
