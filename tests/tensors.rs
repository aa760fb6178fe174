//! Tests that compute with tensors, apart from the others: a process with libtorch takes half a second to start.
#![allow(missing_docs)]

#[allow(dead_code)] // The end-to-end tests use the rest.
mod kith;
mod models;
mod parity;
