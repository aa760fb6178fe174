//! Neighborhoods of seed nodes as PyG's loaders expand them: every node is expanded once, in the hop after the one that found it.

use kith_block::BlockError;
use kith_sampler::{Drawn, DrawnIds, EdgeData, Fanout, Hop, Id, Sampling};
use kith_store::StoreError;

use crate::{
    error::{ClientError, Result},
    positions::{Positions, Relabel},
    shards::Shards,
};

/// Edges whose position is asked for ahead of their turn.
const AHEAD: usize = 48;

/// Nodes around some seeds, and the edges that were drawn between them. Nodes are named by their position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Neighborhood {
    /// Ids by position: the seeds, then the others in the order in which they were found.
    pub nodes: Vec<u64>,
    /// The seeds, then the nodes that each hop found.
    pub n_nodes: Vec<usize>,
    /// The source of each edge, hop by hop.
    pub sources: Vec<u32>,
    /// The destination of each edge.
    pub destinations: Vec<u32>,
    /// Edges of each hop.
    pub n_edges: Vec<usize>,
    /// The wanted data of each edge: its weight, then its features.
    pub edge_data: Vec<f32>,
    /// Id of each edge, if wanted.
    pub edge_ids: Vec<u64>,
}

/// Expands seeds, one batch after the other, with memory that is used again. One per thread.
#[derive(Debug)]
pub struct NeighborhoodMaker {
    n_nodes: u64,
    positions: Positions,
    drawn: Drawn,
    found: Neighborhood,
}

impl NeighborhoodMaker {
    /// For graphs of `n_nodes`.
    pub fn new(n_nodes: u64) -> NeighborhoodMaker {
        let (drawn, found) = (Drawn::default(), Neighborhood::default());
        NeighborhoodMaker { n_nodes, positions: Positions::new(n_nodes), drawn, found }
    }

    /// Expands seeds, which must differ. Draws are those of blocks with the same name: (seed of the run, step), hop, node.
    pub fn sample<S: Shards + ?Sized>(
        &mut self,
        shards: &S,
        (run_key, step): (u64, u64),
        fanouts: &[Fanout],
        (sampling, edge_data): (Sampling, EdgeData),
        seeds: &[u64],
    ) -> Result<&Neighborhood> {
        let n_nodes = self.n_nodes;
        if let Some(node) = seeds.iter().find(|node| **node >= n_nodes) {
            return Err(StoreError::NodeOutOfRange { node: *node, n_nodes }.into());
        }
        let NeighborhoodMaker { positions, drawn, found, .. } = self;
        positions.start();
        found.start(seeds);
        match positions {
            Positions::Table(table) => place_seeds(table.view(), seeds),
            Positions::Map(map) => place_seeds(map, seeds),
        }?;
        let mut first = 0;
        for (hop, fanout) in (0..).zip(fanouts) {
            let frontier = first..found.nodes.len();
            let hop = Hop { run_key, step, hop, fanout: *fanout, sampling, edge_data };
            shards.sample_hop(&hop, &found.nodes[frontier.clone()], drawn)?;
            if found.nodes.len() + drawn.neighbors.len() >= u32::MAX as usize {
                let (n_edges, n_nodes) = (drawn.neighbors.len() as u64, found.nodes.len() as u64);
                return Err(BlockError::TooLarge { n_edges, n_nodes: n_nodes + n_edges }.into());
            }
            let counts = &drawn.counts;
            match (&mut *positions, &drawn.neighbors) {
                (Positions::Table(table), DrawnIds::Narrow(ids)) => found.add(table.view(), ids, counts, first),
                (Positions::Table(table), DrawnIds::Wide(ids)) => found.add(table.view(), ids, counts, first),
                (Positions::Map(map), DrawnIds::Narrow(ids)) => found.add(map, ids, counts, first),
                (Positions::Map(map), DrawnIds::Wide(ids)) => found.add(map, ids, counts, first),
            }?;
            found.edge_data.extend_from_slice(&drawn.edge_data);
            if edge_data.ids {
                found.edge_ids.extend_from_slice(&drawn.edge_ids);
            }
            found.n_edges.push(drawn.neighbors.len());
            found.n_nodes.push(found.nodes.len() - frontier.end);
            first = frontier.end;
        }
        Ok(found)
    }
}

fn place_seeds(mut positions: impl Relabel, seeds: &[u64]) -> Result<()> {
    for (place, seed) in (0..).zip(seeds) {
        if positions.position(*seed, place) != Some(place) {
            return Err(ClientError::SeedTwice { node: *seed });
        }
    }
    Ok(())
}

impl Neighborhood {
    /// The seeds alone, in the memory of another.
    fn start(&mut self, seeds: &[u64]) {
        let Neighborhood { nodes, n_nodes, sources, destinations, n_edges, edge_data, edge_ids } = self;
        nodes.clear();
        nodes.extend_from_slice(seeds);
        n_nodes.clear();
        n_nodes.push(seeds.len());
        sources.clear();
        destinations.clear();
        n_edges.clear();
        edge_data.clear();
        edge_ids.clear();
    }

    /// Adds what the nodes from `first` on drew.
    fn add<I: Id>(&mut self, mut positions: impl Relabel, ids: &[I], counts: &[u32], first: usize) -> Result<()> {
        self.sources.reserve(ids.len());
        self.destinations.reserve(ids.len());
        ids.iter().take(AHEAD).for_each(|id| positions.ask_for(id.wide()));
        let mut place = 0;
        for (destination, count) in (first..).zip(counts) {
            for id in &ids[place..place + *count as usize] {
                if let Some(ahead) = ids.get(place + AHEAD) {
                    positions.ask_for(ahead.wide());
                }
                place += 1;
                let next = self.nodes.len() as u32;
                let position = positions.position(id.wide(), next);
                let position = position.ok_or_else(|| StoreError::damaged("indices", self.nodes[destination]))?;
                if position == next {
                    self.nodes.push(id.wide());
                }
                self.sources.push(position);
                self.destinations.push(destination as u32);
            }
        }
        Ok(())
    }
}
