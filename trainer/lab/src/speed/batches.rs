//! Time of an epoch in mini-batches: sampled from a store, step by step, as in a real run.

use std::{ops::ControlFlow, path::Path, sync::Arc, time::Instant};

use kith_run::config::RunConfig;
use kith_trainer::{
    data::{Data, opened::Opened},
    distributed::world::World,
    engine::{device::Device, gpu::Gpu},
    error::TrainError,
    inference::layerwise::Room,
    output::{keeper::Keeper, metrics::Metrics},
    run::{Run, RunPlan},
    train::train,
};

use super::{graphs::Arrays, timing::Timing};

/// Timed epochs, including one for warm-up.
pub(super) const N_EPOCHS: u64 = 6;

pub(super) fn measure(
    device: &Gpu,
    config: RunConfig,
    arrays: &Arrays,
    rows_on_gpu: bool,
    folder: &Path,
) -> Result<Timing, TrainError> {
    let before = device.used_bytes();
    let dir = folder.join(format!("store-{}", arrays.size.n_nodes));
    if !dir.exists() {
        arrays.write_store(&dir)?;
    }
    let opened = Opened::open_store(&dir)?;
    let data = Data::load(&opened, &config, 42)?;
    let plan = RunPlan {
        config,
        run_key: 42,
        data: &data,
        source: opened.source(),
        device: Device::Cpu,
        gpu: Some(device.clone()),
        gpu_rows: (!rows_on_gpu).then_some(0),
        out: None,
        init: None,
        resume: false,
        keeper: Keeper::default(),
        room: Room::default(),
        metrics: Arc::new(Metrics::default()),
    };
    let mut world = World::alone();
    let mut run = Run::new(plan, &mut world)?;
    let (mut times, mut started, mut epoch) = (Vec::new(), Instant::now(), 0);
    let mut memory_bytes = 0;
    train(&mut run, |record| {
        if record.epoch > epoch {
            times.push(started.elapsed().as_secs_f64() * 1e3);
            (started, epoch) = (Instant::now(), record.epoch);
            memory_bytes = device.used_bytes() - before;
        }
        if epoch < N_EPOCHS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    times.remove(0);
    times.sort_by(f64::total_cmp);
    let seconds = run.report().map_or(0.0, |report| report.results.seconds_evaluating);
    let n_evaluations = run.n_epochs().max(1) as f64;
    Ok(Timing {
        milliseconds: times[times.len() / 2],
        measure_milliseconds: seconds * 1e3 / n_evaluations,
        memory_bytes,
    })
}
