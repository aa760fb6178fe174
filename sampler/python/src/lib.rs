//! `import kith`: graphs and loaders for models that are written in Python. The Python part of the package is in `kith/`; it turns
//! arrays into tensors.
//!
//! Does not depend on libtorch: one wheel fits every version of PyTorch.

mod array;
mod blocks;
mod error;
mod graph;
mod loader;
mod memory;
mod neighborhoods;
mod order;
mod pairs;
mod sampler;
mod settings;
mod store;
mod waiting;

use pyo3::prelude::*;

/// Functions and classes in Rust; private to the package.
#[pymodule]
mod _kith {
    use pyo3::{Bound, PyResult, types::PyModule};

    #[pymodule_export]
    use super::{
        array::{Array, Memory},
        blocks::{BlockBatch, BlockLoader},
        error::KithError,
        graph::Graph,
        loader::Loader,
        memory::Labels,
        neighborhoods::Batch,
        sampler::Sampler,
        store::write_store,
    };

    /// Runs when the package is loaded.
    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::waiting::remember_process();
        Ok(())
    }
}
