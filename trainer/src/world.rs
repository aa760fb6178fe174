//! The ranks of a run: how many, which one this is, and what they do together.

mod error;

pub use error::WorldError;

use crate::collective::{Alone, Collective};

/// All ranks of a run, as one of them sees them.
#[derive(Debug)]
pub struct World {
    rank: usize,
    n_ranks: usize,
    collective: Box<dyn Collective>,
}

/// What a rank is doing: told with every heartbeat, and named when the rank is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Opening its graph, joining, reading a checkpoint.
    Start,
    /// Waiting for a batch.
    Sample,
    /// Forward and backward.
    Compute,
    /// Exchanging gradients.
    Exchange,
    /// Changing weights.
    Update,
    /// Measuring valid and test nodes.
    Measure,
    /// Handing over a checkpoint.
    Save,
}

impl Phase {
    /// All of them, by their numbers.
    pub const ALL: [Phase; 7] =
        [Phase::Start, Phase::Sample, Phase::Compute, Phase::Exchange, Phase::Update, Phase::Measure, Phase::Save];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Start => "start",
            Phase::Sample => "sample",
            Phase::Compute => "compute",
            Phase::Exchange => "exchange",
            Phase::Update => "update",
            Phase::Measure => "measure",
            Phase::Save => "save",
        }
    }
}

impl World {
    /// A world of one rank.
    pub fn alone() -> World {
        World { rank: 0, n_ranks: 1, collective: Box::new(Alone) }
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks.
    pub fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// Refuses ranks that do not agree on everything in a list of (what, value).
    pub fn agree(&mut self, on: &[(&str, String)]) -> Result<(), WorldError> {
        let told = serde_json::to_vec(on).expect("texts");
        let heard = self.collective.share(&told)?;
        let Some(rank) = heard.iter().position(|other| *other != heard[0]) else { return Ok(()) };
        let of = |rank: usize| -> Vec<(String, String)> { serde_json::from_slice(&heard[rank]).unwrap_or_default() };
        let (first, other) = (of(0), of(rank));
        let differing = first.iter().zip(&other).find(|(a, b)| a != b);
        let Some(((what, there), (_, here))) = differing else {
            return Err(WorldError::OutOfStep(format!("rank {rank} compares something else than rank 0")));
        };
        let only = |text: &str, other: &str| {
            let line = text.lines().find(|line| !line.is_empty() && !other.lines().any(|own| own == *line));
            line.unwrap_or("less").to_owned()
        };
        let (there, here) = (only(there, here), only(here, there));
        let sentence = format!("rank {rank} has another {what} than rank 0: `{here}` where rank 0 has `{there}`");
        Err(WorldError::Refused(sentence))
    }

    /// What ranks do together.
    pub fn collective(&mut self) -> &mut dyn Collective {
        &mut *self.collective
    }

    /// Says what this rank does from now on.
    pub fn enter(&self, _step: u64, _phase: Phase) {}
}
