//! Starts runs, measures rounds of their steps, and counts their work.

use std::{
    path::Path,
    sync::mpsc::{Receiver, SyncSender},
    time::Duration,
};

use anyhow::bail;
use kith_client::Found;
use kith_group::launch::attempt::Outcome;
use kith_partition::{assign::Method, generate::power_law};
use kith_run::model_kind::ModelKind;
use kith_store::Graph;

use super::{
    super::{
        clusters::Clusters,
        combinations::Combination,
        scale::{Stage, start},
    },
    gauge::{Gauge, Round},
    subjects::{Like, Subject},
};
use crate::{
    constants::N_PARTS,
    data::memory,
    launch::{events, process::Event},
    plan::{
        forecast::vector_bytes,
        of_cluster,
        sampled::{Find, Steps, Wanted, sample, settled},
        time::Job,
        work::Shape,
    },
    progress::Shown,
};

/// Steps whose work is counted.
const N_COUNTED: u64 = 4;

/// Memory for generating a graph.
const MEMORY_BYTES: u64 = 1 << 30;

/// Rounds of a subject, with the work of a step.
pub(super) struct Measured {
    pub(super) subject: Subject,
    pub(super) rounds: Vec<Round>,
    /// Work by step, rank and slice.
    pub(super) steps: Steps,
    pub(super) job: Job,
}

pub(super) enum Ended {
    With(Round),
    /// Stopped by a signal, with its exit code.
    Stopped(u8),
}

/// Graphs and settings of all measurements.
pub(super) struct Bench<'a> {
    folder: &'a Path,
    cores: &'a [usize],
    round: Duration,
    events: (SyncSender<Event>, Receiver<Event>),
}

impl<'a> Bench<'a> {
    /// Generates the graphs.
    pub(super) fn new(folder: &'a Path, cores: &'a [usize], round: Duration) -> anyhow::Result<Bench<'a>> {
        Like::ALL.iter().try_for_each(|graph| generate(folder, *graph))?;
        Ok(Bench { folder, cores, round, events: events()? })
    }

    /// Starts the processes of a subject, and measures one round of its steps.
    pub(super) fn measure(&self, subject: &Subject) -> anyhow::Result<Ended> {
        let work = self.folder.join(subject.graph.name());
        let asked = Combination {
            store: String::new(),
            kith: env!("CARGO_PKG_VERSION").to_owned(),
            fanouts: subject.fanouts.to_owned(),
            shards: 1,
            servers: subject.servers,
            ranks: subject.ranks,
            seeds_per_step: subject.batch * subject.ranks as u64,
            steps: 0,
            warm_up: 0,
            rank_threads: subject.threads,
            server_threads: 1,
            device: subject.device.clone(),
            cache: "0".to_owned(),
            method: None,
            pinned: true,
            loopback_rate: None,
            round: 0,
            run_file: subject.config()?.to_toml(),
        };
        // A rank with several threads needs several cores.
        let cores = if subject.threads == 1 { self.cores.to_vec() } else { Vec::new() };
        let stage = Stage { work: &work, cluster: &clusters(&work).dir(1), cores };
        // Pairs and features are asked for at the same time, by threads that end.
        let has_short_threads = subject.servers > 0 && subject.kind == ModelKind::Supergat;
        let mut gauge = None;
        let events = (&self.events.0, &self.events.1);
        let outcome =
            start(&asked, &stage, events, |run| gauge.insert(Gauge::new(run, self.round, has_short_threads)))?;
        let gauge = gauge.expect("made at the start");
        match (outcome, gauge.measured) {
            (Outcome::Stopped { code }, _) => Ok(Ended::Stopped(code)),
            (_, Some(round)) => Ok(Ended::With(round)),
            (Outcome::Failed { sentence, .. }, None) => bail!("{subject}: {}", gauge.error.unwrap_or(sentence)),
            (Outcome::Done, None) => {
                bail!("{subject}: expected a measurement, found that the run ended before it: run the command again")
            }
        }
    }

    /// A subject with its work, of which no round is measured.
    pub(super) fn count(&self, subject: &Subject) -> anyhow::Result<Measured> {
        counted(self.folder, subject)
    }
}

/// Generates a graph in its folder, as one shard.
fn generate(folder: &Path, graph: Like) -> anyhow::Result<()> {
    let work = folder.join(graph.name());
    std::fs::create_dir(&work)?;
    let store = work.join("store");
    power_law(&graph.options(), &store, memory::for_data(MEMORY_BYTES)?, &Shown::new())?;
    clusters(&work).cut(&Graph::open(&store)?, 1)
}

fn counted(folder: &Path, subject: &Subject) -> anyhow::Result<Measured> {
    let planned = of_cluster(&clusters(&folder.join(subject.graph.name())).dir(1), None)?;
    let (config, seeds) = settled(&planned.shards, subject.config()?, subject.ranks)?;
    let place = if subject.servers > 0 { Found::Remote } else { Found::Local };
    let find: &Find<'_> = &move |_, _| place;
    let ranks = subject.ranks;
    let wanted = Wanted { run_seed: 42, n_steps: N_COUNTED, ranks, slices_per_rank: 1 };
    let info = planned.shards.info().clone();
    let steps = sample(&planned.shards, (&config, seeds), wanted, &[find])?.remove(0);
    let job = Job {
        vector_bytes: vector_bytes(&planned.contents, planned.stored_per_row),
        id_bytes: 4.0,
        n_weights: Shape::new(&config, info.dim, info.n_classes).n_weights(),
        slices: ranks,
        is_deterministic: config.train.deterministic.unwrap_or(true),
        compute: [0.0; N_PARTS],
        disk_pages: 0.0,
    };
    Ok(Measured { subject: subject.clone(), rounds: Vec::new(), steps, job })
}

fn clusters(work: &Path) -> Clusters<'_> {
    Clusters { work, method: Some(Method::Range), inclusion: None }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The subjects with their work.
    pub(in super::super) fn all_counted(subjects: &[Subject]) -> Vec<Measured> {
        let temp = tempfile::tempdir().unwrap();
        Like::ALL.iter().for_each(|graph| generate(temp.path(), *graph).unwrap());
        subjects.iter().map(|subject| counted(temp.path(), subject).unwrap()).collect()
    }
}
