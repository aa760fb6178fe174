//! A second place for a run's folder. The folder is complete in itself; where disks are temporary, a keeper copies it
//! each time that there is something worth copying.

use std::sync::Arc;

use crate::error::TrainError;

/// Callback for news in a run's folder: a checkpoint, or the report.
#[derive(Clone, Default)]
pub struct Keeper(Option<Arc<Keep>>);

type Keep = dyn Fn() -> Result<(), TrainError> + Send + Sync;

impl Keeper {
    /// Calls this each time, on the thread that wrote what is new; an error ends the run.
    pub fn new(keep: impl Fn() -> Result<(), TrainError> + Send + Sync + 'static) -> Keeper {
        Keeper(Some(Arc::new(keep)))
    }

    /// There is something new.
    pub(crate) fn keep(&self) -> Result<(), TrainError> {
        self.0.as_ref().map_or(Ok(()), |keep| keep())
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Keeper" } else { "no keeper" })
    }
}
