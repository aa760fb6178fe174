//! Saving a checkpoint, by rank 0. An acknowledged checkpoint survives a crash or a loss of power at any moment.

/// Operation on the run folder. Results of `SyncRecords`, `Publish` and `Keep` survive a loss of power before the next operation begins;
/// removals may come undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sync the records of all steps so far: the checkpoint counts on them.
    SyncRecords,
    /// Write the checkpoint, whole or not at all.
    Publish {
        /// Steps before it.
        step: u64,
    },
    /// List the checkpoints, then call [`Saving::listed`].
    List,
    /// Remove the checkpoint of a step.
    Remove {
        /// The step.
        step: u64,
    },
    /// Remove drafts that killed processes of the run left.
    RemoveDrafts,
    /// Bring the second copy of the folder up to date, if there is one.
    Keep,
    /// The checkpoint is saved: say so.
    Acknowledge {
        /// Steps before it.
        step: u64,
    },
}

/// One checkpoint on its way to the disk. An operation that fails ends it.
#[derive(Debug)]
pub struct Saving {
    step: u64,
    n_kept: usize,
    next: Next,
    /// Checkpoints to remove, the oldest last.
    old: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Next {
    SyncRecords,
    Publish,
    List,
    Remove,
    Keep,
    Acknowledge,
    Over,
}

impl Saving {
    /// A checkpoint after `step` steps; the newest `n_kept` stay, this one among them.
    pub fn new(step: u64, n_kept: usize) -> Saving {
        Saving { step, n_kept: n_kept.max(1), next: Next::SyncRecords, old: Vec::new() }
    }

    /// The next operation, once the one before has succeeded; `None` after the last.
    pub fn next_action(&mut self) -> Option<Action> {
        let step = self.step;
        let (action, next) = match self.next {
            Next::SyncRecords => (Action::SyncRecords, Next::Publish),
            Next::Publish => (Action::Publish { step }, Next::List),
            Next::List => (Action::List, Next::Remove),
            Next::Remove => match self.old.pop() {
                Some(step) => (Action::Remove { step }, Next::Remove),
                None => (Action::RemoveDrafts, Next::Keep),
            },
            Next::Keep => (Action::Keep, Next::Acknowledge),
            Next::Acknowledge => (Action::Acknowledge { step }, Next::Over),
            Next::Over => return None,
        };
        self.next = next;
        Some(action)
    }

    /// Checkpoints of the folder, in any order. No running process wrote a later one than this: it is damaged, and was
    /// passed over when the run resumed.
    pub fn listed(&mut self, steps: impl IntoIterator<Item = u64>) {
        let mut steps: Vec<u64> = steps.into_iter().filter(|step| *step <= self.step).collect();
        steps.sort_unstable_by_key(|step| std::cmp::Reverse(*step));
        self.old = steps.split_off(self.n_kept.min(steps.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations that save a checkpoint in a folder with these.
    fn operations(step: u64, n_kept: usize, there: &[u64]) -> Vec<Action> {
        let (mut saving, mut actions) = (Saving::new(step, n_kept), Vec::new());
        while let Some(action) = saving.next_action() {
            if action == Action::List {
                saving.listed(there.iter().copied());
            }
            actions.push(action);
        }
        actions
    }

    #[test]
    fn a_checkpoint_is_acknowledged_after_everything_that_it_counts_on() {
        use Action::*;
        let expected = [SyncRecords, Publish { step: 6 }, List, RemoveDrafts, Keep, Acknowledge { step: 6 }];
        assert_eq!(operations(6, 2, &[6, 4]), expected);
    }

    #[test]
    fn the_oldest_checkpoints_are_removed_first_and_none_that_is_newer() {
        let removed = |n_kept, there: &[u64]| -> Vec<u64> {
            let of = |action| if let Action::Remove { step } = action { Some(step) } else { None };
            operations(20, n_kept, there).into_iter().filter_map(of).collect()
        };
        assert_eq!(removed(2, &[10, 20, 5, 15]), [5, 10]);
        assert_eq!(removed(2, &[30, 20, 15, 5]), [5], "a newer one counts for nothing");
        assert_eq!(removed(9, &[5, 10, 15, 20]), [0; 0]);
        assert_eq!(removed(0, &[15, 20]), [15], "the new one always stays");
    }
}
