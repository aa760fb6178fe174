//! Contract of every collective: checked with all ranks of a process group at once, each on a thread.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use kith_draw::{Draws, Name, Purpose};
use tch::{Device, Tensor};

use super::{Collective, Text};

/// One rank in the suite.
struct Rank<'a> {
    collective: &'a mut dyn Collective,
    rank: usize,
    n_ranks: usize,
    device: Device,
    /// Arrivals of ranks at barriers, summed over all barriers; `None` if ranks are separate processes.
    n_arrived: Option<&'a AtomicUsize>,
}

/// Checks a collective; `make` is called on the thread of each rank.
pub(crate) fn check(n_ranks: usize, device: Device, make: impl Fn(usize) -> Box<dyn Collective> + Sync) {
    let n_arrived = AtomicUsize::new(0);
    on_all_ranks(n_ranks, |rank| check_rank(&mut *make(rank), (rank, n_ranks), device, Some(&n_arrived)));
}

/// Checks the contract on one rank; all other ranks must do the same.
pub(crate) fn check_rank(
    collective: &mut dyn Collective,
    (rank, n_ranks): (usize, usize),
    device: Device,
    n_arrived: Option<&AtomicUsize>,
) {
    let mut rank = Rank { collective, rank, n_ranks, device, n_arrived };
    rank.adds();
    let sums = rank.adds_to_the_same_bits();
    rank.gathers();
    rank.folds();
    rank.counts_what_it_sends();
    rank.adds_with_texts();
    rank.shares();
    rank.sends_from_all_to_all();
    rank.broadcasts();
    rank.holds_everybody();
    rank.leaves_tensors_where_they_are();
    let mut seen = rank.runs_a_program(1000);
    seen.push(sums);
    // All ranks must have seen the same.
    let digests: Vec<u8> = seen.iter().flat_map(|bytes| crc32fast::hash(bytes).to_le_bytes()).collect();
    for (other, theirs) in rank.collective.share(&digests).unwrap().iter().enumerate() {
        let differing = theirs.chunks(4).zip(digests.chunks(4)).position(|(theirs, own)| theirs != own);
        assert_eq!(differing, None, "rank {other} saw something else than rank {} in this operation", rank.rank);
    }
}

/// Runs a function for each rank, on a thread each; what they gave, by rank.
pub(crate) fn on_all_ranks<T: Send>(n_ranks: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let results = Mutex::new((0..n_ranks).map(|_| None).collect::<Vec<Option<T>>>());
    thread::scope(|scope| {
        for rank in 0..n_ranks {
            let (run, results) = (&run, &results);
            scope.spawn(move || {
                let result = run(rank);
                results.lock().unwrap()[rank] = Some(result);
            });
        }
    });
    results.into_inner().unwrap().into_iter().map(|result| result.expect("every rank ends")).collect()
}

/// Draws that all ranks know.
fn draws(what: u64, rank: u64) -> Draws {
    Name { run_key: 5, purpose: Purpose::Generator, step: what, layer: 0 }.stream().draws(rank, 0, 0)
}

/// Numbers whose sums round.
fn floats(what: u64, rank: usize, n: usize) -> Vec<f32> {
    let mut draws = draws(what, rank as u64);
    (0..n).map(|_| (f64::from(draws.word()) / f64::from(u32::MAX) - 0.5) as f32).collect()
}

fn bytes(what: u64, rank: usize, n: usize) -> Vec<u8> {
    let mut draws = draws(what, rank as u64);
    let words = (0..n.div_ceil(4)).flat_map(|_| draws.word().to_le_bytes());
    words.take(n).collect()
}

impl Rank<'_> {
    fn tensor(&self, numbers: &[f32]) -> Tensor {
        Tensor::from_slice(numbers).to_device(self.device)
    }

    fn numbers(&self, tensor: &Tensor) -> Vec<f32> {
        assert_eq!(tensor.device(), self.device);
        Vec::try_from(tensor.to_device(Device::Cpu).reshape([-1])).unwrap()
    }

    fn bits(&self, tensor: &Tensor) -> Vec<u8> {
        self.numbers(tensor).into_iter().flat_map(f32::to_le_bytes).collect()
    }

    fn adds(&mut self) {
        for n in [0, 1, 2, self.n_ranks - 1, 97, 4096, 4097, 30_011, 1_000_003] {
            // Small integers: every order gives the same sum.
            let own: Vec<f32> = (0..n).map(|k| ((k * (self.rank + 1)) % 1000) as f32).collect();
            let expected: Vec<f32> =
                (0..n).map(|k| (0..self.n_ranks).map(|rank| ((k * (rank + 1)) % 1000) as f32).sum()).collect();
            let mut values = self.tensor(&own);
            self.collective.all_reduce(&mut values).unwrap();
            assert!(self.numbers(&values) == expected, "sums of {n} numbers");
        }
    }

    fn counts_what_it_sends(&mut self) {
        let (n, others) = (10_000, self.n_ranks as u64 - 1);
        let own = self.tensor(&floats(0, self.rank, n));
        let sent_by = |rank: &mut Self, call: &dyn Fn(&mut dyn Collective)| {
            let before = rank.collective.sent_bytes();
            call(&mut *rank.collective);
            rank.collective.sent_bytes() - before
        };
        // Data for the other ranks, and up to 1 % more for headers.
        let gathered = sent_by(self, &|collective| drop(collective.all_gather(&own).unwrap()));
        let least = others * 4 * n as u64;
        assert!((least..=least + least / 100).contains(&gathered), "{gathered} bytes for {least}");
        let reduced = sent_by(self, &|collective| collective.all_reduce(&mut own.copy()).unwrap());
        let least = 2 * least / self.n_ranks as u64;
        assert!((least - least / 1000..=least + least / 100).contains(&reduced), "{reduced} bytes for {least}");
        let folded = sent_by(self, &|collective| {
            drop(collective.fold(vec![own.copy()], &vec![1; others as usize + 1]).unwrap());
        });
        assert!(folded <= gathered + gathered / 100, "{folded} bytes, and {gathered} to gather");
    }

    fn adds_to_the_same_bits(&mut self) -> Vec<u8> {
        let mut seen = Vec::new();
        for (what, n) in [1, 1000, 100_003].into_iter().enumerate() {
            let mut values = self.tensor(&floats(what as u64, self.rank, n));
            self.collective.all_reduce(&mut values).unwrap();
            let sums = self.numbers(&values);
            let mut exact = vec![0f64; n];
            for rank in 0..self.n_ranks {
                let summands = floats(what as u64, rank, n);
                exact.iter_mut().zip(summands).for_each(|(sum, summand)| *sum += f64::from(summand));
            }
            assert!(sums.iter().zip(&exact).all(|(sum, exact)| (f64::from(*sum) - exact).abs() < 1e-5));
            seen.extend(self.bits(&values));
        }
        seen
    }

    fn gathers(&mut self) {
        for n in [0, 1, 101, 70_001] {
            let rows = self.collective.all_gather(&self.tensor(&floats(n as u64, self.rank, n))).unwrap();
            assert_eq!(rows.size(), [self.n_ranks as i64, n as i64]);
            let expected: Vec<f32> = (0..self.n_ranks).flat_map(|rank| floats(n as u64, rank, n)).collect();
            assert!(self.numbers(&rows) == expected, "rows of {n} numbers");
        }
    }

    fn folds(&mut self) {
        let n_ranks = self.n_ranks;
        let divisions: [&dyn Fn(usize) -> usize; 4] =
            [&|_| 1, &|rank| rank + 1, &|rank| n_ranks - rank, &|rank| 1 + rank % 2 * 2];
        for (what, n) in [0, 1, 97, 4095, 4097, 33_001, 262_139].into_iter().enumerate() {
            // The longest sum has 16 and more pieces on a ring: one division is enough.
            for count in &divisions[if n > 100_000 { 3..4 } else { 0..4 }] {
                let counts: Vec<usize> = (0..n_ranks).map(count).collect();
                self.folds_in_order(what as u64, n, &counts);
            }
        }
    }

    /// Tensors of this rank.
    fn own_slices(&self, what: u64, n: usize, counts: &[usize]) -> Vec<Tensor> {
        let first: usize = counts[..self.rank].iter().sum();
        (first..first + counts[self.rank]).map(|slice| self.tensor(&floats(what, slice, n))).collect()
    }

    /// One fold, compared with sums in order; the bits of its sum.
    fn folds_in_order(&mut self, what: u64, n: usize, counts: &[usize]) -> Vec<u8> {
        let own = self.own_slices(what, n, counts);
        let sum = self.collective.fold(own, counts).unwrap();
        let mut expected = floats(what, 0, n);
        for slice in 1..counts.iter().sum() {
            expected.iter_mut().zip(floats(what, slice, n)).for_each(|(sum, summand)| *sum += summand);
        }
        assert!(self.numbers(&sum) == expected, "a fold of {n} numbers of {counts:?}");
        self.bits(&sum)
    }

    /// Sums of few and of many numbers, with texts of no length, of any, and of the most.
    fn adds_with_texts(&mut self) {
        let n_ranks = self.n_ranks;
        let counts: Vec<usize> = (0..n_ranks).map(|rank| 1 + rank % 3).collect();
        for n in [0, 1, 97, 4095, 4097, 33_001] {
            for n_most in [0, 1, 1000, 150_001] {
                let lengths: [&dyn Fn(usize) -> usize; 4] =
                    [&|_| 0, &|_| n_most, &|rank| if rank == 0 { n_most } else { 0 }, &|rank| {
                        n_most * (rank + 1) / n_ranks
                    }];
                for (what, length) in (20..).zip(lengths) {
                    self.add_with_texts((what, n, &counts), n_most, length);
                }
            }
        }
    }

    /// One fold and one all-reduce with texts, compared with those without; the bits of their sums.
    fn add_with_texts(
        &mut self,
        (what, n, counts): (u64, usize, &[usize]),
        n_most: usize,
        length: &dyn Fn(usize) -> usize,
    ) -> Vec<u8> {
        let expected: Vec<Vec<u8>> = (0..self.n_ranks).map(|rank| bytes(what, rank, length(rank))).collect();
        let case = format!("{n} numbers of {counts:?}, texts of at most {n_most} bytes");
        let text = Text { own: &expected[self.rank], n_most };
        let (sum, texts) = self.collective.fold_with(self.own_slices(what, n, counts), counts, text).unwrap();
        assert!(texts == expected, "{case}");
        let folded = self.folds_in_order(what, n, counts);
        assert!(self.bits(&sum) == folded, "{case}");
        let [mut values, mut alone] = [0; 2].map(|_| self.tensor(&floats(what, self.rank, n)));
        assert!(self.collective.all_reduce_with(&mut values, text).unwrap() == expected, "{case}");
        self.collective.all_reduce(&mut alone).unwrap();
        let reduced = self.bits(&values);
        assert!(reduced == self.bits(&alone), "{case}");
        [folded, reduced].concat()
    }

    fn shares(&mut self) {
        // Nobody has anything, one alone has something, all have something else.
        let lengths: [&dyn Fn(usize) -> usize; 4] =
            [&|_| 0, &|rank| usize::from(rank == 0) * 5, &|rank| rank * rank * 40_003, &|rank| (rank + 1) % 2 * 7];
        for length in lengths {
            let own = bytes(9, self.rank, length(self.rank));
            let shared = self.collective.share(&own).unwrap();
            let expected: Vec<Vec<u8>> = (0..self.n_ranks).map(|rank| bytes(9, rank, length(rank))).collect();
            assert!(shared == expected);
        }
    }

    fn sends_from_all_to_all(&mut self) {
        // Nothing, from one to one alone, other lengths for all, messages of several pieces.
        let lengths: [&dyn Fn(usize, usize) -> usize; 4] = [
            &|_, _| 0,
            &|from, to| usize::from(from == 0 && to == self.n_ranks - 1) * 9,
            &|from, to| (from * 7 + to * 3) % 5 * 1001,
            &|from, to| (from + 2 * to) % 3 * 150_001,
        ];
        for length in lengths {
            let message = |from, to| bytes(11 + to as u64, from, length(from, to));
            let own = (0..self.n_ranks).map(|to| message(self.rank, to)).collect();
            let heard = self.collective.all_to_all(own).unwrap();
            let expected: Vec<Vec<u8>> = (0..self.n_ranks).map(|from| message(from, self.rank)).collect();
            assert!(heard == expected, "rank {} of {}", self.rank, self.n_ranks);
        }
    }

    fn broadcasts(&mut self) {
        for n in [0, 1, 4099, 1_000_003] {
            let from_rank_0 = bytes(10, 0, n);
            // Bytes of the other ranks before the call do not matter.
            let mut own = if self.rank == 0 { from_rank_0.clone() } else { bytes(10, self.rank, self.rank * 3) };
            self.collective.broadcast(&mut own).unwrap();
            assert!(own == from_rank_0, "a broadcast of {n} bytes");
        }
    }

    fn holds_everybody(&mut self) {
        for round in 0..3 {
            // Another rank is late in every round.
            if round % self.n_ranks == self.rank {
                thread::sleep(Duration::from_millis(30));
            }
            if let Some(n_arrived) = self.n_arrived {
                n_arrived.fetch_add(1, SeqCst);
            }
            self.collective.barrier().unwrap();
            if let Some(n_arrived) = self.n_arrived {
                assert!(n_arrived.load(SeqCst) >= (round + 1) * self.n_ranks, "nobody leaves before all came");
            }
            self.collective.barrier().unwrap();
        }
    }

    fn leaves_tensors_where_they_are(&mut self) {
        let whole = self.tensor(&[self.rank as f32; 12]);
        // Every second number: values that do not stand side by side.
        let mut values = whole.view([6, 2]).select(1, 0);
        self.collective.all_reduce(&mut values).unwrap();
        let sum = (0..self.n_ranks).sum::<usize>() as f32;
        assert_eq!(self.numbers(&whole), [sum, self.rank as f32].repeat(6));
        let rows = self.collective.all_gather(&values).unwrap();
        assert_eq!(self.numbers(&rows), vec![sum; 6 * self.n_ranks]);
        let folded = self.collective.fold(vec![values], &vec![1; self.n_ranks]).unwrap();
        assert_eq!(self.numbers(&folded), [self.n_ranks as f32 * sum; 6]);
    }

    /// Operations that are drawn, with lengths that are drawn.
    fn runs_a_program(&mut self, n_operations: u64) -> Vec<Vec<u8>> {
        let mut program = draws(11, 1 << 40);
        let mut seen = Vec::new();
        for what in 0..n_operations {
            let n = 1 << (program.word() % 14);
            let n = n + (program.word() as usize) % n;
            match program.word() % 7 {
                0 => {
                    let mut values = self.tensor(&floats(what, self.rank, n));
                    self.collective.all_reduce(&mut values).unwrap();
                    seen.push(self.bits(&values));
                }
                1 => {
                    let rows = self.collective.all_gather(&self.tensor(&floats(what, self.rank, n))).unwrap();
                    seen.push(self.bits(&rows));
                }
                2 => {
                    let own = bytes(what, self.rank, n * self.rank / self.n_ranks);
                    seen.push(self.collective.share(&own).unwrap().concat());
                }
                3 => {
                    let mut own = bytes(what, self.rank, n);
                    self.collective.broadcast(&mut own).unwrap();
                    seen.push(own);
                }
                4 => {
                    let counts: Vec<usize> = (0..self.n_ranks).map(|_| 1 + program.word() as usize % 3).collect();
                    seen.push(self.folds_in_order(what, n, &counts));
                }
                5 => {
                    let counts: Vec<usize> = (0..self.n_ranks).map(|_| 1 + program.word() as usize % 3).collect();
                    let n_most = program.word() as usize % (2 * n);
                    let n_ranks = self.n_ranks;
                    let length = |rank: usize| n_most * rank / n_ranks;
                    seen.push(self.add_with_texts((what, n, &counts), n_most, &length));
                }
                _ => self.collective.barrier().unwrap(),
            }
        }
        seen
    }
}
