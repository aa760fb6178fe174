"""The numbers of `trainer/src/model/tests/cgat.rs`, by loops over edges: python3 trainer/tests/cgat_golden.py"""

import numpy as np

ROWS = np.array([[[1.0, 0.0], [0.5, -1.0], [-1.0, 2.0]], [[0.5, 0.5], [1.0, 0.0], [0.0, -0.5]]])
ATTENTION = np.array([[0.1, 0.2, -0.3, 0.4], [0.5, -0.5, 0.25, 1.0]])
EDGES = [(1, 0), (0, 0), (0, 1), (2, 1), (1, 1), (1, 2), (2, 2)]
CLASSES = [0, 0, 1]
MARGIN, BOUNDARY_MARGIN, TOP_K = 0.3, 0.15, 2


def leaky(x):
    return x if x > 0 else 0.2 * x


def phi(head, u, v):
    return leaky(np.concatenate([ROWS[head][u], ROWS[head][v]]) @ ATTENTION[head])


def score(head, edge):
    source, target = edge
    return leaky(phi(head, target, source))


def mean_of(values):
    return float(np.mean(values))


def logits(top_k):
    out = np.zeros((3, 2))
    for head in range(2):
        for target in range(3):
            own = [edge for edge in EDGES if edge[1] == target]
            kept = sorted(own, key=lambda edge: -score(head, edge))[: top_k or len(own)]
            exps = {edge: np.exp(score(head, edge)) for edge in kept}
            for edge, exp in exps.items():
                out[target] += exp / sum(exps.values()) * ROWS[head][edge[0]] / 2
    return out


def graph_loss(edges):
    terms = []
    for head in range(2):
        for source, target in edges:
            for node in range(3):
                if (source, node) not in EDGES:
                    terms.append(max(0.0, phi(head, source, node) + MARGIN - score(head, (source, target))))
    return mean_of(terms)


def boundary_loss():
    terms = []
    for head in range(2):
        for crossing in EDGES:
            for within in EDGES:
                same = [CLASSES[s] == CLASSES[t] for s, t in (crossing, within)]
                if crossing[0] == within[0] and same == [False, True]:
                    terms.append(max(0.0, score(head, crossing) + BOUNDARY_MARGIN - score(head, within)))
    return mean_of(terms)


print("scores", [[round(float(score(head, edge)), 6) for edge in EDGES] for head in range(2)])
print("top 2", np.round(logits(TOP_K), 6).tolist())
print("all", np.round(logits(None), 6).tolist())
print("graph", round(graph_loss(EDGES), 6))
print("graph within classes", round(graph_loss([e for e in EDGES if CLASSES[e[0]] == CLASSES[e[1]]]), 6))
print("boundary", round(boundary_loss(), 6))
