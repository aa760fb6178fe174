//! Losses of nodes and pairs, summed in a fixed order: within pieces of rows, then over the pieces.

use kith_kernels::{SoftTargets, class_loss, soft_class_loss};
use kith_run::config::{ClassWeights, RegressionLoss, TrainConfig};
use kith_store::LabelKind;
use tch::Tensor;

use crate::{
    data::{Data, input::Labels, link_pairs::LinkPairs},
    error::TrainError,
};

/// Rows that are summed before the next piece starts.
const PIECE_ROWS: i64 = 4096;

/// The sum of all values; cut by rows at places that depend on their number alone.
pub fn sum_in_pieces(values: &Tensor) -> Tensor {
    let n_rows = values.size()[0];
    let piece = |start| values.narrow(0, start, PIECE_ROWS.min(n_rows - start)).sum(values.kind());
    let first = if n_rows == 0 { values.sum(values.kind()) } else { piece(0) };
    (PIECE_ROWS..n_rows).step_by(PIECE_ROWS as usize).fold(first, |sum, start| sum + piece(start))
}

/// The loss of training nodes: softmax cross-entropy, or the mean binary cross-entropy over all labels where a node may have
/// several, or the mean error of numbers to predict. Evaluations use the same without weights and smoothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeLoss {
    /// Weights of classes, whose mean over training nodes is 1; `None` if all are equal.
    class_weights: Option<Vec<f32>>,
    /// Share of a node's label that is spread over all classes.
    smoothing: f64,
    /// Loss of numbers to predict.
    regression: RegressionLoss,
}

impl NodeLoss {
    /// The loss of a run.
    pub fn new(config: &TrainConfig, data: &Data) -> Result<NodeLoss, TrainError> {
        let weights = config.class_weights.as_ref().filter(|weights| **weights != ClassWeights::Equal);
        let smoothing = config.label_smoothing.unwrap_or(0.0);
        let kind = data.shape().labels;
        if (weights.is_some() || smoothing > 0.0) && kind != LabelKind::Classes {
            let key = if weights.is_some() { "class_weights" } else { "label_smoothing" };
            let found = if kind == LabelKind::Targets { "have targets" } else { "may have several" };
            return Err(TrainError::Labels(format!("`train.{key}` is for nodes with one class, and these {found}")));
        }
        if config.label_input.is_some() && kind == LabelKind::Targets {
            let problem = "`train.label_input` is for classes, and these nodes have targets: remove the key";
            return Err(TrainError::Labels(problem.to_owned()));
        }
        if config.loss.is_some() && kind != LabelKind::Targets {
            let problem = "`train.loss` is for targets, and these nodes have classes: remove the key";
            return Err(TrainError::Labels(problem.to_owned()));
        }
        let class_weights = match weights {
            Some(ClassWeights::Balanced) => Some(balanced(&data.train_counts())),
            Some(ClassWeights::Given(weights)) => Some(given(weights, &data.train_counts())?),
            Some(ClassWeights::Equal) | None => None,
        };
        Ok(NodeLoss { class_weights, smoothing, regression: config.loss.unwrap_or_default() })
    }

    /// Weights of classes; `None` if all are equal.
    pub(crate) fn class_weights(&self) -> Option<&[f32]> {
        self.class_weights.as_deref()
    }

    /// Share of a node's label that is spread over all classes.
    pub(crate) fn smoothing(&self) -> f64 {
        self.smoothing
    }

    /// Loss of numbers to predict.
    pub(crate) fn regression(&self) -> RegressionLoss {
        self.regression
    }

    /// The loss of the nodes at these positions, added up and divided by `n_seeds`, those of the whole step. `logits` are nodes ×
    /// classes.
    pub fn of(&self, logits: &Tensor, labels: &Labels, positions: &[u32], n_seeds: usize) -> Tensor {
        let is_plain = self.class_weights.is_none() && self.smoothing == 0.0;
        if let Labels::Classes(classes) = labels {
            let fused = match is_plain {
                true => class_loss(logits, classes, positions, n_seeds),
                false => {
                    let targets = SoftTargets { class_weights: self.class_weights(), smoothing: self.smoothing };
                    soft_class_loss(logits, classes, positions, n_seeds, &targets)
                }
            };
            if let Some(Ok(loss)) = fused {
                return loss;
            }
        }
        let index: Vec<i64> = positions.iter().map(|position| i64::from(*position)).collect();
        let picked = logits.index(&[Some(Tensor::from_slice(&index).to_device(logits.device()))]);
        match labels {
            Labels::Classes(classes) => {
                let classes: Vec<i64> = index.iter().map(|position| classes[*position as usize]).collect();
                let classes = Tensor::from_slice(&classes).to_device(logits.device()).unsqueeze(1);
                let logs = picked.log_softmax(1, logits.kind());
                let losses = match is_plain {
                    true => -logs.gather(1, &classes, false),
                    false => -(logs * self.targets(&classes, logits)),
                };
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
            Labels::Numbers { width, values } => {
                let rows = index.iter().flat_map(|position| &values[*position as usize * width..][..*width]);
                let rows: Vec<f32> = rows.copied().collect();
                let expected = Tensor::from_slice(&rows)
                    .view([positions.len() as i64, *width as i64])
                    .to_kind(logits.kind())
                    .to_device(logits.device());
                let errors = picked - expected;
                let losses = match self.regression {
                    RegressionLoss::Mse => errors.square(),
                    RegressionLoss::Mae => errors.abs(),
                    RegressionLoss::Huber => {
                        let size = errors.abs();
                        let inner = size.clamp_max(1.0);
                        // 0.5 e² up to 1, |e| - 0.5 beyond.
                        &inner * (&size - &inner * 0.5)
                    }
                };
                sum_in_pieces(&losses) / (n_seeds * width) as f64
            }
        }
    }

    /// Weight of each class's log probability in the loss of nodes with these classes, nodes × classes.
    fn targets(&self, classes: &Tensor, logits: &Tensor) -> Tensor {
        let n_classes = logits.size()[1];
        let like = (logits.kind(), logits.device());
        let weights = match &self.class_weights {
            Some(weights) => Tensor::from_slice(weights).to_kind(logits.kind()).to_device(logits.device()),
            None => Tensor::ones([n_classes], like),
        };
        let own = Tensor::zeros([classes.size()[0], n_classes], like).scatter_value(1, classes, 1.0 - self.smoothing);
        (own + self.smoothing / n_classes as f64) * weights
    }
}

/// Weights of classes by the number of training nodes of each: all classes weigh the same, and the mean over nodes is 1.
fn balanced(counts: &[u64]) -> Vec<f32> {
    let n_nodes: u64 = counts.iter().sum();
    let n_present = counts.iter().filter(|count| **count > 0).count();
    let weight = |count: &u64| if *count == 0 { 0.0 } else { n_nodes as f64 / (n_present as f64 * *count as f64) };
    counts.iter().map(|count| weight(count) as f32).collect()
}

/// Given weights of classes, scaled so that their mean over training nodes is 1.
fn given(weights: &[f64], counts: &[u64]) -> Result<Vec<f32>, TrainError> {
    let wrong = |problem: String| TrainError::Labels(format!("`train.class_weights`: {problem}"));
    if weights.len() != counts.len() {
        return Err(wrong(format!("expected {} numbers, one per class, found {}", counts.len(), weights.len())));
    }
    let sum: f64 = weights.iter().zip(counts).map(|(weight, count)| weight * *count as f64).sum();
    if sum == 0.0 {
        return Err(wrong("no training node has a class with a weight above 0".to_owned()));
    }
    let n_nodes = counts.iter().sum::<u64>() as f64;
    Ok(weights.iter().map(|weight| (weight * n_nodes / sum) as f32).collect())
}

/// The mean loss of pairs by their logits: those that are edges should be large, the others small.
pub fn pair_loss(edges: &Tensor, others: &Tensor) -> Tensor {
    sum_of_pairs(edges, others) / (edges.size()[0] + others.size()[0]) as f64
}

fn sum_of_pairs(edges: &Tensor, others: &Tensor) -> Tensor {
    sum_in_pieces(&-Tensor::cat(&[edges.log_sigmoid(), (-others).log_sigmoid()], 0))
}

/// The loss of pairs by the outputs of their nodes, nodes × width, added up and divided by `n_pairs`, those of the whole step. Pairs
/// that are edges should have a large dot product.
pub fn link_loss(outputs: &Tensor, pairs: &LinkPairs, n_pairs: usize) -> Tensor {
    let ends = |ends: &[u32]| {
        let ends: Vec<i64> = ends.iter().map(|end| i64::from(*end)).collect();
        outputs.index(&[Some(Tensor::from_slice(&ends).to_device(outputs.device()))])
    };
    let scores = (ends(&pairs.sources) * ends(&pairs.destinations)).sum_dim_intlist(-1, false, outputs.kind());
    let n_edges = pairs.n_edges as i64;
    let (edges, others) = (scores.narrow(0, 0, n_edges), scores.narrow(0, n_edges, scores.size()[0] - n_edges));
    sum_of_pairs(&edges, &others) / n_pairs as f64
}

/// The loss of a slice by its numbers: that of its nodes, and the weighted losses of all layers' edges.
pub(crate) fn slice_loss(node_loss: f64, edge_losses: &[f64], edge_weight: f64) -> f64 {
    node_loss + edge_weight * edge_losses.iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    #[test]
    fn classes_weigh_the_same_when_balanced() {
        let weights = balanced(&[30, 0, 10, 20]);
        assert_eq!(weights, [2.0 / 3.0, 0.0, 2.0, 1.0]);
        let mean: f32 = [30.0, 0.0, 10.0, 20.0].iter().zip(&weights).map(|(count, weight)| count * weight).sum();
        assert_eq!(mean, 60.0);
    }

    #[test]
    fn given_weights_have_a_mean_of_one() {
        assert_eq!(given(&[1.0, 9.0, 3.0], &[30, 0, 10]).unwrap(), [1.0 / 1.5, 6.0, 2.0]);
        let error = |weights: &[f64], counts: &[u64]| given(weights, counts).unwrap_err().to_string();
        assert_eq!(error(&[1.0], &[3, 4]), "`train.class_weights`: expected 2 numbers, one per class, found 1");
        assert!(error(&[0.0, 1.0], &[3, 0]).contains("no training node has a class with a weight above 0"));
    }

    /// As `torch.nn.functional.cross_entropy(weight, label_smoothing)`, which divides by the weights of the nodes' classes.
    #[test]
    fn weights_and_smoothing_are_those_of_pytorch() {
        let classes: Vec<i64> = (0..12).map(|node| node * 7 % 5).collect();
        let positions = [3u32, 0, 11, 3, 8, 7];
        let weights = [0.5f32, 1.5, 0.25, 2.0, 1.0];
        for (class_weights, smoothing) in [(None, 0.1), (Some(weights.to_vec()), 0.0), (Some(weights.to_vec()), 0.3)] {
            let loss = NodeLoss { class_weights, smoothing, ..NodeLoss::default() };
            let logits = (Tensor::arange(60, (Kind::Float, Device::Cpu)).sin() * 9.0).view([12, 5]);
            let fused = logits.copy().set_requires_grad(true);
            let by_tensors = logits.to_kind(Kind::Double).set_requires_grad(true);
            let theirs = logits.to_kind(Kind::Double).set_requires_grad(true);
            let found = loss.of(&fused, &Labels::Classes(classes.clone()), &positions, 6);
            let expected = loss.of(&by_tensors, &Labels::Classes(classes.clone()), &positions, 6);
            let own: Vec<i64> = positions.iter().map(|position| classes[*position as usize]).collect();
            let picked = theirs.index_select(0, &Tensor::from_slice(&positions.map(i64::from)));
            let weight = loss.class_weights.as_ref().map(|weights| Tensor::from_slice(weights).to_kind(Kind::Double));
            let sum = picked.cross_entropy_loss(
                &Tensor::from_slice(&own),
                weight.as_ref(),
                tch::Reduction::Sum,
                -100,
                smoothing,
            ) / 6.0;
            for (loss, logits) in [(&found, &fused), (&expected, &by_tensors)] {
                assert!((loss.double_value(&[]) - sum.double_value(&[])).abs() < 1e-5, "{loss:?} {sum:?}");
                (loss * 3.0).backward();
                if !theirs.grad().defined() {
                    (&sum * 3.0).backward();
                }
                let off = (logits.grad().to_kind(Kind::Double) - theirs.grad()).abs().max().double_value(&[]);
                assert!(off < 1e-5, "{off}");
            }
        }
    }
}
