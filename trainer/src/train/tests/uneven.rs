//! Ranks of different speed: slices move to the faster one, and nothing else changes.

use std::{thread::sleep, time::Duration};

use kith_client::{ClientError, FetchedRows, Info, RowCounts, Shards};
use kith_sampler::{Direction, Drawn, Hop, Seeds};
use kith_store::SplitPart;

use super::{
    batches::{batch_input, load},
    *,
};
use crate::data::{BatchInput, slices::WINDOW};

/// A graph on a disk that takes its time for the features of every slice.
struct Slow {
    shards: Arc<dyn Shards>,
    delay: Duration,
}

impl Shards for Slow {
    fn info(&self) -> &Info {
        self.shards.info()
    }

    fn seeds(&self, split: Option<&str>, part: SplitPart) -> Result<Seeds, ClientError> {
        self.shards.seeds(split, part)
    }

    fn sample_hop(&self, hop: &Hop, frontier: &[u64], drawn: &mut Drawn) -> Result<(), ClientError> {
        self.shards.sample_hop(hop, frontier, drawn)
    }

    fn fetch_features(&self, nodes: &[u64], rows: &mut FetchedRows) -> Result<RowCounts, ClientError> {
        sleep(self.delay);
        self.shards.fetch_features(nodes, rows)
    }

    fn has_edges(&self, pairs: &[(u64, u64)], direction: Direction, found: &mut [bool]) -> Result<(), ClientError> {
        self.shards.has_edges(pairs, direction, found)
    }
}

/// 16 epochs of 13 steps of four slices.
const MANY_STEPS: [&str; 9] = [
    "early_stop=off",
    "train.mode=mini-batch",
    "train.fanouts=[4, 3]",
    "train.batch_size=4",
    "train.slices=4",
    "train.epochs=16",
    "train.evaluate_every=8",
    "train.checkpoint_every=100",
    "train.checkpoint_every_steps=50",
];

const N_STEPS: u64 = 16 * 13;

/// Records of a run up to a step, on two ranks of which the second is slow.
fn on_uneven_ranks(config: &RunConfig, dir: &Path, resume: bool, n_steps: u64) -> Vec<StepRecord> {
    let data = load(config);
    let slow = |rank: usize| {
        let input = batch_input(&data);
        let delay = Duration::from_millis(12 * rank as u64);
        Data::Batches(BatchInput {
            shards: Arc::new(Slow { shards: Arc::clone(&input.shards), delay }),
            ..input.clone()
        })
    };
    let mut found = on_worlds(2, |world| {
        let (data, out) = (slow(world.rank()), Some(dir).filter(|_| world.rank() == 0));
        let mut records = Vec::new();
        let mut run = Run::new(plan(&data, config.clone(), out, resume), world).unwrap();
        train(&mut run, |record| {
            records.push(record.clone());
            if record.step + 1 == n_steps { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        records
    });
    let first = found.swap_remove(0);
    let slices = |records: &[StepRecord]| records.iter().map(|record| record.slices.clone()).collect::<Vec<_>>();
    assert_eq!(slices(&first), slices(&found[0]), "ranks agree on the division");
    assert_eq!(losses_of(&first), losses_of(&found[0]), "ranks agree on the losses");
    first
}

/// Values of every step that must not change.
fn bits_of(records: &[StepRecord]) -> Vec<(u64, u64, Vec<String>, u64, u64)> {
    let of = |record: &StepRecord| {
        (record.step, record.loss.to_bits(), record.digests.clone(), record.n_seeds, record.n_edges)
    };
    records.iter().map(of).collect()
}

/// Steps from which slices are divided anew.
fn changes(records: &[StepRecord]) -> Vec<(u64, Vec<usize>)> {
    let changed = records.iter().filter(|record| !record.slices.is_empty());
    changed.map(|record| (record.step, record.slices.clone())).collect()
}

#[test]
fn slices_move_to_faster_ranks_and_no_bit_changes() {
    let temp = tempfile::tempdir().unwrap();
    let [alone, whole, killed] = ["alone", "whole", "killed"].map(|name| temp.path().join(name));
    let config = config(&MANY_STEPS);
    let expected = to_the_end(plan(&load(&config), config.clone(), Some(&alone), false));
    assert!(expected.iter().all(|record| record.slices.is_empty()), "one rank has all slices");

    let found = on_uneven_ranks(&config, &whole, false, N_STEPS + 1);
    // On a busy machine, the difference between the ranks may show a window later.
    let moved = changes(&found);
    let windows = [2 * WINDOW, 3 * WINDOW];
    assert_eq!(moved[0], (0, vec![2, 2]));
    assert!(moved.len() > 1 && windows.contains(&moved[1].0) && moved[1].1 == [3, 1], "{moved:?}");
    assert_eq!(bits_of(&found), bits_of(&expected));
    let weights = |dir: &Path| left_behind(dir).2;
    assert!(weights(&whole) == weights(&alone), "the same checkpoint");

    // After slices have moved, from a checkpoint of before.
    on_uneven_ranks(&config, &killed, false, moved[1].0 + 6);
    let resumed = on_uneven_ranks(&config, &killed, true, N_STEPS + 1);
    let first = resumed[0].step;
    assert!((100..moved[1].0).contains(&first), "resumed at step {first}");
    assert_eq!(changes(&resumed), [(first, vec![2, 2])], "a resumed run begins evenly");
    assert_eq!(bits_of(&resumed), bits_of(&expected[first as usize..]));
    assert!(weights(&killed) == weights(&alone), "the same checkpoint after a kill");
}

/// All-reduce adds the gradients of each rank's slices first: borders decide the last digits, and stay.
#[test]
fn slices_stay_where_their_sums_depend_on_ranks() {
    let config = config(&[&MANY_STEPS[..5], &["train.deterministic=false", "train.epochs=1"]].concat());
    let data = load(&config);
    let slices = on_worlds(2, |world| {
        let mut seen = Vec::new();
        let mut run = Run::new(plan(&data, config.clone(), None, false), world).unwrap();
        train(&mut run, |record| {
            seen.push(record.slices.clone());
            ControlFlow::Continue(())
        })
        .unwrap();
        seen
    });
    assert_eq!(slices, vec![vec![Vec::<usize>::new(); 13]; 2]);
}
