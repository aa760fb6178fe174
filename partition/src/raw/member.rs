//! One member of an npz file, read in order and never held in memory.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom, Take},
    path::Path,
};

use flate2::{Crc, bufread::DeflateDecoder};
use zip::{CompressionMethod, read::ZipFile};

/// Bytes of a member, unpacked. The last of them are given only once the checksum of all matches.
#[derive(Debug)]
pub(crate) struct Member {
    packed: Packed,
    crc: Crc,
    expected_crc: u32,
    n_left: u64,
}

#[derive(Debug)]
enum Packed {
    Stored(Take<BufReader<File>>),
    Deflated(DeflateDecoder<Take<BufReader<File>>>),
}

impl Member {
    /// Opens a member whose packed bytes begin at `start`; its method is one of the two.
    pub(super) fn open<R: Read>(path: &Path, start: u64, entry: &ZipFile<'_, R>) -> io::Result<Member> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(start))?;
        let packed = BufReader::with_capacity(1 << 16, file).take(entry.compressed_size());
        let packed = match entry.compression() {
            CompressionMethod::Stored => Packed::Stored(packed),
            _ => Packed::Deflated(DeflateDecoder::new(packed)),
        };
        Ok(Member { packed, crc: Crc::new(), expected_crc: entry.crc32(), n_left: entry.size() })
    }

    fn read_packed(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.packed {
            Packed::Stored(reader) => reader.read(buffer),
            Packed::Deflated(reader) => reader.read(buffer),
        }
    }
}

impl Read for Member {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.n_left).unwrap_or(usize::MAX).min(buffer.len());
        if room == 0 {
            return Ok(0);
        }
        let n_bytes = self.read_packed(&mut buffer[..room])?;
        self.crc.update(&buffer[..n_bytes]);
        self.n_left -= n_bytes as u64;
        if self.n_left == 0 {
            let damaged = |problem: &str| Err(io::Error::new(io::ErrorKind::InvalidData, problem));
            if self.read_packed(&mut [0])? > 0 {
                return damaged("more bytes follow than its size says");
            }
            if self.crc.sum() != self.expected_crc {
                return damaged("the checksum differs: the file is damaged");
            }
        }
        Ok(n_bytes)
    }
}
