//! Splits questions for features by what is in the cache.

/// A question, split by what is in the cache.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Position in the question, and place in the cache, of nodes whose features are there.
    pub(crate) found: Vec<(u32, usize)>,
    /// Position and place of nodes whose place in the cache is still empty.
    pub(crate) missing: Vec<(u32, usize)>,
    /// Nodes to fetch, and their positions in the question.
    pub(crate) nodes: Vec<u64>,
    pub(crate) places: Vec<u32>,
}

impl Asked {
    pub(crate) fn split(
        nodes: &[u64],
        place_of: impl Fn(u64) -> Option<usize>,
        is_filled: impl Fn(usize) -> bool,
    ) -> Asked {
        let mut asked = Asked::default();
        for (position, node) in (0..).zip(nodes) {
            match place_of(*node) {
                Some(place) if is_filled(place) => {
                    asked.found.push((position, place));
                    continue;
                }
                Some(place) => asked.missing.push((position, place)),
                None => {}
            }
            asked.nodes.push(*node);
            asked.places.push(position);
        }
        asked
    }
}
