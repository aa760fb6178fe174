//! Random splits: the paper's fixed one, and splits drawn with a seed.

use kith_draw::{Name, Purpose, Stream};
use rayon::prelude::*;

use crate::{
    PartitionError, Result,
    raw::{RawSplit, SplitPart},
};

/// The paper's split, the same in all its runs: 20 nodes of each class train, 30 choose, the rest of them test.
///
/// Nodes without a class (`u32::MAX`, or beyond `n_classes`) are in no part. Every class is shuffled as CPython's
/// `random` does it after `random.seed(12345)`, so the parts are those of the paper, node for node.
pub fn fixed_split(classes: &[u32], n_classes: u32) -> RawSplit {
    let mut twister = MersenneTwister::new(&[12345]);
    let mut by_class = labeled(classes).filter(|(class, _)| *class < n_classes).collect::<Vec<_>>();
    by_class.par_sort_unstable();
    let mut parts = vec![SplitPart::None; classes.len()];
    for group in by_class.chunk_by(|a, b| a.0 == b.0) {
        let mut order = (0..group.len()).collect::<Vec<_>>();
        twister.shuffle(&mut order);
        for (n_before, at) in (0..).zip(order) {
            parts[group[at].1 as usize] = PerClass { train: 20, valid: 30, test: None }.part(n_before);
        }
    }
    RawSplit { name: "fixed".into(), parts }
}

/// Nodes of every class in each part. A class with too few nodes fills train first, then valid, then test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerClass {
    /// Nodes of each class to train on.
    pub train: u32,
    /// Nodes of each class that choose settings.
    pub valid: u32,
    /// Nodes of each class to measure on; `None` for all the rest.
    pub test: Option<u32>,
}

impl PerClass {
    /// The part of the node that comes after `n_before` others of its class.
    pub fn part(&self, n_before: u64) -> SplitPart {
        let [train, valid] = [self.train, self.valid].map(u64::from);
        let end = self.test.map_or(u64::MAX, |test| train + valid + u64::from(test));
        match n_before {
            n if n < train => SplitPart::Train,
            n if n < train + valid => SplitPart::Valid,
            n if n < end => SplitPart::Test,
            _ => SplitPart::None,
        }
    }
}

/// Draws that order the nodes of a class in a random split: the smallest go to train, the next to valid, the next to
/// test.
pub(crate) fn per_class_stream(run_key: u64) -> Stream {
    stream(run_key, PER_CLASS_LAYER)
}

/// The expected share of the nodes in each part; what is left is in no part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fractions {
    /// Share to train on.
    pub train: f64,
    /// Share that chooses settings.
    pub valid: f64,
    /// Share to measure on.
    pub test: f64,
}

/// A split by shares, one node at a time.
#[derive(Clone, Copy, Debug)]
pub struct FractionSplit {
    stream: Stream,
    /// A draw of 64 bits below the first bound trains, below the second chooses, below the third tests.
    bounds: [u128; 3],
}

impl FractionSplit {
    /// Checks the shares and turns them into bounds of a draw.
    pub fn new(fractions: Fractions, run_key: u64) -> Result<FractionSplit> {
        let Fractions { train, valid, test } = fractions;
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        let sum = train + valid + test;
        if ![train, valid, test].into_iter().all(is_share) || sum > 1.0 + 1e-9 {
            return Err(PartitionError::Option(format!(
                "a split of {train} train, {valid} valid and {test} test is none: shares are 0 to 1 and add up to at most 1"
            )));
        }
        let whole = (1u128 << 64) as f64;
        let bound = |share: f64| if share > 1.0 - 1e-9 { 1 << 64 } else { (share * whole) as u128 };
        Ok(FractionSplit {
            stream: stream(run_key, FRACTION_LAYER),
            bounds: [bound(train), bound(train + valid), bound(sum)],
        })
    }

    /// The part of a node.
    pub fn part(&self, node: u64) -> SplitPart {
        let draw = u128::from(self.stream.draws(node, 0, 0).double_word());
        match self.bounds.iter().position(|bound| draw < *bound) {
            Some(0) => SplitPart::Train,
            Some(1) => SplitPart::Valid,
            Some(_) => SplitPart::Test,
            None => SplitPart::None,
        }
    }
}

/// The layers of a split's names.
const PER_CLASS_LAYER: u32 = 0;
const FRACTION_LAYER: u32 = 1;

fn stream(run_key: u64, layer: u32) -> Stream {
    Name { run_key, purpose: Purpose::Split, step: 0, layer }.stream()
}

/// (class, node) of every node that has a class.
fn labeled(classes: &[u32]) -> impl Iterator<Item = (u32, u64)> {
    classes.iter().zip(0u64..).filter(|(class, _)| **class != u32::MAX).map(|(class, node)| (*class, node))
}

const N_WORDS: usize = 624;
const MIDDLE: usize = 397;

/// MT19937 (Matsumoto, Nishimura: "Mersenne Twister", 1998), only for the paper's split.
struct MersenneTwister {
    words: [u32; N_WORDS],
    next: usize,
}

impl MersenneTwister {
    /// The published initialization by an array of words (`init_by_array`); CPython passes an integer's 32-bit digits.
    fn new(key: &[u32]) -> MersenneTwister {
        let mut words = [0u32; N_WORDS];
        words[0] = 19_650_218;
        for at in 1..N_WORDS {
            words[at] = mixed(words[at - 1]).wrapping_mul(1_812_433_253).wrapping_add(at as u32);
        }
        let mut at = 1;
        for round in 0..N_WORDS.max(key.len()) {
            let place = round % key.len();
            let mix = mixed(words[at - 1]).wrapping_mul(1_664_525);
            words[at] = (words[at] ^ mix).wrapping_add(key[place]).wrapping_add(place as u32);
            at = after(&mut words, at);
        }
        for _ in 1..N_WORDS {
            let mix = mixed(words[at - 1]).wrapping_mul(1_566_083_941);
            words[at] = (words[at] ^ mix).wrapping_sub(at as u32);
            at = after(&mut words, at);
        }
        words[0] = 0x8000_0000;
        MersenneTwister { words, next: N_WORDS }
    }

    fn word(&mut self) -> u32 {
        if self.next == N_WORDS {
            self.twist();
        }
        let mut word = self.words[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    fn twist(&mut self) {
        for at in 0..N_WORDS {
            let joined = self.words[at] & 0x8000_0000 | self.words[(at + 1) % N_WORDS] & 0x7fff_ffff;
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.words[at] = self.words[(at + MIDDLE) % N_WORDS] ^ joined >> 1 ^ odd;
        }
        self.next = 0;
    }

    /// CPython's `random.shuffle`: from the last place down, each is swapped with a random one up to itself.
    fn shuffle(&mut self, order: &mut [usize]) {
        for last in (1..order.len()).rev() {
            let place = self.below(last as u32 + 1); // a class has at most as many nodes as there are node ids
            order.swap(last, place as usize);
        }
    }

    /// CPython's `_randbelow`: as many bits as `n` has, drawn again until they are below it.
    fn below(&mut self, n: u32) -> u32 {
        loop {
            let found = self.word() >> n.leading_zeros();
            if found < n {
                return found;
            }
        }
    }
}

fn mixed(word: u32) -> u32 {
    word ^ word >> 30
}

/// The next place to initialize; past the end the last word takes the place of the first.
fn after(words: &mut [u32; N_WORDS], at: usize) -> usize {
    if at + 1 < N_WORDS {
        return at + 1;
    }
    words[0] = words[N_WORDS - 1];
    1
}

#[cfg(test)]
#[allow(clippy::print_stderr)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    use super::*;
    use crate::{
        dataset::{attributed, musae},
        raw::RawLabels,
    };

    fn count(parts: &[SplitPart], part: SplitPart) -> usize {
        parts.iter().filter(|found| **found == part).count()
    }

    /// The first words published with the generator for this key (`mt19937ar.out`), and CPython's after `seed(12345)`.
    #[test]
    fn the_twister_gives_the_published_words() {
        let mut published = MersenneTwister::new(&[0x123, 0x234, 0x345, 0x456]);
        let words = [1067595299, 955945823, 477289528, 4107218783, 4228976476];
        assert_eq!(words.map(|_| published.word()), words);
        let mut cpython = MersenneTwister::new(&[12345]);
        let words = [1789368711, 3146859322, 43676229, 3522623596, 3544234957];
        assert_eq!(words.map(|_| cpython.word()), words);
        (5..1000).for_each(|_| {
            cpython.word();
        });
        assert_eq!(cpython.word(), 61767526, "word 1000, after a second twist");
    }

    /// `random.seed(12345); x = list(range(12)); random.shuffle(x)`
    #[test]
    fn shuffles_like_cpython() {
        let mut order = (0..12).collect::<Vec<_>>();
        MersenneTwister::new(&[12345]).shuffle(&mut order);
        assert_eq!(order, [11, 10, 8, 1, 7, 9, 2, 3, 5, 4, 0, 6]);
    }

    #[test]
    fn small_classes_train_first() {
        let mut classes = vec![1; 25];
        classes.extend([0; 7]);
        classes.extend([3; 60]);
        classes.extend([u32::MAX, 4, 4]);
        let split = fixed_split(&classes, 4);
        assert_eq!(split.name, "fixed");
        assert_eq!(count(&split.parts[..25], SplitPart::Train), 20);
        assert_eq!(count(&split.parts[..25], SplitPart::Valid), 5);
        assert_eq!(count(&split.parts[25..32], SplitPart::Train), 7);
        let last = &split.parts[32..92];
        assert_eq!([SplitPart::Train, SplitPart::Valid, SplitPart::Test].map(|part| count(last, part)), [20, 30, 10]);
        assert_eq!(split.parts[92..], [SplitPart::None; 3]);
        assert!(fixed_split(&[], 0).parts.is_empty());
        assert_eq!(fixed_split(&[u32::MAX; 3], u32::MAX).parts, [SplitPart::None; 3]);
    }

    /// The parts that the paper's own code drew, where they and the datasets are at hand.
    #[test]
    fn is_the_paper_s_split() {
        let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/paper/splits");
        let folder = PathBuf::from(std::env::var_os("KITH_SPLITS").unwrap_or(beside.into()));
        for (name, n_classes) in [("cora-ml", 7), ("cs", 15), ("photo", 8), ("computers", 10), ("chameleon", 6)] {
            let Ok(oracle) = fs::read_to_string(folder.join(format!("{name}.csv"))) else {
                eprintln!("skipped: no split of {name} (set KITH_SPLITS to the folder that holds it)");
                continue;
            };
            let Some(data) = crate::dataset::real_files(name) else { continue };
            let classes = classes_of(name, &data);
            let split = fixed_split(&classes, n_classes);
            let mut expected = vec![SplitPart::Test; classes.len()];
            for line in oracle.lines().skip(1) {
                let (node, part) = line.split_once(',').unwrap();
                let part = if part == "train" { SplitPart::Train } else { SplitPart::Valid };
                expected[node.parse::<usize>().unwrap()] = part;
            }
            assert_eq!(count(&expected, SplitPart::Train), 20 * n_classes as usize, "{name}: the oracle itself");
            assert_eq!(count(&expected, SplitPart::Valid), 30 * n_classes as usize, "{name}: the oracle itself");
            assert!(split.parts == expected, "{name}: not the paper's split");
        }
    }

    fn classes_of(name: &str, data: &Path) -> Vec<u32> {
        let graph = match name {
            "chameleon" => musae::read(data, musae::Topic::Chameleon, 1 << 30),
            _ => attributed::read(data, name),
        };
        match graph.unwrap().labels {
            Some(RawLabels::Classes { classes, .. }) => classes,
            _ => panic!("{name} has one class per node"),
        }
    }

    #[test]
    fn classes_fill_train_then_valid_then_test() {
        let parts = |test| (0..6).map(|n| PerClass { train: 2, valid: 1, test }.part(n)).collect::<Vec<_>>();
        use SplitPart::{None as Out, Test, Train, Valid};
        assert_eq!(parts(Some(2)), [Train, Train, Valid, Test, Test, Out]);
        assert_eq!(parts(None), [Train, Train, Valid, Test, Test, Test]);
    }

    #[test]
    fn shares_are_met_and_pure() {
        let fractions = Fractions { train: 0.7, valid: 0.2, test: 0.1 };
        let parts = |fractions, n| {
            let split = FractionSplit::new(fractions, 3).unwrap();
            (0..n).map(|node| split.part(node)).collect::<Vec<_>>()
        };
        let all = parts(fractions, 100_000);
        let sizes = [SplitPart::Train, SplitPart::Valid, SplitPart::Test].map(|part| count(&all, part) as f64);
        for (size, expected) in sizes.into_iter().zip([70_000.0, 20_000.0, 10_000.0]) {
            assert!((size - expected).abs() < 700.0, "{sizes:?}");
        }
        assert_eq!(count(&all, SplitPart::None), 0, "shares that add up to 1 but for rounding leave nobody out");
        let pure = FractionSplit::new(fractions, 3).unwrap();
        assert!((0..1000).rev().all(|node| pure.part(node) == all[node as usize]));
        pure.part((1 << 48) - 1);
        let half = parts(Fractions { train: 0.5, valid: 0.0, test: 0.0 }, 10_000);
        assert!(count(&half, SplitPart::None).abs_diff(5000) < 300);
    }

    #[test]
    fn impossible_shares_are_refused() {
        for (train, valid, test) in [(0.8, 0.3, 0.0), (-0.1, 0.5, 0.5), (f64::NAN, 0.1, 0.1), (2.0, 0.0, 0.0)] {
            let error = FractionSplit::new(Fractions { train, valid, test }, 0).unwrap_err().to_string();
            assert!(error.contains("add up to at most 1"), "{error}");
        }
    }

    /// Golden: splits are part of published results.
    #[test]
    fn drawn_splits_keep_their_nodes() {
        let split = FractionSplit::new(Fractions { train: 0.15, valid: 0.0, test: 0.0 }, 42).unwrap();
        let train = (0..20).filter(|node| split.part(*node) == SplitPart::Train).collect::<Vec<_>>();
        assert_eq!(train, [10, 15]);
    }
}
