//! Progress of a copy or move of shards.

/// Work on one shard that takes time in proportion to its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its bytes are copied.
    Copy,
    /// Its bytes are read and compared with their checksums.
    Verify,
}

/// Receives progress. Steps do not overlap: `begin`, any number of `advance`, `end`.
pub trait Watch: Sync {
    /// A step starts that takes `n_bytes`.
    fn begin(&self, step: Step, shard: u32, n_bytes: u64);

    /// `n` more bytes are done. May come from any thread.
    fn advance(&self, n: u64);

    /// The step is over, done or failed.
    fn end(&self);
}

/// One step under way; it ends when dropped.
pub(crate) struct Watched<'a>(&'a dyn Watch);

impl<'a> Watched<'a> {
    pub(crate) fn begin(watch: &'a dyn Watch, step: Step, shard: u32, n_bytes: u64) -> Watched<'a> {
        watch.begin(step, shard, n_bytes);
        Watched(watch)
    }

    pub(crate) fn advance(&self, n: u64) {
        self.0.advance(n);
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
