//! External sort of keys within a memory limit.
//!
//! Any number of threads feed keys into buckets by their highest bits. Keys that do not fit in memory spill to one
//! file, and each bucket remembers its parts of that file. Then the buckets are sorted (radix, lowest digit first) and
//! passed on in order, several at a time. A bucket that is itself too large goes through the same process by its next
//! bits, so hubs and skewed ids cost time, never memory.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use rayon::prelude::*;

use crate::{
    csr::radix::{Key, sort_by_bits},
    error::{PartitionError, Result},
};

/// Enough buckets that one of them fits in the L2 cache for graphs of a few hundred million edges.
const BUCKET_BITS: u32 = 10;
/// Keys a feeder holds back per bucket: enough that a lock is taken rarely, few enough to stay in cache.
const N_FED: usize = 64;
const READ_BYTES: usize = 1 << 20;

/// Memory limit shared by all sorters of one build, and the scratch folder for the rest.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_bytes: u64,
    held_bytes: AtomicU64,
    scratch: PathBuf,
    n_files: AtomicU64,
    /// Bytes in the files of keys, and the most there ever were.
    spilled_bytes: AtomicU64,
    peak_spilled_bytes: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit_bytes: u64, scratch: &Path) -> Budget {
        let [held_bytes, n_files, spilled_bytes, peak_spilled_bytes] = [0; 4].map(AtomicU64::new);
        Budget { limit_bytes, held_bytes, scratch: scratch.to_owned(), n_files, spilled_bytes, peak_spilled_bytes }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// A temporary file that is gone when it is closed, however the process ends.
    pub(crate) fn scratch_file(&self) -> Result<File> {
        open_scratch(self).map_err(PartitionError::io(&self.scratch))
    }

    /// The folder of temporary files, for messages.
    pub(crate) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Five eighths go to keys that wait in buckets.
    fn waiting_bytes(&self) -> u64 {
        self.limit_bytes / 8 * 5
    }

    /// Bytes of keys that one pass over a source collects, if the source can be read several times. Memory that is full spills as a
    /// whole: keys are written once, and the rest, up to 7/8 as many, waits in memory.
    pub(crate) fn pass_bytes(&self) -> u64 {
        (self.waiting_bytes() / 8 * 15).max(1)
    }

    /// The most bytes that keys took in the scratch folder.
    #[cfg(test)]
    pub(crate) fn peak_spilled(&self) -> u64 {
        self.peak_spilled_bytes.load(Relaxed)
    }

    /// Counts bytes that are written to the scratch folder.
    fn spill(&self, n_bytes: u64) {
        let spilled_bytes = self.spilled_bytes.fetch_add(n_bytes, Relaxed) + n_bytes;
        self.peak_spilled_bytes.fetch_max(spilled_bytes, Relaxed);
    }

    /// An eighth goes to pieces on their way out: with t threads, 2t are in flight and t more serve as scratch.
    fn piece_bytes(&self) -> u64 {
        self.limit_bytes / 8 / (3 * n_threads() as u64)
    }

    /// An eighth goes to a bucket that has to be cut again, and to all that are cut inside it: a seventh in all.
    fn nested(&self) -> Budget {
        Budget::new(self.limit_bytes / 8, &self.scratch)
    }

    fn chunk_bytes(&self) -> usize {
        ((self.waiting_bytes() >> BUCKET_BITS) / 4).clamp(1 << 10, 64 << 10) as usize
    }
}

fn n_threads() -> usize {
    rayon::current_num_threads()
}

/// Range of key bits to sort by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digits {
    /// No key has a bit at or above this one.
    pub(crate) end: u32,
    /// Bits below this one do not count: keys that differ only there keep the order in which one feeder fed them.
    pub(crate) start: u32,
    /// True if only one of several equal keys is passed on. Needs `start` to be 0.
    pub(crate) is_merged: bool,
}

impl Digits {
    /// Sorts by the bits `start..end` and hands over every key.
    pub(crate) fn new(start: u32, end: u32) -> Digits {
        Digits { start, end, is_merged: false }
    }
}

/// Collects keys and hands them back in order.
pub(crate) struct Sorter<'a, K> {
    budget: &'a Budget,
    digits: Digits,
    shift: u32,
    buckets: Vec<Mutex<Bucket<K>>>,
    spilled: Mutex<Option<SpillFile>>,
}

struct Bucket<K> {
    chunks: Vec<Vec<K>>,
    /// Extents of its spilled keys in the file: (first byte, number of keys).
    extents: Vec<(u64, u64)>,
}

struct SpillFile {
    file: File,
    n_bytes: u64,
}

impl<'a, K: Key> Sorter<'a, K> {
    pub(crate) fn new(budget: &'a Budget, digits: Digits) -> Sorter<'a, K> {
        let shift = digits.end.saturating_sub(BUCKET_BITS).max(digits.start);
        let n_buckets = 1usize << (digits.end.max(shift) - shift);
        let bucket = || Mutex::new(Bucket { chunks: Vec::new(), extents: Vec::new() });
        let buckets = (0..n_buckets).map(|_| bucket()).collect();
        Sorter { budget, digits, shift, buckets, spilled: Mutex::new(None) }
    }

    /// A way in for one thread.
    pub(crate) fn feeder(&self) -> Feeder<'_, 'a, K> {
        let n_buckets = self.buckets.len();
        Feeder { sorter: self, keys: vec![K::default(); n_buckets * N_FED], n_keys: vec![0; n_buckets] }
    }

    /// Hands all keys over in order, piece by piece, while the next pieces are being sorted.
    pub(crate) fn finish(self, take: &mut (impl FnMut(&[K]) -> Result<()> + Send)) -> Result<()> {
        self.drain(take)
    }

    /// [`Sorter::finish`] of a sorter that is used again: it holds no keys and no file afterwards.
    pub(crate) fn drain(&self, take: &mut (impl FnMut(&[K]) -> Result<()> + Send)) -> Result<()> {
        let Sorter { budget, digits, shift, buckets, spilled } = self;
        let spilled = spilled.lock().expect("no feeder panicked").take();
        let source = Source { budget, file: spilled.as_ref().map(|spilled| &spilled.file) };
        let below = Digits { end: *shift, ..*digits };
        let empty = || Bucket { chunks: Vec::new(), extents: Vec::new() };
        let mut buckets =
            buckets.iter().map(|bucket| std::mem::replace(&mut *bucket.lock().expect("no feeder panicked"), empty()));
        let mut ready: Vec<Piece<K>> = Vec::new();
        loop {
            let next: Vec<Bucket<K>> = buckets.by_ref().take(n_threads()).collect();
            if ready.is_empty() && next.is_empty() {
                budget.spilled_bytes.fetch_sub(spilled.map_or(0, |spilled| spilled.n_bytes), Relaxed);
                return Ok(());
            }
            let sort_next = || next.into_par_iter().map(|bucket| Piece::new(bucket, source, below)).collect();
            let hand_over = || ready.drain(..).try_for_each(|piece| piece.hand_over(source, below, take));
            let (sorted, handed_over): (Result<Vec<_>>, _) = rayon::join(sort_next, hand_over);
            handed_over?;
            ready = sorted?;
        }
    }

    fn append(&self, bucket: usize, keys: &[K]) -> Result<()> {
        let chunk_len = self.budget.chunk_bytes() / size_of::<K>();
        let mut keys = keys;
        let mut held = 0;
        {
            let mut bucket = self.buckets[bucket].lock().expect("no feeder panicked");
            while !keys.is_empty() {
                let room = bucket.chunks.last().map_or(0, |chunk| chunk_len - chunk.len());
                if room == 0 {
                    // Counted before anybody can see it, so that nobody lets go of it first.
                    let n_bytes = (chunk_len * size_of::<K>()) as u64;
                    held = self.budget.held_bytes.fetch_add(n_bytes, Relaxed) + n_bytes;
                    bucket.chunks.push(Vec::with_capacity(chunk_len));
                    continue;
                }
                let (head, rest) = keys.split_at(room.min(keys.len()));
                bucket.chunks.last_mut().expect("it has room").extend_from_slice(head);
                keys = rest;
            }
        }
        if held > self.budget.waiting_bytes() { self.spill() } else { Ok(()) }
    }

    /// Moves everything that waits in memory to the file.
    fn spill(&self) -> Result<()> {
        // One thread spills; others that come here wait, and find that there is room again.
        let mut spilled = self.spilled.lock().expect("no feeder panicked");
        if self.budget.held_bytes.load(Relaxed) <= self.budget.waiting_bytes() {
            return Ok(());
        }
        let spilled = match &mut *spilled {
            Some(spilled) => spilled,
            none => none.insert(SpillFile { file: self.budget.scratch_file()?, n_bytes: 0 }),
        };
        for bucket in &self.buckets {
            bucket.lock().expect("no feeder panicked").spill(self.budget, spilled)?;
        }
        Ok(())
    }
}

/// One thread's way into a [`Sorter`]; `finish` hands over what it still holds back.
pub(crate) struct Feeder<'s, 'a, K> {
    sorter: &'s Sorter<'a, K>,
    keys: Vec<K>,
    n_keys: Vec<u8>,
}

impl<K: Key> Feeder<'_, '_, K> {
    #[inline]
    pub(crate) fn push(&mut self, key: K) -> Result<()> {
        let bucket = key.bits(self.sorter.shift) & (self.n_keys.len() - 1);
        let n_keys = usize::from(self.n_keys[bucket]);
        self.keys[bucket * N_FED + n_keys] = key;
        self.n_keys[bucket] += 1;
        if n_keys + 1 == N_FED { self.flush(bucket) } else { Ok(()) }
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        (0..self.n_keys.len()).try_for_each(|bucket| self.flush(bucket))
    }

    fn flush(&mut self, bucket: usize) -> Result<()> {
        let n_keys = usize::from(std::mem::take(&mut self.n_keys[bucket]));
        self.sorter.append(bucket, &self.keys[bucket * N_FED..][..n_keys])
    }
}

/// Source of the keys of finished buckets.
#[derive(Clone, Copy)]
struct Source<'a> {
    budget: &'a Budget,
    file: Option<&'a File>,
}

impl Source<'_> {
    fn read<K: Key>(self, first_byte: u64, keys: &mut [K]) -> Result<()> {
        let file = self.file.expect("a bucket with extents has a file");
        file.read_exact_at(bytemuck::cast_slice_mut(keys), first_byte).map_err(PartitionError::io(&self.budget.scratch))
    }
}

impl<K: Key> Bucket<K> {
    fn n_keys(&self) -> u64 {
        let n_spilled: u64 = self.extents.iter().map(|(_, n_keys)| n_keys).sum();
        n_spilled + self.chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>()
    }

    fn spill(&mut self, budget: &Budget, spilled: &mut SpillFile) -> Result<()> {
        let first_byte = spilled.n_bytes;
        for chunk in &self.chunks {
            let bytes: &[u8] = bytemuck::cast_slice(chunk);
            spilled.file.write_all_at(bytes, spilled.n_bytes).map_err(PartitionError::io(&budget.scratch))?;
            spilled.n_bytes += bytes.len() as u64;
        }
        budget.spill(spilled.n_bytes - first_byte);
        let n_keys = (spilled.n_bytes - first_byte) / size_of::<K>() as u64;
        if n_keys > 0 {
            self.extents.push((first_byte, n_keys));
        }
        self.forget_chunks(budget);
        Ok(())
    }

    fn forget_chunks(&mut self, budget: &Budget) {
        let n_bytes: usize = self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<K>()).sum();
        self.chunks = Vec::new();
        budget.held_bytes.fetch_sub(n_bytes as u64, Relaxed);
    }

    /// All keys in the order in which they came.
    fn load(mut self, source: Source<'_>) -> Result<Vec<K>> {
        let mut keys = Vec::with_capacity(self.n_keys() as usize);
        for (first_byte, n_keys) in &self.extents {
            let start = keys.len();
            keys.resize(start + *n_keys as usize, K::default());
            source.read(*first_byte, &mut keys[start..])?;
        }
        for chunk in &self.chunks {
            keys.extend_from_slice(chunk);
        }
        self.forget_chunks(source.budget);
        Ok(keys)
    }

    /// Hands all keys to `each` in the order in which they came, without ever holding them all.
    fn stream(mut self, source: Source<'_>, each: &mut dyn FnMut(&[K]) -> Result<()>) -> Result<()> {
        let key_bytes = size_of::<K>() as u64;
        let mut keys = vec![K::default(); READ_BYTES / size_of::<K>()];
        for (first_byte, n_keys) in &self.extents {
            for done in (0..*n_keys).step_by(keys.len()) {
                let keys = &mut keys[..(n_keys - done).min(READ_BYTES as u64 / key_bytes) as usize];
                source.read(first_byte + done * key_bytes, keys)?;
                each(keys)?;
            }
        }
        for chunk in std::mem::take(&mut self.chunks) {
            source.budget.held_bytes.fetch_sub((chunk.capacity() * size_of::<K>()) as u64, Relaxed);
            each(&chunk)?;
        }
        Ok(())
    }
}

/// A file without a name: it is gone when it is closed, however the process ends.
fn open_scratch(budget: &Budget) -> std::io::Result<File> {
    let path = budget.scratch.join(format!("bucket-{}", budget.n_files.fetch_add(1, Relaxed)));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// A bucket on its way out.
enum Piece<K> {
    Sorted(Vec<K>),
    TooLarge(Bucket<K>),
}

impl<K: Key> Piece<K> {
    fn new(bucket: Bucket<K>, source: Source<'_>, below: Digits) -> Result<Piece<K>> {
        if bucket.n_keys() * size_of::<K>() as u64 > source.budget.piece_bytes() {
            return Ok(Piece::TooLarge(bucket));
        }
        let mut keys = bucket.load(source)?;
        sort_by_bits(&mut keys, below.start, below.end);
        if below.is_merged {
            keys.dedup();
        }
        Ok(Piece::Sorted(keys))
    }

    fn hand_over(
        self,
        source: Source<'_>,
        below: Digits,
        take: &mut (impl FnMut(&[K]) -> Result<()> + Send),
    ) -> Result<()> {
        match self {
            Piece::Sorted(keys) => take(&keys),
            // Nothing left to sort by: these keys are equal where it matters.
            Piece::TooLarge(bucket) if below.end <= below.start => {
                let mut is_first = true;
                bucket.stream(source, &mut |keys| {
                    let keys = if below.is_merged { &keys[..usize::from(is_first)] } else { keys };
                    is_first = false;
                    take(keys)
                })
            }
            Piece::TooLarge(bucket) => {
                let nested = source.budget.nested();
                let sorter = Sorter::new(&nested, below);
                let mut feeder = sorter.feeder();
                bucket.stream(source, &mut |keys| keys.iter().try_for_each(|key| feeder.push(*key)))?;
                feeder.finish()?;
                sorter.finish(take)
            }
        }
    }
}
