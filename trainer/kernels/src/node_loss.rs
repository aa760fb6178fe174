//! Softmax cross-entropy of nodes with one class each, as one differentiable call: the sum over seed nodes of
//! ln Σ exp(logits) − logit of the class, divided by a number. Seed nodes are summed in chunks of 4,096.

use kith_draw::{Vectorized, vectorized};
use rayon::prelude::*;
use tch::{TchError, Tensor};

use crate::{
    bridge::{attach, filled, is_plain, numbers},
    cut::PIECE_ROWS,
    simd::exp,
};

/// The softmax cross-entropies of the nodes at `positions`, whose classes are `classes[position]`, added up and divided
/// by `n_seeds`; `None` where the logits are not plain floats on the CPU.
pub fn class_loss(
    logits: &Tensor,
    classes: &[i64],
    positions: &[u32],
    n_seeds: usize,
) -> Option<Result<Tensor, TchError>> {
    if !is_plain(logits) || positions.is_empty() {
        return None;
    }
    let n_classes = logits.size()[1] as usize;
    let seeds = seeds_of(classes, positions, n_classes);
    let mut shares = vec![0.0; seeds.len() * n_classes];
    let values = numbers(logits);
    let sums: Vec<f64> = shares
        .par_chunks_mut(PIECE_ROWS * n_classes)
        .zip(seeds.par_chunks(PIECE_ROWS))
        .map(|(shares, seeds)| vectorized(Piece { values, n_classes, seeds, shares }))
        .collect();
    Some(attached(logits, seeds, shares, sums.iter().sum(), n_seeds))
}

/// Labels that are more than one class for each node.
#[derive(Clone, Copy, Debug)]
pub struct SoftTargets<'a> {
    /// Weights of classes; `None` if all are 1.
    pub class_weights: Option<&'a [f32]>,
    /// Share of a node's label that is spread over all classes.
    pub smoothing: f64,
}

impl SoftTargets<'_> {
    fn weight(&self, class: usize) -> f64 {
        self.class_weights.map_or(1.0, |weights| f64::from(weights[class]))
    }
}

/// The same as [`class_loss`] with the log probability of every class in the loss of a node: its own class has
/// (1 − smoothing) · its weight, and every class smoothing ÷ classes · its weight.
pub fn soft_class_loss(
    logits: &Tensor,
    classes: &[i64],
    positions: &[u32],
    n_seeds: usize,
    targets: &SoftTargets<'_>,
) -> Option<Result<Tensor, TchError>> {
    if !is_plain(logits) || positions.is_empty() {
        return None;
    }
    let n_classes = logits.size()[1] as usize;
    let seeds = seeds_of(classes, positions, n_classes);
    let spread: Vec<f64> =
        (0..n_classes).map(|class| targets.smoothing / n_classes as f64 * targets.weight(class)).collect();
    let all: f64 = spread.iter().sum();
    let mut shares = vec![0.0; seeds.len() * n_classes];
    let values = numbers(logits);
    let of_piece = |(shares, seeds): (&mut [f32], &[(usize, usize)])| {
        let mut loss = 0.0;
        for ((start, class), shares) in seeds.iter().zip(shares.chunks_exact_mut(n_classes)) {
            let row = &values[*start..start + n_classes];
            let max = row.iter().fold(f32::NEG_INFINITY, |max, value| if *value > max { *value } else { max });
            shares.iter_mut().zip(row).for_each(|(share, value)| *share = exp(value - max));
            let sum: f64 = shares.iter().map(|share| f64::from(*share)).sum();
            let (log_sum, own) = (sum.ln(), (1.0 - targets.smoothing) * targets.weight(*class));
            for (place, (share, value)) in shares.iter_mut().zip(row).enumerate() {
                let target = spread[place] + if place == *class { own } else { 0.0 };
                loss += target * (log_sum - f64::from(value - max));
                *share = ((all + own) * f64::from(*share) / sum - target) as f32;
            }
        }
        loss
    };
    let pieces = shares.par_chunks_mut(PIECE_ROWS * n_classes).zip(seeds.par_chunks(PIECE_ROWS));
    let sums: Vec<f64> = pieces.map(of_piece).collect();
    Some(attached(logits, seeds, shares, sums.iter().sum(), n_seeds))
}

/// Start of each seed's logits, and its class.
fn seeds_of(classes: &[i64], positions: &[u32], n_classes: usize) -> Vec<(usize, usize)> {
    let seed = |position: &u32| (*position as usize * n_classes, classes[*position as usize] as usize);
    positions.iter().map(seed).collect()
}

/// The loss by its sum, with a way back: `shares` are the gradients of the seeds' logits.
fn attached(
    logits: &Tensor,
    seeds: Vec<(usize, usize)>,
    shares: Vec<f32>,
    sum: f64,
    n_seeds: usize,
) -> Result<Tensor, TchError> {
    let (n, n_classes) = (n_seeds as f64, logits.size()[1] as usize);
    let loss = filled(&[], |loss| loss[0] = (sum / n) as f32);
    if !logits.requires_grad() {
        return Ok(loss);
    }
    let size = logits.size();
    let backward = move |gradients: &[Option<Tensor>]| {
        let scale = match gradients.first() {
            Some(Some(gradient)) => (gradient.double_value(&[]) / n) as f32,
            _ => return Ok(vec![None]),
        };
        let gradient = filled(&size, |out| {
            out.fill(0.0);
            // Added, not set: a seed may stand in the list twice.
            for ((start, _), shares) in seeds.iter().zip(shares.chunks_exact(n_classes)) {
                let row = &mut out[*start..start + n_classes];
                row.iter_mut().zip(shares).for_each(|(out, share)| *out += share * scale);
            }
        });
        Ok(vec![Some(gradient)])
    };
    attach(&[logits], &[&loss], Box::new(backward)).map(|()| loss)
}

/// The losses of some seeds, added up; leaves the gradient of each.
struct Piece<'a> {
    values: &'a [f32],
    n_classes: usize,
    seeds: &'a [(usize, usize)],
    shares: &'a mut [f32],
}

impl Vectorized for Piece<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut loss = 0.0;
        for ((start, class), shares) in self.seeds.iter().zip(self.shares.chunks_exact_mut(self.n_classes)) {
            let row = &self.values[*start..start + self.n_classes];
            let mut max = f32::NEG_INFINITY;
            for value in row {
                max = if *value > max { *value } else { max };
            }
            for (share, value) in shares.iter_mut().zip(row) {
                *share = exp(value - max);
            }
            let mut sum = 0f64;
            for share in shares.iter() {
                sum += f64::from(*share);
            }
            let inverse = (1.0 / sum) as f32;
            for share in shares.iter_mut() {
                *share *= inverse;
            }
            shares[*class] -= 1.0;
            loss += sum.ln() - f64::from(row[*class] - max);
        }
        loss
    }
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    #[test]
    fn loss_and_gradient_are_those_of_tensor_operations() {
        let logits =
            (Tensor::arange(60, (Kind::Float, tch::Device::Cpu)).sin() * 9.0).view([12, 5]).set_requires_grad(true);
        let classes: Vec<i64> = (0..12).map(|node| node * 7 % 5).collect();
        let positions = [3u32, 0, 11, 3];
        let loss = class_loss(&logits, &classes, &positions, positions.len()).expect("plain").unwrap();
        (&loss * 3.0).backward();
        let found = logits.grad().copy();

        let twin = logits.detach().to_kind(Kind::Double).set_requires_grad(true);
        let index = Tensor::from_slice(&positions.map(i64::from));
        let picked = twin.index_select(0, &index).log_softmax(1, Kind::Double);
        let own = Tensor::from_slice(&positions.map(|position| classes[position as usize])).unsqueeze(1);
        let expected = -picked.gather(1, &own, false).mean(Kind::Double);
        (&expected * 3.0).backward();
        assert!((loss.double_value(&[]) - expected.double_value(&[])).abs() < 1e-6);
        assert!((found.to_kind(Kind::Double) - twin.grad()).abs().max().double_value(&[]) < 1e-6);
    }
}
