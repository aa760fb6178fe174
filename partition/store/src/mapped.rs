//! Memory-mapped files of a store. The only `unsafe` of this package is here.
#![allow(unsafe_code)]

use std::{
    collections::BTreeMap,
    ffi::{c_int, c_void},
    fs::File,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, Once, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use crate::error::{Result, StoreError};

/// The bytes of one published file.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// `None` for an empty file, which cannot be mapped.
    map: Option<memmap2::Mmap>,
    /// True if the system reads no more than what is asked for.
    is_random: AtomicBool,
}

impl Mapped {
    /// Maps the whole file. Pages are shared by all processes that open it and cost memory only when touched.
    pub(crate) fn open(path: &Path) -> Result<Mapped> {
        Mapped::of(&File::open(path).map_err(StoreError::io(path))?, path)
    }

    /// The same for a file that is open, and may have no name any more; `path` is for messages.
    pub(crate) fn of(file: &File, path: &Path) -> Result<Mapped> {
        if file.metadata().map_err(StoreError::io(path))?.len() == 0 {
            return Ok(Mapped { map: None, is_random: AtomicBool::new(false) });
        }
        handle_bus_errors();
        // SAFETY: a column is mapped only after `ColumnWriter::finish` has consumed its writer; from then on nothing in
        // Kith opens its file for writing, so the bytes do not change while the map lives.
        let map = unsafe { memmap2::Mmap::map(file) }.map_err(StoreError::io(path))?;
        let mut maps = MAPS.lock().unwrap_or_else(PoisonError::into_inner);
        maps.insert(map.as_ptr() as usize, (map.len(), path.to_owned()));
        Ok(Mapped { map: Some(map), is_random: AtomicBool::new(false) })
    }

    /// From now on the system reads the pages that are touched, and none around them: for files that are larger than memory and are read
    /// in no order. Parts that are read in order are asked for with [`Mapped::will_need`].
    pub(crate) fn read_randomly(&self) {
        if let Some(map) = &self.map
            && map.advise(memmap2::Advice::Random).is_ok()
        {
            self.is_random.store(true, Relaxed);
        }
    }

    /// True if parts that will be read should be asked for.
    #[inline]
    pub(crate) fn is_random(&self) -> bool {
        self.is_random.load(Relaxed)
    }

    /// Asks the system to read bytes that will be needed, and does not wait. Without effect if the system reads ahead itself.
    #[inline]
    pub(crate) fn will_need(&self, start: usize, end: usize) {
        if self.is_random() && start < end && end <= self.bytes().len() {
            ask_for(&self.bytes()[start..end]);
        }
    }

    /// The bytes, starting on a page: aligned for every item type.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        const NOTHING: &[u64] = &[];
        self.map.as_deref().unwrap_or(bytemuck::cast_slice(NOTHING))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some(map) = &self.map {
            MAPS.lock().unwrap_or_else(PoisonError::into_inner).remove(&(map.as_ptr() as usize));
        }
    }
}

/// Asks the system to read the pages under these bytes, and does not wait.
pub(crate) fn ask_for(bytes: &[u8]) {
    static PAGE: OnceLock<usize> = OnceLock::new();
    // SAFETY: asks the system for a number.
    let page =
        *PAGE.get_or_init(|| usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1));
    let first = bytes.as_ptr() as usize / page * page;
    let n_bytes = bytes.as_ptr() as usize + bytes.len() - first;
    // SAFETY: advice to read pages of this process changes no byte; the system rejects addresses that it cannot take.
    unsafe { libc::madvise(first as *mut c_void, n_bytes, libc::MADV_WILLNEED) };
}

/// Bytes of all files that this process has mapped.
pub(crate) fn mapped_bytes() -> u64 {
    MAPS.lock().unwrap_or_else(PoisonError::into_inner).values().map(|(length, _)| *length as u64).sum()
}

/// All maps of this process by their first address: length and file.
static MAPS: Mutex<BTreeMap<usize, (usize, PathBuf)>> = Mutex::new(BTreeMap::new());

/// Installs the handler for reads of a mapped file that fail: the file was truncated, or its disk does not answer. The
/// system then sends SIGBUS, which would end the process without a word.
fn handle_bus_errors() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an all-zero `sigaction` is a valid one with an empty mask; the handler has the signature that
        // SA_SIGINFO asks for. SA_RESETHAND restores the default action before the handler runs.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        }
    });
}

/// Names the file under the address and ends the process. For any other address it returns, and the default action ends
/// the process.
extern "C" fn on_bus_error(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the system passes a valid `siginfo_t`, and SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for _ in 0..1000 {
        // No allocation, no waiting: another thread may hold the lock, but never this one, which was reading a map.
        if let Ok(maps) = MAPS.try_lock() {
            if let Some((start, (length, path))) = maps.range(..=address).next_back()
                && address - start < *length
            {
                let parts: [&[u8]; 3] = [b"error: ", path.as_os_str().as_bytes(), LOST];
                for part in parts {
                    // SAFETY: the bytes are valid for the length given; `write` may be called in a signal handler.
                    unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
                }
                // SAFETY: ends the process without running anything else of it.
                unsafe { libc::_exit(1) };
            }
            return;
        }
        std::thread::yield_now();
    }
}

/// The end of the sentence about a file that cannot be read any more.
const LOST: &[u8] =
    b": cannot be read any more: it was truncated while in use, or its disk failed: restore it from a copy\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_changes_no_byte() {
        let temp = tempfile::tempdir().unwrap();
        let (path, empty) = (temp.path().join("a"), temp.path().join("empty"));
        let bytes: Vec<u8> = (0..300_000u32).map(|place| place as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        std::fs::write(&empty, []).unwrap();
        let mapped = Mapped::open(&path).unwrap();
        mapped.will_need(0, 10);
        assert!(!mapped.is_random());
        mapped.read_randomly();
        assert!(mapped.is_random());
        for (start, end) in [(0, 10), (5, 5), (4095, 4097), (123_456, 300_000), (7, 300_001), (usize::MAX, 3)] {
            mapped.will_need(start, end);
        }
        assert!(mapped.bytes() == bytes);
        let nothing = Mapped::open(&empty).unwrap();
        nothing.read_randomly();
        assert!(!nothing.is_random() && nothing.bytes().is_empty());
    }
}
