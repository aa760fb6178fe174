//! `import kith`: graphs and loaders for models that are written in Python. The Python part of the package is in `kith/`; it turns
//! arrays into tensors.
//!
//! Does not depend on libtorch: one wheel fits every version of PyTorch.

mod array;
mod error;
mod graph;
mod loader;
mod store;

use pyo3::prelude::*;

/// Functions and classes in Rust; private to the package.
#[pymodule]
mod _kith {
    #[pymodule_export]
    use super::{
        array::Array,
        error::KithError,
        graph::Graph,
        loader::{Batch, Loader},
        store::write_store,
    };
}
