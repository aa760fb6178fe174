//! Messages between ranks as bytes: a length and JSON.

use serde::{Serialize, de::DeserializeOwned};

/// Most bytes of a message: run files travel in them.
pub const MAX_BYTES: usize = 16 << 20;

/// Bytes before each message: its length.
pub const LENGTH_BYTES: usize = 4;

/// Problem of a message.
#[derive(Debug)]
pub enum WireError {
    /// It has more than [`MAX_BYTES`].
    TooLong,
    /// It is no such message.
    Malformed(serde_json::Error),
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WireError::TooLong => {
                let most = MAX_BYTES >> 20;
                write!(f, "expected a message of at most {most} MiB: another program may use this port")
            }
            WireError::Malformed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WireError {}

/// A message as bytes.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, WireError> {
    let mut bytes = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut bytes, message).map_err(WireError::Malformed)?;
    let n_bytes = bytes.len() - LENGTH_BYTES;
    if n_bytes > MAX_BYTES {
        return Err(WireError::TooLong);
    }
    bytes[..LENGTH_BYTES].copy_from_slice(&(n_bytes as u32).to_le_bytes());
    Ok(bytes)
}

/// Length of the message behind these bytes.
pub fn length(bytes: [u8; LENGTH_BYTES]) -> Result<usize, WireError> {
    let n_bytes = u32::from_le_bytes(bytes) as usize;
    if n_bytes > MAX_BYTES { Err(WireError::TooLong) } else { Ok(n_bytes) }
}

/// A message of these bytes, which have no length before them.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(bytes).map_err(WireError::Malformed)
}

/// Bytes that have arrived, until they are messages.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// Adds bytes as they arrive.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > LENGTH_BYTES + MAX_BYTES { Err(WireError::TooLong) } else { Ok(()) }
    }

    /// The next message that is whole.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, WireError> {
        let Some(n_bytes) = self.bytes.first_chunk() else { return Ok(None) };
        let end = LENGTH_BYTES + length(*n_bytes)?;
        if self.bytes.len() < end {
            return Ok(None);
        }
        let message = decode(&self.bytes[LENGTH_BYTES..end])?;
        self.bytes.drain(..end);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_in_any_pieces() {
        let texts = ["", "one", "two words"];
        let bytes: Vec<u8> = texts.iter().flat_map(|text| encode(text).unwrap()).collect();
        for n_bytes in 1..=bytes.len() {
            let (mut inbox, mut found) = (Inbox::default(), Vec::new());
            for piece in bytes.chunks(n_bytes) {
                inbox.push(piece).unwrap();
                while let Some(text) = inbox.take::<String>().unwrap() {
                    found.push(text);
                }
            }
            assert_eq!(found, texts, "{n_bytes} bytes at a time");
        }
    }

    #[test]
    fn lengths_have_a_limit_and_bytes_must_be_messages() {
        let after = |bytes: &[u8]| {
            let mut inbox = Inbox::default();
            inbox.push(bytes).unwrap();
            inbox.take::<String>().map_err(|error| error.to_string())
        };
        assert!(after(&[255; 9]).unwrap_err().starts_with("expected a message of at most 16 MiB"));
        assert!(after(&[1, 0, 0, 0, b'x']).is_err());
        assert_eq!(after(&[9, 0, 0]).unwrap(), None);
        assert!(matches!(encode(&"x".repeat(MAX_BYTES)), Err(WireError::TooLong)));
        assert!(encode(&"x".repeat(MAX_BYTES - 2)).is_ok());
        let mut inbox = Inbox::default();
        assert!(inbox.push(&vec![0; LENGTH_BYTES + MAX_BYTES]).is_ok() && inbox.push(&[0]).is_err());
    }
}
