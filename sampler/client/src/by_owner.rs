//! Splits questions by owner, and merges the answers in the order of the question.

use std::ops::Range;

use kith_sampler::{Drawn, DrawnIds, Id};
use kith_store::{Owners, StoreError};

use crate::error::Result;

/// Order in which shards are asked: those that are asked together stand side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AskedOrder {
    shards: Vec<u32>,
    /// Place of each shard in `shards`.
    place_of: Vec<usize>,
    /// Places in `shards` of those that are asked together.
    together: Vec<Range<usize>>,
}

impl AskedOrder {
    /// Groups shards for which `whom` gives the same `Some`; all others stay alone.
    pub(crate) fn new<T: PartialEq>(n_shards: usize, whom: impl Fn(u32) -> Option<T>) -> AskedOrder {
        let mut groups: Vec<(Option<T>, Vec<u32>)> = Vec::new();
        for shard in 0..n_shards as u32 {
            let own = whom(shard);
            let group = if own.is_some() { groups.iter_mut().find(|(other, _)| *other == own) } else { None };
            match group {
                Some((_, group)) => group.push(shard),
                None => groups.push((own, vec![shard])),
            }
        }
        let (mut shards, mut together, mut place_of) = (Vec::new(), Vec::new(), vec![0; n_shards]);
        for (_, group) in groups {
            together.push(shards.len()..shards.len() + group.len());
            for shard in group {
                place_of[shard as usize] = shards.len();
                shards.push(shard);
            }
        }
        AskedOrder { shards, place_of, together }
    }
}

/// Nodes grouped by the shard that owns them; within a shard in the order they were asked for.
#[derive(Debug, Default)]
pub(crate) struct ByOwner {
    nodes: Vec<u64>,
    /// Position of each node in the question.
    places: Vec<u32>,
    /// Shards with nodes, in the order of the nodes, and the number of each one's nodes.
    shards: Vec<(u32, usize)>,
    /// The shards of each part, and its nodes.
    parts: Vec<(Range<usize>, Range<usize>)>,
}

/// Part of a question for shards that are asked together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// At least one, and the number of each one's nodes.
    pub(crate) shards: &'a [(u32, usize)],
    pub(crate) nodes: &'a [u64],
    /// Position of each node in the question.
    pub(crate) places: &'a [u32],
}

impl Part<'_> {
    /// Any of the shards: all are at the same place.
    pub(crate) fn shard(&self) -> u32 {
        self.shards[0].0
    }
}

impl ByOwner {
    /// Cuts a question; refuses nodes that nobody owns.
    pub(crate) fn new(owners: Owners<'_>, order: &AskedOrder, nodes: &[u64]) -> Result<ByOwner> {
        match owners {
            Owners::Narrow(owners) => ByOwner::cut(owners, order, nodes),
            Owners::Wide(owners) => ByOwner::cut(owners, order, nodes),
        }
    }

    fn cut<T: Copy + Into<u32>>(owners: &[T], order: &AskedOrder, nodes: &[u64]) -> Result<ByOwner> {
        let n_nodes = owners.len() as u64;
        let mut bounds = vec![0; order.shards.len() + 1];
        let mut places_of = Vec::with_capacity(nodes.len());
        for node in nodes {
            let owner = owners.get(*node as usize).ok_or(StoreError::NodeOutOfRange { node: *node, n_nodes })?;
            let owner: u32 = (*owner).into();
            let place = order.place_of.get(owner as usize).ok_or_else(|| StoreError::damaged("owner", *node))?;
            bounds[place + 1] += 1;
            places_of.push(*place as u32);
        }
        (0..order.shards.len()).for_each(|place| bounds[place + 1] += bounds[place]);
        let mut by_owner = ByOwner { nodes: vec![0; nodes.len()], places: vec![0; nodes.len()], ..ByOwner::default() };
        for together in &order.together {
            let of_part = bounds[together.start]..bounds[together.end];
            if of_part.is_empty() {
                continue;
            }
            let first = by_owner.shards.len();
            let with_nodes = together.clone().map(|place| (order.shards[place], bounds[place + 1] - bounds[place]));
            by_owner.shards.extend(with_nodes.filter(|(_, n)| *n > 0));
            by_owner.parts.push((first..by_owner.shards.len(), of_part));
        }
        let mut next = bounds;
        for (position, (node, place)) in nodes.iter().zip(places_of).enumerate() {
            let next = &mut next[place as usize];
            by_owner.nodes[*next] = *node;
            by_owner.places[*next] = position as u32;
            *next += 1;
        }
        Ok(by_owner)
    }

    /// Says where the nodes stand, for a question that is a part of another.
    pub(crate) fn stand_at(&mut self, places: &[u32]) {
        self.places.iter_mut().for_each(|place| *place = places[*place as usize]);
    }

    /// Parts for all shards that are asked together, without empty ones.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.parts.iter().map(|(shards, nodes)| Part {
            shards: &self.shards[shards.clone()],
            nodes: &self.nodes[nodes.clone()],
            places: &self.places[nodes.clone()],
        })
    }

    /// The shard that is asked everything, if there is one: its nodes are in the order of the question.
    pub(crate) fn only_shard(&self) -> Option<u32> {
        if let [(shard, _)] = *self.shards { Some(shard) } else { None }
    }
}

/// Puts what the shards drew in the order of the question.
pub(crate) fn merge_drawn<'a>(n_nodes: usize, answers: &[(Part<'a>, Drawn)], drawn: &mut Drawn) {
    let is_wide = answers.iter().any(|(_, part)| matches!(part.neighbors, DrawnIds::Wide(_)));
    if is_wide { merge_ids::<u64>(n_nodes, answers, drawn) } else { merge_ids::<u32>(n_nodes, answers, drawn) }
}

fn merge_ids<I: Id>(n_nodes: usize, answers: &[(Part<'_>, Drawn)], drawn: &mut Drawn) {
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
        let by_owner = ByOwner::new(Owners::Narrow(&owners), &alone(3), &[4, 1, 0, 3]).unwrap();
        let parts: Vec<_> = by_owner.parts().map(|part| (part.shard(), part.nodes.to_vec())).collect();
        assert_eq!(parts, [(0, vec![1, 3]), (2, vec![4, 0])]);
        assert_eq!(by_owner.only_shard(), None);
        // Every node draws itself as often as its id, each time with two numbers.
        let data = |node: u64| [node as f32 / 2.0, -(node as f32)];
        let answer = |part: Part<'_>| Drawn {
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
        let by_owner = ByOwner::new(Owners::Wide(&[7, 7]), &alone(9), &[1, 0]).unwrap();
        assert_eq!(by_owner.only_shard(), Some(7));
        assert_eq!(ByOwner::new(Owners::Wide(&[7, 7]), &alone(9), &[]).unwrap().only_shard(), None);
        let error = ByOwner::new(Owners::Wide(&[7, 7]), &alone(9), &[2]).unwrap_err();
        assert_eq!(error.to_string(), "node 2 is outside the graph: it has 2 nodes");
        assert!(ByOwner::new(Owners::Wide(&[7, 7]), &alone(7), &[1]).is_err(), "no such shard");
    }

    #[test]
    fn shards_of_a_server_are_asked_together() {
        // Shards 0, 2 and 4 are at one server, 3 at another; 1 and 5 are here.
        let order = AskedOrder::new(6, |shard| [Some(7), None, Some(7), Some(8), Some(7), None][shard as usize]);
        let owners = [5, 4, 3, 2, 1, 0u8];
        let parts_of = |nodes: &[u64]| {
            let by_owner = ByOwner::new(Owners::Narrow(&owners), &order, nodes).unwrap();
            let own = by_owner.parts().map(|part| (part.shards.to_vec(), part.nodes.to_vec(), part.places.to_vec()));
            own.collect::<Vec<_>>()
        };
        let expected = [
            (vec![(0, 1), (2, 2), (4, 1)], vec![5, 3, 3, 1], vec![5, 1, 6, 3]),
            (vec![(1, 1)], vec![4], vec![2]),
            (vec![(3, 1)], vec![2], vec![4]),
            (vec![(5, 1)], vec![0], vec![0]),
        ];
        assert_eq!(parts_of(&[0, 3, 4, 1, 2, 5, 3]), expected);
        assert_eq!(parts_of(&[1, 1]), [(vec![(4, 2)], vec![1, 1], vec![0, 1])]);
    }

    /// Every shard is asked alone.
    fn alone(n_shards: usize) -> AskedOrder {
        AskedOrder::new(n_shards, |_| None::<()>)
    }
}
