//! Division of a step's slices among ranks. It does not affect results.
//!
//! It may follow the ranks' times: after every window of steps, all ranks compute from the times of that window, which they have heard
//! from each other, how many slices each rank takes from the window after the next on. So they agree, and no rank samples
//! a step before it knows the division.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    ops::Range,
    sync::{Mutex, MutexGuard},
};

use kith_run::{clock::Phases, phase::Phase, slices::refusal};

use crate::distributed::world::WorldError;

/// Steps of a window. Mini-batches are prepared at most that many steps ahead.
pub(crate) const WINDOW: u64 = 64;

/// Slices move if the slowest rank's time is expected to be less than this share of what it is, in percent.
const WORTH_MOVING: u128 = 95;

/// Slices of each rank: those of a rank are side by side, in the order of ranks.
#[derive(Debug)]
pub(crate) struct Division {
    rank: usize,
    /// As many on each rank, but for one.
    even: Vec<usize>,
    /// `None` if it stays even.
    course: Option<Mutex<Course>>,
}

/// Divisions that follow each other.
#[derive(Debug)]
struct Course {
    /// Step of the first window.
    first: u64,
    /// Windows whose division is known.
    n_known: u64,
    /// Slices of each rank, from a window on.
    changes: Vec<(u64, Vec<usize>)>,
    /// Time of each rank since the window began, in microseconds, and the number of steps.
    micros: Vec<u64>,
    n_steps: u64,
    /// Time of each rank for a slice in the windows so far, in nanoseconds.
    costs: Option<Vec<u64>>,
}

impl Division {
    /// An even division. With `moves_from`, the first step of this process, it follows the ranks' times.
    pub(crate) fn new((rank, n_ranks): (usize, usize), n_slices: usize, moves_from: Option<u64>) -> Division {
        let even: Vec<usize> = (0..n_ranks).map(|rank| evenly(rank, n_ranks, n_slices).len()).collect();
        // Where every rank has one slice, none can move.
        let moves_from = moves_from.filter(|_| n_ranks > 1 && n_slices > n_ranks);
        let course = moves_from.map(|first| {
            Mutex::new(Course {
                first,
                n_known: 2,
                changes: vec![(0, even.clone())],
                micros: vec![0; n_ranks],
                n_steps: 0,
                costs: None,
            })
        });
        Division { rank, even, course }
    }

    /// Slices of every step.
    pub(crate) fn n_slices(&self) -> usize {
        self.even.iter().sum()
    }

    /// The number of slices of each rank in a step.
    pub(crate) fn counts(&self, step: u64) -> Vec<usize> {
        let Some(course) = self.course() else { return self.even.clone() };
        let window = course.window(step);
        let (n_known, counts) = (course.n_known, course.counts(window).to_vec());
        drop(course);
        assert!(window < n_known, "step {step} is looked at before its slices are divided");
        counts
    }

    /// The slices of a step that this rank computes.
    pub(crate) fn own(&self, step: u64) -> Range<usize> {
        let counts = self.counts(step);
        let start = counts[..self.rank].iter().sum();
        start..start + counts[self.rank]
    }

    /// Slices that this rank may prepare while a step is computed: at least as many as steps.
    pub(crate) fn n_ahead(&self) -> usize {
        if self.course.is_some() { WINDOW as usize } else { usize::MAX }
    }

    /// Records the times of all ranks in a step that all of them have done.
    pub(crate) fn hear(&self, step: u64, phases: &[Phases]) {
        if let Some(mut course) = self.course() {
            course.hear(step, phases);
        }
    }

    /// The number of slices of each rank from this step on, if they move; also at the first step. Empty if they never move.
    pub(crate) fn change(&self, step: u64) -> Vec<usize> {
        let Some(course) = self.course() else { return Vec::new() };
        let begins = |(window, _): &&(u64, Vec<usize>)| course.first + window * WINDOW == step;
        course.changes.iter().rev().find(begins).map_or(Vec::new(), |(_, counts)| counts.clone())
    }

    fn course(&self) -> Option<MutexGuard<'_, Course>> {
        self.course.as_ref().map(|course| course.lock().expect("nobody panics here"))
    }
}

impl Course {
    fn window(&self, step: u64) -> u64 {
        (step - self.first) / WINDOW
    }

    fn counts(&self, window: u64) -> &[usize] {
        let known = self.changes.iter().rev().find(|(first, _)| *first <= window);
        known.map_or(&[], |(_, counts)| counts)
    }

    fn hear(&mut self, step: u64, phases: &[Phases]) {
        // The first step of a process waits for what is slow once.
        if step > self.first {
            let of_slices = |phases: &Phases| phases.of(Phase::Sample) + phases.of(Phase::Compute);
            self.micros.iter_mut().zip(phases).for_each(|(sum, phases)| *sum += of_slices(phases));
            self.n_steps += 1;
        }
        let window = self.window(step);
        if window == self.window(step + 1) {
            return;
        }
        let (n_ranks, n_steps) = (self.micros.len(), std::mem::take(&mut self.n_steps));
        let micros = std::mem::replace(&mut self.micros, vec![0; n_ranks]);
        let per_slice = |(micros, count): (u64, &usize)| (1000 * micros / (n_steps * *count as u64)).max(1);
        let found = micros.into_iter().zip(self.counts(window)).map(per_slice);
        // Half of what is known counts, so that slices do not follow every short delay.
        let costs: Vec<u64> = match &self.costs {
            None => found.collect(),
            Some(costs) => costs.iter().zip(found).map(|(before, now)| before.midpoint(now)).collect(),
        };
        let counts = self.changes.last().map_or(&[][..], |(_, counts)| counts);
        if let Some(counts) = moved(counts, &costs) {
            self.changes.push((window + 2, counts));
        }
        self.costs = Some(costs);
        self.n_known = window + 3;
    }
}

/// A better division than this one, if it is worth moving slices; `costs` is the time of each rank for a slice.
fn moved(counts: &[usize], costs: &[u64]) -> Option<Vec<usize>> {
    let best = best(counts.iter().sum(), costs);
    let is_worth_it = 100 * slowest(&best, costs) < WORTH_MOVING * slowest(counts, costs);
    is_worth_it.then_some(best)
}

/// Time of the slowest rank.
fn slowest(counts: &[usize], costs: &[u64]) -> u128 {
    counts.iter().zip(costs).map(|(count, cost)| *count as u128 * u128::from(*cost)).max().unwrap_or(0)
}

/// The division of slices, at least one for each rank, whose slowest rank is the fastest.
fn best(n_slices: usize, costs: &[u64]) -> Vec<usize> {
    let mut counts = vec![1; costs.len()];
    // Time of each rank with one slice more.
    let mut ranks: BinaryHeap<Reverse<(u64, usize)>> =
        costs.iter().enumerate().map(|(rank, cost)| Reverse((2 * cost, rank))).collect();
    for _ in costs.len()..n_slices {
        let Some(mut least) = ranks.peek_mut() else { break };
        let rank = least.0.1;
        counts[rank] += 1;
        least.0.0 += costs[rank];
    }
    counts
}

/// An even division: slice `s` belongs to rank ⌊s · ranks / slices⌋.
fn evenly(rank: usize, n_ranks: usize, n_slices: usize) -> Range<usize> {
    let first = |rank: usize| (rank * n_slices).div_ceil(n_ranks);
    first(rank)..first(rank + 1)
}

/// Refuses ranks that would have nothing to compute.
pub(crate) fn check(n_ranks: usize, n_slices: usize, is_full: bool) -> Result<(), WorldError> {
    refusal(n_ranks, n_slices, is_full).map_or(Ok(()), |sentence| Err(WorldError::Refused(sentence)))
}

#[cfg(test)]
mod tests {
    use kith_draw::{Name, Purpose};

    use super::*;

    #[test]
    fn every_slice_has_one_rank_and_every_rank_a_slice() {
        for n_slices in 1..20 {
            for n_ranks in 1..=n_slices {
                let own = |rank| Division::new((rank, n_ranks), n_slices, None).own(7);
                assert_eq!((0..n_ranks).flat_map(own).collect::<Vec<_>>(), (0..n_slices).collect::<Vec<_>>());
                for rank in 0..n_ranks {
                    let own = own(rank);
                    assert!((1..=n_slices.div_ceil(n_ranks)).contains(&own.len()), "{own:?}");
                    assert!(own.into_iter().all(|slice| slice * n_ranks / n_slices == rank));
                }
            }
        }
    }

    #[test]
    fn slow_ranks_get_fewer_slices() {
        assert_eq!(best(8, &[10, 10]), [4, 4]);
        assert_eq!(best(8, &[10, 30]), [6, 2]);
        assert_eq!(best(8, &[1000, 1]), [1, 7]);
        assert_eq!(best(3, &[5, 5, 500]), [1, 1, 1]);
        assert_eq!(best(12, &[20, 10, 10, 10]), [2, 4, 3, 3]);
        assert_eq!(moved(&[4, 4], &[10, 30]), Some(vec![6, 2]));
        assert_eq!(moved(&[5, 5], &[20, 19]), None, "any other is slower");
        assert_eq!((best(40, &[100, 89]), moved(&[20, 20], &[100, 89])), (vec![19, 21], None), "from 2000 to 1900");
        assert_eq!(moved(&[20, 20], &[100, 80]), Some(vec![18, 22]), "from 2000 to 1800");
    }

    #[test]
    fn no_division_is_better_than_the_best() {
        let mut draws = Name { run_key: 5, purpose: Purpose::Generator, step: 0, layer: 0 }.stream().draws(0, 0, 0);
        for _ in 0..300 {
            let n_ranks = 1 + draws.below(4) as usize;
            let costs: Vec<u64> = (0..n_ranks).map(|_| 1 + draws.below(40)).collect();
            let counts: Vec<usize> = (0..n_ranks).map(|_| 1 + draws.below(5) as usize).collect();
            let n_slices = counts.iter().sum();
            let found = best(n_slices, &costs);
            assert_eq!(found.iter().sum::<usize>(), n_slices);
            assert!(found.iter().all(|count| *count > 0), "{found:?}");
            // All divisions: the slices of all ranks but the last, in every combination.
            let mut all = vec![Vec::new()];
            for _ in 1..n_ranks {
                let longer = |before: Vec<usize>| (1..=n_slices).map(move |count| [&before[..], &[count]].concat());
                all = all.into_iter().flat_map(longer).collect();
            }
            for mut other in all {
                let last = n_slices.saturating_sub(other.iter().sum());
                other.push(last);
                assert!(last == 0 || slowest(&found, &costs) <= slowest(&other, &costs), "{found:?} {other:?}");
            }
            let (before, after) = (slowest(&counts, &costs), slowest(&found, &costs));
            assert_eq!(moved(&counts, &costs), (100 * after < 95 * before).then_some(found), "{counts:?} {costs:?}");
        }
    }

    /// Times of two ranks in a step, in which a slice takes so long on each.
    fn phases(counts: &[usize], micros: [u64; 2]) -> Vec<Phases> {
        let of = |(count, micros): (&usize, u64)| Phases {
            sample: 10,
            compute: *count as u64 * micros - 10,
            exchange: 12_345,
            ..Phases::default()
        };
        counts.iter().zip(micros).map(of).collect()
    }

    #[test]
    fn a_division_follows_the_times_of_the_window_before_the_last() {
        let first = 1000;
        let division = Division::new((1, 2), 8, Some(first));
        let mut seen = Vec::new();
        for step in first..first + 10 * WINDOW {
            // The first step does not count. From window 3 on, the ranks are equally fast.
            let slow = if step < first + 3 * WINDOW { 3000 } else { 1000 };
            let micros = if step == first { [10, 1_000_000] } else { [slow, 1000] };
            let change = division.change(step);
            if !change.is_empty() {
                seen.push((step - first, change));
            }
            let counts = division.counts(step);
            assert_eq!(division.own(step), counts[0]..8);
            division.hear(step, &phases(&counts, micros));
        }
        // After windows 3 to 6, a slice of rank 0 is expected to take 2000, 1500, 1250 and 1125 µs.
        let expected = [(0, [4, 4]), (2, [2, 6]), (6, [3, 5]), (8, [4, 4])];
        assert_eq!(seen, expected.map(|(window, counts)| (window * WINDOW, counts.to_vec())));
    }

    #[test]
    fn what_cannot_move_stays() {
        for (n_ranks, n_slices, moves_from) in [(1, 4, Some(0)), (3, 3, Some(0)), (2, 4, None)] {
            let division = Division::new((0, n_ranks), n_slices, moves_from);
            let even = division.counts(0);
            (0..3 * WINDOW).for_each(|step| {
                let phases = (1..=n_ranks as u64).map(|rank| Phases { compute: 1000 * rank, ..Phases::default() });
                division.hear(step, &phases.collect::<Vec<_>>());
                assert_eq!(division.change(step), Vec::<usize>::new());
            });
            assert_eq!((division.counts(1 << 40), division.n_ahead()), (even, usize::MAX));
        }
    }

    #[test]
    fn a_division_is_known_two_windows_ahead() {
        let division = Division::new((0, 2), 4, Some(7));
        for step in 7..7 + 3 * WINDOW {
            let last = step + division.n_ahead() as u64;
            assert_eq!(division.own(last).start, 0);
            let unknown = 7 + (2 + (step - 7) / WINDOW) * WINDOW;
            assert!(std::panic::catch_unwind(|| division.own(unknown)).is_err(), "{unknown} in {step}");
            division.hear(step, &phases(&division.counts(step), [20, 20]));
        }
    }
}
