//! Groups of shards that are halved until each is one shard.

/// Shards that stand together: `n_shards` of them, the first names all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) first: u16,
    pub(super) n_shards: u32,
}

impl Group {
    /// Two halves; a single shard has no second one.
    pub(super) fn halves(self) -> (Group, Option<Group>) {
        if self.n_shards < 2 {
            return (self, None);
        }
        let n_left = self.n_shards / 2;
        let right = Group { first: self.first + n_left as u16, n_shards: self.n_shards - n_left };
        (Group { n_shards: n_left, ..self }, Some(right))
    }
}
