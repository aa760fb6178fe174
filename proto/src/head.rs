//! Writes messages with large fields as gRPC frames, without copying the large fields.

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

/// The field `checksum` of a chunk, before all others: CRC-32 of what follows it.
const CHECKSUM: u32 = 15;

/// Its first byte: the number, and that 32 bits follow.
pub(crate) const CHECKSUM_KEY: u8 = (CHECKSUM << 3) as u8 | 5;

/// Bytes of that field.
pub(crate) const CHECKSUM_BYTES: usize = 5;

/// gRPC's head of a message: whether it is compressed, and its length.
pub const FRAME_HEAD_BYTES: usize = 5;

/// Bytes before the fields of a chunk: the frame's head, and the checksum.
const CHUNK_HEAD_BYTES: usize = FRAME_HEAD_BYTES + CHECKSUM_BYTES;

/// Fields up to this length are copied behind what stands before them: a piece of its own costs more.
const COPIED_BYTES: usize = 8 << 10;

/// A frame with the head of a chunk of one field of bytes, and room for `n_bytes` of it, all of which must be written.
pub fn start_frame(field: u32, n_bytes: usize) -> BytesMut {
    let n_chunk = field_len(field, n_bytes);
    let mut frame = BytesMut::with_capacity(CHUNK_HEAD_BYTES + n_chunk);
    put_chunk_head(&mut frame, n_chunk);
    put_field_head(&mut frame, field, n_bytes);
    frame
}

/// A frame with a chunk of fields of bytes, in pieces to send one after the other.
pub fn frame_fields(fields: impl IntoIterator<Item = (u32, Bytes), IntoIter: Clone>) -> Vec<Bytes> {
    let fields = fields.into_iter();
    let n_chunk = fields.clone().map(|(field, bytes)| field_len(field, bytes.len())).sum();
    let mut pieces = Vec::new();
    let mut small = BytesMut::new();
    put_chunk_head(&mut small, n_chunk);
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

/// A frame with a small chunk.
pub fn frame_chunk(chunk: &impl prost::Message) -> Bytes {
    let n_chunk = chunk.encoded_len();
    let mut frame = BytesMut::with_capacity(CHUNK_HEAD_BYTES + n_chunk);
    put_chunk_head(&mut frame, n_chunk);
    chunk.encode(&mut frame).expect("there is room for it");
    frame.freeze()
}

/// A frame with a small message that has no checksum: a request.
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

/// Puts the checksum of a chunk into its frame, which is in pieces. Without, it is 0, and nobody may look at it.
pub fn put_checksum(frame: &mut [Bytes]) {
    let Some((first, others)) = frame.split_first_mut() else { return };
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&first[CHUNK_HEAD_BYTES..]);
    others.iter().for_each(|piece| checksum.update(piece));
    // Nobody else has it yet, so that nothing is copied.
    let mut patched = std::mem::take(first).try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    patched[CHUNK_HEAD_BYTES - 4..CHUNK_HEAD_BYTES].copy_from_slice(&checksum.finalize().to_le_bytes());
    *first = patched.freeze();
}

/// The head of a frame with a chunk, without its checksum.
fn put_chunk_head(out: &mut BytesMut, n_chunk: usize) {
    put_frame_head(out, CHECKSUM_BYTES + n_chunk);
    out.put_u8(CHECKSUM_KEY);
    out.put_u32_le(0);
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
    use bytes::Buf;
    use prost::Message as _;

    use super::*;
    use crate::{
        messages::{ChecksumError, Message},
        v2::{FetchFeaturesReply, SampleHopReply},
    };

    /// The message of a frame in pieces, checked.
    fn read(pieces: &[Bytes]) -> Message {
        let mut message = Message::default();
        pieces.iter().for_each(|piece| message.push(piece.clone()));
        assert_eq!(message.get_u8(), 0);
        assert_eq!(message.get_u32() as usize, message.remaining());
        message.check().unwrap();
        message
    }

    #[test]
    fn chunks_are_what_everybody_else_reads_and_checks() {
        for (n_counts, n_neighbors) in [(0, 0), (3, 0), (0, 4), (5, 40_000), (40_000, 7), (9000, 9000)] {
            let (counts, neighbors) = (vec![1; n_counts].into(), vec![2; n_neighbors].into());
            let reply = SampleHopReply { counts, neighbors, ..Default::default() };
            let mut pieces = frame_fields([(1, reply.counts.clone()), (2, reply.neighbors.clone())]);
            assert_eq!(pieces.concat(), frame_chunk(&reply), "{n_counts} {n_neighbors}");
            let unchecked = SampleHopReply::decode(&pieces.concat()[FRAME_HEAD_BYTES..]).unwrap();
            assert_eq!(unchecked, reply, "as if there were no checksum");
            put_checksum(&mut pieces);
            assert_eq!(frame_chunk(&reply)[CHUNK_HEAD_BYTES..], reply.encode_to_vec());
            let checksum = crc32fast::hash(&reply.encode_to_vec());
            let others = SampleHopReply::decode(&pieces.concat()[FRAME_HEAD_BYTES..]).unwrap();
            assert_eq!(others, SampleHopReply { checksum, ..reply.clone() }, "a checksum is a field like others");
            let mut message = read(&pieces);
            assert_eq!(message.copy_to_bytes(message.remaining()), reply.encode_to_vec());
        }
        for n_bytes in [0, 1, 127, 128, 70_000] {
            let reply = FetchFeaturesReply { values: vec![3; n_bytes].into(), ..Default::default() };
            let mut frame = start_frame(1, n_bytes);
            let room = frame.capacity();
            frame.put_slice(&reply.values);
            assert_eq!(frame.capacity(), room, "nothing moves");
            assert_eq!(frame, frame_chunk(&reply));
            assert_eq!(frame_message(&reply)[FRAME_HEAD_BYTES..], reply.encode_to_vec());
        }
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is() {
        let mut chunk = frame_fields([(1, Bytes::from(vec![7; 9000])), (2, Bytes::from_static(b"neighbors"))]);
        put_checksum(&mut chunk);
        let chunk = chunk.concat();
        let message = &chunk[FRAME_HEAD_BYTES..];
        for bit in 0..8 * message.len() {
            let mut flipped = message.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Message::from(Bytes::from(flipped)).check(), Err(ChecksumError), "bit {bit}");
        }
        for n_bytes in 0..message.len() {
            assert!(Message::from(Bytes::copy_from_slice(&message[..n_bytes])).check().is_err(), "{n_bytes}");
        }
    }
}
