//! What carries a question to a server and its answer back.

use std::{fmt, future::Future, pin::Pin};

use bytes::Bytes;
use kith_proto::Call;
use tokio::time::Instant;

use crate::remote::{answers::Read, error::RemoteProblem};

/// One attempt of a call.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Result<(), RemoteProblem>> + Send + 'a>>;

/// A way to one server. Whoever uses it sees to deadlines and asks again where that may help.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Asks, and reads the answer as it comes. `request` is a whole frame; after `deadline` nobody waits any more.
    fn ask<'a>(&'a self, call: Call, request: Bytes, answer: &'a mut (dyn Read + Send), deadline: Instant)
    -> Asked<'a>;
}
