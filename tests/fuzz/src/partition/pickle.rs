//! A pickle of arbitrary bytes is read or refused; nothing in it is executed.

use kith_partition::raw::pickle::Pickle;

use super::LIMIT_BYTES;
use crate::scratch::with_file;

pub(crate) fn run(bytes: &[u8]) {
    with_file("a.pickle", bytes, |path| {
        let Ok(pickle) = Pickle::read(path, LIMIT_BYTES) else { return };
        let _ = pickle.array();
        let _ = pickle.csr();
        let _ = pickle.lists();
    });
}
