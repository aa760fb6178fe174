//! Neighbor lists of a store that is being built.

use kith_store::Column;

use crate::{
    csr::{
        edge_options::{EdgeOptions, EdgeRows},
        lists::{ListsBuilder, ListsSummary},
        store::StoreBuilder,
    },
    error::Result,
};

/// Values of the edges of a store.
enum Edges<'a> {
    Plain,
    Weighted,
    Rows(EdgeRows<'a>),
}

impl StoreBuilder<'_> {
    /// Builds the neighbor lists, with or without weights, from `n_edges` edges that `feed` pushes each time it is called. It is called
    /// several times if scratch files would otherwise be much larger than the memory limit.
    pub(crate) fn lists_in_passes(
        &mut self,
        n_nodes: u64,
        options: EdgeOptions,
        (n_edges, has_weights): (u64, bool),
        feed: impl Fn(&ListsBuilder<'_>) -> Result<()>,
    ) -> Result<ListsSummary> {
        let builder = match has_weights {
            true => ListsBuilder::weighted(n_nodes, options, &self.budget)?,
            false => ListsBuilder::new(n_nodes, options, &self.budget)?,
        };
        let builder = builder.in_passes(n_edges);
        feed(&builder)?;
        let (summary, _) = builder.finish(&mut self.writer, self.progress, feed)?;
        self.describe_lists(n_nodes, options, summary, has_weights);
        Ok(summary)
    }

    /// Builds the neighbor lists from whatever `feed` pushes into them.
    pub fn lists(
        &mut self,
        n_nodes: u64,
        options: EdgeOptions,
        feed: impl FnOnce(&ListsBuilder<'_>) -> Result<()>,
    ) -> Result<ListsSummary> {
        Ok(self.build_lists(n_nodes, options, Edges::Plain, feed)?.0)
    }

    /// The same with the weight of every edge.
    pub fn weighted_lists(
        &mut self,
        n_nodes: u64,
        options: EdgeOptions,
        feed: impl FnOnce(&ListsBuilder<'_>) -> Result<()>,
    ) -> Result<ListsSummary> {
        Ok(self.build_lists(n_nodes, options, Edges::Weighted, feed)?.0)
    }

    /// The same for edges with features; also gives the row of each edge's features, for [`StoreBuilder::edge_features`].
    pub fn lists_with_rows(
        &mut self,
        n_nodes: u64,
        options: EdgeOptions,
        rows: EdgeRows<'_>,
        feed: impl FnOnce(&ListsBuilder<'_>) -> Result<()>,
    ) -> Result<(ListsSummary, Column<u64>)> {
        let (summary, rows) = self.build_lists(n_nodes, options, Edges::Rows(rows), feed)?;
        Ok((summary, rows.expect("these edges have rows")))
    }

    fn build_lists(
        &mut self,
        n_nodes: u64,
        options: EdgeOptions,
        edges: Edges<'_>,
        feed: impl FnOnce(&ListsBuilder<'_>) -> Result<()>,
    ) -> Result<(ListsSummary, Option<Column<u64>>)> {
        let (builder, has_weights) = match edges {
            Edges::Plain => (ListsBuilder::new(n_nodes, options, &self.budget)?, false),
            Edges::Weighted => (ListsBuilder::weighted(n_nodes, options, &self.budget)?, true),
            Edges::Rows(rows) => (ListsBuilder::with_rows(n_nodes, options, &self.budget, rows)?, rows.have_weights),
        };
        feed(&builder)?;
        let (summary, rows) = builder.finish(&mut self.writer, self.progress, |_| Ok(()))?;
        self.describe_lists(n_nodes, options, summary, has_weights);
        Ok((summary, rows))
    }

    /// States lists that were written, and their edges.
    fn describe_lists(&mut self, n_nodes: u64, options: EdgeOptions, summary: ListsSummary, has_weights: bool) {
        self.contents.n_nodes = n_nodes;
        self.contents.n_edges = summary.n_edges;
        self.contents.is_symmetric = summary.is_symmetric;
        self.contents.edge_weights = has_weights;
        for (option, is_on, counted, n) in [
            ("symmetrize", options.symmetrize, "edges_added", summary.n_reversed),
            ("drop_loops", options.drop_loops, "loops_dropped", summary.n_loops_dropped),
            ("merge_duplicates", options.merge_duplicates, "duplicates_merged", summary.n_merged),
        ] {
            self.provenance.options.insert(option.into(), is_on.to_string());
            self.provenance.counted.insert(counted.into(), n);
        }
        self.provenance.counted.insert("edges_read".into(), summary.n_read);
    }
}
