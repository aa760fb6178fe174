//! Server without a network, for tests of clients.

use std::path::Path;

use bytes::{Buf, Bytes};
use kith_proto::{Call, FRAME_HEAD_BYTES, Message, put_checksum};
use kith_store::{Result, Verify};
use tonic::Status;

use crate::server::{
    answer,
    config::{Limits, ShardChoice},
    served::Served,
};

/// Answers in this process what a server would.
#[derive(Debug)]
pub struct Unplugged(Served);

impl Unplugged {
    /// Opens some shards of a cluster; all of them if none is named.
    pub fn open(cluster: &Path, shards: &[u32]) -> Result<Unplugged> {
        let shards = if shards.is_empty() { ShardChoice::All } else { ShardChoice::These(shards.to_vec()) };
        Ok(Unplugged(Served::open(cluster, &shards, Limits::default(), Verify::default())?))
    }

    /// The messages of an answer to a request, which is a whole frame.
    pub fn answer(&self, call: Call, request: Bytes) -> Result<Vec<Message>, Status> {
        let mut answer = answer::start(call, unframed([request]), 0, &self.0)?;
        let mut messages = Vec::new();
        loop {
            let mut chunk = answer.next(&self.0)?;
            put_checksum(&mut chunk.pieces);
            if !chunk.pieces.is_empty() {
                messages.push(unframed(chunk.pieces));
            }
            if chunk.is_last {
                return Ok(messages);
            }
        }
    }
}

fn unframed(pieces: impl IntoIterator<Item = Bytes>) -> Message {
    let mut message = Message::default();
    pieces.into_iter().for_each(|piece| message.push(piece));
    message.advance(FRAME_HEAD_BYTES);
    message
}
