//! Facts for users: the place of the features, and times that steps waited.

/// Times that steps waited for the GPU.
#[derive(Debug, Default)]
pub(super) struct Waits {
    pub(super) n_steps: u64,
    pub(super) n_waits: u64,
}

impl Waits {
    /// Average of a step.
    pub(super) fn per_step(&self) -> f64 {
        self.n_waits as f64 / self.n_steps.max(1) as f64
    }
}

/// Sentence about the place of the features. `share` is the part of them on the GPU; `None`: they come with every mini-batch.
pub(super) fn place_of_features(share: Option<f64>) -> String {
    match share {
        None => "features come from the host with every mini-batch".to_owned(),
        Some(1.0) => "the features of all nodes are on the GPU".to_owned(),
        Some(0.0) => "the features of all nodes are in pinned memory, from which the GPU reads them".to_owned(),
        Some(share) => {
            let percent = 100.0 * share;
            format!("the features of {percent:.0}% of the nodes are on the GPU, the others in pinned memory")
        }
    }
}
