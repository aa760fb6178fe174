//! Seed nodes of a split, with their labels.

use kith_store::{Graph, LabelKind, Shard, Split, SplitPart, StoreError};

/// Why there are no seeds.
#[derive(Debug, thiserror::Error)]
pub enum SeedsError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store has no labels.
    #[error("the store has no labels: import it with --labels")]
    NoLabels,
    /// The store has no splits.
    #[error("the store has no split: import it with --split")]
    NoSplit,
    /// A split that the store does not have.
    #[error("there is no split named {name}; there are {}", available.join(", "))]
    UnknownSplit {
        /// The name asked for.
        name: String,
        /// Names there are.
        available: Vec<String>,
    },
    /// A seed without a class cannot be learned from.
    #[error("node {node} is a seed but has no label")]
    Unlabeled {
        /// The node.
        node: u64,
    },
}

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
    /// Numbers to predict.
    Numbers {
        /// Numbers of a node.
        width: usize,
        /// The numbers of each node, NaN for none.
        values: Vec<f32>,
    },
}

impl Seeds {
    /// Nodes in ascending order, and the label of each.
    pub fn new(ids: Vec<u64>, labels: Labels) -> Result<Seeds, SeedsError> {
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "seeds ascend");
        let n_labels = match &labels {
            Labels::Classes(classes) => classes.len(),
            Labels::Bits { n_classes, bits } => bits.len() / (*n_classes).max(1),
            Labels::Numbers { width, values } => values.len() / (*width).max(1),
        };
        assert_eq!(n_labels, ids.len(), "one label per seed");
        match (0..ids.len()).find(|place| !labels.has_label(*place)) {
            Some(place) => Err(SeedsError::Unlabeled { node: ids[place] }),
            None => Ok(Seeds { ids, labels }),
        }
    }

    /// The labeled nodes of one part of a split of a store, its first split if none is named. A node of a part that is
    /// trained on or measured must have a label; of the nodes in no part, those without one are left out.
    pub fn of_store(graph: &Graph, split: Option<&str>, part: SplitPart) -> Result<Seeds, SeedsError> {
        Seeds::read((0..graph.n_nodes()).zip(0..), graph.labels(), graph.splits(), (split, part))
    }

    /// The same of the nodes that a shard owns.
    pub fn of_shard(shard: &Shard, split: Option<&str>, part: SplitPart) -> Result<Seeds, SeedsError> {
        Seeds::read((0..).zip(shard.nodes()), shard.labels(), shard.splits(), (split, part))
    }

    /// The same of some nodes of a shard: the first `n_nodes` that it owns from `from` on. Also gives the node from which
    /// the next ones follow, if there are any.
    pub fn of_shard_from(
        shard: &Shard,
        (split, part): (Option<&str>, SplitPart),
        from: u64,
        n_nodes: usize,
    ) -> Result<(Seeds, Option<u64>), SeedsError> {
        let mut nodes = nodes_from(shard, from);
        let rows: Vec<(u64, u64)> = nodes.by_ref().take(n_nodes).collect();
        let next = nodes.next().map(|(_, node)| node);
        drop(nodes);
        Ok((Seeds::read(rows.into_iter(), shard.labels(), shard.splits(), (split, part))?, next))
    }

    fn read(
        nodes: impl Iterator<Item = (u64, u64)>,
        labels: Option<&kith_store::Labels>,
        splits: &[Split],
        (split, part): (Option<&str>, SplitPart),
    ) -> Result<Seeds, SeedsError> {
        let first = splits.first().ok_or(SeedsError::NoSplit)?;
        let split = match split {
            None => first,
            Some(name) => splits.iter().find(|split| split.name() == name).ok_or_else(|| SeedsError::UnknownSplit {
                name: name.to_owned(),
                available: splits.iter().map(|split| split.name().to_owned()).collect(),
            })?,
        };
        let labels = labels.ok_or(SeedsError::NoLabels)?;
        let n_classes = labels.n_classes() as usize;
        let mut ids = Vec::new();
        let (mut classes, mut bits, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (row, node) in nodes {
            if split.part(row)? != part {
                continue;
            }
            let has_label = match labels.kind() {
                LabelKind::MultiLabel => {
                    let words = labels.bits(row)?;
                    bits.extend((0..n_classes).map(|class| words[class / 64] >> (class % 64) & 1 == 1));
                    true
                }
                LabelKind::Classes => {
                    let class = labels.class(row)?;
                    classes.extend(class.map(i64::from));
                    class.is_some()
                }
                LabelKind::Targets => {
                    let numbers = labels.numbers(row)?;
                    let has_numbers = numbers.iter().all(|number| !number.is_nan());
                    values.extend_from_slice(if has_numbers { numbers } else { &[] });
                    has_numbers
                }
            };
            match has_label {
                true => {}
                false if part == SplitPart::None => continue,
                false => return Err(SeedsError::Unlabeled { node }),
            }
            ids.push(node);
        }
        let labels = match labels.kind() {
            LabelKind::Classes => Labels::Classes(classes),
            LabelKind::MultiLabel => Labels::Bits { n_classes, bits },
            LabelKind::Targets => Labels::Numbers { width: n_classes, values },
        };
        Seeds::new(ids, labels)
    }

    /// Their ids, ascending.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Their labels, in the same order.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Their labels, to be changed.
    pub fn labels_mut(&mut self) -> &mut Labels {
        &mut self.labels
    }

    /// Number of seed nodes.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True if there are no seed nodes.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Those at some positions, in ascending order.
    pub fn pick(&self, positions: &[usize]) -> Seeds {
        let mut labels = self.labels.unlabeled(positions.len());
        for (to, from) in positions.iter().enumerate() {
            labels.copy(to, &self.labels, *from);
        }
        Seeds { ids: positions.iter().map(|position| self.ids[*position]).collect(), labels }
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

/// The row and the id of each node of a shard from `from` on.
fn nodes_from(shard: &Shard, from: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let n_bits = u64::from(u64::BITS);
    let words = (from / n_bits * n_bits..shard.n_graph_nodes()).step_by(n_bits as usize);
    words.flat_map(move |first| {
        let word = shard.place_of(first).copied().unwrap_or(0);
        let bits = (0..n_bits).filter(move |bit| word >> bit & 1 == 1 && first + bit >= from);
        bits.filter_map(move |bit| Some((shard.row_of(first + bit).ok()?, first + bit)))
    })
}

impl Labels {
    /// Labels of the same kind for `n` nodes that have none yet.
    pub fn unlabeled(&self, n: usize) -> Labels {
        match self {
            Labels::Classes(_) => Labels::Classes(vec![-1; n]),
            Labels::Bits { n_classes, .. } => Labels::Bits { n_classes: *n_classes, bits: vec![false; n * n_classes] },
            Labels::Numbers { width, .. } => Labels::Numbers { width: *width, values: vec![f32::NAN; n * width] },
        }
    }

    /// True if the node at a position has a label; with several classes per node, each has one.
    pub fn has_label(&self, position: usize) -> bool {
        match self {
            Labels::Classes(classes) => classes[position] >= 0,
            Labels::Bits { .. } => true,
            Labels::Numbers { width, values } => {
                values[position * width..][..*width].iter().all(|value| !value.is_nan())
            }
        }
    }

    /// Gives the node at `position` the label of another's `place`; both must be of one kind.
    pub fn copy(&mut self, position: usize, other: &Labels, place: usize) {
        match (self, other) {
            (Labels::Classes(own), Labels::Classes(other)) => own[position] = other[place],
            (Labels::Bits { n_classes, bits: own }, Labels::Bits { bits: other, .. }) => {
                let n = *n_classes;
                own[position * n..][..n].copy_from_slice(&other[place * n..][..n]);
            }
            (Labels::Numbers { width, values: own }, Labels::Numbers { values: other, .. }) => {
                let n = *width;
                own[position * n..][..n].copy_from_slice(&other[place * n..][..n]);
            }
            _ => unreachable!("all labels of a store are of one kind"),
        }
    }
}
