//! The run folder: checkpoints and the records of steps. What is not synced is lost with the power, or torn.

use std::{collections::BTreeMap, time::Duration};

use kith_group::folder::resuming::{Action, Resuming};

use crate::draws::Draws;

/// The state of training that a checkpoint holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Steps so far.
    pub(crate) step: u64,
    /// Digest of every draw and collective so far.
    pub(crate) digest: u64,
}

/// An operation on the folder, which takes time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    SyncRecords,
    /// Writes a checkpoint under a name that readers ignore.
    WriteDraft(State),
    SyncDraft,
    /// Gives the draft its name.
    Rename,
    SyncNames,
    Remove(u64),
    RemoveDrafts,
    /// Brings the copy in object storage up to date, if the run has one.
    Keep,
}

/// Error of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskError {
    /// It fails, and may succeed later.
    Fails,
    /// The user must make room.
    Full,
}

/// A file and what of it survives the loss of power.
#[derive(Clone, Copy, Debug)]
struct File {
    state: State,
    is_whole: bool,
    is_synced: bool,
    is_name_synced: bool,
    /// True if its name is gone, for as long as the power stays on.
    is_removed: bool,
}

/// Faults of the disk, and when they end.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Operations fail.
    pub(crate) fails_until: Duration,
    /// Nothing more can be written.
    pub(crate) is_full_until: Duration,
    /// Syncing does nothing, and reports success.
    pub(crate) lies_until: Duration,
    /// Object storage refuses requests for longer than its client tries.
    pub(crate) storage_refuses_until: Duration,
}

/// The folder as object storage has it: of one moment, and whole.
#[derive(Clone, Debug, Default)]
struct Kept {
    checkpoints: Vec<State>,
    n_records: usize,
    report: Option<u64>,
}

/// A folder on one disk.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) faults: Faults,
    draft: Option<File>,
    checkpoints: BTreeMap<u64, File>,
    /// Only of a run that has a copy of its folder.
    kept: Option<Kept>,
    /// Steps that were recorded, and how many of these records are synced.
    pub(crate) records: Vec<u64>,
    n_synced: usize,
    /// Newest checkpoint that was said to be saved.
    pub(crate) acknowledged: Option<u64>,
    /// Digest of the last state, once the run has ended well.
    pub(crate) report: Option<u64>,
    /// The process that has the folder.
    pub(crate) holder: Option<usize>,
    /// True once something was written or synced in vain: a run may then end with code 1.
    pub(crate) was_full: bool,
    pub(crate) has_lied: bool,
    draws: Draws,
}

impl Disk {
    pub(crate) fn new(draws: Draws, has_copy: bool) -> Disk {
        Disk {
            faults: Faults::default(),
            draft: None,
            checkpoints: BTreeMap::new(),
            kept: has_copy.then(Kept::default),
            records: Vec::new(),
            n_synced: 0,
            acknowledged: None,
            report: None,
            holder: None,
            was_full: false,
            has_lied: false,
            draws,
        }
    }

    /// Carries out an operation.
    pub(crate) fn operate(&mut self, operation: Operation, now: Duration) -> Result<(), DiskError> {
        if now < self.faults.fails_until {
            return Err(DiskError::Fails);
        }
        if matches!(operation, Operation::Keep) {
            return self.keep(now);
        }
        let syncs = matches!(operation, Operation::SyncRecords | Operation::SyncDraft | Operation::SyncNames);
        if syncs && now < self.faults.lies_until {
            self.has_lied = true;
            return Ok(());
        }
        match operation {
            Operation::SyncRecords => self.n_synced = self.records.len(),
            Operation::WriteDraft(state) => {
                self.has_room(now)?;
                let (is_whole, is_synced, is_name_synced, is_removed) = (true, false, false, false);
                self.draft = Some(File { state, is_whole, is_synced, is_name_synced, is_removed });
            }
            Operation::SyncDraft => self.draft.iter_mut().for_each(|draft| draft.is_synced = true),
            Operation::Rename => {
                if let Some(draft) = self.draft.take() {
                    self.checkpoints.insert(draft.state.step, draft);
                }
            }
            Operation::SyncNames => {
                self.checkpoints.retain(|_, file| !file.is_removed);
                self.checkpoints.values_mut().for_each(|file| file.is_name_synced = true);
            }
            Operation::Remove(step) => {
                self.checkpoints.get_mut(&step).into_iter().for_each(|file| file.is_removed = true);
            }
            Operation::RemoveDrafts => self.draft = None,
            Operation::Keep => {}
        }
        Ok(())
    }

    fn keep(&mut self, now: Duration) -> Result<(), DiskError> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        if now < self.faults.storage_refuses_until {
            return Err(DiskError::Fails);
        }
        let there = self.checkpoints.values().filter(|file| file.is_whole && !file.is_removed);
        kept.checkpoints = there.map(|file| file.state).collect();
        (kept.n_records, kept.report) = (self.records.len(), self.report);
        Ok(())
    }

    /// The disk is gone for good, and another has the copy of the folder; false if there is none.
    pub(crate) fn lose(&mut self) -> bool {
        let Some(kept) = self.kept.clone() else { return false };
        let file = |state| File { state, is_whole: true, is_synced: true, is_name_synced: true, is_removed: false };
        self.checkpoints = kept.checkpoints.iter().map(|state| (state.step, file(*state))).collect();
        self.draft = None;
        self.records.truncate(kept.n_records);
        (self.n_synced, self.report) = (self.records.len(), kept.report);
        true
    }

    /// Adds the record of a step.
    pub(crate) fn record(&mut self, step: u64, now: Duration) -> Result<(), DiskError> {
        self.has_room(now)?;
        self.records.push(step);
        Ok(())
    }

    /// Writes the report.
    pub(crate) fn report(&mut self, digest: u64, now: Duration) -> Result<(), DiskError> {
        if now < self.faults.fails_until {
            return Err(DiskError::Fails);
        }
        self.has_room(now)?;
        self.report = Some(digest);
        self.keep(now)
    }

    fn has_room(&mut self, now: Duration) -> Result<(), DiskError> {
        if now < self.faults.is_full_until {
            self.was_full = true;
            return Err(DiskError::Full);
        }
        Ok(())
    }

    /// Steps of the checkpoints.
    pub(crate) fn steps(&self) -> Vec<u64> {
        self.checkpoints.iter().filter(|(_, file)| !file.is_removed).map(|(step, _)| *step).collect()
    }

    /// The power is gone: what was not synced is lost, torn or there.
    pub(crate) fn lose_power(&mut self) {
        self.draft = None;
        let draws = &mut self.draws;
        // A removal that was not synced may not have happened.
        self.checkpoints.retain(|_, file| match file.is_removed {
            true => draws.in_percent(50),
            false => file.is_name_synced || draws.in_percent(50),
        });
        for file in self.checkpoints.values_mut() {
            file.is_removed = false;
            if !file.is_synced {
                file.is_whole = draws.in_percent(30);
            }
        }
        let n_unsynced = (self.records.len() - self.n_synced) as u64;
        let n_kept = self.n_synced + draws.from(0, n_unsynced) as usize;
        self.records.truncate(n_kept);
        self.n_synced = self.n_synced.min(n_kept);
    }

    /// The state to go on from, without later records; `None` if checkpoints are there and none can be used. `passed_over` is
    /// the number of those that cannot.
    pub(crate) fn resume(&mut self, passed_over: &mut u64) -> Option<State> {
        let (mut resuming, mut action) = Resuming::new(self.steps());
        let mut state = State::default();
        while let Action::Read { step } = action {
            let file = &self.checkpoints[&step];
            let is_usable = file.is_whole && self.records.len() as u64 >= step;
            *passed_over += u64::from(!is_usable);
            state = file.state;
            action = resuming.read(is_usable);
        }
        match action {
            Action::GiveUp => return None,
            Action::Begin => state = State::default(),
            _ => {}
        }
        self.records.retain(|step| *step < state.step);
        self.n_synced = self.n_synced.min(self.records.len());
        Some(state)
    }

    /// Progress of the run, as the launcher sees it.
    pub(crate) fn reached(&self) -> u64 {
        let newest = self.steps().last().map_or(0, |step| step + 1);
        newest + u64::from(self.report.is_some())
    }
}
