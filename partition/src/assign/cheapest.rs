//! Tracks the cheapest of many shards while prices change.

/// A tournament over prices: the winner of each pair plays on, so that one change is played again in `log2` games.
pub(super) struct Cheapest {
    prices: Vec<i64>,
    /// Winners, the first at place 1; shards themselves begin at `n_places`.
    winners: Vec<u32>,
    n_places: usize,
}

impl Cheapest {
    /// All shards have this price.
    pub(super) fn new(n_shards: u32, price: i64) -> Cheapest {
        let n_places = (n_shards as usize).next_power_of_two();
        let mut prices = vec![price; n_shards as usize];
        // A place without a shard never wins against one.
        prices.resize(n_places, i64::MAX);
        let winners = vec![0; n_places];
        let mut cheapest = Cheapest { prices, winners, n_places };
        (1..n_places).rev().for_each(|place| cheapest.play(place));
        cheapest
    }

    /// The cheapest shard; of equals the first.
    #[inline]
    pub(super) fn cheapest(&self) -> u16 {
        if self.n_places == 1 { 0 } else { self.winners[1] as u16 }
    }

    /// Changes a price.
    #[inline]
    pub(super) fn set(&mut self, shard: u16, price: i64) {
        self.prices[usize::from(shard)] = price;
        let mut place = (self.n_places + usize::from(shard)) / 2;
        while place > 0 {
            self.play(place);
            place /= 2;
        }
    }

    fn play(&mut self, place: usize) {
        let player = |place: usize| match place.checked_sub(self.n_places) {
            Some(shard) => shard as u32,
            None => self.winners[place],
        };
        let (left, right) = (player(2 * place), player(2 * place + 1));
        let is_right = self.prices[right as usize] < self.prices[left as usize];
        self.winners[place] = if is_right { right } else { left };
    }
}

#[cfg(test)]
mod tests {
    use kith_draw::{Name, Purpose};

    use super::*;

    #[test]
    fn finds_what_a_search_finds() {
        for n_shards in [1, 2, 3, 7, 64, 1000] {
            let stream = Name { run_key: 1, purpose: Purpose::Generator, step: 0, layer: 0 }.stream();
            let mut cheapest = Cheapest::new(n_shards, 0);
            let mut prices = vec![0; n_shards as usize];
            for change in 0..2000 {
                let mut draws = stream.draws(change, u64::from(n_shards), 0);
                let shard = draws.below(u64::from(n_shards)) as u16;
                let price = draws.below(50) as i64 - 25;
                cheapest.set(shard, price);
                prices[usize::from(shard)] = price;
                let first = prices.iter().position(|price| Some(price) == prices.iter().min()).unwrap();
                assert_eq!(usize::from(cheapest.cheapest()), first, "{n_shards} shards, change {change}");
            }
        }
    }
}
