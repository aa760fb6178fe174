//! Reads gRPC messages from an HTTP body without joining the pieces in which they arrive.

use std::{collections::VecDeque, future::poll_fn, pin::Pin};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::Body;
use tonic::Status;

use crate::head::{CHECKSUM_BYTES, CHECKSUM_KEY, FRAME_HEAD_BYTES};

/// Why a body holds no messages.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The connection or the other end failed.
    #[error("{}", .0.message())]
    Body(#[from] Status),
    /// We never say that we understand compressed messages.
    #[error("expected an uncompressed message, found a compressed one: set `grpc-encoding` to identity")]
    Compressed,
    /// More than the reader takes.
    #[error("a message of {n_bytes} bytes is over the limit of {max_bytes}: ask for less at once")]
    TooLarge {
        /// Its length.
        n_bytes: usize,
        /// The most the reader takes.
        max_bytes: usize,
    },
    /// The body ended inside a message.
    #[error("expected whole messages before `END_STREAM`: the body ended inside a message")]
    CutShort,
}

/// A chunk that came otherwise than it was sent, or without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("chunk damaged in transit: its `checksum` does not match; check the network")]
pub struct ChecksumError;

/// The messages of a body, one after the other.
#[derive(Debug)]
pub struct Messages<B> {
    body: B,
    max_bytes: usize,
    arrived: Message,
    trailers: Option<HeaderMap>,
    has_ended: bool,
}

impl<B: Body<Data = Bytes, Error = Status> + Unpin> Messages<B> {
    /// Reads a body whose messages have at most `max_bytes`.
    pub fn new(body: B, max_bytes: usize) -> Messages<B> {
        Messages { body, max_bytes, arrived: Message::default(), trailers: None, has_ended: false }
    }

    /// The next message; `None` at the end of the body.
    pub async fn next(&mut self) -> Result<Option<Message>, MessageError> {
        while self.arrived.remaining() < FRAME_HEAD_BYTES {
            if !self.read_on().await? {
                return if self.arrived.has_remaining() { Err(MessageError::CutShort) } else { Ok(None) };
            }
        }
        if self.arrived.get_u8() != 0 {
            return Err(MessageError::Compressed);
        }
        let n_bytes = self.arrived.get_u32() as usize;
        if n_bytes > self.max_bytes {
            return Err(MessageError::TooLarge { n_bytes, max_bytes: self.max_bytes });
        }
        while self.arrived.remaining() < n_bytes {
            if !self.read_on().await? {
                return Err(MessageError::CutShort);
            }
        }
        Ok(Some(self.arrived.split_to(n_bytes)))
    }

    /// The headers behind the body, once it has ended.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// Takes what comes next; whether anything did.
    async fn read_on(&mut self) -> Result<bool, MessageError> {
        if self.has_ended {
            return Ok(false);
        }
        let Some(frame) = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await else {
            self.has_ended = true;
            return Ok(false);
        };
        match frame?.into_data() {
            Ok(data) => self.arrived.push(data),
            Err(frame) => self.trailers = frame.into_trailers().ok(),
        }
        Ok(true)
    }
}

/// Some bytes in the pieces in which they came.
#[derive(Clone, Debug, Default)]
pub struct Message {
    pieces: VecDeque<Bytes>,
    n_bytes: usize,
}

impl Message {
    /// Appends a piece.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.n_bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Splits off the first `n_bytes`, which must be there. Copies nothing.
    pub fn split_to(&mut self, n_bytes: usize) -> Message {
        assert!(n_bytes <= self.n_bytes, "{n_bytes} of {} bytes", self.n_bytes);
        let mut first = Message::default();
        while first.n_bytes < n_bytes {
            let front = self.pieces.front_mut().expect("there are as many bytes as it says");
            let missing = n_bytes - first.n_bytes;
            if front.len() <= missing {
                first.push(self.pieces.pop_front().expect("just seen"));
            } else {
                first.push(front.split_to(missing));
            }
        }
        self.n_bytes -= n_bytes;
        first
    }

    /// Takes the checksum off a chunk, and holds it against what follows.
    pub fn check(&mut self) -> Result<(), ChecksumError> {
        if self.n_bytes < CHECKSUM_BYTES || self.get_u8() != CHECKSUM_KEY {
            return Err(ChecksumError);
        }
        let expected = self.get_u32_le();
        let mut checksum = crc32fast::Hasher::new();
        self.pieces().for_each(|piece| checksum.update(piece));
        if checksum.finalize() == expected { Ok(()) } else { Err(ChecksumError) }
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|piece| &piece[..])
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Message {
        let mut message = Message::default();
        message.push(bytes);
        message
    }
}

impl Buf for Message {
    fn remaining(&self) -> usize {
        self.n_bytes
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn advance(&mut self, n_bytes: usize) {
        let _ = self.split_to(n_bytes);
    }

    /// Copies only what came in several pieces.
    fn copy_to_bytes(&mut self, n_bytes: usize) -> Bytes {
        let mut first = self.split_to(n_bytes);
        if first.pieces.len() <= 1 {
            return first.pieces.pop_front().unwrap_or_default();
        }
        first.pieces().collect::<Vec<_>>().concat().into()
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use http_body::Frame;

    use super::*;

    /// A body in the given pieces.
    struct Pieces(VecDeque<Bytes>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }
    }

    fn read(bytes: &[u8], piece_bytes: usize, max_bytes: usize) -> Result<Vec<Vec<u8>>, MessageError> {
        let pieces = bytes.chunks(piece_bytes).map(Bytes::copy_from_slice).collect();
        let mut messages = Messages::new(Pieces(pieces), max_bytes);
        let mut read = Vec::new();
        let mut all = Box::pin(async move {
            while let Some(mut message) = messages.next().await? {
                let n_bytes = message.remaining();
                read.push(message.copy_to_bytes(n_bytes).to_vec());
            }
            Ok(read)
        });
        match all.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(read) => read,
            Poll::Pending => panic!("nothing to wait for"),
        }
    }

    #[test]
    fn messages_come_whole_wherever_they_were_cut() {
        let bytes = [&[0, 0, 0, 0, 3, 7, 8, 9][..], &[0, 0, 0, 0, 0], &[0, 0, 0, 0, 1, 5]].concat();
        for piece_bytes in 1..=bytes.len() {
            let read = read(&bytes, piece_bytes, 3).unwrap();
            assert_eq!(read, [&[7, 8, 9][..], &[], &[5]], "{piece_bytes}");
        }
    }

    #[test]
    fn what_is_no_message_gets_a_sentence() {
        assert!(matches!(read(&[1, 0, 0, 0, 0], 5, 9), Err(MessageError::Compressed)));
        assert!(matches!(read(&[0, 0, 0], 5, 9), Err(MessageError::CutShort)));
        assert!(matches!(read(&[0, 0, 0, 0, 4, 1], 5, 9), Err(MessageError::CutShort)));
        let error = read(&[0, 0xff, 0, 0, 0], 5, 9).unwrap_err();
        assert!(error.to_string().contains("over the limit of 9"), "{error}");
    }
}
