//! Partitioned graphs of a bench, each partitioned once.

use std::path::{Path, PathBuf};

use anyhow::bail;
use kith_partition::{
    assign::{AssignOptions, Balance, Method},
    cluster::{PartitionOptions, partition},
    inclusion::InclusionOptions,
};
use kith_store::{Cluster, Graph};

use crate::{
    partition::{fanouts::Fanouts, method_for},
    progress::{Shown, say},
};

/// Folder of partitioned graphs, and the options of partitioning.
pub(super) struct Clusters<'a> {
    pub(super) work: &'a Path,
    pub(super) method: Option<Method>,
    /// Mini-batches that feature caches are chosen for, if any: fanouts, and seed nodes per step.
    pub(super) inclusion: Option<(&'a Fanouts, u64)>,
}

impl Clusters<'_> {
    /// Folder of the partitioned graph with `n_shards` shards.
    pub(super) fn dir(&self, n_shards: u32) -> PathBuf {
        let method = self.method.map(|method| format!("-{method}")).unwrap_or_default();
        self.work.join(format!("shards-{n_shards}{method}"))
    }

    /// Partitions a store, unless that is done.
    pub(super) fn cut(&self, graph: &Graph, n_shards: u32) -> anyhow::Result<()> {
        let dir = self.dir(n_shards);
        if dir.exists() {
            if Cluster::open(&dir)?.store_digest() != graph.manifest().identity() {
                bail!("{}: was cut from another store: choose another place with --work", dir.display());
            }
            return Ok(());
        }
        say(&format!("cutting {}", dir.display()));
        let method = method_for(self.method, &graph.manifest().contents, n_shards, None)?;
        let options = PartitionOptions {
            assign: AssignOptions { n_shards, method, balance: Balance::All, run_key: 42 },
            inclusion: self
                .inclusion
                .map(|(fanouts, seeds_per_step)| InclusionOptions { fanouts: fanouts.0.clone(), seeds_per_step }),
        };
        let made = partition(graph, &dir, &options, &Shown::new())?;
        match made.verified.findings.first() {
            Some(finding) => bail!("{}: {finding}", dir.display()),
            None => Ok(()),
        }
    }
}
