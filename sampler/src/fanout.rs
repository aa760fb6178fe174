//! Fanout: the number of neighbors a node draws at a hop.

use std::{fmt, num::NonZeroU32};

/// The most neighbors drawn per node at a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fanout {
    /// At most this number of neighbors.
    AtMost(NonZeroU32),
    /// Every neighbor.
    All,
}

/// Data of drawn edges that are wanted with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EdgeData {
    /// Weights.
    pub weights: bool,
    /// Features.
    pub features: bool,
    /// Ids: positions among all edges, list by list. Whole stores have them, shards do not.
    pub ids: bool,
}

impl EdgeData {
    /// Nothing but the neighbors.
    pub const NONE: EdgeData = EdgeData { weights: false, features: false, ids: false };
    /// Weights alone.
    pub const WEIGHTS: EdgeData = EdgeData { weights: true, ..EdgeData::NONE };

    /// Weights and features of one edge, where edges have `dim` features: how many numbers.
    pub fn width(self, dim: usize) -> usize {
        usize::from(self.weights) + if self.features { dim } else { 0 }
    }
}

/// Sampling of the neighbors of one node at one hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sampling {
    /// Without replacement, all alike; a node with no more neighbors than the fanout takes them all.
    #[default]
    Uniform,
    /// With replacement, all alike; every node with a neighbor draws as many as the fanout says.
    WithReplacement,
    /// Without replacement, by the weights of edges: each next one with a probability in proportion to its weight. An edge
    /// of weight 0 is never drawn; with a fanout of all, every edge is taken.
    Weighted,
}

/// Fanouts that make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FanoutError {
    /// A node that draws nothing learns from nobody.
    #[error("a fanout of 0 draws nothing: use 1 or more, or `all`")]
    Zero,
    /// One fanout is one layer.
    #[error("{n_fanouts} fanouts for {n_layers} layers: list at most one per layer, from the seed nodes outwards")]
    TooMany {
        /// Fanouts listed.
        n_fanouts: usize,
        /// Layers of the model.
        n_layers: usize,
    },
    /// Nothing to repeat.
    #[error("no fanout: list 1 or more, or `all`, from the seed nodes outwards")]
    Empty,
}

impl Fanout {
    /// At most `n` neighbors.
    pub fn at_most(n: u32) -> Result<Fanout, FanoutError> {
        NonZeroU32::new(n).map(Fanout::AtMost).ok_or(FanoutError::Zero)
    }
}

impl fmt::Display for Fanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fanout::AtMost(n) => n.fmt(f),
            Fanout::All => f.write_str("all"),
        }
    }
}

/// The fanout of every hop, from the seeds outwards: as listed, the last one repeated for deeper models.
pub fn fanouts_of_layers(listed: &[Fanout], n_layers: usize) -> Result<Vec<Fanout>, FanoutError> {
    let last = *listed.last().ok_or(FanoutError::Empty)?;
    if listed.len() > n_layers {
        return Err(FanoutError::TooMany { n_fanouts: listed.len(), n_layers });
    }
    let mut fanouts = listed.to_vec();
    fanouts.resize(n_layers, last);
    Ok(fanouts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_fanout_is_repeated() {
        let [ten, five] = [10, 5].map(|n| Fanout::at_most(n).unwrap());
        assert_eq!(fanouts_of_layers(&[ten, five], 4), Ok(vec![ten, five, five, five]));
        assert_eq!(fanouts_of_layers(&[Fanout::All], 2), Ok(vec![Fanout::All; 2]));
    }

    #[test]
    fn what_makes_no_sense_gets_a_sentence() {
        assert!(Fanout::at_most(0).unwrap_err().to_string().contains("fanout of 0"));
        assert!(fanouts_of_layers(&[], 2).unwrap_err().to_string().contains("no fanout"));
        let error = fanouts_of_layers(&[Fanout::All; 3], 2).unwrap_err();
        assert!(error.to_string().starts_with("3 fanouts for 2 layers"), "{error}");
    }
}
