//! Neighborhoods of given nodes, one call at a time.

use std::sync::{Arc, Mutex};

use kith_client::{NeighborhoodMaker, Shards};
use pyo3::prelude::*;

use crate::{
    array::Memory,
    graph::{Graph, ids_of_numbers},
    memory::Borrowed,
    neighborhoods::{Batch, NeighborhoodSampler},
    settings::SampleConfig,
    waiting::wait_for,
};

/// Samples neighborhoods of given nodes.
#[pyclass(frozen, module = "kith._kith")]
pub(crate) struct Sampler {
    parts: Arc<Parts>,
}

struct Parts {
    shards: Arc<dyn Shards>,
    memory: Py<Memory>,
    sampler: NeighborhoodSampler,
    /// Those that nobody uses now.
    makers: Mutex<Vec<NeighborhoodMaker>>,
}

#[pymethods]
impl Sampler {
    #[new]
    fn new(graph: &Graph, memory: Py<Memory>, config: SampleConfig) -> PyResult<Sampler> {
        let (shards, sampler) = (Arc::clone(&graph.shards), NeighborhoodSampler::new(config, None)?);
        Ok(Sampler { parts: Arc::new(Parts { shards, memory, sampler, makers: Mutex::default() }) })
    }

    /// The neighborhood of nodes that differ. `step` names the draws.
    fn sample(&self, py: Python<'_>, nodes: &Bound<'_, PyAny>, step: u64) -> PyResult<Batch> {
        let seeds = ids_of_numbers(Borrowed::<i64>::of(nodes, "nodes")?.numbers(), "nodes")?;
        let parts = Arc::clone(&self.parts);
        let made = wait_for(py, move || {
            let Parts { shards, memory, sampler, makers } = &*parts;
            let kept = makers.lock().expect("nobody panics here").pop();
            let mut maker = kept.unwrap_or_else(|| NeighborhoodMaker::new(shards.info().n_nodes));
            let made = sampler.make(&**shards, &mut maker, memory.get(), step, &seeds)?;
            makers.lock().expect("nobody panics here").push(maker);
            Ok(made)
        })?;
        made.into_python(py)
    }
}
