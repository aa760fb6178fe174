//! Partitions a store: assigns owners, computes inclusion probabilities, writes the shards and verifies them.

mod verify;

use std::path::Path;

use kith_store::{Cut, Graph, Manifest, Provenance, StoreError, write_cluster};

pub use self::verify::{ClusterVerified, n_bytes, verify_cluster};
use crate::{
    assign::{AssignOptions, Balance, CutReport, assign},
    error::Result,
    inclusion::{InclusionOptions, inclusion},
    progress::{Piece, Progress, Unit},
};

/// Options of a partition.
#[derive(Clone, Debug)]
pub struct PartitionOptions {
    /// Assignment of nodes to shards.
    pub assign: AssignOptions,
    /// The batches that inclusion is worked out for; `None` leaves it out.
    pub inclusion: Option<InclusionOptions>,
}

/// A cluster that was made, and what it is worth.
#[derive(Clone, Debug)]
pub struct Partitioned {
    /// The cluster's manifest.
    pub manifest: Manifest,
    /// Cut, balance, time, memory.
    pub report: CutReport,
    /// Result of verifying every byte after writing.
    pub verified: ClusterVerified,
}

/// Cuts a store into a cluster at `out`, which must not exist, and reads it all again.
pub fn partition(
    graph: &Graph,
    out: &Path,
    options: &PartitionOptions,
    progress: &dyn Progress,
) -> Result<Partitioned> {
    if out.exists() {
        // Said now, not after minutes of work.
        return Err(StoreError::Exists { path: out.to_owned() }.into());
    }
    let assignment = assign(graph, &options.assign, progress)?;
    let inclusion = match &options.inclusion {
        Some(options) => inclusion(graph, options, progress)?,
        None => None,
    };
    let AssignOptions { n_shards, method, run_key, .. } = options.assign;
    let cut = Cut {
        owner: &assignment.owner,
        n_shards,
        inclusion: inclusion.as_deref(),
        method: method.to_string(),
        provenance: provenance(options, &assignment.report, run_key, inclusion.is_some()),
    };
    let work = Piece::begin(progress, "writing shards", Some(graph.n_nodes()), Unit::Nodes);
    let manifest = write_cluster(graph, &cut, out, &|n| work.advance(n))?;
    drop(work);
    drop(inclusion);
    let work = Piece::begin(progress, "reading every byte again", Some(n_bytes(out, None)?), Unit::Bytes);
    let verified = verify_cluster(out, Some(graph), None, &|n| work.advance(n))?;
    drop(work);
    Ok(Partitioned { manifest, report: assignment.report, verified })
}

fn provenance(options: &PartitionOptions, report: &CutReport, run_key: u64, has_inclusion: bool) -> Provenance {
    let mut provenance = Provenance { seed: Some(run_key), notes: report.notes.clone(), ..Provenance::default() };
    let balance = match options.assign.balance {
        Balance::Nodes => "nodes",
        Balance::All => "all",
    };
    let mut say = |key: &str, value: String| provenance.options.insert(key.to_owned(), value);
    say("balance", balance.to_owned());
    if let Some(inclusion) = options.inclusion.as_ref().filter(|_| has_inclusion) {
        let fanout = |fanout: &Option<_>| fanout.map_or("all".to_owned(), |n: std::num::NonZeroU32| n.to_string());
        say("fanouts", inclusion.fanouts.iter().map(fanout).collect::<Vec<_>>().join(","));
        say("seeds_per_step", inclusion.seeds_per_step.to_string());
    }
    provenance
}

#[cfg(test)]
mod tests;
