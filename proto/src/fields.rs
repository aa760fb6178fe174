//! Reads the byte fields of a message without copying them. `prost` reads all other messages.

use bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::messages::Message;

/// A message that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a protobuf message, found bytes that cannot be read: {problem}")]
pub struct FieldError {
    /// Reason the message cannot be read.
    pub problem: String,
}

/// Reads the fields of bytes of a message, in the order in which they stand, and skips all others.
#[derive(Clone, Debug)]
pub struct Fields(Message);

impl Fields {
    /// Reads a message.
    pub fn new(message: Message) -> Fields {
        Fields(message)
    }

    fn read(&mut self) -> Result<Option<(u32, Message)>, FieldError> {
        let broken = |error: prost::DecodeError| FieldError { problem: error.to_string() };
        while self.0.has_remaining() {
            let (number, wire_type) = decode_key(&mut self.0).map_err(broken)?;
            if wire_type != WireType::LengthDelimited {
                skip_field(wire_type, number, &mut self.0, DecodeContext::default()).map_err(broken)?;
                continue;
            }
            let n_bytes = decode_varint(&mut self.0).map_err(broken)?;
            if n_bytes > self.0.remaining() as u64 {
                return Err(FieldError { problem: format!("field {number} is longer than the message") });
            }
            return Ok(Some((number, self.0.split_to(n_bytes as usize))));
        }
        Ok(None)
    }
}

impl Iterator for Fields {
    type Item = Result<(u32, Message), FieldError>;

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.read();
        if field.is_err() {
            self.0 = Message::default(); // Nothing behind it can be trusted.
        }
        field.transpose()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message as _;

    use super::*;
    use crate::v2::{FetchFeaturesReply, SampleHopRequest};

    fn fields(bytes: Vec<u8>) -> Vec<Result<(u32, Vec<u8>), FieldError>> {
        let field = |(number, bytes): (u32, Message)| (number, bytes.pieces().collect::<Vec<_>>().concat());
        Fields::new(Bytes::from(bytes).into()).map(|read| read.map(field)).collect()
    }

    #[test]
    fn fields_of_bytes_come_out_and_others_are_skipped() {
        let reply = FetchFeaturesReply {
            values: Bytes::from_static(b"values"),
            lengths: Bytes::from_static(b""),
            columns: Bytes::from_static(b"columns"),
            checksum: 7,
        };
        assert_eq!(fields(reply.encode_to_vec()), [Ok((1, b"values".to_vec())), Ok((3, b"columns".to_vec()))]);
        let request = SampleHopRequest { step: 7, frontier: Bytes::from_static(b"ids"), ..Default::default() };
        assert_eq!(fields(request.encode_to_vec()), [Ok((12, b"ids".to_vec()))]);
    }

    #[test]
    fn a_field_that_claims_too_much_ends_the_message() {
        let read = fields(vec![0x0a, 200, 1, 2, 3]);
        assert_eq!(read.len(), 1);
        assert!(read[0].as_ref().unwrap_err().problem.contains("longer than the message"));
        assert!(fields(vec![0x0a]).pop().unwrap().is_err());
    }
}
