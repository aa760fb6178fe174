//! The run folder: checkpoints and the records of steps. What is not synced is lost with the power, or torn.

use std::collections::BTreeMap;

use crate::draws::Draws;

/// The state of training that a checkpoint holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Steps so far.
    pub(crate) step: u64,
    /// Digest of every draw and collective so far.
    pub(crate) digest: u64,
}

/// A file and what of it survives the loss of power.
#[derive(Clone, Copy, Debug)]
struct File {
    state: State,
    is_whole: bool,
    is_synced: bool,
    is_name_synced: bool,
}

/// A folder on one disk.
#[derive(Debug)]
pub(crate) struct Disk {
    draft: Option<File>,
    checkpoints: BTreeMap<u64, File>,
    /// Steps that were recorded, and how many of these records are synced.
    pub(crate) records: Vec<u64>,
    n_synced: usize,
    /// Newest checkpoint that was said to be saved.
    pub(crate) acknowledged: Option<u64>,
    /// Digest of the last state, once the run has ended well.
    pub(crate) report: Option<u64>,
    /// The process that has the folder.
    pub(crate) holder: Option<usize>,
    draws: Draws,
}

impl Disk {
    pub(crate) fn new(draws: Draws) -> Disk {
        Disk {
            draft: None,
            checkpoints: BTreeMap::new(),
            records: Vec::new(),
            n_synced: 0,
            acknowledged: None,
            report: None,
            holder: None,
            draws,
        }
    }

    /// Writes a checkpoint under a name that readers ignore.
    pub(crate) fn write_draft(&mut self, state: State) {
        self.draft = Some(File { state, is_whole: true, is_synced: false, is_name_synced: false });
    }

    /// Syncs the draft and the records.
    pub(crate) fn sync(&mut self) {
        self.draft.iter_mut().for_each(|draft| draft.is_synced = true);
        self.n_synced = self.records.len();
    }

    /// Gives the draft its name.
    pub(crate) fn publish(&mut self) {
        if let Some(draft) = self.draft.take() {
            self.checkpoints.insert(draft.state.step, draft);
        }
    }

    /// Syncs the names, and deletes all but the two newest checkpoints.
    pub(crate) fn sync_names(&mut self) {
        self.checkpoints.values_mut().for_each(|file| file.is_name_synced = true);
        while self.checkpoints.len() > 2 {
            self.checkpoints.pop_first();
        }
    }

    /// The power is gone: what was not synced is lost, torn or there.
    pub(crate) fn lose_power(&mut self) {
        self.draft = None;
        let draws = &mut self.draws;
        self.checkpoints.retain(|_, file| file.is_name_synced || draws.in_percent(50));
        for file in self.checkpoints.values_mut().filter(|file| !file.is_synced) {
            file.is_whole = draws.in_percent(30);
        }
        let n_unsynced = (self.records.len() - self.n_synced) as u64;
        let n_kept = self.n_synced + draws.from(0, n_unsynced) as usize;
        self.records.truncate(n_kept);
        self.n_synced = self.n_synced.min(n_kept);
    }

    /// The newest checkpoint that is whole; later records are deleted.
    pub(crate) fn resume(&mut self) -> Option<State> {
        let newest = self.checkpoints.values().rev().find(|file| file.is_whole).map(|file| file.state);
        let n_steps = newest.map_or(0, |state| state.step);
        self.records.retain(|step| *step < n_steps);
        self.n_synced = self.records.len();
        newest
    }

    /// What the launcher sees of the run's progress.
    pub(crate) fn reached(&self) -> u64 {
        let newest = self.checkpoints.keys().next_back().map_or(0, |step| step + 1);
        newest + u64::from(self.report.is_some())
    }
}
