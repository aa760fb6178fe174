//! Comparisons in the losses of a cgat: edges with pairs without one, and edges of one node with each other.
//!
//! Every edge s → t, self-loops included, has R nodes k, each uniform over the nodes without an edge s → k, drawn again
//! (attempts 1 to 15, then left out and counted) while there is one. With a boundary loss, only edges that are known to
//! be within a class have such nodes, and of every source all its edges to another class are compared with all its
//! edges within its own. A class is known if the node is trained on.
//!
//! Names of draws: (seed, step, layer; a = 0, b = edge · R + place, attempt).

use kith_block::{Block, Pairs};
use kith_draw::{Name, Purpose};
use kith_run::config::CgatConfig;
use rayon::prelude::*;

use crate::{
    data::input::{GraphInput, Labels},
    model::block_edges::destination_of_edges,
};

/// Draws for one negative before it is left out.
const MAX_ATTEMPTS: u16 = 16;

/// Pairs and comparisons of the layers' own losses in a step, layer by layer; empty for models without such losses.
#[derive(Debug, Default)]
pub struct Compared {
    /// Pairs that a supergat classifies as edge or no edge.
    pub pairs: Vec<Pairs>,
    /// Comparisons of a cgat.
    pub contrasts: Vec<Contrast>,
}

impl From<Vec<Pairs>> for Compared {
    fn from(pairs: Vec<Pairs>) -> Compared {
        Compared { pairs, contrasts: Vec::new() }
    }
}

/// Comparisons of one layer of a cgat in a step; edges are places in the block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contrast {
    /// Edges that are to be scored above pairs without one, each as often as there are such pairs.
    pub edges: Vec<u32>,
    /// A node to which there is no edge from the edge's source, for each of them.
    pub nodes: Vec<u32>,
    /// Nodes that met an edge in every attempt.
    pub n_left_out: usize,
    /// Edges to another class; nothing where the boundary is not learned.
    pub crossing: Vec<u32>,
    /// The edge of the same source that is to be scored above it, for each of them.
    pub within: Vec<u32>,
}

/// Relation of the classes at the ends of an edge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Unknown,
    Same,
    Different,
}

impl Contrast {
    /// Draws what a layer compares in a step.
    pub fn draw(config: &CgatConfig, graph: &GraphInput, run_key: u64, step: u64, layer: usize) -> Contrast {
        let block = &*graph.block;
        let ends = config.boundary().map(|_| ends_of_edges(graph));
        let mut contrast = ends.as_ref().map_or_else(Contrast::default, |ends| boundary(block, ends));
        if config.graph_weight == 0.0 {
            return contrast;
        }
        let is_compared = |edge: &u32| ends.as_ref().is_none_or(|ends| ends[*edge as usize] == Ends::Same);
        let edges: Vec<u32> = (0..block.n_edges() as u32).filter(is_compared).collect();
        let stream = Name { run_key, purpose: Purpose::Negative, step, layer: layer as u32 }.stream();
        let n_each = config.negatives;
        let draw = |place: usize| {
            let edge = edges[place / n_each];
            let source = block.sources()[edge as usize];
            let name = u64::from(edge) * n_each as u64 + (place % n_each) as u64;
            let attempt = |attempt| stream.draws(0, name, attempt).below(block.n_destinations() as u64) as u32;
            (edge, (0..MAX_ATTEMPTS).map(attempt).find(|node| !block.has_edge(source, *node)))
        };
        let drawn: Vec<(u32, Option<u32>)> = (0..edges.len() * n_each).into_par_iter().map(draw).collect();
        for (edge, node) in drawn {
            match node {
                None => contrast.n_left_out += 1,
                Some(node) => {
                    contrast.edges.push(edge);
                    contrast.nodes.push(node);
                }
            }
        }
        contrast
    }
}

fn ends_of_edges(graph: &GraphInput) -> Vec<Ends> {
    let block = &*graph.block;
    let mut is_known = vec![false; block.n_destinations()];
    graph.train.iter().for_each(|position| is_known[*position as usize] = true);
    let is_same = |a: usize, b: usize| match &graph.labels {
        Some(Labels::Classes(classes)) => classes[a] == classes[b],
        Some(Labels::Numbers { .. }) => unreachable!("a cgat is refused where labels are numbers"),
        Some(Labels::Bits { n_classes, bits }) => {
            bits[a * n_classes..][..*n_classes] == bits[b * n_classes..][..*n_classes]
        }
        None => unreachable!("graphs that are trained on have labels"),
    };
    let ends = |(source, destination): (&u32, u32)| match (*source as usize, destination as usize) {
        (source, destination) if !is_known[source] || !is_known[destination] => Ends::Unknown,
        (source, destination) if is_same(source, destination) => Ends::Same,
        _ => Ends::Different,
    };
    block.sources().iter().zip(destination_of_edges(block)).map(ends).collect()
}

/// All pairs of a source's edges, one to another class and one within its own.
fn boundary(block: &Block, ends: &[Ends]) -> Contrast {
    let mut contrast = Contrast::default();
    for bounds in block.out_indptr().windows(2) {
        let own = &block.out_edges()[bounds[0]..bounds[1]];
        let that_are = |kind| own.iter().copied().filter(move |edge| ends[*edge as usize] == kind);
        for crossing in that_are(Ends::Different) {
            for within in that_are(Ends::Same) {
                contrast.crossing.push(crossing);
                contrast.within.push(within);
            }
        }
    }
    contrast
}
