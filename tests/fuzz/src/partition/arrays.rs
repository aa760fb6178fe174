//! An npy file of arbitrary bytes is read or refused, at once and in chunks.

use std::path::Path;

use kith_partition::raw::{
    array::Origin,
    npy::{NpyStream, read_npy_from},
};

use crate::scratch::with_file;

pub(crate) fn run(bytes: &[u8]) {
    let whole = read_npy_from(&mut &bytes[..], bytes.len() as u64, Origin::file(Path::new("fuzz.npy")));
    if let Ok(array) = &whole {
        let _ = array.to_indices();
        let _ = array.clone().into_f32();
    }
    with_file("a.npy", bytes, |path| {
        let Ok(mut stream) = NpyStream::open(path) else { return };
        let (mut chunk, mut n_items) = (Vec::<f32>::new(), 0);
        while let Ok(n @ 1..) = stream.read_chunk(&mut chunk, 7) {
            n_items += n;
            assert!(n_items <= bytes.len() * 8, "more items than the file can hold");
        }
    });
}
