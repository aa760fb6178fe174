//! Confusion matrices: counts of nodes by true and predicted class.

use kith_run::report::{Confusion, MOST_CONFUSED};
use kith_store::LabelKind;

use crate::data::{
    Data,
    input::{GraphInput, Input, Labels},
    matrix::Matrix,
};

/// True if reports have a confusion matrix of this data: nodes have one class each, of few, and no links are predicted.
pub(crate) fn is_counted(data: &Data) -> bool {
    let shape = data.shape();
    let of_links = data.predicts_links() || matches!(data, Data::Full(Input { links: Some(_), .. }));
    shape.labels == LabelKind::Classes && shape.n_classes <= MOST_CONFUSED && !of_links
}

/// Counts of no nodes.
pub(crate) fn zeros(n_classes: usize) -> Confusion {
    let zeros = || vec![vec![0; n_classes]; n_classes];
    Confusion { valid: zeros(), test: zeros() }
}

/// Adds the valid and test nodes of a graph.
pub(crate) fn add_graph(confusion: &mut Confusion, graph: &GraphInput, logits: &Matrix) {
    if let Some(labels) = &graph.labels {
        add(&mut confusion.valid, logits, labels, &graph.valid);
        add(&mut confusion.test, logits, labels, &graph.test);
    }
}

/// Adds the nodes at these positions.
pub(crate) fn add(counts: &mut [Vec<u64>], logits: &Matrix, labels: &Labels, positions: &[u32]) {
    let Labels::Classes(classes) = labels else { unreachable!("only nodes of one class are counted") };
    for position in positions.iter().map(|position| *position as usize) {
        counts[classes[position] as usize][largest(logits.row(position))] += 1;
    }
}

/// The class of the largest logit; of several, the first.
pub(crate) fn largest(logits: &[f32]) -> usize {
    logits.iter().enumerate().fold(0, |best, (class, logit)| if *logit > logits[best] { class } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_counted_by_true_and_predicted_class() {
        let values = vec![1.0, 3.0, 2.0, /* */ 5.0, 5.0, 0.0, /* */ 0.0, 0.1, 0.2, /* */ 0.0, 9.0, 1.0];
        let logits = Matrix { values, width: 3 };
        let mut counts = vec![vec![0; 3]; 3];
        add(&mut counts, &logits, &Labels::Classes(vec![1, 1, 2, 0]), &[0, 1, 2]);
        assert_eq!(counts, [[0, 0, 0], [1, 1, 0], [0, 0, 1]], "of equal logits the first; the last node is left out");
        add(&mut counts, &logits, &Labels::Classes(vec![1, 1, 2, 0]), &[3]);
        assert_eq!(counts[0], [0, 1, 0]);
    }
}
