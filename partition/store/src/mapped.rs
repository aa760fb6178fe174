//! Memory-mapped files of a store. The only `unsafe` of this package is here.
#![allow(unsafe_code)]

use std::{
    collections::BTreeMap,
    ffi::{c_int, c_void},
    fs::File,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Mutex, Once, PoisonError},
};

use crate::error::{Result, StoreError};

/// The bytes of one published file; `None` for an empty one, which cannot be mapped.
#[derive(Debug)]
pub(crate) struct Mapped(Option<memmap2::Mmap>);

impl Mapped {
    /// Maps the whole file. Pages are shared by all processes that open it and cost memory only when touched.
    pub(crate) fn open(path: &Path) -> Result<Mapped> {
        Mapped::of(&File::open(path).map_err(StoreError::io(path))?, path)
    }

    /// The same for a file that is open, and may have no name any more; `path` is for messages.
    pub(crate) fn of(file: &File, path: &Path) -> Result<Mapped> {
        if file.metadata().map_err(StoreError::io(path))?.len() == 0 {
            return Ok(Mapped(None));
        }
        handle_bus_errors();
        // SAFETY: a column is mapped only after `ColumnWriter::finish` has consumed its writer; from then on nothing in
        // Kith opens its file for writing, so the bytes do not change while the map lives.
        let map = unsafe { memmap2::Mmap::map(file) }.map_err(StoreError::io(path))?;
        let mut maps = MAPS.lock().unwrap_or_else(PoisonError::into_inner);
        maps.insert(map.as_ptr() as usize, (map.len(), path.to_owned()));
        Ok(Mapped(Some(map)))
    }

    /// The bytes, starting on a page: aligned for every item type.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        const NOTHING: &[u64] = &[];
        self.0.as_deref().unwrap_or(bytemuck::cast_slice(NOTHING))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some(map) = &self.0 {
            MAPS.lock().unwrap_or_else(PoisonError::into_inner).remove(&(map.as_ptr() as usize));
        }
    }
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
