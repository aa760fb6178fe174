//! The slots of many nodes at once: what `slots.rs` draws for each, side by side in wide registers.

use kith_draw::{Stream, Vectorized};

use crate::fanout::Replacement;

/// Nodes side by side.
pub const N_LANES: usize = 16;

/// Larger fanouts are drawn node by node: scanning what was drawn before grows with the square.
pub(crate) const MAX_FANOUT: usize = 64;

/// Where the random words of neighbor draws come from: a [`Stream`], unless a benchmark asks what naming draws costs.
pub trait WordSource {
    /// The words that belong to each node, four at a time.
    fn words(&mut self, nodes: [u64; N_LANES], block: u16) -> [[u32; N_LANES]; 4];
}

impl WordSource for Stream {
    #[inline(always)]
    fn words(&mut self, nodes: [u64; N_LANES], block: u16) -> [[u32; N_LANES]; 4] {
        self.words_of(nodes, [0; N_LANES], 0, block)
    }
}

/// One word per lane.
type Lanes = [u32; N_LANES];

/// Draws `k` slots for each node of every group.
pub(crate) struct DrawGroups<'a, W> {
    pub(crate) words: &'a mut W,
    /// How many slots each draws; at most [`MAX_FANOUT`], and less than every `n` without replacement.
    pub(crate) k: usize,
    pub(crate) replacement: Replacement,
    pub(crate) groups: &'a [Group],
    /// `k` for each group: the i-th slot of all its nodes.
    pub(crate) slots: &'a mut [Lanes],
    /// For each group, the lanes that have to be drawn again one by one.
    pub(crate) doubtful: &'a mut [Lanes],
}

/// Nodes that draw side by side; spare lanes repeat one of the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) nodes: [u64; N_LANES],
    /// From how many slots each draws.
    pub(crate) n: Lanes,
}

impl<W: WordSource> Vectorized for DrawGroups<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let DrawGroups { words, k, replacement, groups, slots, doubtful } = self;
        for ((group, slots), doubtful) in groups.iter().zip(slots.chunks_exact_mut(k)).zip(doubtful) {
            match replacement {
                Replacement::Without => draw_without(words, group, slots, doubtful),
                Replacement::With => draw_with(words, group, slots, doubtful),
            }
        }
    }
}

#[inline(always)]
fn draw_without<W: WordSource>(words: &mut W, group: &Group, slots: &mut [Lanes], doubtful: &mut Lanes) {
    let k = slots.len();
    *doubtful = [0; N_LANES];
    let mut block = [[0; N_LANES]; 4];
    for index in 0..k {
        if index % 4 == 0 {
            block = words.words(group.nodes, (index / 4) as u16);
        }
        let (drawn, rest) = slots.split_at_mut(index);
        let (mut slot, mut is_repeated) = ([0; N_LANES], [0; N_LANES]);
        let mut lane = 0;
        while lane < N_LANES {
            let n = group.n[lane].wrapping_sub((k - index - 1) as u32); // slots up to the last one of this turn
            let product = block[index % 4][lane] as u64 * n as u64;
            slot[lane] = (product >> 32) as u32;
            // The few words that a bounded draw may have to skip are left to it.
            doubtful[lane] |= ((product as u32) < n) as u32;
            lane += 1;
        }
        for before in drawn {
            let mut lane = 0;
            while lane < N_LANES {
                is_repeated[lane] |= (before[lane] == slot[lane]) as u32;
                lane += 1;
            }
        }
        let mut lane = 0;
        while lane < N_LANES {
            let last = group.n[lane].wrapping_sub((k - index) as u32);
            rest[0][lane] = if is_repeated[lane] != 0 { last } else { slot[lane] };
            lane += 1;
        }
    }
}

#[inline(always)]
fn draw_with<W: WordSource>(words: &mut W, group: &Group, slots: &mut [Lanes], doubtful: &mut Lanes) {
    *doubtful = [0; N_LANES];
    let mut block = [[0; N_LANES]; 4];
    for (index, slot) in slots.iter_mut().enumerate() {
        if index % 4 == 0 {
            block = words.words(group.nodes, (index / 4) as u16);
        }
        let mut lane = 0;
        while lane < N_LANES {
            let product = block[index % 4][lane] as u64 * group.n[lane] as u64;
            slot[lane] = (product >> 32) as u32;
            doubtful[lane] |= ((product as u32) < group.n[lane]) as u32;
            lane += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use kith_draw::{Name, Purpose, vectorized};

    use super::*;
    use crate::slots::draw_slots;

    #[test]
    fn lanes_draw_what_each_node_draws() {
        let mut stream = Name { run_key: 9, purpose: Purpose::Neighbor, step: 1, layer: 0 }.stream();
        let mut n_doubtful = 0;
        for k in [1, 2, 3, 4, 5, 10, 25, 64] {
            for replacement in [Replacement::Without, Replacement::With] {
                let group = |g: u64| Group {
                    nodes: std::array::from_fn(|lane| g << 33 | lane as u64),
                    // From one more than the fanout to lists so long that words are often skipped.
                    n: std::array::from_fn(|lane| k as u32 + 1 + (1u32 << (2 * lane)) / 2 * 3),
                };
                let groups: Vec<Group> = (0..50).map(group).collect();
                let mut slots = vec![[0; N_LANES]; groups.len() * k];
                let mut doubtful = vec![[0; N_LANES]; groups.len()];
                vectorized(DrawGroups {
                    words: &mut stream,
                    k,
                    replacement,
                    groups: &groups,
                    slots: &mut slots,
                    doubtful: &mut doubtful,
                });
                for (g, group) in groups.iter().enumerate() {
                    for lane in 0..N_LANES {
                        let mut expected = Vec::new();
                        draw_slots(stream, group.nodes[lane], group.n[lane].into(), k, replacement, &mut expected);
                        let found: Vec<u64> = (0..k).map(|index| slots[g * k + index][lane].into()).collect();
                        if doubtful[g][lane] == 0 {
                            assert_eq!(found, expected, "{k} of {}", group.n[lane]);
                        } else {
                            n_doubtful += 1;
                        }
                    }
                }
            }
        }
        assert!((1..8000).contains(&n_doubtful), "{n_doubtful} lanes were left to the plain way");
    }
}
