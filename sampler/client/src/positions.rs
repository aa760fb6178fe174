//! Relabeling: maps ids to positions, in order of first appearance.

use kith_draw::prefetch;

/// Largest graph for which a table with an entry per node is worth its memory (8 bytes per node and thread). Above it, entries are so
/// far apart that a hash table is as fast.
const MAX_TABLE: u64 = 1 << 25;

/// Bytes of a number, and of a table's entry; an entry of a hash table has two.
const ENTRY_BYTES: u64 = 8;

/// Entries of the smallest hash table.
const MIN_ENTRIES: usize = 1 << 16;

/// Bytes of a table with an entry for each of `n_nodes`; `None` for graphs that are relabeled by hash.
pub fn table_bytes(n_nodes: u64) -> Option<u64> {
    (n_nodes <= MAX_TABLE).then_some(ENTRY_BYTES * n_nodes)
}

/// Bytes at most of a hash table for batches of `n_nodes`, while it grows.
pub fn hash_bytes(n_nodes: u64) -> u64 {
    // A table is at most half full, and has twice the entries of the one before.
    let n_entries = (2 * n_nodes).next_power_of_two().max(MIN_ENTRIES as u64);
    2 * ENTRY_BYTES * (n_entries + n_entries / 2)
}

/// A table that is used for one batch after the other: what an older batch wrote carries an older stamp.
#[derive(Debug)]
pub(crate) enum Positions {
    Table(Table),
    Map(Map),
}

impl Positions {
    /// For the nodes `0..n_nodes`.
    pub(crate) fn new(n_nodes: u64) -> Positions {
        match table_bytes(n_nodes) {
            Some(_) => Positions::Table(Table { entries: Entries::new(n_nodes as usize), stamp: 0 }),
            None => Positions::by_hash(n_nodes),
        }
    }

    /// The same without a table.
    pub(crate) fn by_hash(n_nodes: u64) -> Positions {
        Positions::Map(Map::new(n_nodes))
    }

    /// Forgets all positions.
    pub(crate) fn start(&mut self) {
        match self {
            Positions::Table(table) => table.start(),
            Positions::Map(map) => map.start(),
        }
    }
}

/// Operations of a table that relabeling needs.
pub(crate) trait Relabel {
    /// Asks for the memory of an id that will be looked up soon.
    fn ask_for(&self, id: u64);

    /// The position of an id: its own if it has one, else `next`, which it then keeps. `None` if there is no such node.
    fn position(&mut self, id: u64, next: u32) -> Option<u32>;
}

impl<R: Relabel> Relabel for &mut R {
    #[inline(always)]
    fn ask_for(&self, id: u64) {
        (**self).ask_for(id);
    }

    #[inline(always)]
    fn position(&mut self, id: u64, next: u32) -> Option<u32> {
        (**self).position(id, next)
    }
}

/// A place for each node: the stamp of the batch that wrote it, and the position there.
#[derive(Debug)]
pub(crate) struct Table {
    entries: Entries,
    stamp: u32,
}

/// Zeros in large pages where the system has them: entries are read in no order at all, and with small pages the search
/// for each page costs as much as the entry.
#[derive(Debug)]
struct Entries {
    map: memmap2::MmapMut,
}

impl Entries {
    fn new(n: usize) -> Entries {
        let map = memmap2::MmapMut::map_anon(8 * n.max(1)).expect("memory for a table of all nodes");
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage); // Only the time depends on it.
        Entries { map }
    }

    fn all_mut(&mut self) -> &mut [u64] {
        bytemuck::cast_slice_mut(&mut self.map)
    }
}

impl Table {
    pub(crate) fn start(&mut self) {
        if self.stamp == u32::MAX {
            self.entries.all_mut().fill(0);
            self.stamp = 0;
        }
        self.stamp += 1;
    }

    /// The table as a plain array, for a loop.
    pub(crate) fn view(&mut self) -> TableView<'_> {
        TableView { entries: self.entries.all_mut(), stamp: self.stamp }
    }
}

/// A table in use.
#[derive(Debug)]
pub(crate) struct TableView<'a> {
    entries: &'a mut [u64],
    stamp: u32,
}

impl Relabel for TableView<'_> {
    #[inline(always)]
    fn ask_for(&self, id: u64) {
        self.entries.get(id as usize).inspect(|entry| prefetch(*entry));
    }

    #[inline(always)]
    fn position(&mut self, id: u64, next: u32) -> Option<u32> {
        let entry = self.entries.get_mut(id as usize)?;
        // Written in any case: whether a node is new is a coin toss that no processor predicts.
        let position = if (*entry >> 32) as u32 == self.stamp { *entry as u32 } else { next };
        *entry = u64::from(self.stamp) << 32 | u64::from(position);
        Some(position)
    }
}

/// An open hash table, for graphs too large for a place per node.
#[derive(Debug)]
pub(crate) struct Map {
    n_nodes: u64,
    /// (id, stamp and position); a power of two of them, at most half in use.
    entries: Vec<(u64, u64)>,
    stamp: u32,
    n_used: usize,
}

impl Map {
    fn new(n_nodes: u64) -> Map {
        Map { n_nodes, entries: vec![(0, 0); MIN_ENTRIES], stamp: 0, n_used: 0 }
    }

    pub(crate) fn start(&mut self) {
        if self.stamp == u32::MAX {
            self.entries.fill((0, 0));
            self.stamp = 0;
        }
        self.stamp += 1;
        self.n_used = 0;
    }

    #[inline]
    fn home(&self, id: u64) -> usize {
        (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - self.entries.len().ilog2())) as usize
    }

    /// The place of an id, or the free one where it belongs.
    #[inline]
    fn place(&self, id: u64) -> usize {
        let mut place = self.home(id);
        while self.is_used(place) && self.entries[place].0 != id {
            place = (place + 1) & (self.entries.len() - 1);
        }
        place
    }

    #[inline]
    fn is_used(&self, place: usize) -> bool {
        (self.entries[place].1 >> 32) as u32 == self.stamp
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.entries);
        self.entries = vec![(0, 0); 2 * old.len()];
        for (id, value) in old {
            if (value >> 32) as u32 == self.stamp {
                let place = self.place(id);
                self.entries[place] = (id, value);
            }
        }
    }
}

impl Relabel for Map {
    #[inline]
    fn ask_for(&self, id: u64) {
        prefetch(&self.entries[self.home(id)]);
    }

    #[inline]
    fn position(&mut self, id: u64, next: u32) -> Option<u32> {
        if id >= self.n_nodes {
            return None;
        }
        let place = self.place(id);
        if self.is_used(place) {
            return Some(self.entries[place].1 as u32);
        }
        self.entries[place] = (id, u64::from(self.stamp) << 32 | u64::from(next));
        self.n_used += 1;
        if 2 * self.n_used > self.entries.len() {
            self.grow();
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn check(positions: &mut Positions, spread: u64) {
        for batch in 0..3 {
            positions.start();
            match positions {
                Positions::Table(table) => check_batch(table.view(), batch, spread),
                Positions::Map(map) => check_batch(map, batch, spread),
            }
        }
    }

    fn check_batch(mut table: impl Relabel, batch: u64, spread: u64) {
        let mut known = HashMap::new();
        for k in 0..100_000u64 {
            let id = (k * k + batch) % 70_001 * spread;
            let next = known.len() as u32;
            let expected = *known.entry(id).or_insert(next);
            assert_eq!(table.position(id, next), Some(expected));
        }
        assert_eq!(table.position(80_000 * spread, 0), None);
    }

    #[test]
    fn a_table_and_a_map_give_positions() {
        check(&mut Positions::Table(Table { entries: Entries::new(80_000), stamp: u32::MAX - 1 }), 1);
        check(&mut Positions::Map(Map { stamp: u32::MAX - 1, ..Map::new(80_000) }), 1);
        check(&mut Positions::Map(Map::new(80_000 << 20)), 1 << 20);
    }

    #[test]
    fn bytes_of_tables_are_known_before_they_are_made() {
        let Positions::Table(table) = Positions::new(1000) else { unreachable!("a small graph has a table") };
        assert_eq!(table_bytes(1000), Some(table.entries.map.len() as u64));
        assert_eq!(table_bytes(MAX_TABLE + 1), None);
        for n in [0, 1 << 15, (1 << 15) + 1, 70_000, 1 << 20] {
            let mut map = Map::new(1 << 40);
            map.start();
            (0..n).for_each(|id| assert_eq!(map.position(3 * id, id as u32), Some(id as u32)));
            let held = size_of_val(&map.entries[..]) as u64;
            assert!((held..=4 * held).contains(&hash_bytes(n)), "{n}: {held} of {}", hash_bytes(n));
        }
    }
}
