//! Private memory of a run, within its limit.

use kith_run::memory_plan::{MemoryNeeds, shown};
use kith_store::memory::private_bytes;

use super::Run;
use crate::{
    data::Data,
    error::TrainError,
    inference::{
        layerwise::{kept_bytes, least_bytes, with_slack},
        wanted_logits::wanted,
    },
};

/// Advice for a run that needs more memory than it may take.
const REMEDY: &str = "lower train.batch_size or train.fanouts, or raise --memory";

/// Bytes of the run's state per weight: moments, the best weights, an average, and a checkpoint that is being written.
const STATE_BYTES: u64 = 4 * 8;

impl Run<'_> {
    /// Divides the memory among mini-batches, steps and evaluations.
    pub(super) fn plan_memory(&mut self) -> Result<(), TrainError> {
        let (Some(limit), Data::Batches(input)) = (self.room.memory, self.host.data) else { return Ok(()) };
        if self.is_done() {
            return Ok(());
        }
        let n_weights = self.host.model.weights().n_elements() as u64;
        let Some((needs, ahead)) = self.host.feed.memory_needs(&self.host.config, (self.state.step, n_weights))? else {
            return Ok(());
        };
        kith_kernels::trim(); // Frees the mini-batch that was measured.
        let n_wanted = wanted(input).count() as u64;
        let (info, model) = (input.shards.info(), &self.host.config.model);
        let width = input.links.as_ref().map_or(info.n_classes, |links| links.dim) as u64;
        let needs = MemoryNeeds {
            held: private_bytes().unwrap_or(0) + STATE_BYTES * n_weights + kept_bytes(model, info.n_nodes),
            evaluation: least_bytes(model, info.n_nodes, (n_wanted, width)),
            ..needs
        };
        let plan = needs.plan(limit, ahead).map_err(|needed| TrainError::Memory {
            limit,
            needed: with_slack(needed),
            what: "mini-batch training",
            remedy: REMEDY,
        })?;
        self.host.feed.keep_to(&plan);
        self.room.others = plan.beside_evaluations();
        self.notes.push(shown(&plan));
        self.memory = plan;
        Ok(())
    }

    /// Frees memory that is kept for the next step, if the step would not fit otherwise.
    pub(crate) fn make_room(&self) {
        if let (Some(limit), Some(held)) = (self.room.memory, self.private_bytes())
            && held + self.memory.step > limit
        {
            kith_kernels::trim();
        }
    }

    /// Ends a run that holds more memory than it may.
    pub(crate) fn check_memory(&self) -> Result<(), TrainError> {
        match (self.room.memory, self.private_bytes()) {
            (Some(limit), Some(needed)) if needed > limit => {
                Err(TrainError::Memory { limit, needed, what: "a step", remedy: REMEDY })
            }
            _ => Ok(()),
        }
    }

    /// Private memory of the process, where it has a limit.
    fn private_bytes(&self) -> Option<u64> {
        self.room.memory.and_then(|_| private_bytes())
    }
}
