//! Names of draws, and the stream of random words shared by all names with one seed, purpose, step and layer.

use crate::philox::{philox4x32, philox4x32_lanes};

/// Purpose of a draw. The list is closed: every result depends on the numbers, so none is ever reused or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Purpose {
    /// The order of an epoch's seeds (a = epoch, b = node or number of an edge).
    SeedOrder = 1,
    /// The order of edge seeds (a = pass over all nodes).
    EdgeSeedOrder = 2,
    /// The neighbors drawn for one node at one hop (a = node).
    Neighbor = 3,
    /// A pair of nodes without an edge (a = slice, b = index; in link prediction a = 0, b = number in the step).
    Negative = 4,
    /// Subset of pairs that the edge loss keeps.
    PairSubset = 5,
    /// Dropout of input rows (a = node, b = column / 8).
    InputDropout = 6,
    /// Dropout of hidden rows (a = node, b = column / 8).
    HiddenDropout = 7,
    /// Dropout of attention weights (a = destination, b = source; 16 bits per head).
    AttentionDropout = 8,
    /// An initial weight (a = tensor, b = element).
    InitialWeight = 9,
    /// Train, validation and test nodes of a split (layer 0), or edges (layer 1) and pairs without an edge (layer 2).
    Split = 10,
    /// The random projection that starts a PCA.
    Projection = 11,
    /// A generated graph: edges, labels and features, each under its own layer.
    Generator = 12,
    /// An injected fault.
    Fault = 13,
    /// The shard of a node, where owners are drawn (a = node).
    Owner = 14,
    /// The settings of a trial (step = trial; a = how they are chosen, b = candidate or key).
    Tuning = 15,
    /// Dropout of edges (a = destination, b = source; one draw for all layers).
    EdgeDropout = 16,
    /// The keys of weighted draws of neighbors at one hop (a = node, b = slot of its list / 2).
    WeightedNeighbor = 17,
    /// Labels of training nodes that a step shows as input (a = node).
    LabelInput = 18,
    /// Nodes of cheap evaluations (a = node).
    EvaluationSample = 19,
}

/// The part of a name that many draws share.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// Names all randomness of a run.
    pub run_key: u64,
    /// Purpose of the draws.
    pub purpose: Purpose,
    /// Weight updates so far, over the whole run.
    pub step: u64,
    /// Layer of the model or hop of the sample.
    pub layer: u32,
}

impl Name {
    /// All draws with this name's parts; making it costs one Philox block, each draw from it another.
    pub fn stream(self) -> Stream {
        let Name { run_key, purpose, step, layer } = self;
        let counter = [purpose as u32, layer, step as u32, (step >> 32) as u32];
        let words = philox4x32(counter, [run_key as u32, (run_key >> 32) as u32]);
        Stream { key: [words[0], words[1]] }
    }
}

/// All draws of one seed, purpose, step and layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
}

/// `a` and `b` have 48 bits each in a counter: node ids, positions and indices all stay below.
const PART_LIMIT: u64 = 1 << 48;

impl Stream {
    /// Four words of the sequence named (a, b, attempt).
    #[inline]
    pub fn words(self, a: u64, b: u64, attempt: u16, block: u16) -> [u32; 4] {
        assert!(a < PART_LIMIT && b < PART_LIMIT, "a part of a draw's name is beyond 2^48");
        let counter = [
            a as u32,
            (a >> 32) as u32 | u32::from(attempt) << 16,
            b as u32,
            (b >> 32) as u32 | u32::from(block) << 16,
        ];
        philox4x32(counter, self.key)
    }

    /// Words of `N` names (a, b) with the same attempt and block, as [`Stream::words`] computes them, grouped by word.
    #[inline(always)]
    pub fn words_of<const N: usize>(self, a: [u64; N], b: [u64; N], attempt: u16, block: u16) -> [[u32; N]; 4] {
        let mut counters = [[0; N]; 4];
        let mut union = 0;
        let mut lane = 0;
        while lane < N {
            union |= a[lane] | b[lane];
            counters[0][lane] = a[lane] as u32;
            counters[1][lane] = (a[lane] >> 32) as u32 | u32::from(attempt) << 16;
            counters[2][lane] = b[lane] as u32;
            counters[3][lane] = (b[lane] >> 32) as u32 | u32::from(block) << 16;
            lane += 1;
        }
        assert!(union < PART_LIMIT, "a part of a draw's name is beyond 2^48");
        philox4x32_lanes(counters, self.key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const NAME: Name = Name { run_key: 42, purpose: Purpose::Neighbor, step: 3, layer: 1 };

    /// Golden: these words are in every published result. A change here is a change of all of them.
    #[test]
    fn names_keep_their_words() {
        assert_eq!(NAME.stream().words(5, 6, 7, 8), [1118121221, 2275971347, 3474026223, 1856202390]);
    }

    #[test]
    fn many_names_at_once_give_the_words_of_each() {
        let (a, b) = ([5, 1 << 40, 0], [6, 7, (1 << 48) - 1]);
        let words = NAME.stream().words_of(a, b, 7, 8);
        for lane in 0..3 {
            assert_eq!(words.map(|word| word[lane]), NAME.stream().words(a[lane], b[lane], 7, 8));
        }
    }

    #[test]
    fn every_part_of_a_name_matters() {
        let streams = [
            NAME.stream(),
            Name { run_key: 43, ..NAME }.stream(),
            Name { run_key: 42 | 1 << 40, ..NAME }.stream(),
            Name { purpose: Purpose::Negative, ..NAME }.stream(),
            Name { step: 4, ..NAME }.stream(),
            Name { step: 3 | 1 << 40, ..NAME }.stream(),
            Name { layer: 2, ..NAME }.stream(),
        ];
        let mut seen = HashSet::new();
        for stream in streams {
            for (a, b, attempt, block) in [
                (0, 0, 0, 0),
                (1, 0, 0, 0),
                (1 << 40, 0, 0, 0),
                (0, 1, 0, 0),
                (0, 1 << 40, 0, 0),
                (0, 0, 1, 0),
                (0, 0, 0, 1),
            ] {
                assert!(seen.insert(stream.words(a, b, attempt, block)), "two names share their words");
            }
        }
    }

    #[test]
    #[should_panic(expected = "beyond 2^48")]
    fn parts_beyond_the_counter_are_refused() {
        NAME.stream().words(1 << 48, 0, 0, 0);
    }
}
