//! Losses of nodes and pairs, summed in a fixed order: within pieces of rows, then over the pieces.

use kith_kernels::class_loss;
use tch::Tensor;

use crate::data::input::Labels;

/// Rows that are summed before the next piece starts.
const PIECE_ROWS: i64 = 4096;

/// The sum of all values; cut by rows at places that depend on their number alone.
pub fn sum_in_pieces(values: &Tensor) -> Tensor {
    let n_rows = values.size()[0];
    let piece = |start| values.narrow(0, start, PIECE_ROWS.min(n_rows - start)).sum(values.kind());
    let first = if n_rows == 0 { values.sum(values.kind()) } else { piece(0) };
    (PIECE_ROWS..n_rows).step_by(PIECE_ROWS as usize).fold(first, |sum, start| sum + piece(start))
}

/// The loss of the nodes at these positions, added up and divided by `n_seeds`, those of the whole step: softmax
/// cross-entropy, or the mean binary cross-entropy over all labels where a node may have several. `logits` are nodes ×
/// classes.
pub fn node_loss(logits: &Tensor, labels: &Labels, positions: &[u32], n_seeds: usize) -> Tensor {
    if let Labels::Classes(classes) = labels
        && let Some(Ok(loss)) = class_loss(logits, classes, positions, n_seeds)
    {
        return loss;
    }
    let index: Vec<i64> = positions.iter().map(|position| i64::from(*position)).collect();
    let picked = logits.index(&[Some(Tensor::from_slice(&index).to_device(logits.device()))]);
    match labels {
        Labels::Classes(classes) => {
            let classes: Vec<i64> = index.iter().map(|position| classes[*position as usize]).collect();
            let classes = Tensor::from_slice(&classes).to_device(logits.device()).unsqueeze(1);
            let losses = -picked.log_softmax(1, logits.kind()).gather(1, &classes, false);
            sum_in_pieces(&losses) / n_seeds as f64
        }
        Labels::Bits { n_classes, bits } => {
            let rows = index.iter().flat_map(|position| &bits[*position as usize * n_classes..][..*n_classes]);
            let rows: Vec<f32> = rows.map(|bit| f32::from(u8::from(*bit))).collect();
            let expected = Tensor::from_slice(&rows)
                .view([positions.len() as i64, *n_classes as i64])
                .to_kind(logits.kind())
                .to_device(logits.device());
            let losses = -(-&picked).log_sigmoid() - &picked * &expected;
            sum_in_pieces(&losses) / (n_seeds * n_classes) as f64
        }
    }
}

/// The mean loss of pairs by their logits: those that are edges should be large, the others small.
pub fn pair_loss(edges: &Tensor, others: &Tensor) -> Tensor {
    let n_pairs = edges.size()[0] + others.size()[0];
    let losses = -Tensor::cat(&[edges.log_sigmoid(), (-others).log_sigmoid()], 0);
    sum_in_pieces(&losses) / n_pairs as f64
}

/// The loss of a slice by its numbers: that of its nodes, and the weighted losses of all layers' edges.
pub(crate) fn slice_loss(node_loss: f64, edge_losses: &[f64], edge_weight: f64) -> f64 {
    node_loss + edge_weight * edge_losses.iter().sum::<f64>()
}
