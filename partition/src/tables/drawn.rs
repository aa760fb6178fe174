//! Random split by numbers of nodes per class, for any number of nodes.

use kith_store::{NO_CLASS, SplitPart};

use crate::{
    PartitionError, Result,
    csr::{Budget, Digits, Sorter},
    split::{PerClass, per_class_stream},
    tables::{
        scratch::{Scratch, ScratchWriter},
        staged_labels::StagedLabels,
    },
};

/// Keys of a sort: a class, what a node draws, and the node.
const NODE_BITS: u32 = 40;
const DRAW_BITS: u32 = 64;
const CLASS_BITS: u32 = 24;
const PART_BITS: u32 = 2;

/// Of each class the nodes with the smallest draws train, the next choose, the next test.
pub(super) fn parts_per_class(
    labels: Option<&StagedLabels>,
    per_class: PerClass,
    run_key: u64,
    budget: &Budget,
) -> Result<Scratch<u8>> {
    let refuse = |problem: &str| PartitionError::Option(format!("--split per class: {problem}"));
    let labels = labels.ok_or_else(|| refuse("the nodes have no labels"))?;
    let (n_classes, n_nodes) = labels.n_classes().ok_or_else(|| refuse("nodes have several classes each"))?;
    if n_classes > 1 << CLASS_BITS {
        return Err(refuse("there are more than 2^24 classes"));
    }

    let by_draw: Sorter<'_, u128> = Sorter::new(budget, Digits::new(0, NODE_BITS + DRAW_BITS + CLASS_BITS));
    let mut feeder = by_draw.feeder();
    let stream = per_class_stream(run_key);
    let mut classes = vec![0; 1 << 16];
    for first in (0..n_nodes).step_by(classes.len()) {
        let n = classes.len().min((n_nodes - first) as usize);
        labels.read_classes(first, &mut classes[..n])?;
        for (node, class) in (first..).zip(&classes[..n]).filter(|(_, class)| **class != NO_CLASS) {
            let draw = stream.draws(node, 0, 0).double_word();
            let drawn = u128::from(*class) << DRAW_BITS | u128::from(draw);
            feeder.push(drawn << NODE_BITS | u128::from(node))?;
        }
    }
    feeder.finish()?;

    let by_node: Sorter<'_, u64> = Sorter::new(budget, Digits::new(PART_BITS, PART_BITS + NODE_BITS));
    let mut feeder = by_node.feeder();
    let (mut last, mut n_before) = (None, 0);
    by_draw.finish(&mut |keys: &[u128]| {
        keys.iter().try_for_each(|key| {
            let class = key >> (NODE_BITS + DRAW_BITS);
            n_before = if last.replace(class) == Some(class) { n_before + 1 } else { 0 };
            let node = (key & ((1 << NODE_BITS) - 1)) as u64;
            feeder.push(node << PART_BITS | per_class.part(n_before) as u64)
        })
    })?;
    feeder.finish()?;

    let mut parts = ScratchWriter::create(budget)?;
    by_node.finish(&mut |keys: &[u64]| {
        keys.iter().try_for_each(|key| {
            while parts.n_items() < key >> PART_BITS {
                parts.push(SplitPart::None as u8)?;
            }
            parts.push((key & ((1 << PART_BITS) - 1)) as u8)
        })
    })?;
    while parts.n_items() < n_nodes {
        parts.push(SplitPart::None as u8)?;
    }
    parts.finish()
}
