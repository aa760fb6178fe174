//! Sums from which losses and metrics are computed.

use kith_kernels::cuda::Measured as Counted;
use kith_run::measured::Measured;

/// Sums over nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) loss: f64,
    pub(crate) n_terms: u64,
    /// Nodes, or (node, class) pairs, that were rightly said to be so.
    pub(crate) n_right: u64,
    /// All that were said, and all that are so; for one class per node both are the number of nodes.
    pub(crate) n_said: u64,
    pub(crate) n_true: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.loss += other.loss;
        self.n_terms += other.n_terms;
        self.n_right += other.n_right;
        self.n_said += other.n_said;
        self.n_true += other.n_true;
    }

    pub(crate) fn loss(&self) -> f64 {
        self.loss / self.n_terms as f64
    }

    /// Accuracy where every node has one class: then F1 is that.
    pub(crate) fn metric(&self) -> f64 {
        if self.n_said == 0 { 0.0 } else { (2 * self.n_right) as f64 / (self.n_said + self.n_true) as f64 }
    }

    /// Sums that a GPU counted; `n_terms` losses were added.
    pub(crate) fn of_counted(counted: Counted, n_terms: u64) -> Tally {
        let Counted { loss, n_right, n_said, n_true } = counted;
        Tally { loss, n_terms, n_right, n_said, n_true }
    }

    /// Losses and metrics of the valid and test nodes.
    pub(crate) fn measured(valid: Tally, test: Tally) -> Measured {
        Measured { valid_loss: valid.loss(), valid: valid.metric(), test: test.metric() }
    }
}
