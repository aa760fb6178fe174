//! Split of a generated graph by numbers of nodes per class. Takes no memory, because classes are computed.

use kith_draw::{Name, Permutation, Purpose, Stream};
use kith_store::SplitPart;

use crate::split::PerClass;

/// The layer of these names; `crate::split` has 0 and 1.
const LAYER: u32 = 2;

/// A split by numbers of each class, drawn without replacement: the first places of a keyed order of the class.
#[derive(Clone, Copy, Debug)]
pub(super) struct PerClassSplit {
    stream: Stream,
    n_per_class: u64,
    sizes: PerClass,
}

impl PerClassSplit {
    pub(super) fn new(run_key: u64, n_per_class: u64, sizes: PerClass) -> PerClassSplit {
        let stream = Name { run_key, purpose: Purpose::Split, step: 0, layer: LAYER }.stream();
        PerClassSplit { stream, n_per_class, sizes }
    }

    /// The part of the `place`-th node of a class.
    pub(super) fn part(&self, class: u64, place: u64) -> SplitPart {
        let order = Permutation::new(self.stream, class, self.n_per_class);
        self.sizes.part(order.at(place))
    }
}
