//! Tests that compute with tensors or read checkpoints, apart from the others: a process with libtorch takes half a second to start.
#![allow(missing_docs)]

mod crash;
#[allow(dead_code)] // The end-to-end tests use the rest.
mod kith;
mod models;
mod parity;
