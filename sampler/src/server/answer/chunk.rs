//! Chunks: messages of an answer, computed one at a time.

use bytes::Bytes;
use tonic::Status;

use crate::server::{ids::PackedIds, served::Served};

/// Bytes of a chunk, more or less: few enough to stay near on their way from memory to the socket, enough to make what a
/// chunk costs small.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// A message of an answer.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    /// The message in its frame, in pieces.
    pub(crate) pieces: Vec<Bytes>,
    /// True if no other chunk follows.
    pub(crate) is_last: bool,
    /// Nodes whose neighbors are counted here.
    pub(crate) n_sampled: u64,
    /// Rows that begin here.
    pub(crate) n_rows: u64,
    /// Bytes of later chunks that are computed already.
    pub(crate) n_waiting: usize,
}

/// The most neighbors or candidates of a short answer.
pub(super) const N_SHORT: usize = 4096;

/// Answer in progress. The sender keeps it between chunks.
pub(crate) trait Answer: Send {
    /// Computes the next chunk; not called again behind the last or an error.
    fn next(&mut self, served: &Served) -> Result<Chunk, Status>;

    /// True if the first chunk takes less than a millisecond, as long as the shards' files are in memory and checked.
    fn is_short(&self, _served: &Served) -> bool {
        false
    }

    /// The ids of the request that the answer still needs, where it takes them as they arrive.
    fn ids(&mut self) -> Option<&mut PackedIds> {
        None
    }
}

/// Numbers as bytes that are not copied.
pub(super) fn as_bytes<T: bytemuck::Pod + Send + Sync>(numbers: Vec<T>) -> Bytes {
    struct Owner<T>(Vec<T>);
    impl<T: bytemuck::Pod> AsRef<[u8]> for Owner<T> {
        fn as_ref(&self) -> &[u8] {
            bytemuck::cast_slice(&self.0)
        }
    }
    Bytes::from_owner(Owner(numbers))
}
