//! Splits questions by owner, and merges the answers in the order of the question.

use kith_sampler::{Drawn, DrawnIds, Id};
use kith_store::{Owners, StoreError};

use crate::error::Result;

/// Nodes grouped by the shard that owns them; within a shard in the order they were asked for.
#[derive(Debug, Default)]
pub(crate) struct ByOwner {
    nodes: Vec<u64>,
    /// Position of each node in the question.
    places: Vec<u32>,
    /// Start of each shard's nodes, followed by the end of the last.
    bounds: Vec<usize>,
}

/// Part of a question for one shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardPart<'a> {
    pub(crate) shard: u32,
    pub(crate) nodes: &'a [u64],
    /// Position of each node in the question.
    pub(crate) places: &'a [u32],
}

impl ByOwner {
    /// Cuts a question; refuses nodes that nobody owns.
    pub(crate) fn new(owners: Owners<'_>, n_shards: u32, nodes: &[u64]) -> Result<ByOwner> {
        match owners {
            Owners::Narrow(owners) => ByOwner::cut(owners, n_shards, nodes),
            Owners::Wide(owners) => ByOwner::cut(owners, n_shards, nodes),
        }
    }

    fn cut<T: Copy + Into<u32>>(owners: &[T], n_shards: u32, nodes: &[u64]) -> Result<ByOwner> {
        let n_nodes = owners.len() as u64;
        let mut bounds = vec![0; n_shards as usize + 1];
        let mut owner_of = Vec::with_capacity(nodes.len());
        for node in nodes {
            let owner = owners.get(*node as usize).ok_or(StoreError::NodeOutOfRange { node: *node, n_nodes })?;
            let owner: u32 = (*owner).into();
            *bounds.get_mut(owner as usize + 1).ok_or_else(|| StoreError::damaged("owner", *node))? += 1;
            owner_of.push(owner);
        }
        (0..n_shards as usize).for_each(|shard| bounds[shard + 1] += bounds[shard]);
        let mut next = bounds.clone();
        let mut by_owner = ByOwner { nodes: vec![0; nodes.len()], places: vec![0; nodes.len()], bounds };
        for (place, (node, owner)) in nodes.iter().zip(owner_of).enumerate() {
            let next = &mut next[owner as usize];
            by_owner.nodes[*next] = *node;
            by_owner.places[*next] = place as u32;
            *next += 1;
        }
        Ok(by_owner)
    }

    /// Says where the nodes stand, for a question that is a part of another.
    pub(crate) fn stand_at(&mut self, places: &[u32]) {
        self.places.iter_mut().for_each(|place| *place = places[*place as usize]);
    }

    /// Parts for all shards, without empty ones.
    pub(crate) fn parts(&self) -> impl Iterator<Item = ShardPart<'_>> {
        self.bounds.windows(2).zip(0..).filter(|(bounds, _)| bounds[0] < bounds[1]).map(|(bounds, shard)| ShardPart {
            shard,
            nodes: &self.nodes[bounds[0]..bounds[1]],
            places: &self.places[bounds[0]..bounds[1]],
        })
    }

    /// The shard that is asked everything, if there is one.
    pub(crate) fn only_shard(&self) -> Option<u32> {
        let mut parts = self.parts();
        parts.next().filter(|part| part.nodes.len() == self.nodes.len()).map(|part| part.shard)
    }
}

/// Puts what the shards drew in the order of the question.
pub(crate) fn merge_drawn<'a>(n_nodes: usize, answers: &[(ShardPart<'a>, Drawn)], drawn: &mut Drawn) {
    let is_wide = answers.iter().any(|(_, part)| matches!(part.neighbors, DrawnIds::Wide(_)));
    if is_wide { merge_ids::<u64>(n_nodes, answers, drawn) } else { merge_ids::<u32>(n_nodes, answers, drawn) }
}

fn merge_ids<I: Id>(n_nodes: usize, answers: &[(ShardPart<'_>, Drawn)], drawn: &mut Drawn) {
    let Drawn { counts, neighbors, edge_data, edge_ids } = drawn;
    edge_ids.clear();
    counts.clear();
    counts.resize(n_nodes, 0);
    for (part, answer) in answers {
        part.places.iter().zip(&answer.counts).for_each(|(place, count)| counts[*place as usize] = *count);
    }
    let mut end = 0;
    let start_of = |count: &u32| {
        end += *count as usize;
        end - *count as usize
    };
    let starts: Vec<usize> = counts.iter().map(start_of).collect();
    let ids = I::ids_of(neighbors);
    ids.resize(end, I::default());
    let width = answers.iter().map(|(_, answer)| answer.edge_data_width()).max().unwrap_or(0);
    edge_data.clear();
    edge_data.resize(end * width, 0.0);
    for (part, answer) in answers {
        let Some(mut rest) = I::slice_of(&answer.neighbors) else { continue };
        let mut rest_data = &answer.edge_data[..];
        for (place, count) in part.places.iter().zip(&answer.counts) {
            let (own, others) = rest.split_at(*count as usize);
            ids[starts[*place as usize]..][..own.len()].copy_from_slice(own);
            rest = others;
            let (own, others) = rest_data.split_at(own.len() * width);
            edge_data[starts[*place as usize] * width..][..own.len()].copy_from_slice(own);
            rest_data = others;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_in_the_order_of_the_question() {
        let owners = [2, 0, 2, 0, 2u8];
        let by_owner = ByOwner::new(Owners::Narrow(&owners), 3, &[4, 1, 0, 3]).unwrap();
        let parts: Vec<_> = by_owner.parts().map(|part| (part.shard, part.nodes.to_vec())).collect();
        assert_eq!(parts, [(0, vec![1, 3]), (2, vec![4, 0])]);
        assert_eq!(by_owner.only_shard(), None);
        // Every node draws itself as often as its id, each time with two numbers.
        let data = |node: u64| [node as f32 / 2.0, -(node as f32)];
        let answer = |part: ShardPart<'_>| Drawn {
            counts: part.nodes.iter().map(|node| *node as u32).collect(),
            neighbors: DrawnIds::Narrow(
                part.nodes.iter().flat_map(|node| vec![*node as u32; *node as usize]).collect(),
            ),
            edge_data: part.nodes.iter().flat_map(|node| data(*node).repeat(*node as usize)).collect(),
            edge_ids: Vec::new(),
        };
        let answers: Vec<_> = by_owner.parts().map(|part| (part, answer(part))).collect();
        let mut drawn = Drawn::default();
        merge_drawn(4, &answers, &mut drawn);
        assert_eq!(drawn.counts, [4, 1, 0, 3]);
        assert_eq!(drawn.neighbors, DrawnIds::Narrow(vec![4, 4, 4, 4, 1, 3, 3, 3]));
        assert_eq!(drawn.edge_data, [4, 4, 4, 4, 1, 3, 3, 3].map(data).concat());
    }

    #[test]
    fn one_owner_is_asked_everything() {
        let by_owner = ByOwner::new(Owners::Wide(&[7, 7]), 9, &[1, 0]).unwrap();
        assert_eq!(by_owner.only_shard(), Some(7));
        assert_eq!(ByOwner::new(Owners::Wide(&[7, 7]), 9, &[]).unwrap().only_shard(), None);
        let error = ByOwner::new(Owners::Wide(&[7, 7]), 9, &[2]).unwrap_err();
        assert_eq!(error.to_string(), "node 2 is outside the graph: it has 2 nodes");
    }
}
