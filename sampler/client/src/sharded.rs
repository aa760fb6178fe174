//! A graph that was cut: every question goes to the owners of its nodes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use kith_sampler::{Direction, Drawn, Hop, Seeds, ShardSampler};
use kith_store::{Cluster, RowsForm, SplitPart};

use crate::{
    by_owner::{ByOwner, Part, merge_drawn},
    error::{ClientError, Result},
    rows::FetchedRows,
    shards::{Info, Shards},
};

/// The shards of a cluster.
#[derive(Debug)]
pub struct Sharded {
    info: Info,
    cluster: Arc<Cluster>,
    shards: Vec<ShardSampler>,
    n_local_rows: AtomicU64,
}

/// Where rows came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// From files of this process.
    pub local: u64,
    /// From the cache.
    pub cached: u64,
    /// From servers.
    pub remote: u64,
}

impl Sharded {
    /// All shards in this process.
    pub fn local(cluster: Arc<Cluster>) -> Result<Sharded> {
        let open = |shard| Ok(ShardSampler::new(cluster.open_shard(shard)?));
        Ok(Sharded {
            info: Info::new(cluster.store_digest(), cluster.manifest()),
            shards: (0..cluster.n_shards()).map(open).collect::<Result<_>>()?,
            cluster,
            n_local_rows: AtomicU64::new(0),
        })
    }

    /// Where rows came from so far.
    pub fn row_counts(&self) -> RowCounts {
        RowCounts { local: self.n_local_rows.load(Ordering::Relaxed), ..RowCounts::default() }
    }

    fn by_owner(&self, nodes: &[u64]) -> Result<ByOwner> {
        ByOwner::new(self.cluster.owners(), self.cluster.n_shards(), nodes)
    }

    fn shard(&self, shard: u32) -> &ShardSampler {
        &self.shards[shard as usize]
    }
}

impl Shards for Sharded {
    fn info(&self) -> &Info {
        &self.info
    }

    fn seeds(&self, split: Option<&str>, part: SplitPart) -> Result<Seeds> {
        let mut all: Option<Seeds> = None;
        for shard in &self.shards {
            let own = shard.seeds(split, part)?;
            all = Some(all.map_or_else(|| own.clone(), |all| all.union(&own)));
        }
        all.ok_or(ClientError::NoSeeds)
    }

    fn sample_hop(&self, hop: &Hop, frontier: &[u64], drawn: &mut Drawn) -> Result<()> {
        let by_owner = self.by_owner(frontier)?;
        if let Some(shard) = by_owner.only_shard() {
            return Ok(self.shard(shard).sample_hop(hop, frontier, drawn)?);
        }
        let answer = |part: Part<'_>| {
            let mut drawn = Drawn::default();
            self.shard(part.shard).sample_hop(hop, part.nodes, &mut drawn)?;
            Ok::<_, ClientError>(drawn)
        };
        let answers: Result<Vec<_>> = by_owner.parts().map(|part| Ok((part, answer(part)?))).collect();
        merge_drawn(frontier.len(), &answers?, drawn);
        Ok(())
    }

    fn fetch_rows(&self, nodes: &[u64], rows: &mut FetchedRows) -> Result<()> {
        let form = self.info.rows.ok_or(ClientError::NoRows)?;
        let by_owner = self.by_owner(nodes)?;
        let located = |part: Part<'_>| {
            let shard = self.shard(part.shard);
            let stored = shard.shard().rows().ok_or(ClientError::NoRows)?;
            Ok::<_, ClientError>((shard.rows_of(part.nodes)?, stored))
        };
        match form {
            RowsForm::Dense => rows.begin_dense(nodes.len(), self.info.dim),
            RowsForm::Sparse => {
                let mut lengths = vec![0; nodes.len()];
                for part in by_owner.parts() {
                    let (rows, stored) = located(part)?;
                    for (row, place) in rows.iter().zip(part.places) {
                        lengths[*place as usize] = stored.n_stored_of(*row)?;
                    }
                }
                rows.begin_sparse(self.info.dim, lengths.into_iter());
            }
        }
        for part in by_owner.parts() {
            let (own, stored) = located(part)?;
            rows.gather_at(stored, &own, part.places.iter().map(|place| *place as usize))?;
        }
        self.n_local_rows.fetch_add(nodes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn has_edges(&self, pairs: &[(u64, u64)], direction: Direction, found: &mut [bool]) -> Result<()> {
        let destinations: Vec<u64> = pairs.iter().map(|(_, destination)| *destination).collect();
        for part in self.by_owner(&destinations)?.parts() {
            let own: Vec<(u64, u64)> = part.places.iter().map(|place| pairs[*place as usize]).collect();
            let mut answers = vec![false; own.len()];
            self.shard(part.shard).has_edges(&own, direction, &mut answers)?;
            part.places.iter().zip(answers).for_each(|(place, answer)| found[*place as usize] = answer);
        }
        Ok(())
    }
}
