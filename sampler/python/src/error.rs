//! Errors as Python exceptions: one sentence with the problem and the remedy, as the programs print it.

use kith_client::ClientError;
use kith_partition::PartitionError;
use kith_store::StoreError;
use pyo3::{create_exception, exceptions::PyException, prelude::*};

create_exception!(
    kith,
    KithError,
    PyException,
    "A graph cannot be read, written or sampled; the message says what to do."
);

/// An error of any of Kith's packages.
#[derive(Debug)]
pub(crate) struct Failed(String);

impl Failed {
    /// With its own words.
    pub(crate) fn new(sentence: impl Into<String>) -> Failed {
        Failed(sentence.into())
    }
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Failed {
        Failed(error.to_string())
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed(error.to_string())
    }
}

impl From<PartitionError> for Failed {
    fn from(error: PartitionError) -> Failed {
        Failed(error.to_string())
    }
}

impl From<Failed> for PyErr {
    fn from(Failed(sentence): Failed) -> PyErr {
        KithError::new_err(sentence)
    }
}
