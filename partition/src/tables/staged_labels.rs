//! Labels that were read, in the order of the nodes, on their way into a store.

use kith_store::NO_CLASS;

use crate::{
    PartitionError, Result,
    csr::StoreBuilder,
    tables::{npy::NpyRows, scratch::Scratch},
};

/// Labels in the order of the nodes.
#[derive(Debug)]
pub(super) enum StagedLabels {
    Classes {
        n_classes: u64,
        n_labeled: u64,
        /// The class of each node; of classes with names, by the order in which they were met.
        by_node: Scratch<u32>,
        class_of_met: Vec<u32>,
        names: Vec<String>,
    },
    Bits {
        n_classes: u64,
        arrays: Vec<NpyRows>,
    },
}

impl StagedLabels {
    /// Writes the labels of every node.
    pub(super) fn write(&self, builder: &mut StoreBuilder<'_>) -> Result<()> {
        match self {
            StagedLabels::Classes { n_classes, n_labeled, names, .. } => {
                let provenance = builder.provenance();
                provenance.counted.insert("labeled_nodes".into(), *n_labeled);
                if !names.is_empty() {
                    if names.iter().all(|name| name.parse::<f64>().is_ok_and(f64::is_finite)) {
                        let note = "every different number in --labels is a class: for numbers to predict (regression), use --targets";
                        provenance.notes.push(note.to_owned());
                    }
                    let names = serde_json::to_string(names).expect("texts always become json");
                    provenance.options.insert("class_names".into(), names);
                }
                builder.classes(*n_classes, |first, classes| self.read_classes(first, classes))
            }
            StagedLabels::Bits { n_classes, arrays } => {
                builder.label_bits_by(*n_classes, |first, words| read_bits(arrays, *n_classes, first, words))
            }
        }
    }

    /// Numbers of classes and nodes; `None` for multi-label.
    pub(super) fn n_classes(&self) -> Option<(u64, u64)> {
        match self {
            StagedLabels::Classes { n_classes, by_node, .. } => Some((*n_classes, by_node.n_items())),
            StagedLabels::Bits { .. } => None,
        }
    }

    /// The classes of the nodes from `first` on.
    pub(super) fn read_classes(&self, first: u64, classes: &mut [u32]) -> Result<()> {
        let StagedLabels::Classes { by_node, class_of_met, .. } = self else { return Ok(()) };
        by_node.read(first, classes)?;
        if !class_of_met.is_empty() {
            for class in classes.iter_mut().filter(|class| **class != NO_CLASS) {
                *class = class_of_met[*class as usize];
            }
        }
        Ok(())
    }
}

/// Packs rows of 0 and 1 into words.
fn read_bits(arrays: &[NpyRows], n_classes: u64, first: u64, words: &mut [u64]) -> Result<()> {
    let n_words = n_classes.div_ceil(64).max(1) as usize;
    let mut values = Vec::<f32>::new();
    let mut start = 0;
    for array in arrays {
        let end = start + array.n_rows;
        for (node, words) in (first..).zip(words.chunks_exact_mut(n_words)) {
            if !(start..end).contains(&node) {
                continue;
            }
            array.read(node - start, 1, &mut values)?;
            for (class, value) in values.iter().enumerate() {
                match *value {
                    0.0 => {}
                    1.0 => words[class / 64] |= 1 << (class % 64),
                    other => {
                        let problem = format!("{other} for class {class} is neither 0 nor 1");
                        return Err(PartitionError::input(&array.path, format!("row {}", node - start), problem));
                    }
                }
            }
        }
        start = end;
    }
    Ok(())
}
