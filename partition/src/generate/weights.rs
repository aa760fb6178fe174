//! Draws nodes by power-law weights without a table: one formula maps a random fraction to a node.

use kith_draw::{exp, ln};

/// Nodes dealt to groups by their rank: rank r is member `r / n_groups` of group `r % n_groups`, and member q of any
/// group has a weight of about (q + 1)^(-1 / (exponent - 1)). So all groups are alike, and each has its hubs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Groups {
    n_groups: u64,
    /// The first groups have one member more than the others.
    n_large: u64,
    /// The law of the others, then theirs.
    laws: [Law; 2],
}

impl Groups {
    /// `n_groups` is from 1 to `n_nodes`.
    pub(super) fn new(n_nodes: u64, n_groups: u64, exponent: f64) -> Groups {
        let n_members = n_nodes / n_groups;
        let laws = [Law::new(n_members, exponent), Law::new(n_members + 1, exponent)];
        Groups { n_groups, n_large: n_nodes % n_groups, laws }
    }

    #[inline(always)]
    pub(super) fn n_groups(&self) -> u64 {
        self.n_groups
    }

    /// Pairs of different nodes inside groups.
    pub(super) fn n_pairs(&self) -> f64 {
        let [small, large] = self.laws.map(|law| law.n_members as f64 * (law.n_members as f64 - 1.0) / 2.0);
        small * (self.n_groups - self.n_large) as f64 + large * self.n_large as f64
    }

    /// Law of the members of a group.
    #[inline(always)]
    pub(super) fn law(&self, group: u64) -> &Law {
        &self.laws[usize::from(group < self.n_large)]
    }

    /// The rank of a member of a group.
    #[inline(always)]
    pub(super) fn rank(&self, group: u64, member: u64) -> u64 {
        member * self.n_groups + group
    }
}

/// Members 0, 1, … with the weight of member q being the area under x^-s from q + 1/2 to q + 3/2, s = 1 / (exponent - 1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Law {
    n_members: u64,
    /// x^(1 - s) at the left end of the first member, and how much it grows up to the right end of the last.
    low: f64,
    width: f64,
    /// 1 / (1 - s)
    power: f64,
}

impl Law {
    pub(super) fn new(n_members: u64, exponent: f64) -> Law {
        let rest = 1.0 - 1.0 / (exponent - 1.0);
        let area = |x: f64| exp(rest * ln(x));
        let low = area(0.5);
        Law { n_members, low, width: area(n_members as f64 + 0.5) - low, power: 1.0 / rest }
    }

    /// The member below whose right end lies this fraction of the whole area.
    #[cfg(test)]
    pub(super) fn member(&self, fraction: f64) -> u64 {
        let x = exp(self.power * ln(self.low + fraction * self.width));
        ((x - 0.5) as u64).min(self.n_members - 1)
    }

    /// The same for members of several laws.
    #[cfg(test)]
    fn members_of(laws: [Law; LANES], fractions: [f64; LANES]) -> [u64; LANES] {
        let mut lanes = LawLanes::default();
        laws.iter().enumerate().for_each(|(lane, law)| lanes.set(lane, law));
        lanes.members(&fractions)
    }

    /// The share of one member in the whole weight.
    #[cfg(test)]
    pub(super) fn share(&self, member: u64) -> f64 {
        let area = |x: f64| x.powf(1.0 / self.power);
        (area(member as f64 + 1.5) - area(member as f64 + 0.5)) / self.width
    }
}

/// Draws that are made together, by vector instructions.
pub(super) const LANES: usize = 16;

/// Laws of several draws, number by number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LawLanes {
    last: [u64; LANES],
    low: [f64; LANES],
    width: [f64; LANES],
    power: [f64; LANES],
}

impl LawLanes {
    #[inline(always)]
    pub(super) fn set(&mut self, lane: usize, law: &Law) {
        self.last[lane] = law.n_members - 1;
        self.low[lane] = law.low;
        self.width[lane] = law.width;
        self.power[lane] = law.power;
    }

    /// Members, each as [`Law::member`] draws it.
    #[inline(always)]
    pub(super) fn members(&self, fractions: &[f64; LANES]) -> [u64; LANES] {
        let mut members = [0; LANES];
        for lane in 0..LANES {
            let x = exp(self.power[lane] * ln(self.low[lane] + fractions[lane] * self.width[lane]));
            members[lane] = ((x - 0.5) as u64).min(self.last[lane]);
        }
        members
    }
}

/// The 128 random bits of one block, from which choice after choice is taken: what one leaves is as random for the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits(u128);

impl Bits {
    #[inline(always)]
    pub(super) fn new(words: [u32; 4]) -> Bits {
        Bits(words.iter().fold(0, |bits, word| bits << 32 | u128::from(*word)))
    }

    /// Uniform in `0..n`. Read as a fraction, the bits are multiplied by n: the whole part is the draw, the rest remains.
    #[inline(always)]
    pub(super) fn take(&mut self, n: u64) -> u64 {
        let low = u128::from(self.0 as u64) * u128::from(n);
        let high = (self.0 >> 64) * u128::from(n) + (low >> 64);
        self.0 = high << 64 | u128::from(low as u64);
        (high >> 64) as u64
    }

    /// Uniform in (0, 1), with 44 bits.
    #[inline(always)]
    pub(super) fn fraction(&mut self) -> f64 {
        (self.take(1 << 44) as f64 + 0.5) * (1.0 / (1u64 << 44) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::drawing::Drawn;

    #[test]
    fn members_come_by_their_weights() {
        for exponent in [2.01, 2.5, 3.0, 50.0] {
            let law = Law::new(200, exponent);
            let n_draws = 200_000;
            let mut count = vec![0f64; 200];
            (0..n_draws).for_each(|k| count[law.member((f64::from(k) + 0.5) / f64::from(n_draws)) as usize] += 1.0);
            let fractions = std::array::from_fn(|lane| (lane as f64 + 0.5) / LANES as f64);
            let members = fractions.map(|fraction| law.member(fraction));
            assert_eq!(Law::members_of([law; LANES], fractions), members);
            let shares: f64 = (0..200).map(|member| law.share(member)).sum();
            assert!((shares - 1.0).abs() < 1e-9, "{shares}");
            for (member, n) in (0..).zip(count) {
                assert!((n - law.share(member) * f64::from(n_draws)).abs() < 1.5, "{exponent}: member {member}: {n}");
            }
            let expected = 10f64.powf(-1.0 / (exponent - 1.0)); // member 9 against member 0: (9 + 1) / (0 + 1)
            assert!((law.share(9) / law.share(0) / expected - 1.0).abs() < 0.1);
        }
    }

    #[test]
    fn both_ends_of_the_largest_law_are_reached() {
        let law = Law::new(1 << 40, 2.5);
        assert_eq!(law.member(1e-12), 0);
        assert!(law.member(1.0 - 1e-13) > (1 << 40) - 10);
        assert_eq!(Law::new(1, 2.5).member(0.999_999), 0);
    }

    #[test]
    fn groups_hold_every_rank_once() {
        let groups = Groups::new(11, 3, 2.5);
        let mut seen: Vec<u64> = (0..3u64)
            .flat_map(|group| (0..3000).map(move |k| (group, (f64::from(k) + 0.5) / 3000.0)))
            .map(|(group, fraction)| groups.rank(group, groups.law(group).member(fraction)))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (0..11).collect::<Vec<_>>());
        assert_eq!(groups.n_pairs(), 6.0 + 6.0 + 3.0);
    }

    /// Choices taken one after another from one block are uniform, and independent of each other.
    #[test]
    fn choices_of_one_block_are_independent() {
        let stream = Drawn::Edges.stream(5);
        let n_blocks = 60_000;
        let mut count = [[0f64; 4]; 7];
        for k in 0..n_blocks {
            let mut bits = Bits::new(stream.words(k, 0, 0, 0));
            bits.take(1 << 24);
            let class = bits.take(7);
            bits.take(6);
            bits.fraction();
            let quarter = bits.fraction() * 4.0;
            count[class as usize][quarter as usize] += 1.0;
        }
        let expected = n_blocks as f64 / 28.0;
        let chi2: f64 = count.iter().flatten().map(|n| (n - expected) * (n - expected) / expected).sum();
        assert!(chi2 < 27.0 + 4.0 * 54f64.sqrt(), "chi2 {chi2} with 27 degrees of freedom");
    }
}
