//! Replay of a past step: its draws are a function of the run file, the seed and the store, so any batch of a run can
//! be made again, anywhere, and compared with the run's record.

use std::{path::Path, sync::Arc};

use kith_client::{Batch, BatchMaker, Stock};
use kith_run::{
    config::{Mode, RunConfig},
    report::RUN_FILE,
    run_file::RunFile,
};
use kith_sampler::EdgeData;
use serde::Serialize;

use crate::{
    data::{Data, feed::batches_of, opened::Opened},
    error::TrainError,
    inference::recorded::Recorded,
    output::checkpoint::Checkpoints,
};

/// Batches to make again.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The folder of the run.
    pub run: &'a Path,
    /// The graph it was trained on.
    pub opened: &'a Opened,
    /// Its seed; not needed if there is a checkpoint.
    pub run_key: Option<u64>,
    /// The step, counted from 0 over the whole run.
    pub step: u64,
    /// The slice of the step; `None`: all.
    pub slice: Option<usize>,
}

/// A step that was made again, as recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// The step.
    pub step: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Names all randomness of the run.
    pub run_key: u64,
    /// The slices asked for.
    pub slices: Vec<ReplayedSlice>,
}

/// A slice that was made again, as recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayedSlice {
    /// Its number.
    pub slice: u64,
    /// Of everything drawn, in 16 hexadecimal digits.
    pub digest: String,
    /// Nodes that it started from: seeds and edge seeds.
    pub n_roots: usize,
    /// Nodes with a node loss.
    pub n_seeds: usize,
    /// From the input to the output.
    pub layers: Vec<ReplayedLayer>,
}

/// Sizes of one layer's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayedLayer {
    /// Nodes that were read.
    pub n_sources: usize,
    /// Nodes that got an output.
    pub n_destinations: usize,
    /// Edges, loops included.
    pub n_edges: usize,
    /// Pairs without an edge that the edge loss looked at.
    pub n_negatives: usize,
}

/// Makes the batches of a past step again; an error where they are not as recorded.
pub fn replay(question: &Question<'_>) -> Result<Replayed, TrainError> {
    let Question { run, opened, step, slice, .. } = *question;
    let (mut config, run_key) = find_run(question)?;
    if config.train.mode == Mode::FullBatch {
        let problem = "every step of this run looked at the whole graph: there is no batch to replay";
        return Err(TrainError::Replay(format!("{}: {problem}", run.display())));
    }
    let recorded = Recorded::read(run, step)?;
    let data = Data::load(opened, &config, run_key)?;
    data.settle(&mut config, 1);
    let Data::Batches(input) = &data else { unreachable!("data is loaded as the config says") };
    let (plan, mut batch_config) = batches_of(input, &config, run_key)?;
    batch_config.has_rows = false; // Rows are not drawn.
    batch_config.edge_data = EdgeData::NONE;
    let n_slices = plan.config().slices;
    let slices = match slice {
        None => 0..n_slices,
        Some(slice) if slice < n_slices => slice..slice + 1,
        Some(slice) => {
            let problem = format!("there is no slice {slice}: steps of this run have slices 0 to {}", n_slices - 1);
            return Err(TrainError::Replay(problem));
        }
    };
    let epoch = plan.step(step).epoch;
    let mut maker = BatchMaker::new(Arc::clone(&input.shards), plan, batch_config, Stock::new(1));
    let replayed = slices.map(|slice| {
        let replayed = ReplayedSlice::of(&maker.make(step, slice)?);
        recorded.check(slice, &replayed.digest)?;
        Ok(replayed)
    });
    Ok(Replayed { step, epoch, run_key, slices: replayed.collect::<Result<_, TrainError>>()? })
}

/// Run file and seed: from the checkpoint, or from the folder's run file and the caller.
fn find_run(question: &Question<'_>) -> Result<(RunConfig, u64), TrainError> {
    let Question { run, opened, run_key, .. } = *question;
    let checkpoints = Checkpoints::of(run);
    if !checkpoints.is_empty()? {
        let checkpoint = checkpoints.last()?;
        checkpoint.check_store(&opened.info().digest)?;
        return match run_key.filter(|run_key| *run_key != checkpoint.state().seed) {
            None => Ok((checkpoint.config()?, checkpoint.state().seed)),
            Some(other) => {
                let problem = format!("a checkpoint of seed {}, not {other}", checkpoint.state().seed);
                Err(TrainError::checkpoint(run, problem))
            }
        };
    }
    let config = RunFile::read(&run.join(RUN_FILE))?.resolve()?;
    let missing = || TrainError::Replay(format!("{}: no checkpoint yet: give its --seed", run.display()));
    Ok((config, run_key.ok_or_else(missing)?))
}

impl ReplayedSlice {
    fn of(batch: &Batch) -> ReplayedSlice {
        let layers = batch.blocks.iter().enumerate().map(|(layer, block)| ReplayedLayer {
            n_sources: block.n_sources(),
            n_destinations: block.n_destinations(),
            n_edges: block.n_edges(),
            n_negatives: batch.pairs.get(layer).map_or(0, |pairs| pairs.negatives().len()),
        });
        ReplayedSlice {
            slice: batch.slice,
            digest: batch.digest_text(),
            n_roots: batch.roots().len(),
            n_seeds: batch.links.as_ref().map_or(batch.seeds.len(), |links| links.n_edges),
            layers: layers.collect(),
        }
    }
}
