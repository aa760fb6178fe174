//! Sinks for edges. Edges without weights come with weight 1.

use crate::{Result, csr::EdgeValue, tables::files::Trouble};

/// Takes edges whose ends are numbers.
pub(super) trait NumberSink: Send {
    fn edge(&mut self, source: u64, destination: u64, value: EdgeValue) -> Result<(), Trouble>;
}

/// Takes edges whose ends are texts.
pub(super) trait TextSink: Send {
    fn edge(&mut self, source: &str, destination: &str, value: EdgeValue) -> Result<(), Trouble>;
}

/// A sink whose edges are numbered in the order in which they come.
pub(super) struct Numbered<S> {
    sink: S,
    n_before: u64,
}

impl<S> Numbered<S> {
    pub(super) fn new(sink: S) -> Numbered<S> {
        Numbered { sink, n_before: 0 }
    }

    pub(super) fn into_sink(self) -> S {
        self.sink
    }

    #[inline]
    fn value(&mut self, weight: f32) -> EdgeValue {
        self.n_before += 1;
        EdgeValue { weight, row: self.n_before - 1 }
    }
}

impl<S: NumberSink> Numbered<S> {
    #[inline]
    pub(super) fn edge(&mut self, source: u64, destination: u64, weight: f32) -> Result<(), Trouble> {
        let value = self.value(weight);
        self.sink.edge(source, destination, value)
    }
}

impl<S: TextSink> Numbered<S> {
    pub(super) fn text_edge(&mut self, source: &str, destination: &str, weight: f32) -> Result<(), Trouble> {
        let value = self.value(weight);
        self.sink.edge(source, destination, value)
    }
}
