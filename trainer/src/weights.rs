//! The weights of a model: one flat tensor, and named views of it.

use kith_draw::{Name, Purpose};
use tch::{Device, Kind, TchError, Tensor, no_grad};

/// One named weight: its shape and what it starts from.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name, `layers.0.weight`.
    pub name: String,
    /// Its shape.
    pub shape: Vec<i64>,
    /// Its initial value.
    pub initial: Initial,
}

/// Initial value of a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// The same number everywhere.
    Constant(f64),
    /// Uniform draws from (−bound, bound).
    Uniform {
        /// The largest magnitude.
        bound: f64,
    },
}

impl Initial {
    /// Glorot's bound for the two sizes that a weight joins.
    pub fn glorot(n_in: usize, n_out: usize) -> Initial {
        Initial::Uniform { bound: (6.0 / (n_in + n_out) as f64).sqrt() }
    }
}

impl Entry {
    /// A weight of this name.
    pub(crate) fn new(name: String, shape: &[usize], initial: Initial) -> Entry {
        Entry { name, shape: shape.iter().map(|size| *size as i64).collect(), initial }
    }

    /// Name of its layer: `layers.0`.
    pub fn layer(&self) -> &str {
        self.name.rsplit_once('.').map_or("", |(layer, _)| layer)
    }

    /// True for a bias.
    pub fn is_bias(&self) -> bool {
        self.name.ends_with(".bias")
    }

    /// True for a weight of a norm, or a learned slope.
    pub fn is_of_transition(&self) -> bool {
        self.name.starts_with("norms.") || self.name.starts_with("activations.")
    }

    /// True for running statistics of a norm, which steps average and do not train. They come after all weights that are trained.
    pub fn is_statistic(&self) -> bool {
        self.name.starts_with("norms.") && (self.name.ends_with(".mean") || self.name.ends_with(".variance"))
    }

    fn n_elements(&self) -> i64 {
        self.shape.iter().product()
    }
}

/// All weights of a model.
#[derive(Debug)]
pub struct Weights {
    flat: Tensor,
    entries: Vec<Entry>,
    views: Vec<Tensor>,
}

impl Weights {
    /// Weights as a run starts with them: element `b` of the tensor with number `a` is the draw of that name.
    pub fn new(entries: Vec<Entry>, run_key: u64, device: Device) -> Weights {
        let stream = Name { run_key, purpose: Purpose::InitialWeight, step: 0, layer: 0 }.stream();
        let mut values = Vec::new();
        for (tensor, entry) in entries.iter().enumerate() {
            values.extend((0..entry.n_elements() as u64).map(|element| match entry.initial {
                Initial::Constant(value) => value as f32,
                Initial::Uniform { bound } => {
                    ((2.0 * stream.draws(tensor as u64, element, 0).uniform() - 1.0) * bound) as f32
                }
            }));
        }
        Weights::from_flat(entries, Tensor::from_slice(&values).to_device(device))
    }

    fn from_flat(entries: Vec<Entry>, flat: Tensor) -> Weights {
        let mut start = 0;
        let views = entries
            .iter()
            .map(|entry| {
                let view = flat.narrow(0, start, entry.n_elements()).view(entry.shape.as_slice());
                start += entry.n_elements();
                view.detach().set_requires_grad(!entry.is_statistic())
            })
            .collect();
        Weights { flat, entries, views }
    }

    /// The same values as numbers of another kind.
    pub fn to_kind(&self, kind: Kind) -> Weights {
        Weights::from_flat(self.entries.clone(), self.flat.to_kind(kind).copy())
    }

    /// All values, one weight after the other. Changes to them change the weights.
    pub fn flat(&self) -> &Tensor {
        &self.flat
    }

    /// Replaces all values.
    pub fn set(&self, values: &Tensor) {
        no_grad(|| self.flat.shallow_clone().copy_(values));
    }

    /// The gradient of all weights in the order of [`Weights::flat`], zero where there is none; forgets it. Statistics have zeros.
    pub fn gradient(&self) -> Tensor {
        no_grad(|| {
            let gradient = self.flat.zeros_like();
            let mut start = 0;
            for (entry, view) in self.entries.iter().zip(&self.views) {
                let mut part = view.grad();
                if part.defined() {
                    // Added and not copied: a zero keeps no sign, so the first gradient after a restart has the same
                    // bits as one that was added to zeros.
                    let _ = gradient.narrow(0, start, entry.n_elements()).g_add_(&part.reshape(-1));
                    let _ = part.zero_();
                }
                start += entry.n_elements();
            }
            gradient
        })
    }

    /// Numbers that are trained; running statistics follow.
    pub fn n_trained(&self) -> usize {
        self.entries.iter().filter(|entry| !entry.is_statistic()).map(|entry| entry.n_elements() as usize).sum()
    }

    /// Averages statistics of a step, which stand behind the gradient, into the running ones.
    pub(crate) fn add_statistics(&self, gradient: &Tensor, share: f64) -> Result<(), TchError> {
        let (n_trained, n) = (self.n_trained() as i64, self.n_elements() as i64);
        no_grad(|| {
            let part = |tensor: &Tensor| tensor.f_narrow(0, n_trained, n - n_trained);
            let _ = part(&self.flat)?.f_lerp_(&part(gradient)?, share)?;
            Ok(())
        })
    }

    /// The weight with this name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        let place = self.entries.iter().position(|entry| entry.name == name)?;
        Some(&self.views[place])
    }

    /// Number of the first element of a weight in [`Weights::flat`].
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        let place = self.entries.iter().position(|entry| entry.name == name)?;
        Some(self.entries[..place].iter().map(|entry| entry.n_elements() as usize).sum())
    }

    /// Names, shapes and beginnings, in the order of [`Weights::flat`].
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Numbers in all weights.
    pub fn n_elements(&self) -> usize {
        self.entries.iter().map(|entry| entry.n_elements() as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights() -> Weights {
        let entry = |name: &str, shape: &[i64], initial| Entry { name: name.into(), shape: shape.into(), initial };
        let entries = vec![
            entry("first", &[2, 3], Initial::Uniform { bound: 2.0 }),
            entry("second", &[2], Initial::Constant(0.0)),
            entry("third", &[1], Initial::Uniform { bound: 0.5 }),
        ];
        Weights::new(entries, 1, Device::Cpu)
    }

    #[test]
    fn weights_are_views_of_one_tensor() {
        let weights = weights();
        assert_eq!((weights.n_elements(), weights.flat().size()), (9, vec![9]));
        weights.set(&Tensor::arange(9, (Kind::Float, Device::Cpu)));
        let values = |name| Vec::<f32>::try_from(weights.get(name).unwrap().flatten(0, -1)).unwrap();
        assert_eq!(values("first"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(values("second"), [6.0, 7.0]);
        assert_eq!(values("third"), [8.0]);
        assert!(weights.get("fourth").is_none());
    }

    #[test]
    fn gradients_are_gathered_once() {
        let weights = weights();
        let backward =
            || (weights.get("first").unwrap() * 2.0 + weights.get("third").unwrap()).sum(Kind::Float).backward();
        let expected = [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 0.0, 0.0, 6.0];
        for _ in 0..2 {
            backward();
            assert_eq!(Vec::<f32>::try_from(weights.gradient()).unwrap(), expected);
        }
        assert_eq!(Vec::<f32>::try_from(weights.gradient()).unwrap(), [0.0; 9]);
    }

    /// A zero's sign would make a resumed run differ from one left alone.
    #[test]
    fn a_gradient_has_no_negative_zero() {
        let weights = weights();
        for _ in 0..2 {
            (weights.get("first").unwrap() * -0.0).sum(Kind::Float).backward();
            let gradient = Vec::<f32>::try_from(weights.gradient()).unwrap();
            assert!(gradient.iter().all(|value| value.to_bits() == 0), "{gradient:?}");
        }
    }

    /// Golden: every published result starts from these.
    #[test]
    fn initial_weights_keep_their_bits() {
        let flat = Vec::<f32>::try_from(weights().flat()).unwrap();
        let drawn = [0.06215443, 1.9866241, -1.2565295, -1.4202251, 1.1846318, 0.1776573, 0.0, 0.0, -0.092369564];
        assert_eq!(flat, drawn);
    }
}
