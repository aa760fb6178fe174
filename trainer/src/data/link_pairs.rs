//! Pairs of nodes that link prediction is evaluated on.

/// Pairs that a model is measured by instead of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links {
    /// Pairs that choose epochs and stop training.
    pub valid: LinkPairs,
    /// Pairs that are only measured.
    pub test: LinkPairs,
}

/// Held-out edges, and as many pairs that are none; each pair in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkPairs {
    pub(crate) sources: Vec<u32>,
    pub(crate) destinations: Vec<u32>,
    /// The first `n_edges` pairs are edges.
    pub(crate) n_edges: usize,
}

impl LinkPairs {
    pub(crate) fn new(edges: &[(u32, u32)], others: &[(u32, u32)]) -> LinkPairs {
        let both = edges.iter().chain(others).flat_map(|(a, b)| [(*a, *b), (*b, *a)]);
        let (sources, destinations) = both.unzip();
        LinkPairs { sources, destinations, n_edges: 2 * edges.len() }
    }

    /// Area under the ROC curve of held-out edges against pairs without an edge.
    pub(crate) fn measure(&self, scores: &[f32]) -> f64 {
        let (edges, others) = scores.split_at(self.n_edges);
        auc(edges, others)
    }
}

/// The area under the ROC curve: how often an edge scores higher than another pair, ties counted half.
pub fn auc(edges: &[f32], others: &[f32]) -> f64 {
    let mut all: Vec<(f32, bool)> =
        edges.iter().map(|score| (*score, true)).chain(others.iter().map(|score| (*score, false))).collect();
    all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    // Twice the pairs in which the edge is above, so that halves are whole.
    let (mut twice, mut n_below) = (0u64, 0u64);
    for tied in all.chunk_by(|(a, _), (b, _)| a == b) {
        let n_edges = tied.iter().filter(|(_, is_edge)| *is_edge).count() as u64;
        let n_others = tied.len() as u64 - n_edges;
        twice += n_edges * (2 * n_below + n_others);
        n_below += n_others;
    }
    twice as f64 / (2 * edges.len() as u64 * others.len() as u64) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auc_counts_pairs_in_the_right_order() {
        assert_eq!(auc(&[3.0, 2.0], &[1.0, 0.0]), 1.0);
        assert_eq!(auc(&[0.0], &[1.0]), 0.0);
        assert_eq!(auc(&[1.0, 1.0], &[1.0]), 0.5, "ties count half");
        assert_eq!(auc(&[4.0, 2.0], &[3.0, 1.0]), 0.75);
    }
}
