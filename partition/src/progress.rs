//! Progress of long work. Displaying it is up to the implementor of [`Progress`].

/// Receives the progress of long work. Pieces of work do not overlap: `begin`, any number of `advance`, `end`.
pub trait Progress: Sync {
    /// A piece of work starts: `what` in a few words, and how many units it will take where that is known.
    fn begin(&self, what: &str, total: Option<u64>, unit: Unit);

    /// `n` more units are done. May come from any thread.
    fn advance(&self, n: u64);

    /// The piece of work is over, done or failed.
    fn end(&self);
}

/// One piece of work under way: `end` is said when it is dropped, so that an early return says it too.
pub struct Piece<'a>(&'a dyn Progress);

impl<'a> Piece<'a> {
    /// Says that a piece of work starts.
    pub fn begin(progress: &'a dyn Progress, what: &str, total: Option<u64>, unit: Unit) -> Piece<'a> {
        progress.begin(what, total, unit);
        Piece(progress)
    }

    /// Says that `n` more units are done.
    pub fn advance(&self, n: u64) {
        self.0.advance(n);
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Unit in which a piece of work is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes read, written or received.
    Bytes,
    /// Edges.
    Edges,
    /// Nodes.
    Nodes,
    /// Features.
    Rows,
    /// Whole files.
    Files,
    /// Whole training runs.
    Runs,
}

/// Nobody listens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn begin(&self, _what: &str, _total: Option<u64>, _unit: Unit) {}

    fn advance(&self, _n: u64) {}

    fn end(&self) {}
}
