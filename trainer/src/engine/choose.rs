//! Choice of a run's engine.

use kith_kernels::cuda::{Gpu, RankSlices};

use super::{Engine, gpu_batches::BatchEngine, gpu_graph::GraphEngine, host::Host};
use crate::{engine::gpu, error::TrainError};

/// Engines for runs on a GPU, with the weights and moments that the hosts have. Several runs are computed together, which
/// takes one graph.
pub(crate) fn on_gpu<'a>(
    device: &Gpu,
    hosts: &mut [&mut Host<'a>],
    gpu_rows: Option<u64>,
    slices: Option<&RankSlices>,
) -> Result<Vec<Box<dyn Engine<'a> + 'a>>, TrainError> {
    if let Some(sentence) = hosts.iter().find_map(|host| gpu::refusal(&host.config)) {
        return Err(TrainError::NotOnGpu(sentence));
    }
    match (gpu::whole_graph(hosts[0].data), hosts) {
        (Some(graph), hosts) => {
            let engines = GraphEngine::new(device, graph, hosts)?;
            Ok(engines.into_iter().map(|engine| Box::new(engine) as Box<dyn Engine<'a> + 'a>).collect())
        }
        (None, [host]) => Ok(vec![Box::new(BatchEngine::new(device, host, gpu_rows, slices)?)]),
        (None, _) => unreachable!("runs that are computed together share one graph"),
    }
}
