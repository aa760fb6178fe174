//! Requests → answers, in chunks that are computed one at a time.

use bytes::Bytes;
use kith_proto::{Call, Message};
use tonic::Status;

use crate::server::{
    answer::{edges::Edges, hop::HopDraws, info::Facts, rows::FeatureRows, seeds::LabeledNodes},
    ids::PackedIds,
    request::{FetchRowsRequest, HasEdgesRequest, InfoRequest, SampleHopRequest, SeedsRequest},
    served::Served,
};

mod edges;
mod hop;
mod info;
mod rows;
mod seeds;

/// Bytes of a chunk, more or less: few enough to stay near on their way from memory to the socket, enough to make what a
/// chunk costs small.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// A message of an answer.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    /// The message in its frame, in pieces.
    pub(crate) pieces: Vec<Bytes>,
    /// Whether no other follows.
    pub(crate) is_last: bool,
    /// Nodes whose neighbors are counted here.
    pub(crate) n_sampled: u64,
    /// Rows that begin here.
    pub(crate) n_rows: u64,
    /// Bytes of later chunks that are computed already.
    pub(crate) n_waiting: usize,
}

/// An answer on its way. Kept between chunks by whoever sends them.
pub(crate) trait Answer: Send {
    /// Computes the next chunk; not called again behind the last or an error.
    fn next(&mut self, served: &Served) -> Result<Chunk, Status>;

    /// The ids of the request that the answer still needs, where it takes them as they arrive.
    fn ids(&mut self) -> Option<&mut PackedIds> {
        None
    }
}

/// Reads a request and starts its answer; `n_streamed` bytes of ids follow the message.
pub(crate) fn start(
    call: Call,
    message: Message,
    n_streamed: usize,
    served: &Served,
) -> Result<Box<dyn Answer>, Status> {
    let expected = &served.expected;
    Ok(match call {
        Call::Info => Box::new(Facts::new(InfoRequest::read(message, expected)?)),
        Call::Seeds => Box::new(LabeledNodes::new(SeedsRequest::read(message, expected)?)),
        Call::SampleHop => Box::new(HopDraws::new(SampleHopRequest::read(message, n_streamed, expected)?)),
        Call::FetchRows => Box::new(FeatureRows::new(FetchRowsRequest::read(message, n_streamed, expected)?)),
        Call::HasEdges => Box::new(Edges::new(HasEdgesRequest::read(message, expected)?)),
    })
}

/// Numbers as bytes that are not copied.
fn as_bytes<T: bytemuck::Pod + Send + Sync>(numbers: Vec<T>) -> Bytes {
    struct Owner<T>(Vec<T>);
    impl<T: bytemuck::Pod> AsRef<[u8]> for Owner<T> {
        fn as_ref(&self) -> &[u8] {
            bytemuck::cast_slice(&self.0)
        }
    }
    Bytes::from_owner(Owner(numbers))
}

#[cfg(target_endian = "big")]
compile_error!("packed numbers are little-endian");
