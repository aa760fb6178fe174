//! Vectorized version of `slots.rs`: draws the slots of many nodes at once.

use kith_draw::{Stream, Vectorized};

use crate::fanout::Sampling;

/// Nodes side by side.
pub const N_LANES: usize = 16;

/// Larger fanouts are drawn node by node: scanning what was drawn before grows with the square.
pub(crate) const MAX_FANOUT: usize = 64;

/// Source of random words for neighbor draws: a [`Stream`], or a generator in a benchmark of the cost of names.
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

/// Draws `k` slots for each of some nodes, by rows: the first slots of all nodes, the second ones, and so on. Loops run
/// along the rows, whose length the compiler does not know: that is what it turns into wide instructions.
pub(crate) struct DrawRows<'a, W> {
    pub(crate) words: &'a mut W,
    /// Number of slots each node draws; at most [`MAX_FANOUT`], and less than every `n` without replacement.
    pub(crate) k: usize,
    pub(crate) sampling: Sampling,
    /// The nodes: a multiple of [`N_LANES`].
    pub(crate) nodes: &'a [u64],
    /// From how many slots each draws.
    pub(crate) n: &'a [u32],
    pub(crate) slots: &'a mut Vec<u32>,
    /// Nodes that have to be drawn again one by one are not zero here.
    pub(crate) doubtful: &'a mut Vec<u32>,
    /// For each node, whether its slot was drawn before: no bits or all.
    pub(crate) is_repeated: &'a mut Vec<u32>,
}

impl<W: WordSource> Vectorized for DrawRows<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let DrawRows { words, k, sampling, nodes, n, slots, doubtful, is_repeated } = self;
        let width = nodes.len();
        slots.resize(k.next_multiple_of(4) * width, 0);
        doubtful.clear();
        doubtful.resize(width, 0);
        is_repeated.resize(width, 0);
        for (group, nodes) in nodes.as_chunks::<N_LANES>().0.iter().enumerate() {
            for (block, rows) in slots.chunks_exact_mut(4 * width).enumerate() {
                let drawn = words.words(*nodes, block as u16);
                for (row, drawn) in rows.chunks_exact_mut(width).zip(drawn) {
                    row[group * N_LANES..][..N_LANES].copy_from_slice(&drawn);
                }
            }
        }
        for index in 0..k {
            let (before, rest) = slots.split_at_mut(index * width);
            let row = &mut rest[..width];
            // Without replacement, each turn draws from one slot more, and the last one draws from all.
            let n_later = match sampling {
                Sampling::WithReplacement => 0,
                _ => (k - index - 1) as u32,
            };
            for ((slot, n), doubtful) in row.iter_mut().zip(n).zip(&mut **doubtful) {
                let n = n.wrapping_sub(n_later);
                let product = u64::from(*slot) * u64::from(n);
                *slot = (product >> 32) as u32;
                // The few words that a bounded draw may have to skip are left to it.
                *doubtful |= u32::from((product as u32) < n);
            }
            if sampling == Sampling::WithReplacement {
                continue;
            }
            is_repeated.fill(0);
            for before in before.chunks_exact(width) {
                for ((is_repeated, before), slot) in is_repeated.iter_mut().zip(before).zip(&*row) {
                    *is_repeated |= u32::from(before == slot).wrapping_neg();
                }
            }
            for ((slot, n), is_repeated) in row.iter_mut().zip(n).zip(&**is_repeated) {
                let last = n.wrapping_sub(n_later + 1);
                *slot = last & is_repeated | *slot & !is_repeated;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kith_draw::{Name, Purpose, vectorized};

    use super::*;
    use crate::slots::draw_slots;

    #[test]
    fn rows_draw_what_each_node_draws() {
        let mut stream = Name { run_key: 9, purpose: Purpose::Neighbor, step: 1, layer: 0 }.stream();
        let (mut slots, mut doubtful, mut is_repeated) = (Vec::new(), Vec::new(), Vec::new());
        let mut n_doubtful = 0;
        for k in [1, 2, 3, 4, 5, 10, 25, 64] {
            for sampling in [Sampling::Uniform, Sampling::WithReplacement] {
                let nodes: Vec<u64> = (0..800).map(|lane| ((lane / 16) << 33) | lane).collect();
                // From one more than the fanout to lists so long that words are often skipped.
                let n: Vec<u32> = (0..800).map(|lane| k as u32 + 1 + (1u32 << (2 * (lane % 16))) / 2 * 3).collect();
                vectorized(DrawRows {
                    words: &mut stream,
                    k,
                    sampling,
                    nodes: &nodes,
                    n: &n,
                    slots: &mut slots,
                    doubtful: &mut doubtful,
                    is_repeated: &mut is_repeated,
                });
                for lane in 0..nodes.len() {
                    let mut expected = Vec::new();
                    draw_slots(stream, nodes[lane], n[lane].into(), k, sampling, &mut expected);
                    let found: Vec<u64> = (0..k).map(|index| slots[index * nodes.len() + lane].into()).collect();
                    if doubtful[lane] == 0 {
                        assert_eq!(found, expected, "{k} of {}", n[lane]);
                    } else {
                        n_doubtful += 1;
                    }
                }
            }
        }
        assert!((1..8000).contains(&n_doubtful), "{n_doubtful} nodes were left to the plain way");
    }
}
