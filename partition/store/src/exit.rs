//! End of the process without exit handlers, one of which may wait for a GPU for ever. Contains `unsafe` code.
#![allow(unsafe_code)]

use std::io::{Write, stdout};

use crate::unfinished::remove_unfinished;

/// Ends the process at once, without unwinding and without exit handlers; removes temporary folders and drafts first.
pub fn exit_at_once(code: u8) -> ! {
    remove_unfinished();
    let _ = stdout().flush();
    // SAFETY: ends the process; nothing runs after it.
    unsafe { libc::_exit(code.into()) }
}
