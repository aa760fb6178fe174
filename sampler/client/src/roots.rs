//! Roots of a slice of a step: the nodes that it expands.

use kith_sampler::Labels;

use crate::plan::{Plan, Step};

/// Nodes that a slice starts from.
#[derive(Clone, Debug, PartialEq)]
pub struct Roots {
    /// Seed nodes or the nodes of pairs, and edge seeds, ascending, each once.
    pub ids: Vec<u64>,
    /// Positions of the seed nodes among `ids`.
    pub seeds: Vec<u32>,
    /// Labels of all, by position; edge seeds have none.
    pub labels: Labels,
}

impl Roots {
    /// The nodes of some pairs, and the edge seeds of a slice.
    pub(crate) fn of_pairs(nodes: impl Iterator<Item = u64>, step: &Step, slice: usize) -> Roots {
        let mut ids: Vec<u64> = nodes.chain(step.slice(slice).edge_seeds).collect();
        ids.sort_unstable();
        ids.dedup();
        Roots { ids, seeds: Vec::new(), labels: Labels::Classes(Vec::new()) }
    }

    /// Those of one slice of a step.
    pub fn of(plan: &Plan, step: &Step, slice: usize) -> Roots {
        let own = step.slice(slice);
        let all = plan.seeds();
        let mut seeds = own.seeds;
        seeds.sort_unstable(); // Seeds stand by id, so their places ascend with them.
        let mut ids: Vec<u64> = seeds.iter().map(|place| all.ids()[*place as usize]).collect();
        ids.extend(own.edge_seeds);
        ids.sort_unstable();
        ids.dedup();
        let mut labels = all.labels().unlabeled(ids.len());
        let mut at = 0;
        let positions = seeds.iter().map(|place| {
            let seed = all.ids()[*place as usize];
            at += ids[at..].iter().position(|id| *id == seed).expect("seeds are among the roots");
            labels.copy(at, all.labels(), *place as usize);
            at as u32
        });
        let seeds = positions.collect();
        Roots { ids, seeds, labels }
    }
}
