//! The nodes that training learns from, with their labels.

use crate::error::{ClientError, Result};

/// Labeled nodes, by ascending id.
#[derive(Clone, Debug, PartialEq)]
pub struct Seeds {
    ids: Vec<u64>,
    labels: Labels,
}

/// Labels of some nodes, by position.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// The class of each node, −1 for none.
    Classes(Vec<i64>),
    /// Any number of classes.
    Bits {
        /// Length of a node's part.
        n_classes: usize,
        /// For each node, whether it has each class.
        bits: Vec<bool>,
    },
}

impl Seeds {
    /// Nodes in ascending order, and the label of each.
    pub fn new(ids: Vec<u64>, labels: Labels) -> Result<Seeds> {
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "seeds ascend");
        let n_labels = match &labels {
            Labels::Classes(classes) => classes.len(),
            Labels::Bits { n_classes, bits } => bits.len() / (*n_classes).max(1),
        };
        assert_eq!(n_labels, ids.len(), "one label per seed");
        if let Labels::Classes(classes) = &labels
            && let Some(place) = classes.iter().position(|class| *class < 0)
        {
            return Err(ClientError::Unlabeled { node: ids[place] });
        }
        Ok(Seeds { ids, labels })
    }

    /// Their ids, ascending.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Their labels, in the same order.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Both sets together.
    pub fn union(&self, other: &Seeds) -> Seeds {
        let mut places: Vec<(u64, &Seeds, usize)> = Vec::with_capacity(self.len() + other.len());
        for seeds in [self, other] {
            places.extend(seeds.ids.iter().enumerate().map(|(place, id)| (*id, seeds, place)));
        }
        places.sort_by_key(|(id, ..)| *id);
        places.dedup_by_key(|(id, ..)| *id);
        let mut labels = self.labels.unlabeled(places.len());
        for (position, (_, seeds, place)) in places.iter().enumerate() {
            labels.copy(position, &seeds.labels, *place);
        }
        Seeds { ids: places.into_iter().map(|(id, ..)| id).collect(), labels }
    }
}

impl Labels {
    /// Labels of the same kind for `n` nodes that have none yet.
    pub(crate) fn unlabeled(&self, n: usize) -> Labels {
        match self {
            Labels::Classes(_) => Labels::Classes(vec![-1; n]),
            Labels::Bits { n_classes, .. } => Labels::Bits { n_classes: *n_classes, bits: vec![false; n * n_classes] },
        }
    }

    /// Gives the node at `position` the label of another's `place`; both must be of one kind.
    pub(crate) fn copy(&mut self, position: usize, other: &Labels, place: usize) {
        match (self, other) {
            (Labels::Classes(own), Labels::Classes(other)) => own[position] = other[place],
            (Labels::Bits { n_classes, bits: own }, Labels::Bits { bits: other, .. }) => {
                let n = *n_classes;
                own[position * n..][..n].copy_from_slice(&other[place * n..][..n]);
            }
            _ => unreachable!("all labels of a store are of one kind"),
        }
    }
}
