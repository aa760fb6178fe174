//! Phases of a rank.

/// Phase of a rank: sent with every heartbeat, and named when the rank is lost.
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
    Evaluate,
    /// Handing over a checkpoint.
    Save,
}

impl Phase {
    /// All of them, by their numbers.
    pub const ALL: [Phase; 7] =
        [Phase::Start, Phase::Sample, Phase::Compute, Phase::Exchange, Phase::Update, Phase::Evaluate, Phase::Save];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Start => "start",
            Phase::Sample => "sample",
            Phase::Compute => "compute",
            Phase::Exchange => "exchange",
            Phase::Update => "update",
            Phase::Evaluate => "evaluate",
            Phase::Save => "save",
        }
    }

    /// The name of a phase that came as a number.
    pub fn name_of(number: u8) -> &'static str {
        Phase::ALL.get(usize::from(number)).map_or("unknown", |phase| phase.name())
    }
}
