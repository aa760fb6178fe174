//! Transport of one attempt: sends a question to a server and returns its answer.

use std::{fmt, future::Future, ops::Range, pin::Pin};

use bytes::Bytes;
use kith_proto::Call;

use crate::remote::{answers::Read, error::RemoteProblem, progress::Progress};

/// One attempt of a call.
pub type Attempt<'a> = Pin<Box<dyn Future<Output = Result<(), RemoteProblem>> + Send + 'a>>;

/// A request of one attempt.
#[derive(Clone, Debug)]
pub struct Question {
    /// The call.
    pub call: Call,
    /// A whole frame.
    pub request: Bytes,
    /// The rows that it asks for, counted from the beginning of all that is wanted.
    pub rows: Range<usize>,
}

/// A way to one server, or to several that answer alike. Its user sees to deadlines and retries.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Its address, for lines of the log.
    fn address(&self) -> &str {
        ""
    }

    /// Asks, and reads the answer as it arrives: `answer` has begun with the rows of the question. Reports moved bytes
    /// to `progress`. Dropping the attempt cancels it.
    fn ask<'a>(
        &'a self,
        question: &'a Question,
        answer: &'a mut (dyn Read + Send),
        progress: &'a Progress,
    ) -> Attempt<'a>;
}
