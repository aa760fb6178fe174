//! Looks up edges in the whole graph.

use kith_draw::prefetch;
use kith_store::{Lists, Neighbors, Result};

use crate::graph::SampledGraph;

/// In which directions an edge counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Source → destination.
    #[default]
    Forward,
    /// Source → destination or destination → source.
    Either,
}

/// Looks up pairs of a source's id and a destination's row. Only the lists of the destinations are read: those of their
/// sources, and for the reverse those of the nodes they are a source of.
pub fn has_edges(
    graph: SampledGraph<'_>,
    pairs: &[(u64, u64)],
    direction: Direction,
    found: &mut [bool],
) -> Result<()> {
    assert_eq!(pairs.len(), found.len(), "one answer per pair");
    look_up(graph.lists, pairs, found, |_, is_edge| is_edge)?;
    if direction == Direction::Either
        && let Some(out_lists) = graph.out_lists
    {
        look_up(out_lists, pairs, found, |before, is_edge| before || is_edge)?;
    }
    Ok(())
}

/// Pairs whose bounds are asked for ahead of their turn, and whose list is.
const AHEAD: usize = 16;

fn look_up(
    lists: &Lists,
    pairs: &[(u64, u64)],
    found: &mut [bool],
    combine: impl Fn(bool, bool) -> bool,
) -> Result<()> {
    for (place, ((source, destination), found)) in pairs.iter().zip(found).enumerate() {
        if let Some((_, ahead)) = pairs.get(place + 2 * AHEAD)
            && let Some(bound) = lists.place_of(*ahead)
        {
            prefetch(bound);
        }
        if let Some((_, ahead)) = pairs.get(place + AHEAD)
            && let Ok((start, end)) = lists.bounds(*ahead)
        {
            // First probe of a binary search.
            let middle = start + (end - start) / 2;
            match lists.indices() {
                Neighbors::Narrow(ids) => ids.get(middle).inspect(|id| prefetch(*id)).is_some(),
                Neighbors::Wide(ids) => ids.get(middle).inspect(|id| prefetch(*id)).is_some(),
            };
        }
        *found = combine(*found, lists.of(*destination)?.contains(*source));
    }
    Ok(())
}
