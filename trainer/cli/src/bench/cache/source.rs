//! Graph of a simulation: where its shards are, and the probabilities of its nodes.

use std::{path::Path, sync::Arc};

use anyhow::{Context, bail};
use kith_client::{LocalStore, Shards};
use kith_partition::{
    assign::{AssignOptions, Balance, assign},
    inclusion::{InclusionOptions, inclusion},
};
use kith_store::{Contents, CutEntry, Graph, Manifest};

use super::args::Args;
use crate::{
    partition::method_for,
    plan::{forecast::vector_bytes, of_cluster},
    progress::Shown,
};

/// A graph whose features are remote, all or in part.
pub(super) struct Source {
    pub(super) shards: Arc<dyn Shards>,
    pub(super) n_nodes: u64,
    /// Bytes of an average feature vector as it is stored.
    pub(super) vector_bytes: f64,
    /// Probability that a mini-batch contains a node.
    pub(super) inclusion: Vec<f32>,
    /// Shard of each node; `None` if no rank holds shards.
    owner: Option<Vec<u16>>,
    n_ranks: usize,
}

impl Source {
    /// Opens the graph, or generates it.
    pub(super) fn open(args: &Args) -> anyhow::Result<Source> {
        let source = match (args.like, &args.work, &args.graph) {
            (Some(like), Some(work), _) => {
                std::fs::create_dir_all(work).with_context(|| work.display().to_string())?;
                Source::of_store(args, like.open(&work.join(like.store_name()))?)?
            }
            (_, _, Some(graph)) => match Manifest::read(graph)?.contents.cut {
                Some(CutEntry::Cluster(_)) => Source::of_cluster(args, graph)?,
                _ => Source::of_store(args, Graph::open(graph)?)?,
            },
            _ => bail!("expected a store or a partitioned graph: give its folder, or --like arxiv or --like products"),
        };
        if source.vector_bytes == 0.0 {
            bail!("the graph has no features to cache: import it with --features");
        }
        Ok(source)
    }

    fn of_store(args: &Args, graph: Graph) -> anyhow::Result<Source> {
        let contents = graph.manifest().contents.clone();
        let shown = Shown::new();
        let mut owner = None;
        if let Some(n_shards) = args.shards.filter(|_| args.ranks > 1) {
            let method = method_for(args.method, &contents, n_shards, None)?;
            let options = AssignOptions { n_shards, method, balance: Balance::All, run_key: args.run_seed };
            owner = Some(assign(&graph, &options, &shown)?.owner);
        }
        let options = InclusionOptions { fanouts: args.fanouts.0.clone(), seeds_per_step: args.batch_size };
        let inclusion = inclusion(&graph, &options, &shown)?;
        let n_stored = graph.features().map_or(0, |features| features.n_stored());
        let stored = n_stored as f64 / contents.n_nodes.max(1) as f64;
        Source::new(args, Arc::new(LocalStore::new(Arc::new(graph))), &contents, stored, inclusion, owner)
    }

    fn of_cluster(args: &Args, dir: &Path) -> anyhow::Result<Source> {
        let planned = of_cluster(dir, args.shards)?;
        let owner = Some(planned.owner).filter(|_| args.ranks > 1);
        Source::new(args, planned.shards, &planned.contents, planned.stored_per_row, planned.inclusion, owner)
    }

    fn new(
        args: &Args,
        shards: Arc<dyn Shards>,
        contents: &Contents,
        stored_per_vector: f64,
        inclusion: Option<Vec<f32>>,
        owner: Option<Vec<u16>>,
    ) -> anyhow::Result<Source> {
        if u32::try_from(contents.n_nodes).is_err() {
            bail!("expected fewer than 2^32 nodes, found {}", contents.n_nodes);
        }
        let Some(inclusion) = inclusion else {
            bail!("the graph has no training nodes, and so no mini-batches: import it with --split")
        };
        Ok(Source {
            shards,
            n_nodes: contents.n_nodes,
            vector_bytes: vector_bytes(contents, stored_per_vector),
            inclusion,
            owner,
            n_ranks: usize::from(args.ranks),
        })
    }

    /// True if a rank does not hold the features of a node.
    pub(super) fn is_remote(&self, rank: usize, node: u64) -> bool {
        self.owner.as_ref().is_none_or(|owner| usize::from(owner[node as usize]) % self.n_ranks != rank)
    }
}
