//! Event files: scalars by step, in TensorBoard's format.
//!
//! A file is a sequence of frames: the length of a message in 8 bytes, its checksum, the message, its checksum. All are
//! little-endian; checksums are masked CRC-32C.

use std::io::{self, Write};

use prost::{Message, Oneof};

/// TensorBoard's name of the format, in the first message of every file.
const VERSION: &str = "brain.Event:2";

/// Name of an event file. TensorBoard looks for `tfevents` in it and orders files by time.
pub fn file_name(started_secs: u64, host: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let host: String = host.chars().filter(|c| is_plain(*c)).collect();
    format!("events.out.tfevents.{started_secs}.{}.kith", if host.is_empty() { "host" } else { &host })
}

/// Writes an event file.
#[derive(Debug)]
pub struct EventWriter<W: Write> {
    file: W,
}

impl<W: Write> EventWriter<W> {
    /// Begins a file; `time` is in seconds since 1970.
    pub fn begin(mut file: W, time: f64) -> io::Result<EventWriter<W>> {
        let what = Some(What::FileVersion(VERSION.to_owned()));
        write_frame(&mut file, &Event { wall_time: time, step: 0, what }.encode_to_vec())?;
        Ok(EventWriter { file })
    }

    /// Adds the scalars of a step. A slash in a name groups them.
    pub fn scalars(&mut self, time: f64, step: u64, scalars: &[(&str, f64)]) -> io::Result<()> {
        let value = |(tag, value): &(&str, f64)| Value { tag: (*tag).to_owned(), simple_value: Some(*value as f32) };
        let summary = Summary { value: scalars.iter().map(value).collect() };
        let event = Event { wall_time: time, step: step as i64, what: Some(What::Summary(summary)) };
        write_frame(&mut self.file, &event.encode_to_vec())
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<W> {
        self.file.flush()?;
        Ok(self.file)
    }
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(oneof = "What", tags = "3, 5")]
    what: Option<What>,
}

#[derive(Clone, PartialEq, Oneof)]
enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

fn write_frame(file: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = (message.len() as u64).to_le_bytes();
    file.write_all(&length)?;
    file.write_all(&masked(&length).to_le_bytes())?;
    file.write_all(message)?;
    file.write_all(&masked(message).to_le_bytes())
}

/// Masked checksum: rotated by 15 bits and offset, because a checksum of a checksum says little.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Vec<u8> {
        let mut writer = EventWriter::begin(Vec::new(), 1.5).unwrap();
        writer.scalars(2.0, 7, &[("loss", 0.25), ("valid/accuracy", 0.5)]).unwrap();
        writer.finish().unwrap()
    }

    /// The messages of a file, with checked frames.
    fn frames(mut bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let (length, rest) = bytes.split_at(8);
            let (sum, rest) = rest.split_at(4);
            assert_eq!(sum, masked(length).to_le_bytes());
            let (message, rest) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
            let (sum, rest) = rest.split_at(4);
            assert_eq!(sum, masked(message).to_le_bytes());
            events.push(Event::decode(message).unwrap());
            bytes = rest;
        }
        events
    }

    #[test]
    fn frames_are_read_back() {
        let events = frames(&small());
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].what, Some(What::FileVersion(VERSION.to_owned())));
        assert_eq!((events[1].wall_time, events[1].step), (2.0, 7));
        let Some(What::Summary(summary)) = &events[1].what else { panic!("{events:?}") };
        let found: Vec<(&str, Option<f32>)> =
            summary.value.iter().map(|value| (value.tag.as_str(), value.simple_value)).collect();
        assert_eq!(found, [("loss", Some(0.25)), ("valid/accuracy", Some(0.5))]);
    }

    /// TensorBoard 2.21 reads exactly these bytes as the scalars above.
    #[test]
    fn a_small_file_has_these_bytes() {
        let hex: String = small().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
    }

    const GOLDEN: &str = "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c\
                          31000000000000009d8383e909000000000000004010072a240a0b0a046c6f7373150000803e0a15\
                          0a0e76616c69642f6163637572616379150000003fa7075969";

    /// Test vectors of RFC 3720, appendix B.4.
    #[test]
    fn checksums_are_castagnolis() {
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn names_are_what_tensorboard_looks_for() {
        assert_eq!(file_name(12, "a-host.local"), "events.out.tfevents.12.a-host.local.kith");
        assert_eq!(file_name(12, "../"), "events.out.tfevents.12....kith");
        assert_eq!(file_name(12, ""), "events.out.tfevents.12.host.kith");
    }
}
