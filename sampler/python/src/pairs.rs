//! Pairs of nodes that a link loader predicts, and their negatives.

use kith_draw::{Name, Purpose};
use pyo3::prelude::*;

use crate::error::Failed;

/// Pairs as the caller gave them.
pub(crate) struct Pairs {
    pub(crate) sources: Vec<u64>,
    pub(crate) destinations: Vec<u64>,
    pub(crate) negatives: Negatives,
}

/// Pairs that are drawn for each pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Negatives {
    /// None.
    None,
    /// This many pairs of any two nodes.
    Binary(f64),
    /// This many other destinations of the same source.
    Triplet(usize),
}

impl<'py> FromPyObject<'_, 'py> for Negatives {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Negatives> {
        let (mode, amount) = object.extract::<(String, f64)>()?;
        match mode.as_str() {
            "none" => Ok(Negatives::None),
            "binary" => Ok(Negatives::Binary(amount)),
            "triplet" => Ok(Negatives::Triplet(amount as usize)),
            _ => Err(Failed::new(format!("neg_sampling: expected binary or triplet, found {mode}")).into()),
        }
    }
}

/// Nodes of a batch of pairs.
pub(crate) struct PairNodes {
    /// Ascending, each once.
    pub(crate) nodes: Vec<u64>,
    /// Sources of all pairs, then their destinations, as positions in `nodes`. The destinations of triplets are those of pairs, then
    /// the negatives of each.
    pub(crate) positions: Vec<i64>,
}

impl Pairs {
    /// The nodes of some pairs and of their negatives, which are drawn by step and place: any two nodes, edges included, as in PyG.
    pub(crate) fn nodes(
        &self,
        places: &[u32],
        (run_key, step, n_layers): (u64, u64, usize),
        n_nodes: u64,
    ) -> PairNodes {
        let draws = Name { run_key, purpose: Purpose::Negative, step, layer: n_layers as u32 }.stream();
        let node = |place: u32, number: u64, end: u16| draws.draws(u64::from(place), number, end).below(n_nodes);
        let n = places.len();
        let mut ends: Vec<u64> = places.iter().map(|place| self.sources[*place as usize]).collect();
        let negatives = match self.negatives {
            Negatives::Binary(amount) => (n as f64 * amount).ceil() as usize,
            _ => 0,
        };
        // Negative i belongs to pair i, then once more to each.
        let of_pairs = |end: u16| (0..negatives).map(move |i| node(places[i % n], (i / n) as u64, end));
        ends.extend(of_pairs(0));
        ends.extend(places.iter().map(|place| self.destinations[*place as usize]));
        ends.extend(of_pairs(1));
        if let Negatives::Triplet(amount) = self.negatives {
            ends.extend(places.iter().flat_map(|place| (0..amount as u64).map(move |number| node(*place, number, 1))));
        }
        let mut nodes = ends.clone();
        nodes.sort_unstable();
        nodes.dedup();
        let position = |node: &u64| nodes.binary_search(node).expect("it is one of them") as i64;
        let positions = ends.iter().map(position).collect();
        PairNodes { nodes, positions }
    }
}
