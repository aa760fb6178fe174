//! A body of arbitrary bytes is messages or an error, the same for any division into pieces.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame};
use kith_proto::{Fields, Messages};
use tonic::Status;

struct Pieces(VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

/// All fields of all messages, and the sentence at the end if there is one.
fn read(bytes: &[u8], n_bytes: usize) -> (Vec<(u32, Vec<u8>)>, Option<String>) {
    let pieces = bytes.chunks(n_bytes).map(Bytes::copy_from_slice).collect();
    let mut messages = Messages::new(Pieces(pieces), 1 << 16);
    let mut fields = Vec::new();
    let mut all = Box::pin(async {
        loop {
            match messages.next().await {
                Ok(None) => return None,
                Err(error) => return Some(error.to_string()),
                Ok(Some(message)) => {
                    for field in Fields::new(message) {
                        match field {
                            Ok((number, mut bytes)) => {
                                let n_bytes = bytes.remaining();
                                fields.push((number, bytes.copy_to_bytes(n_bytes).to_vec()));
                            }
                            Err(error) => return Some(error.to_string()),
                        }
                    }
                }
            }
        }
    });
    let Poll::Ready(error) = all.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("there is nothing to wait for")
    };
    drop(all);
    (fields, error)
}

pub(crate) fn run(bytes: &[u8]) {
    let [n_bytes, bytes @ ..] = bytes else { return };
    assert_eq!(read(bytes, usize::from(*n_bytes).max(1)), read(bytes, bytes.len().max(1)));
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = kith_sampler::server::parse_timeout(text);
    }
}
