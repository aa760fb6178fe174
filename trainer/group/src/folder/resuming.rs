//! The checkpoint from which a run resumes: the newest that is whole and whose steps are all recorded.

/// Next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the checkpoint of a step, then call [`Resuming::read`].
    Read {
        /// The step.
        step: u64,
    },
    /// Go on from the checkpoint of a step, without the records that came later.
    Resume {
        /// The step.
        step: u64,
    },
    /// There is no checkpoint: begin.
    Begin,
    /// There are checkpoints, and none can be used.
    GiveUp,
}

/// Search for a checkpoint, the newest first.
#[derive(Debug)]
pub struct Resuming {
    /// Checkpoints that were not read yet, the newest last.
    steps: Vec<u64>,
    reading: Option<u64>,
}

impl Resuming {
    /// A search among the checkpoints of a folder, in any order.
    pub fn new(steps: impl IntoIterator<Item = u64>) -> (Resuming, Action) {
        let mut steps: Vec<u64> = steps.into_iter().collect();
        steps.sort_unstable();
        let mut resuming = Resuming { steps, reading: None };
        let action = resuming.next().unwrap_or(Action::Begin);
        (resuming, action)
    }

    /// The checkpoint was read. It can be used if it is whole, and if all its steps are recorded.
    pub fn read(&mut self, is_usable: bool) -> Action {
        match self.reading {
            Some(step) if is_usable => Action::Resume { step },
            _ => self.next().unwrap_or(Action::GiveUp),
        }
    }

    fn next(&mut self) -> Option<Action> {
        self.reading = self.steps.pop();
        self.reading.map(|step| Action::Read { step })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_usable_checkpoint_is_resumed() {
        let (mut resuming, first) = Resuming::new([4, 8, 6]);
        assert_eq!(first, Action::Read { step: 8 });
        assert_eq!(resuming.read(false), Action::Read { step: 6 });
        assert_eq!(resuming.read(true), Action::Resume { step: 6 });
    }

    #[test]
    fn a_run_begins_only_without_checkpoints() {
        assert_eq!(Resuming::new([]).1, Action::Begin);
        let (mut resuming, first) = Resuming::new([4]);
        assert_eq!((first, resuming.read(false)), (Action::Read { step: 4 }, Action::GiveUp));
    }
}
