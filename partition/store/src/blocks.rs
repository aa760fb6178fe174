//! Checksums of a column's blocks, verified when a block is first read.

use std::{
    path::PathBuf,
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rayon::prelude::*;

use crate::{
    error::{Result, StoreError},
    mapped::ask_for,
};

/// Bytes under one checksum.
pub const BLOCK_BYTES: usize = 1 << 20;

/// The checksum that stands in the manifest.
pub(crate) fn checksum_of_sums(block_sums: &[u32]) -> String {
    format!("{:08x}", crc32fast::hash(bytemuck::cast_slice(block_sums)))
}

/// When the bytes of a store are compared with their checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Each block of 1 MiB when it is first read.
    #[default]
    FirstTouch,
    /// All blocks when the store is opened.
    Open,
    /// Never.
    Off,
}

impl FromStr for Verify {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Verify, String> {
        match text {
            "first-touch" => Ok(Verify::FirstTouch),
            "open" => Ok(Verify::Open),
            "off" => Ok(Verify::Off),
            _ => Err("expected first-touch, open or off".to_owned()),
        }
    }
}

impl std::fmt::Display for Verify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verify::FirstTouch => "first-touch",
            Verify::Open => "open",
            Verify::Off => "off",
        })
    }
}

/// The blocks of one column: their checksums, and a bit for each that was found to match.
#[derive(Debug)]
pub(crate) struct Blocks {
    path: PathBuf,
    column: String,
    sums: Vec<u32>,
    /// One bit per block.
    matched: Vec<AtomicU64>,
}

impl Blocks {
    pub(crate) fn new(path: PathBuf, column: &str, sums: Vec<u32>) -> Blocks {
        let matched = (0..sums.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Blocks { path, column: column.to_owned(), sums, matched }
    }

    /// Checks the blocks under `start..end` of the column's bytes, unless they were checked before. A range beyond the
    /// column is the caller's to refuse.
    #[inline]
    pub(crate) fn touch(&self, bytes: &[u8], start: usize, end: usize) -> Result<()> {
        if start >= end {
            return Ok(());
        }
        let (first, last) = (start / BLOCK_BYTES, (end - 1) / BLOCK_BYTES);
        if first == last && self.is_matched(first) {
            return Ok(());
        }
        self.check_range(bytes, first, last)
    }

    #[inline]
    fn is_matched(&self, block: usize) -> bool {
        self.matched.get(block / 64).is_some_and(|word| word.load(Relaxed) >> (block % 64) & 1 == 1)
    }

    #[cold]
    fn check_range(&self, bytes: &[u8], first: usize, last: usize) -> Result<()> {
        (first..self.sums.len().min(last + 1)).try_for_each(|block| self.check(bytes, block))
    }

    /// Checks every block, on all threads.
    pub(crate) fn check_all(&self, bytes: &[u8]) -> Result<()> {
        let is_full = |(place, word): (usize, &AtomicU64)| {
            let n_bits = (self.sums.len() - 64 * place).min(64);
            word.load(Relaxed).count_ones() as usize == n_bits
        };
        if self.matched.iter().enumerate().all(is_full) {
            return Ok(());
        }
        (0..self.sums.len()).into_par_iter().try_for_each(|block| self.check(bytes, block))
    }

    /// CRC-32 of the whole column of `n_bytes`, from the checksums of its blocks.
    pub(crate) fn checksum(&self, n_bytes: usize) -> u32 {
        let mut whole = crc32fast::Hasher::new();
        for (block, sum) in self.sums.iter().enumerate() {
            let length = n_bytes.saturating_sub(block * BLOCK_BYTES).min(BLOCK_BYTES);
            whole.combine(&crc32fast::Hasher::new_with_initial_len(*sum, length as u64));
        }
        whole.finalize()
    }

    fn check(&self, bytes: &[u8], block: usize) -> Result<()> {
        if self.is_matched(block) {
            return Ok(());
        }
        let start = block * BLOCK_BYTES;
        let end = bytes.len().min(start + BLOCK_BYTES);
        bytes.get(start..end).inspect(|block| ask_for(block));
        if bytes.get(start..end).map(crc32fast::hash) != self.sums.get(block).copied() {
            return Err(StoreError::Checksum {
                path: self.path.clone(),
                column: self.column.clone(),
                block,
                start,
                end,
            });
        }
        self.matched[block / 64].fetch_or(1 << (block % 64), Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_checked_once_and_named_when_damaged() {
        let mut bytes: Vec<u8> = (0..70 * BLOCK_BYTES + 5).map(|place| (place / 1000) as u8).collect();
        let sums: Vec<u32> = bytes.chunks(BLOCK_BYTES).map(crc32fast::hash).collect();
        let fresh = || Blocks::new("a/rows.f32".into(), "rows", sums.clone());
        let whole = fresh();
        whole.check_all(&bytes).unwrap();
        whole.touch(&bytes, 0, bytes.len()).unwrap();
        assert_eq!(whole.checksum(bytes.len()), crc32fast::hash(&bytes));
        assert_eq!(Blocks::new("x".into(), "x", Vec::new()).checksum(0), crc32fast::hash(&[]));

        bytes[66 * BLOCK_BYTES + 9] ^= 4;
        whole.touch(&bytes, 66 * BLOCK_BYTES, 66 * BLOCK_BYTES + 1).expect("it matched before");
        let blocks = fresh();
        blocks.touch(&bytes, 0, 66 * BLOCK_BYTES).unwrap();
        blocks.touch(&bytes, 67 * BLOCK_BYTES, bytes.len()).unwrap();
        let damaged = |outcome: Result<()>| match outcome {
            Err(StoreError::Checksum { block, start, end, .. }) => (block, start, end),
            other => panic!("{other:?}"),
        };
        let expected = (66, 66 * BLOCK_BYTES, 67 * BLOCK_BYTES);
        // A range across blocks, and one inside the damaged block.
        assert_eq!(damaged(blocks.touch(&bytes, 66 * BLOCK_BYTES - 1, 66 * BLOCK_BYTES + 1)), expected);
        assert_eq!(damaged(blocks.touch(&bytes, 66 * BLOCK_BYTES, 66 * BLOCK_BYTES + 1)), expected);
        assert_eq!(damaged(blocks.check_all(&bytes)), expected);
        // Empty ranges and ranges beyond the end touch nothing.
        blocks.touch(&bytes, 66 * BLOCK_BYTES, 66 * BLOCK_BYTES).unwrap();
        blocks.touch(&bytes, usize::MAX - 1, usize::MAX).unwrap();
        Blocks::new("x".into(), "x", Vec::new()).touch(&[], 0, 8).unwrap();
    }
}
