//! Import of a user's own graph from tables of edges, features, labels and splits, as csv, npy or parquet.
//!
//! **Nodes.** The nodes are all ids in edge, feature and label tables; a split adds none. Numeric ids that fill `0..n`
//! well enough are used directly, and `n_nodes` is the largest plus one or the given number. All other ids are mapped:
//! node k is the k-th smallest id (texts by their bytes), independent of the order of the files, and the store keeps
//! the ids.
//!
//! **Tables.** A table of features, labels, targets or parts goes by position (line k is node k) unless it has an id column,
//! which mapped ids require. Every node needs features; its label or part may be missing.
//!
//! **Memory.** Everything streams: text in pieces, arrays by ranges, parquet by row groups. Data that needs another
//! order is sorted on disk. Only text ids are held in memory, within half the limit.

mod drawn;
mod edge_weights;
mod edges;
mod fields;
mod files;
mod guard;
mod ids;
mod labels;
mod names;
mod npy;
mod numbers;
mod parquet;
mod rows;
mod rules;
mod scratch;
mod sinks;
mod splits;
mod staged;
mod staged_labels;
mod targets;
mod text;
mod texts;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use kith_store::{Dtype, Manifest, StoreError};

pub use self::rules::{EdgeWeightRule, IdRule, SplitRule};
use crate::{
    PartitionError, Result,
    csr::{EdgeOptions, EdgeRows, ListsBuilder, MAX_NODES, MIN_MEMORY_BYTES, StoreBuilder, check_memory},
    progress::Progress,
    split::{FractionSplit, Fractions, PerClass},
    tables::{
        drawn::parts_per_class,
        edges::EdgeFiles,
        files::{Trouble, counted},
        ids::{Id, NodeIds},
        labels::LabelTables,
        numbers::{EndFeed, NumberIds, Span},
        rows::{Nodes, RowTables},
        rules::IdKind,
        splits::{SplitSource, write_given},
        staged::StagedRows,
        staged_labels::StagedLabels,
        targets::TargetTables,
        texts::TextCollector,
    },
};

/// A user's own graph, as tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Files of edges, and folders of them: csv, tsv, txt (each also gzip), npy or parquet.
    pub edges: Vec<PathBuf>,
    /// Weights of the edges, if they have some.
    pub edge_weights: Option<EdgeWeightRule>,
    /// Files of edge features, and folders of them: npy, parquet or csv, one row per edge in the order of `edges`. Empty if
    /// there are none.
    pub edge_features: Vec<PathBuf>,
    /// Files of features, and folders of them: npy, parquet or csv. Empty if there are none.
    pub rows: Vec<PathBuf>,
    /// Files of labels, and folders of them: csv or npy. Empty if there are none.
    pub labels: Vec<PathBuf>,
    /// Files of numbers to predict, and folders of them: csv or npy. Empty if there are none; not together with labels.
    pub targets: Vec<PathBuf>,
    /// The split, if there is one.
    pub split: Option<SplitRule>,
    /// Number of nodes; derived from the edges if `None`.
    pub n_nodes: Option<u64>,
    /// Number of classes; derived from the labels if `None`.
    pub n_classes: Option<u64>,
    /// Treatment of ids.
    pub ids: IdRule,
    /// Treatment of edges.
    pub edge_options: EdgeOptions,
    /// The type in which rows are stored.
    pub dtype: Dtype,
    /// The most memory to be used.
    pub memory_bytes: u64,
    /// Names everything drawn.
    pub run_key: u64,
    /// Source of the graph, as recorded in the manifest.
    pub source: String,
}

/// Makes a store of tables.
pub fn import(tables: &Tables, out: &Path, progress: &dyn Progress) -> Result<Manifest> {
    if out.exists() {
        return Err(StoreError::Exists { path: out.to_owned() }.into());
    }
    check_memory(tables.memory_bytes)?;
    match &tables.split {
        Some(SplitRule::Fractions(fractions)) => drop(FractionSplit::new(*fractions, tables.run_key)?),
        Some(SplitRule::PerClass(_)) if tables.labels.is_empty() => {
            return Err(PartitionError::Option("a split per class needs --labels".into()));
        }
        _ => {}
    }
    if !tables.labels.is_empty() && !tables.targets.is_empty() {
        return Err(PartitionError::Option("--labels are classes and --targets are numbers: give one of them".into()));
    }
    if !tables.edge_features.is_empty() && tables.edge_options.merge_duplicates {
        let problem = "--merge-duplicates: edges with features are not merged, because each has its own features";
        return Err(PartitionError::Option(problem.into()));
    }
    let of_edges = (tables.edge_weights.as_ref(), !tables.edge_features.is_empty());
    let edges = EdgeFiles::open(&tables.edges, tables.ids, of_edges, tables.memory_bytes)?;
    let kind = edges.kind();
    let parts = Parts {
        edge_features: RowTables::open_of_edges(&tables.edge_features, tables.memory_bytes)?,
        rows: RowTables::open(&tables.rows, kind, tables.memory_bytes)?,
        labels: LabelTables::open(&tables.labels, kind)?,
        targets: TargetTables::open(&tables.targets, kind)?,
        split: tables.split.as_ref().map(|rule| SplitSource::open(rule, kind)).transpose()?,
        edges,
    };
    let found = parts.find_ids(tables, progress)?;
    // Texts stay in memory; the rest of it is for everything else.
    let n_text_bytes = if let Found::Known(NodeIds::Texts(ids)) = &found { ids.n_bytes() } else { 0 };
    let memory_bytes = tables.memory_bytes.saturating_sub(n_text_bytes).max(MIN_MEMORY_BYTES);
    let mut builder = StoreBuilder::create(out, memory_bytes, progress)?;
    let ids = match found {
        Found::Known(ids) => ids,
        Found::ToSort(span) => parts.sort_ids(span, &builder, progress)?,
    };
    parts.build(tables, &ids, &mut builder)?;
    builder.finish()
}

/// All tables, opened.
struct Parts {
    edges: EdgeFiles,
    edge_features: Option<RowTables>,
    rows: Option<RowTables>,
    labels: Option<LabelTables>,
    targets: Option<TargetTables>,
    split: Option<SplitSource>,
}

/// Knowledge about ids before anything is written.
enum Found {
    Known(NodeIds),
    /// Numbers that have to be mapped.
    ToSort(Span),
}

impl Parts {
    /// Reads the edges for their ids, unless all is known already.
    fn find_ids(&self, tables: &Tables, progress: &dyn Progress) -> Result<Found> {
        if self.edges.kind() == IdKind::Texts {
            let half = tables.memory_bytes / if tables.memory_bytes < 2 * MIN_MEMORY_BYTES { 4 } else { 2 };
            let texts = TextCollector::new(half);
            self.edges.each_text("finding ids", progress, || &texts)?;
            self.each_id(&mut |id| if let Id::Text(text) = id { texts.insert(text) } else { Ok(()) })?;
            return Ok(Found::Known(NodeIds::Texts(texts.finish())));
        }
        if let (IdRule::Auto | IdRule::Dense, Some(n_nodes)) = (tables.ids, tables.n_nodes) {
            return Ok(Found::Known(NodeIds::Dense { n_nodes }));
        }
        let mut span = Span::scan(&self.edges, progress)?;
        self.each_id(&mut |id| {
            if let Id::Number(id) = id {
                span.include(id);
            }
            Ok(())
        })?;
        if tables.ids == IdRule::Mapped || tables.ids == IdRule::Auto && !span.is_dense() {
            return Ok(Found::ToSort(span));
        }
        let n_nodes = if span.n_edges == 0 { 0 } else { span.max.saturating_add(1) };
        Ok(Found::Known(NodeIds::Dense { n_nodes }))
    }

    fn sort_ids(&self, span: Span, builder: &StoreBuilder<'_>, progress: &dyn Progress) -> Result<NodeIds> {
        let ids = NumberIds::sort(span, builder.budget(), |sorter| {
            let feed = || EndFeed { feeder: sorter.feeder(), span };
            let feeds = self.edges.each_number("collecting ids", progress, feed)?;
            feeds.into_iter().try_for_each(|feed| feed.feeder.finish())?;
            let mut others = feed();
            self.each_id(&mut |id| if let Id::Number(id) = id { others.id(id) } else { Ok(()) })?;
            others.feeder.finish()
        })?;
        Ok(NodeIds::Numbers(ids))
    }

    /// Hands over the ids that tables of features, labels and targets name.
    fn each_id(&self, take: &mut dyn FnMut(Id<'_>) -> Result<(), Trouble>) -> Result<()> {
        self.rows.as_ref().map_or(Ok(()), |rows| rows.each_id(take))?;
        self.labels.as_ref().map_or(Ok(()), |labels| labels.each_id(take))?;
        self.targets.as_ref().map_or(Ok(()), |targets| targets.each_id(take))
    }

    /// Everything that can contradict the edges is read before the lists, which take the longest, are built.
    fn build(&self, tables: &Tables, ids: &NodeIds, builder: &mut StoreBuilder<'_>) -> Result<()> {
        let n_nodes = ids.n_nodes();
        if n_nodes > MAX_NODES {
            let problem = "a graph has at most 2^40, so these ids have to be mapped: --ids mapped";
            return Err(PartitionError::Option(format!("{n_nodes} nodes by their largest id: {problem}")));
        }
        if let Some(given) = tables.n_nodes
            && given != n_nodes
        {
            let n_ids = counted(n_nodes, "id");
            return Err(PartitionError::Option(format!(
                "--nodes {given}, and the tables name {n_ids}, which are mapped"
            )));
        }
        let nodes = Nodes { are_given: tables.n_nodes.is_some(), memory_bytes: tables.memory_bytes };
        let rows = self.rows.as_ref().map(|rows| rows.stage(ids, nodes, builder)).transpose()?;
        let labels = self.labels.as_ref();
        let stage_labels =
            |labels: &LabelTables| labels.stage(ids, nodes.are_given, tables.n_classes, builder.budget());
        let labels = labels.map(stage_labels).transpose()?;
        let stage_targets = |targets: &TargetTables| targets.stage(ids, nodes.are_given, builder.budget());
        let targets = self.targets.as_ref().map(stage_targets).transpose()?;
        let split = self.split.as_ref().map(|split| split.stage(ids, nodes.are_given, builder.budget())).transpose()?;

        let progress = builder.progress();
        let edge_features = self.edge_features.as_ref();
        let edge_features =
            edge_features.map(|tables| tables.stage_of_edges(nodes.memory_bytes, builder)).transpose()?;
        let feed = |lists: &ListsBuilder<'_>| ids.feed_edges(&self.edges, lists, progress);
        let n_read = match &edge_features {
            Some(features) => self.build_with_features(features, tables, n_nodes, builder, feed)?,
            None if self.edges.are_weighted() => builder.weighted_lists(n_nodes, tables.edge_options, feed)?.n_read,
            None => builder.lists(n_nodes, tables.edge_options, feed)?.n_read,
        };
        if n_read == 0 {
            return Err(PartitionError::input(&tables.edges[0], "end of file", "holds no edges"));
        }
        if let Some(rows) = &rows {
            rows.write(builder, tables.dtype)?;
        }
        if let Some(labels) = &labels {
            labels.write(builder)?;
        }
        if let Some(targets) = &targets {
            targets.write(builder)?;
        }
        match (&self.split, split.flatten()) {
            (_, Some(given)) => write_given(&given, "given", builder)?,
            (Some(SplitSource::Drawn(rule)), None) => draw_split(rule, labels.as_ref(), tables.run_key, builder)?,
            _ => {}
        }
        match ids {
            NodeIds::Dense { .. } => {}
            NodeIds::Numbers(ids) => builder.number_ids_by(|first, numbers| ids.read(first, numbers))?,
            NodeIds::Texts(ids) => builder.text_ids(ids.iter())?,
        }
        self.tell(tables, ids, builder);
        Ok(())
    }

    /// Builds the adjacency of edges with features; gives the number of edges that were read.
    fn build_with_features(
        &self,
        features: &StagedRows,
        tables: &Tables,
        n_nodes: u64,
        builder: &mut StoreBuilder<'_>,
        feed: impl FnOnce(&ListsBuilder<'_>) -> Result<()>,
    ) -> Result<u64> {
        let are_same = |row, other| features.are_same(row, other);
        let rows = EdgeRows { have_weights: self.edges.are_weighted(), are_same: &are_same };
        let (summary, rows) = builder.lists_with_rows(n_nodes, tables.edge_options, rows, feed)?;
        if features.n_rows() != summary.n_read {
            let found = counted(features.n_rows(), "row");
            let problem = format!("expected {}, one per edge, found {found}", counted(summary.n_read, "row"));
            return Err(PartitionError::input(features.path(), "rows", problem));
        }
        features.write_of_edges(builder, tables.dtype, rows.items())?;
        Ok(summary.n_read)
    }

    /// Says in the manifest what was followed.
    fn tell(&self, tables: &Tables, ids: &NodeIds, builder: &mut StoreBuilder<'_>) {
        let provenance = builder.provenance();
        provenance.source = tables.source.clone();
        let followed = match ids {
            NodeIds::Dense { .. } => "dense",
            NodeIds::Numbers(_) => "mapped numbers",
            NodeIds::Texts(_) => "mapped texts",
        };
        provenance.options.insert("ids".into(), followed.into());
        if let Some(EdgeWeightRule::Column(name)) = &tables.edge_weights {
            provenance.options.insert("edge_weights".into(), name.clone());
        }
        for (option, given) in [("nodes", tables.n_nodes), ("classes", tables.n_classes)] {
            provenance.options.extend(given.map(|given| (option.to_owned(), given.to_string())));
        }
        provenance.counted.insert("edge_files".into(), self.edges.n_files() as u64);
        match &tables.split {
            Some(SplitRule::Fractions(Fractions { train, valid, test })) => {
                provenance.seed = Some(tables.run_key);
                provenance.options.insert("split".into(), format!("{train}/{valid}/{test}"));
            }
            Some(SplitRule::PerClass(PerClass { train, valid, test })) => {
                provenance.seed = Some(tables.run_key);
                let test = test.map_or("rest".into(), |test| test.to_string());
                provenance.options.insert("split".into(), format!("{train}/{valid}/{test} per class"));
            }
            _ => {}
        }
    }
}

fn draw_split(
    rule: &SplitRule,
    labels: Option<&StagedLabels>,
    run_key: u64,
    builder: &mut StoreBuilder<'_>,
) -> Result<()> {
    let name = format!("seed-{run_key}");
    match rule {
        SplitRule::Fractions(fractions) => {
            let split = FractionSplit::new(*fractions, run_key)?;
            builder.split(&name, |node| Ok(split.part(node)))
        }
        SplitRule::PerClass(per_class) => {
            let parts = parts_per_class(labels, *per_class, run_key, builder.budget())?;
            write_given(&parts, &name, builder)
        }
        SplitRule::Path(_) | SplitRule::Parts { .. } => Ok(()),
    }
}
