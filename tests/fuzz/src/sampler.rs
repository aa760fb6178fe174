//! The wire between servers and clients.

pub(crate) mod answers;
pub(crate) mod frames;
pub(crate) mod http2;
pub(crate) mod requests;
