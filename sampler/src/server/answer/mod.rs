//! Requests → answers, in chunks that are computed one at a time.

use bytes::Bytes;
use kith_proto::{Call, Message};
use tonic::Status;

use crate::server::{
    answer::{edges::Edges, hop::HopDraws, info::Facts, rows::FeatureRows, seeds::LabeledNodes},
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
}

/// An answer on its way. Kept between chunks by whoever sends them.
pub(crate) trait Answer: Send {
    /// Computes the next chunk; not called again behind the last or an error.
    fn next(&mut self, served: &Served) -> Result<Chunk, Status>;
}

/// Reads a request and starts its answer.
pub(crate) fn start(call: Call, message: Message, served: &Served) -> Result<Box<dyn Answer>, Status> {
    let expected = &served.expected;
    Ok(match call {
        Call::Info => Box::new(Facts::new(InfoRequest::read(message, expected)?)),
        Call::Seeds => Box::new(LabeledNodes::new(SeedsRequest::read(message, expected)?)),
        Call::SampleHop => Box::new(HopDraws::new(SampleHopRequest::read(message, expected)?)),
        Call::FetchRows => Box::new(FeatureRows::new(FetchRowsRequest::read(message, expected)?)),
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
