//! State of the training loop in a checkpoint.

use kith_store::LabelKind;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::Value;

use super::FORMAT_VERSION;
use crate::{
    clock::Phases,
    config::RunConfig,
    report::{EvaluatedNodes, StepRecord},
};

/// The earlier format that is read as well.
const SECOND: u32 = 2;

/// The state of the loop between two steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedState {
    /// [`FORMAT_VERSION`] of the build that wrote it.
    pub format_version: u32,
    /// The run file as it was followed.
    pub run_file: String,
    /// Names all randomness of the run.
    pub seed: u64,
    /// Identity of the store.
    pub store_digest: String,
    /// Length of a feature vector.
    pub dim: usize,
    /// Classes, or numbers of a node to predict.
    pub n_classes: usize,
    /// Kind of the labels.
    pub labels: LabelKind,
    /// Mean and standard deviation of each number to predict over the training nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target_scales: Vec<(Exact, Exact)>,
    /// Weight updates so far.
    pub step: u64,
    /// Whole epochs so far.
    pub epoch: u64,
    /// True if early stopping has ended the run.
    pub stopped_early: bool,
    /// Validation losses that the early stop remembers, oldest first.
    pub losses: Vec<Exact>,
    /// Metrics that it remembers.
    pub metrics: Vec<Exact>,
    /// Epoch and validation metric of the last improvement, where the early stop has a patience.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub improved: Option<(u64, Exact)>,
    /// Epoch, validation metric and test metric of the best epoch; none before one is measured.
    pub best: Option<(u64, Exact, Exact)>,
    /// Validation loss, validation metric and test metric of the last epoch that was measured.
    pub last: Option<(Exact, Exact, Exact)>,
    /// With a schedule by plateau: epoch of the last improvement or reduction, the best score, and the number of reductions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plateau: Option<(u64, Exact, u64)>,
    /// Nodes of the evaluations so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated_nodes: Option<EvaluatedNodes>,
    /// Negatives that could not be drawn so far.
    pub n_negatives_left_out: u64,
    /// Feature vectors of steps so far: from local files, from the cache, from servers.
    pub feature_counts: (u64, u64, u64),
    /// Time spent so far.
    pub micros: u64,
    /// Time of each rank, by phase.
    pub phases: Vec<Phases>,
    /// Record of the last step, where the evaluation after it is due: the run was asked to stop before it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<StepRecord>,
}

/// A number that comes back with the same bits: JSON's own numbers may not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exact(pub f64);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:?}", self.0))
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Exact, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Exact).map_err(|_| D::Error::custom(format!("{text:?} is no number")))
    }
}

/// More than any run counts, and less than what overflows when it goes on counting.
const MOST: u64 = 1 << 60;

/// More ranks than any process group has.
const MOST_RANKS: usize = 1 << 20;

impl SavedState {
    /// Reads the state of a checkpoint of this version.
    pub(super) fn parse(text: &str) -> Result<SavedState, String> {
        #[derive(Deserialize)]
        struct Versioned {
            format_version: u32,
        }
        // The version first: another version may have other fields.
        let Versioned { format_version: found } = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let state = match found {
            FORMAT_VERSION => serde_json::from_str::<SavedState>(text).map_err(|error| error.to_string())?,
            SECOND => SavedState::parse_second(text).map_err(|error| error.to_string())?,
            _ => return Err(format!("format version {found}, this build reads {SECOND} to {FORMAT_VERSION}")),
        };
        let n_scales = if state.labels == LabelKind::Targets { state.n_classes } else { 0 };
        match state.target_scales.len() == n_scales {
            true => Ok(state),
            false => Err(format!("expected {n_scales} target scales, found {}", state.target_scales.len())),
        }
    }

    /// Reads the state of a checkpoint of format 2 (Kith 0.1.0), whose names differ.
    fn parse_second(text: &str) -> serde_json::Result<SavedState> {
        let mut state: serde_json::Map<String, Value> = serde_json::from_str(text)?;
        let is_multi_label = state.remove("is_multi_label") == Some(Value::Bool(true));
        state.insert("labels".to_owned(), if is_multi_label { "multi-label" } else { "classes" }.into());
        for (before, now) in [("run_key", "seed"), ("row_counts", "feature_counts")] {
            state.remove(before).and_then(|value| state.insert(now.to_owned(), value));
        }
        let state: SavedState = serde_json::from_value(state.into())?;
        Ok(SavedState { format_version: FORMAT_VERSION, ..state })
    }

    /// Steps whose records are whole.
    pub fn n_recorded(&self) -> u64 {
        self.step.saturating_sub(u64::from(self.due.is_some()))
    }

    /// Refuses values that no run of this config leaves behind, on a graph with these features, classes and labels.
    pub fn check(
        &self,
        config: &RunConfig,
        shape: (usize, usize, LabelKind),
        steps_per_epoch: u64,
    ) -> Result<(), String> {
        if (self.dim, self.n_classes, self.labels) != shape {
            let (dim, n_classes, labels) = shape;
            return Err(format!(
                "it was made for {} features and {} classes ({:?}), the graph has {dim} and {n_classes} ({labels:?})",
                self.dim, self.n_classes, self.labels
            ));
        }
        let impossible = |what: String| Err(format!("its loop state is impossible: {what}"));
        let (step, epoch) = (self.step, self.epoch);
        let place = || format!("step {step} in epoch {epoch} with {steps_per_epoch} steps per epoch");
        let is_right = match &self.due {
            None => step / steps_per_epoch == epoch,
            Some(due) => {
                let is_end = step % steps_per_epoch == 0 && step / steps_per_epoch == epoch.saturating_add(1);
                is_end && due.step.checked_add(1) == Some(step) && due.epoch == epoch && due.measured.is_none()
            }
        };
        if step > MOST || !is_right {
            return impossible(place());
        }
        if self.best.is_some_and(|(best, ..)| best >= epoch) || self.best.is_some() != self.last.is_some() {
            return impossible(format!("best epoch {:?} of {epoch}", self.best.map(|(best, ..)| best)));
        }
        let window = config.early_stop.as_ref().and_then(|early_stop| early_stop.rule()).map_or(0, |rule| rule.window);
        if self.losses.len() > window || self.metrics.len() != self.losses.len() {
            let (n_losses, n_metrics) = (self.losses.len(), self.metrics.len());
            return impossible(format!("{n_losses} losses and {n_metrics} metrics for an early stop over {window}"));
        }
        if self.improved.is_some_and(|(improved, _)| improved >= epoch) {
            return impossible(format!("an improvement in epoch {:?} of {epoch}", self.improved));
        }
        if self.plateau.is_some_and(|(since, _, n_reductions)| since >= epoch || n_reductions > epoch) {
            return impossible(format!("a plateau {:?} in epoch {epoch}", self.plateau));
        }
        if self.stopped_early && config.early_stop.is_none() {
            return impossible("stopped early without an early stop".to_owned());
        }
        let (local, cached, remote) = self.feature_counts;
        let times = self.phases.iter().flat_map(Phases::each);
        let mut counts = [self.n_negatives_left_out, local, cached, remote, self.micros].into_iter().chain(times);
        if counts.any(|count| count > MOST) || self.phases.len() > MOST_RANKS {
            return impossible("a count above 2^60".to_owned());
        }
        Ok(())
    }
}
