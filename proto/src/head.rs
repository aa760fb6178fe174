//! Messages of large fields as the frames that gRPC puts around them: what is large is not copied.

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

/// gRPC's head of a message: whether it is compressed, and its length.
pub const FRAME_HEAD_BYTES: usize = 5;

/// Fields up to this length are copied behind what stands before them: a piece of its own costs more.
const COPIED_BYTES: usize = 8 << 10;

/// A frame with the head of a message of one field of bytes, and room for `n_bytes` of it: write exactly so many.
pub fn start_frame(field: u32, n_bytes: usize) -> BytesMut {
    let n_message = field_len(field, n_bytes);
    let mut frame = BytesMut::with_capacity(FRAME_HEAD_BYTES + n_message);
    put_frame_head(&mut frame, n_message);
    put_field_head(&mut frame, field, n_bytes);
    frame
}

/// A frame with a message of fields of bytes, in pieces to send one after the other.
pub fn frame_fields(fields: impl IntoIterator<Item = (u32, Bytes), IntoIter: Clone>) -> Vec<Bytes> {
    let fields = fields.into_iter();
    let n_message = fields.clone().map(|(field, bytes)| field_len(field, bytes.len())).sum();
    let mut pieces = Vec::new();
    let mut small = BytesMut::new();
    put_frame_head(&mut small, n_message);
    for (field, bytes) in fields.filter(|(_, bytes)| !bytes.is_empty()) {
        put_field_head(&mut small, field, bytes.len());
        if bytes.len() <= COPIED_BYTES {
            small.put_slice(&bytes);
        } else {
            pieces.push(small.split().freeze());
            pieces.push(bytes);
        }
    }
    if !small.is_empty() {
        pieces.push(small.freeze());
    }
    pieces
}

/// A frame with a small message.
pub fn frame_message(message: &impl prost::Message) -> Bytes {
    let n_message = message.encoded_len();
    let mut frame = BytesMut::with_capacity(FRAME_HEAD_BYTES + n_message);
    put_frame_head(&mut frame, n_message);
    message.encode(&mut frame).expect("there is room for it");
    frame.freeze()
}

/// Fields without bytes are left out, as everywhere in this encoding.
fn field_len(field: u32, n_bytes: usize) -> usize {
    if n_bytes == 0 { 0 } else { key_len(field) + encoded_len_varint(n_bytes as u64) + n_bytes }
}

fn put_frame_head(out: &mut BytesMut, n_message: usize) {
    out.put_u8(0);
    out.put_u32(u32::try_from(n_message).expect("messages are cut far below 4 GiB"));
}

fn put_field_head(out: &mut BytesMut, field: u32, n_bytes: usize) {
    if n_bytes > 0 {
        encode_key(field, WireType::LengthDelimited, out);
        encode_varint(n_bytes as u64, out);
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::v1::{FetchRowsReply, SampleHopReply};

    #[test]
    fn frames_are_what_everybody_else_writes() {
        for (n_counts, n_neighbors) in [(0, 0), (3, 0), (0, 4), (5, 40_000), (40_000, 7), (9000, 9000)] {
            let reply = SampleHopReply { counts: vec![1; n_counts].into(), neighbors: vec![2; n_neighbors].into() };
            let pieces = frame_fields([(1, reply.counts.clone()), (2, reply.neighbors.clone())]);
            assert_eq!(pieces.concat(), frame_message(&reply), "{n_counts} {n_neighbors}");
            assert_eq!(frame_message(&reply)[FRAME_HEAD_BYTES..], reply.encode_to_vec());
        }
        for n_bytes in [0, 1, 127, 128, 70_000] {
            let reply = FetchRowsReply { values: vec![3; n_bytes].into(), ..Default::default() };
            let mut frame = start_frame(1, n_bytes);
            let room = frame.capacity();
            frame.put_slice(&reply.values);
            assert_eq!(frame.capacity(), room, "nothing moves");
            assert_eq!(frame, frame_message(&reply));
        }
    }
}
