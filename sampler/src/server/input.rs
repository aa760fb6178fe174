//! Reads requests as they arrive. Memory is reserved before more of a request is read; HTTP/2 flow control makes a
//! client that sends more wait.

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use kith_proto::{Call, FRAME_HEAD_BYTES, Message, MessageError};
use tonic::Status;

use crate::server::{
    connections::{Connection, Held},
    error::IntoStatus,
    ids::{PackedIds, WINDOW_IDS},
    request::ids_at,
};

/// Bytes of a stream that a client may send ahead of what is read.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 512 << 10;

/// Requests up to this length are read as a whole. Longer frontiers are read as they are needed.
const MAX_WHOLE_BYTES: usize = 256 << 10;

/// Bytes in which the fields before the ids of a long request must fit, with 8 bytes for each shard; otherwise it is read as a whole.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Bytes of the ids that a call has unpacked at a time: a window of destinations and one of sources.
const MAX_UNPACKED_BYTES: usize = 2 * WINDOW_IDS * size_of::<u64>();

/// The most memory that a request takes beyond its own length.
pub(crate) const MAX_EXTRA_BYTES: usize = 1 << 20;

/// The longest request of a call that asks for nothing by id.
const MAX_SMALL_BYTES: usize = 4 << 10;

/// A request: its first message, or the beginning of it.
pub(crate) struct Arriving {
    /// Everything up to the ids if those are still arriving, else the whole message.
    pub(crate) message: Message,
    /// Bytes of ids that follow the message.
    pub(crate) n_streamed: usize,
    /// Bytes of the message and its frame.
    pub(crate) n_bytes: usize,
    /// The rest of the request, if it is still arriving.
    pub(crate) rest: Option<Input>,
    /// Memory of the message.
    pub(crate) held: Held,
}

/// The bytes of a request.
pub(crate) struct Input {
    stream: RecvStream,
    arrived: Message,
    /// Bytes of `arrived` and behind it for which the client has no new window yet.
    n_unreleased: usize,
}

impl Input {
    pub(crate) fn new(stream: RecvStream) -> Input {
        Input { stream, arrived: Message::default(), n_unreleased: 0 }
    }

    /// Reads a request of at most `max_bytes`.
    pub(crate) async fn read(
        mut self,
        call: Call,
        connection: &std::sync::Arc<Connection>,
        max_bytes: usize,
    ) -> Result<Arriving, Status> {
        let Some(n_bytes) = self.read_frame_head().await? else {
            return Err(Status::invalid_argument("there is no request"));
        };
        let max_bytes = match call {
            Call::Info | Call::Seeds => max_bytes.min(MAX_SMALL_BYTES),
            Call::SampleHop | Call::FetchFeatures | Call::HasEdges => max_bytes,
        };
        if n_bytes > max_bytes {
            return Err(MessageError::TooLarge { n_bytes, max_bytes }.into_status());
        }
        let n_framed = FRAME_HEAD_BYTES + n_bytes;
        if n_bytes > MAX_WHOLE_BYTES {
            let held = connection.take(STREAM_WINDOW_BYTES as usize + MAX_HEAD_BYTES + MAX_UNPACKED_BYTES)?;
            while self.arrived.remaining() < MAX_HEAD_BYTES {
                self.read_on().await?;
            }
            let head = self.arrived.clone().copy_to_bytes(MAX_HEAD_BYTES);
            if let Some(ids) = ids_at(call, &head, n_bytes) {
                let message = head.slice(..ids.n_fields).into();
                self.arrived.advance(ids.start);
                return Ok(Arriving { message, n_streamed: ids.n_bytes, n_bytes: n_framed, rest: Some(self), held });
            }
            drop(held); // Memory for all of it is taken instead.
        }
        let held = connection.take(n_bytes + MAX_UNPACKED_BYTES.min(2 * n_bytes))?;
        let message = self.read_whole(n_bytes).await?.into();
        Ok(Arriving { message, n_streamed: 0, n_bytes: n_framed, rest: None, held })
    }

    /// Reads ids until the next window of them is there.
    pub(crate) async fn fill(&mut self, ids: &mut PackedIds) -> Result<(), Status> {
        while ids.n_wanted_bytes() > 0 {
            if !self.arrived.has_remaining() {
                self.release(); // All that arrived was used.
                self.read_on().await?;
            }
            let n_bytes = self.arrived.chunk().len().min(ids.n_missing_bytes());
            ids.push(self.arrived.copy_to_bytes(n_bytes));
        }
        Ok(())
    }

    /// The length of the first message; `None` if there is none.
    async fn read_frame_head(&mut self) -> Result<Option<usize>, Status> {
        while self.arrived.remaining() < FRAME_HEAD_BYTES {
            let is_empty = !self.arrived.has_remaining();
            match self.read_on().await {
                Err(_) if is_empty && self.stream.is_end_stream() => return Ok(None),
                read => read?,
            }
        }
        if self.arrived.get_u8() != 0 {
            return Err(MessageError::Compressed.into_status());
        }
        Ok(Some(self.arrived.get_u32() as usize))
    }

    /// The first `n_bytes` in one piece: not copied if they came in one.
    async fn read_whole(&mut self, n_bytes: usize) -> Result<Bytes, Status> {
        if self.arrived.remaining() < n_bytes && self.arrived.chunk().is_empty() {
            self.read_on().await?;
        }
        if self.arrived.chunk().len() >= n_bytes {
            let whole = self.arrived.copy_to_bytes(n_bytes);
            self.release();
            return Ok(whole);
        }
        let mut whole = BytesMut::with_capacity(n_bytes.min(MAX_WHOLE_BYTES));
        loop {
            let n_more = (n_bytes - whole.len()).min(self.arrived.remaining());
            let more = self.arrived.split_to(n_more);
            more.pieces().for_each(|piece| whole.extend_from_slice(piece));
            self.release();
            if whole.len() == n_bytes {
                return Ok(whole.freeze());
            }
            self.read_on().await?;
        }
    }

    /// Takes the piece that comes next.
    async fn read_on(&mut self) -> Result<(), Status> {
        match self.stream.data().await {
            Some(Ok(piece)) => {
                self.n_unreleased += piece.len();
                self.arrived.push(piece);
                Ok(())
            }
            Some(Err(error)) => Err(Status::cancelled(error.to_string())),
            None => Err(MessageError::CutShort.into_status()),
        }
    }

    /// Lets the client send as much again as was used.
    fn release(&mut self) {
        let n_used = self.n_unreleased - self.arrived.remaining();
        self.n_unreleased -= n_used;
        if n_used > 0 {
            let _ = self.stream.flow_control().release_capacity(n_used); // The stream may be gone.
        }
    }
}
