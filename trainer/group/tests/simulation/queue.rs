//! Virtual time: events in the order of their times; of equal times, in the order in which they were added.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

/// Events to come.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    times: BinaryHeap<Reverse<(Duration, u64)>>,
    events: BTreeMap<u64, E>,
    n_added: u64,
}

impl<E> Queue<E> {
    /// Nothing will happen.
    pub(crate) fn new() -> Queue<E> {
        Queue { times: BinaryHeap::new(), events: BTreeMap::new(), n_added: 0 }
    }

    /// Adds an event.
    pub(crate) fn add(&mut self, at: Duration, event: E) {
        self.times.push(Reverse((at, self.n_added)));
        self.events.insert(self.n_added, event);
        self.n_added += 1;
    }

    /// The next event and its time.
    pub(crate) fn next(&mut self) -> Option<(Duration, E)> {
        let Reverse((at, number)) = self.times.pop()?;
        Some((at, self.events.remove(&number).expect("every time has its event")))
    }
}
