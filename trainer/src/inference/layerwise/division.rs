//! Division of nodes among ranks.

/// Places of nodes, divided among ranks: some places in a row for each rank in turn, so that all ranks have nodes of all ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    n_places: u64,
    n_ranks: u64,
    /// Places in a row.
    n_together: u64,
}

/// Most places in a row, and the turns that each rank has at least if there are few places.
const MOST_TOGETHER: u64 = 4096;
const N_TURNS: u64 = 16;

impl Division {
    /// Divides `n_places` among `n_ranks`.
    pub(super) fn new(n_places: u64, n_ranks: usize) -> Division {
        let n_ranks = n_ranks as u64;
        let n_together = match n_ranks {
            1 => n_places.max(1),
            _ => (n_places / (N_TURNS * n_ranks)).clamp(1, MOST_TOGETHER),
        };
        Division { n_places, n_ranks, n_together }
    }

    /// Rank that has a place, and the number of the place among those of the rank.
    #[inline]
    pub(super) fn owner(&self, place: u64) -> (usize, u64) {
        let (turn, rest) = (place / self.n_together, place % self.n_together);
        ((turn % self.n_ranks) as usize, turn / self.n_ranks * self.n_together + rest)
    }

    /// Number of places of a rank.
    pub(super) fn len(&self, rank: usize) -> u64 {
        let (n_turns, rest) = (self.n_places / self.n_together, self.n_places % self.n_together);
        let (n_rounds, next) = (n_turns / self.n_ranks, n_turns % self.n_ranks);
        let rank = rank as u64;
        n_rounds * self.n_together
            + match rank.cmp(&next) {
                std::cmp::Ordering::Less => self.n_together,
                std::cmp::Ordering::Equal => rest,
                std::cmp::Ordering::Greater => 0,
            }
    }

    /// Place with a number among those of a rank.
    #[inline]
    pub(super) fn place(&self, rank: usize, number: u64) -> u64 {
        let (turn, rest) = (number / self.n_together, number % self.n_together);
        (turn * self.n_ranks + rank as u64) * self.n_together + rest
    }

    /// Places in a row from a number of a rank on: the first, and how many, at most `n_most`.
    pub(super) fn run(&self, rank: usize, number: u64, n_most: u64) -> (u64, u64) {
        let n_left = (self.n_together - number % self.n_together).min(self.len(rank) - number);
        (self.place(rank, number), n_left.min(n_most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_one_owner_and_one_number() {
        for (n_places, n_ranks) in [(0, 1), (0, 3), (1, 4), (7, 2), (100, 3), (1000, 7), (300_000, 2)] {
            let division = Division::new(n_places, n_ranks);
            let mut counts = vec![0; n_ranks];
            for place in 0..n_places {
                let (rank, number) = division.owner(place);
                assert_eq!(number, counts[rank], "numbers of a rank are in the order of places");
                assert_eq!(division.place(rank, number), place);
                counts[rank] += 1;
            }
            assert_eq!((0..n_ranks).map(|rank| division.len(rank)).collect::<Vec<_>>(), counts, "{division:?}");
            assert!(n_places < 100 || counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 4096);
        }
    }

    #[test]
    fn runs_cover_the_places_of_a_rank() {
        let division = Division::new(1000, 3);
        for rank in 0..3 {
            let (mut number, mut places) = (0, Vec::new());
            while number < division.len(rank) {
                let (first, n) = division.run(rank, number, 5);
                places.extend(first..first + n);
                number += n;
            }
            let expected: Vec<u64> = (0..1000).filter(|place| division.owner(*place).0 == rank).collect();
            assert_eq!(places, expected);
        }
    }
}
