//! Adam with coupled weight decay, over one flat tensor. Our own, because a checkpoint must hold its moments.

use kith_kernels::AdamStep;
use tch::{Device, Kind, TchError, Tensor, no_grad};

/// Decay rates of the moments.
const BETAS: (f64, f64) = (0.9, 0.999);
const EPSILON: f64 = 1e-8;

/// Adam as `torch.optim.Adam(weight_decay = λ_2)` computes it: the decay is added to the gradient.
#[derive(Debug)]
pub struct Adam {
    learning_rate: f64,
    weight_decay: f64,
    first: Tensor,
    second: Tensor,
    step: u64,
}

impl Adam {
    /// Before the first step: moments are zero.
    pub fn new(learning_rate: f64, weight_decay: f64, n_weights: i64, device: Device) -> Adam {
        let zeros = || Tensor::zeros([n_weights], (Kind::Float, device));
        Adam { learning_rate, weight_decay, first: zeros(), second: zeros(), step: 0 }
    }

    /// After `step` steps that left these moments.
    pub fn resume(mut self, step: u64, first: &Tensor, second: &Tensor) -> Adam {
        self.set(step, first, second);
        self
    }

    /// Takes what another optimizer came to.
    pub(crate) fn set(&mut self, step: u64, first: &Tensor, second: &Tensor) {
        self.step = step;
        no_grad(|| {
            self.first.copy_(first);
            self.second.copy_(second);
        });
    }

    /// Steps so far.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The first and the second moment of each weight.
    pub fn moments(&self) -> (&Tensor, &Tensor) {
        (&self.first, &self.second)
    }

    /// The learning rate over the first moment's correction, and the root of the second's, in step `step` (from 1).
    fn corrected(&self, step: u64) -> (f64, f64) {
        let correction = |beta: f64| 1.0 - beta.powf(step as f64);
        (self.learning_rate / correction(BETAS.0), correction(BETAS.1).sqrt())
    }

    /// The factors of step `step` (from 1), rounded as [`Adam::update`] does: the step's size, and one over the root of the second
    /// moment's correction.
    pub(crate) fn factors(&self, step: u64) -> (f32, f32) {
        let (step_size, root_scale) = self.corrected(step);
        (step_size as f32, 1.0 / root_scale as f32)
    }

    /// One step: changes `weights` in place. All lie side by side, one number per weight.
    pub fn update(&mut self, weights: &mut Tensor, gradient: &Tensor) -> Result<(), TchError> {
        self.step += 1;
        let (step_size, root_scale) = self.corrected(self.step);
        let fused = AdamStep {
            weight_decay: self.weight_decay as f32,
            kept: BETAS.1 as f32,
            taken: ((1.0 - BETAS.0) as f32, (1.0 - BETAS.1) as f32),
            step_size: step_size as f32,
            root_scale: root_scale as f32,
            epsilon: EPSILON as f32,
        };
        if fused.update(weights, gradient, &mut self.first, &mut self.second) {
            return Ok(());
        }
        no_grad(|| {
            let gradient = match self.weight_decay {
                0.0 => gradient.shallow_clone(),
                decay => gradient.f_add(&weights.f_mul_scalar(decay)?)?,
            };
            let _ = self.first.f_lerp_(&gradient, 1.0 - BETAS.0)?;
            let _ = self.second.f_mul_scalar_(BETAS.1)?;
            let _ = self.second.f_add_(&gradient.f_square()?.f_mul_scalar(1.0 - BETAS.1)?)?;
            let root = self.second.f_sqrt()?.f_div_scalar(root_scale)?.f_add_scalar(EPSILON)?;
            let _ = weights.f_sub_(&self.first.f_div(&root)?.f_mul_scalar(step_size)?)?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(tensor: &Tensor) -> Vec<f32> {
        Vec::try_from(tensor).unwrap()
    }

    /// The formulas once more, in f64, one weight at a time.
    fn by_hand(weight: f64, gradients: &[f64], learning_rate: f64, weight_decay: f64) -> (f64, f64, f64) {
        let (mut w, mut first, mut second) = (weight, 0.0, 0.0);
        for (step, gradient) in gradients.iter().enumerate() {
            let g = gradient + weight_decay * w;
            first = 0.9 * first + 0.1 * g;
            second = 0.999 * second + 0.001 * g * g;
            let step = step as i32 + 1;
            let corrected = (first / (1.0 - 0.9f64.powi(step)), second / (1.0 - 0.999f64.powi(step)));
            w -= learning_rate * corrected.0 / (corrected.1.sqrt() + 1e-8);
        }
        (w, first, second)
    }

    #[test]
    fn the_first_step_is_as_long_as_the_learning_rate() {
        // For any gradient g, the corrected moments are g and g²: the step is 0.01 · g / (|g| + 1e-8).
        let mut weights = Tensor::from_slice(&[1f32, 2.0, 3.0]);
        let mut adam = Adam::new(0.01, 0.0, 3, Device::Cpu);
        adam.update(&mut weights, &Tensor::from_slice(&[5f32, -1e-3, 0.0])).unwrap();
        let found = values(&weights);
        for (found, expected) in found.iter().zip([0.99, 2.01, 3.0]) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }

    #[test]
    fn steps_follow_the_formulas() {
        let start = [0.5f32, -0.25, 1.5, 0.0];
        let gradients = [[0.3f32, -0.1, 0.02, 0.0], [-0.2, 0.4, 0.01, 0.0], [0.1, 0.1, -5.0, 0.0]];
        for weight_decay in [0.0, 0.05] {
            let mut weights = Tensor::from_slice(&start);
            let mut adam = Adam::new(0.02, weight_decay, 4, Device::Cpu);
            for gradient in &gradients {
                adam.update(&mut weights, &Tensor::from_slice(gradient)).unwrap();
            }
            assert_eq!(adam.step(), 3);
            for place in 0..4 {
                let own: Vec<f64> = gradients.iter().map(|gradient| f64::from(gradient[place])).collect();
                let (weight, first, second) = by_hand(f64::from(start[place]), &own, 0.02, weight_decay);
                let (found_first, found_second) = adam.moments();
                for (found, expected) in [(&weights, weight), (found_first, first), (found_second, second)] {
                    let found = f64::from(values(found)[place]);
                    assert!((found - expected).abs() <= 1e-6 * expected.abs() + 1e-9, "{found} {expected}");
                }
            }
        }
    }

    #[test]
    fn resumed_moments_go_on_to_the_same_bits() {
        let gradient = Tensor::from_slice(&[0.3f32, -0.1, 0.02]);
        let start = || Tensor::from_slice(&[1f32, 2.0, 3.0]);
        let (mut whole, mut weights) = (Adam::new(0.02, 0.01, 3, Device::Cpu), start());
        for _ in 0..5 {
            whole.update(&mut weights, &gradient).unwrap();
        }
        let (mut half, mut again) = (Adam::new(0.02, 0.01, 3, Device::Cpu), start());
        for _ in 0..2 {
            half.update(&mut again, &gradient).unwrap();
        }
        let (first, second) = half.moments();
        let mut rest = Adam::new(0.02, 0.01, 3, Device::Cpu).resume(2, &first.copy(), &second.copy());
        for _ in 0..3 {
            rest.update(&mut again, &gradient).unwrap();
        }
        assert_eq!(values(&again), values(&weights));
    }
}
