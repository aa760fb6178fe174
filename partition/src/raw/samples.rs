//! Test files: built by hand, and corrupted on purpose.

use std::io::{Cursor, Write};

use bytemuck::Pod;
use kith_draw::{Draws, Name, Purpose};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use crate::{
    PartitionError,
    raw::{RawGraph, RawLabels, RawRows},
};

/// A type that `npy` writes.
pub(crate) trait NpyItem: Pod {
    const DESCR: &'static str;
}

macro_rules! items {
    ($($type:ty: $descr:literal),*) => {$(
        impl NpyItem for $type {
            const DESCR: &'static str = $descr;
        }
    )*};
}

items!(u8: "|u1", i8: "|i1", i16: "<i2", u32: "<u4", i32: "<i4", i64: "<i8", u64: "<u8", f32: "<f4", f64: "<f8");

/// The npy file of an array, as numpy writes it.
pub(crate) fn npy<T: NpyItem>(shape: &[usize], items: &[T]) -> Vec<u8> {
    npy_of(T::DESCR, &super::array::show_shape(shape), bytemuck::cast_slice(items))
}

/// An npy file that says this of itself, true or not.
pub(crate) fn npy_of(descr: &str, shape: &str, items: &[u8]) -> Vec<u8> {
    npy_with(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), items)
}

/// An npy file with this header.
pub(crate) fn npy_with(header: &str, items: &[u8]) -> Vec<u8> {
    let n_text_bytes = (header.len() + 1 + 10).next_multiple_of(64) - 10;
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(u16::try_from(n_text_bytes).unwrap().to_le_bytes());
    file.extend(format!("{header:<width$}\n", width = n_text_bytes - 1).bytes());
    file.extend(items);
    file
}

/// Members with the one of this name replaced, or left out.
pub(crate) fn with_member<'a>(
    mut members: Vec<(&'a str, Vec<u8>)>,
    name: &str,
    array: Option<Vec<u8>>,
) -> Vec<(&'a str, Vec<u8>)> {
    match (members.iter().position(|(key, _)| *key == name), array) {
        (Some(place), Some(array)) => members[place].1 = array,
        (Some(place), None) => drop(members.remove(place)),
        (None, _) => {}
    }
    members
}

/// An npz file of members given without `.npy`, deflated.
pub(crate) fn npz(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    zip(members, CompressionMethod::Deflated)
}

/// An npz file of members given without `.npy`.
pub(crate) fn zip(members: &[(&str, Vec<u8>)], method: CompressionMethod) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let options = SimpleFileOptions::default().compression_method(method);
        writer.start_file(format!("{name}.npy"), options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// Garbled copies of a file: bytes changed, cut out, repeated. The same ones every time.
pub(crate) fn garbled(file: &[u8], n_copies: u64) -> impl Iterator<Item = Vec<u8>> {
    let stream = Name { run_key: 1, purpose: Purpose::Fault, step: 0, layer: 0 }.stream();
    (0..n_copies).map(move |copy| {
        let mut draws = stream.draws(copy, 0, 0);
        let mut bytes = file.to_vec();
        for _ in 0..=draws.below(3) {
            garble(&mut bytes, &mut draws);
        }
        bytes
    })
}

fn garble(bytes: &mut Vec<u8>, draws: &mut Draws) {
    let n_bytes = bytes.len() as u64;
    if n_bytes == 0 {
        return;
    }
    // The start of a file says most about the rest of it.
    let reach = if draws.below(2) == 0 { n_bytes.min(300) } else { n_bytes };
    let at = draws.below(reach) as usize;
    match draws.below(6) {
        0 => bytes[at] ^= 1 << draws.below(8),
        1 => bytes[at] = draws.below(256) as u8,
        2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][draws.below(5) as usize],
        3 => drop(bytes.drain(at..(at + 1 + draws.below(8) as usize).min(n_bytes as usize))),
        4 => {
            let piece = bytes[at..(at + 1 + draws.below(40) as usize).min(n_bytes as usize)].to_vec();
            let to = draws.below(n_bytes) as usize;
            bytes.splice(to..to, piece);
        }
        _ => bytes.truncate(at),
    }
}

/// Figures that tell whether labels, rows and edges belong to the right nodes: edges between nodes of one class, and
/// (node + 1) * (column + 1) summed over all stored values.
pub(crate) fn figures(graph: &RawGraph) -> (usize, u64) {
    let Some(RawLabels::Classes { classes, .. }) = &graph.labels else { panic!("no classes") };
    let Some(RawRows::Sparse { indptr, indices, .. }) = &graph.rows else { panic!("no sparse rows") };
    let n_same = graph.edges.iter().filter(|ends| classes[ends[0] as usize] == classes[ends[1] as usize]).count();
    let row = |node: usize| &indices[indptr[node] as usize..indptr[node + 1] as usize];
    let sum = |node: usize| row(node).iter().map(|&column| (node as u64 + 1) * (u64::from(column) + 1)).sum::<u64>();
    (n_same, (0..graph.n_nodes as usize).map(sum).sum())
}

/// Panics unless this is an error that holds the text, in one sentence of its own.
pub(crate) fn assert_error<T>(result: Result<T, PartitionError>, text: &str) {
    let message = result.err().expect("bad input must be refused").to_string();
    assert!(message.contains(text), "{message:?} does not say {text:?}");
    assert!(!message.ends_with('.') && !message.contains('\n'), "{message:?} is not one sentence without a stop");
}

/// The pickle of a sparse matrix, as Python 2 wrote it.
pub(crate) fn pickle_csr(shape: [u32; 2], indptr: &[i32], indices: &[i32], values: &[f32]) -> Vec<u8> {
    let mut state = b"}(".to_vec();
    state.extend([text("format"), text("csr"), text("_shape"), int(shape[0]), int(shape[1])].concat());
    state.push(0x86);
    state.extend([text("indptr"), array(&[indptr.len()], indptr), text("_sorted"), vec![0x88]].concat());
    state.extend([text("indices"), array(&[indices.len()], indices), text("maxprint"), vec![b'K', 50]].concat());
    state.extend([text("data"), array(&[values.len()], values), b"u".to_vec()].concat());
    [b"\x80\x02cscipy.sparse.csr\ncsr_matrix\nq\x01)\x81q\x02".to_vec(), state, b"b.".to_vec()].concat()
}

/// The pickle of an array, as Python 2 wrote it.
pub(crate) fn pickle_array<T: NpyItem>(shape: &[usize], items: &[T]) -> Vec<u8> {
    [b"\x80\x02".to_vec(), array(shape, items), b".".to_vec()].concat()
}

/// The pickle of a dict of lists, as Python 2 wrote it.
pub(crate) fn pickle_lists(lists: &[(u32, Vec<u32>)]) -> Vec<u8> {
    let mut file = b"\x80\x02ccollections\ndefaultdict\nq\x01c__builtin__\nlist\nq\x02\x85Rq\x03(".to_vec();
    for (key, items) in lists {
        file.extend([int(*key), b"]r\x04\x01\x00\x00".to_vec()].concat());
        match &items[..] {
            [item] => file.extend([int(*item), b"a".to_vec()].concat()),
            _ => {
                file.extend([b"(".to_vec(), items.iter().flat_map(|&item| int(item)).collect(), b"e".to_vec()].concat())
            }
        }
    }
    file.extend(b"u.");
    file
}

fn array<T: NpyItem>(shape: &[usize], items: &[T]) -> Vec<u8> {
    let maker =
        b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x09(K\x01".to_vec();
    let lengths: Vec<u8> = shape.iter().flat_map(|&n| int(n as u32)).collect();
    let dtype = [b"cnumpy\ndtype\n".to_vec(), text(&T::DESCR[1..]), b"K\x00K\x01\x87R(K\x03".to_vec()].concat();
    let state = [text(&T::DESCR[..1]), b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb".to_vec()].concat();
    let bytes: &[u8] = bytemuck::cast_slice(items);
    let length = i32::try_from(bytes.len()).unwrap().to_le_bytes();
    let items = [b"\x89T".to_vec(), length.to_vec(), bytes.to_vec(), b"tb".to_vec()].concat();
    [maker, b"(".to_vec(), lengths, b"t".to_vec(), dtype, state, items].concat()
}

fn text(text: &str) -> Vec<u8> {
    [vec![b'U', text.len() as u8], text.as_bytes().to_vec()].concat()
}

fn int(number: u32) -> Vec<u8> {
    match (u8::try_from(number), u16::try_from(number)) {
        (Ok(number), _) => vec![b'K', number],
        (_, Ok(number)) => [vec![b'M'], number.to_le_bytes().to_vec()].concat(),
        _ => [vec![b'J'], number.to_le_bytes().to_vec()].concat(),
    }
}
