//! Python 2 pickles of protocol 2, as numpy and scipy wrote them. Nothing is executed: a closed list of opcodes builds
//! a small tree of values, a closed list of classes is allowed in it, and the only results are arrays, sparse matrices
//! and dicts of lists.

mod machine;
mod node;

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use self::{
    machine::Machine,
    node::{Class, Node, NodeId},
};
use crate::{
    PartitionError, Result,
    raw::{
        array::{Array, Dtype, Origin, Values},
        npz::{Csr, CsrArrays},
    },
};

/// A pickle's values. They name each other by number, so shared and circular ones cost nothing.
#[derive(Debug)]
pub struct Pickle {
    path: PathBuf,
    bytes: Vec<u8>,
    nodes: Vec<Node>,
    root: NodeId,
    left_bytes: u64,
}

impl Pickle {
    /// Reads a file; the bytes and all that is built from them may take `limit_bytes`.
    pub fn read(path: &Path, limit_bytes: u64) -> Result<Pickle> {
        let file = File::open(path).map_err(PartitionError::io(path))?;
        let mut bytes = Vec::new();
        file.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(PartitionError::io(path))?;
        Pickle::from_bytes(path, bytes, limit_bytes)
    }

    fn from_bytes(path: &Path, bytes: Vec<u8>, limit_bytes: u64) -> Result<Pickle> {
        let Some(left_bytes) = limit_bytes.checked_sub(bytes.len() as u64) else {
            return Err(PartitionError::input(path, "size", format!("more than the {limit_bytes} bytes read here")));
        };
        let (nodes, root, left_bytes) = Machine::new(&bytes, left_bytes)
            .run()
            .map_err(|(at, problem)| PartitionError::input(path, format!("byte {at}"), problem))?;
        Ok(Pickle { path: path.to_owned(), bytes, nodes, root, left_bytes })
    }

    /// The array that this pickle is.
    pub fn array(&self) -> Result<Array> {
        self.array_at(self.root, Origin::part(&self.path, "array"))
    }

    /// The sparse matrix that this pickle is.
    pub fn csr(&self) -> Result<Csr> {
        let origin = Origin::part(&self.path, "matrix");
        let Node::Object { class: Class::Csr, state: Some(state), .. } = self.node(self.root) else {
            return Err(origin.error("class", "this pickle is not a csr_matrix"));
        };
        let Node::Dict(state) = self.node(*state) else {
            return Err(origin.error("state", "not a dict"));
        };
        let find = |name: &str| {
            let found = state.iter().rev().find(|[key, _]| self.text(*key) == Some(name.as_bytes()));
            found.map(|[_, value]| *value).ok_or_else(|| origin.error("state", format!("key {name} is missing")))
        };
        let [n_rows, n_columns] = self.shape(find("_shape")?).map_err(|problem| origin.error("_shape", problem))?[..]
        else {
            return Err(origin.error("_shape", "not two numbers"));
        };
        let array = |name: &str| self.array_at(find(name)?, Origin::part(&self.path, format!("matrix {name}")));
        let (indptr, indices, values) = (array("indptr")?, array("indices")?, array("data")?);
        CsrArrays { n_rows: n_rows as u64, n_columns: n_columns as u64, indptr, indices, values }.check()
    }

    /// The dict of lists of whole numbers that this pickle is, in file order; a key may stand there twice.
    pub fn lists(&self) -> Result<Vec<(i64, Vec<i64>)>> {
        let error = |place: String, problem: &str| PartitionError::input(&self.path, place, problem);
        let entries = match self.node(self.root) {
            Node::Object { class: Class::DefaultDict, items, .. } | Node::Dict(items) => items,
            _ => return Err(error("class".to_owned(), "this pickle is not a dict of lists")),
        };
        let mut left_bytes = self.left_bytes;
        let mut lists = Vec::with_capacity(entries.len());
        for (place, &[key, list]) in entries.iter().enumerate() {
            let place = || format!("entry {place}");
            let Node::Int(key) = *self.node(key) else { return Err(error(place(), "its key is not a number")) };
            let Node::List(items) = self.node(list) else {
                return Err(error(format!("key {key}"), "its value is not a list"));
            };
            // Many keys may share one long list.
            left_bytes = left_bytes
                .checked_sub(items.len() as u64 * 8 + 32)
                .ok_or_else(|| error(format!("key {key}"), "the lists take more memory than is allowed here"))?;
            let number = |&id: &NodeId| match *self.node(id) {
                Node::Int(number) => Ok(number),
                _ => Err(error(format!("key {key}"), "its list holds more than numbers")),
            };
            lists.push((key, items.iter().map(number).collect::<Result<_>>()?));
        }
        Ok(lists)
    }

    fn array_at(&self, id: NodeId, origin: Origin) -> Result<Array> {
        let parts = self.array_parts(id).map_err(|problem| origin.error("class", problem))?;
        let [_, shape, dtype, order, items] = parts;
        let shape = self.shape(shape).map_err(|problem| origin.error("shape", problem))?;
        let dtype = self.dtype(dtype).map_err(|problem| origin.error("dtype", problem))?;
        let (Node::Bool(is_column_major), Some(mut items)) = (self.node(order), self.text(items)) else {
            return Err(origin.error("state", "not the five parts of an array"));
        };
        let n_items = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        let n_bytes = n_items.and_then(|n_items| n_items.checked_mul(dtype.n_bytes()));
        let Some(n_items) = n_items.filter(|_| n_bytes == Some(items.len())) else {
            let problem = format!("{shape:?} of {dtype:?} does not take {} bytes", items.len());
            return Err(origin.error("shape", problem));
        };
        let values =
            Values::read(&mut items, dtype, n_items).map_err(|error| origin.error("items", error.to_string()))?;
        let array = Array { shape, values, origin };
        if *is_column_major { array.into_row_major() } else { Ok(array) }
    }

    /// Version, shape, dtype, order and bytes.
    fn array_parts(&self, id: NodeId) -> Result<[NodeId; 5], &'static str> {
        let Node::Object { class: Class::ArrayMaker, args, state: Some(state), .. } = self.node(id) else {
            return Err("not an array");
        };
        match (self.tuple(*args).map(|args| self.node(args[0])), self.tuple(*state)) {
            (Some(Node::Class(Class::Array)), Some(&[version, shape, dtype, order, items])) => {
                Ok([version, shape, dtype, order, items])
            }
            _ => Err("not an array of five parts"),
        }
    }

    fn dtype(&self, id: NodeId) -> Result<Dtype, String> {
        let Node::Object { class: Class::Dtype, args, state: Some(state), .. } = self.node(id) else {
            return Err("not a dtype".to_owned());
        };
        let kind = self.tuple(*args).and_then(|args| self.text(args[0]));
        let order = self.tuple(*state).and_then(|state| self.text(*state.get(1)?));
        match (order, kind) {
            (Some(order @ (b"<" | b">" | b"|" | b"=")), Some(kind)) => {
                Dtype::parse(&String::from_utf8_lossy(&[order, kind].concat()))
            }
            _ => Err("not a dtype with a name and an order of bytes".to_owned()),
        }
    }

    fn shape(&self, id: NodeId) -> Result<Vec<usize>, String> {
        let length = |&id: &NodeId| match *self.node(id) {
            Node::Int(n) => usize::try_from(n).map_err(|_| format!("a length of {n}")),
            _ => Err("not a tuple of numbers".to_owned()),
        };
        match self.node(id) {
            Node::Tuple(lengths) if lengths.len() <= 32 => lengths.iter().map(length).collect(),
            _ => Err("not a tuple of numbers".to_owned()),
        }
    }

    fn text(&self, id: NodeId) -> Option<&[u8]> {
        match self.node(id) {
            Node::Bytes(range) => Some(&self.bytes[range.clone()]),
            _ => None,
        }
    }

    /// The parts of a tuple that has some.
    fn tuple(&self, id: NodeId) -> Option<&[NodeId]> {
        match self.node(id) {
            Node::Tuple(parts) if !parts.is_empty() => Some(parts),
            _ => None,
        }
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Instant};

    use tempfile::NamedTempFile;

    use super::*;
    use crate::{
        dataset::real_files,
        raw::samples::{assert_error, garbled, pickle_array, pickle_csr, pickle_lists},
    };

    const LIMIT: u64 = 1 << 24;

    fn read(bytes: &[u8]) -> Result<Pickle> {
        Pickle::from_bytes(Path::new("a.pickle"), bytes.to_vec(), LIMIT)
    }

    /// A pickle with this program.
    fn program(opcodes: &[u8]) -> Result<Pickle> {
        read(&[b"\x80\x02", opcodes].concat())
    }

    fn matrix() -> Vec<u8> {
        pickle_csr([2, 4], &[0, 2, 3], &[1, 3, 0], &[0.5, 1.0, 2.0])
    }

    fn swap(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
        let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
        [&bytes[..at], new, &bytes[at + old.len()..]].concat()
    }

    #[test]
    fn hand_made_pickles() {
        let csr = read(&matrix()).unwrap().csr().unwrap();
        assert_eq!((csr.n_rows, csr.n_columns, csr.row(0)), (2, 4, (&[1, 3][..], &[0.5, 1.0][..])));
        let array = read(&pickle_array(&[2, 3], &[1i32, 2, 3, 4, 5, 6])).unwrap().array().unwrap();
        assert_eq!((array.shape, array.values), (vec![2, 3], Values::I32(vec![1, 2, 3, 4, 5, 6])));
        let lists = read(&pickle_lists(&[(0, vec![1, 300, 70_000]), (1, vec![0]), (2, vec![])])).unwrap();
        assert_eq!(lists.lists().unwrap(), [(0, vec![1, 300, 70_000]), (1, vec![0]), (2, vec![])]);
        // One list under two keys: it grows under both.
        let shared = program(b"}(K\x00]q\x01K\x07aK\x01h\x01K\x08au.").unwrap();
        assert_eq!(shared.lists().unwrap(), [(0, vec![7, 8]), (1, vec![7, 8])]);
        assert_eq!(program(b"}K\x05]K\x06as.").unwrap().lists().unwrap(), [(5, vec![6])]);
        // Column after column.
        let columns = swap(&pickle_array(&[2, 2], &[1i32, 2, 3, 4]), b"\x89T", b"\x88T");
        assert_eq!(read(&columns).unwrap().array().unwrap().values, Values::I32(vec![1, 3, 2, 4]));
    }

    #[test]
    fn opcodes_and_classes_beyond_the_list_are_refused() {
        let cases: &[(&[u8], &str)] = &[
            (b"cos\nsystem\n(U\x04truet\x52.", "byte 2: class os.system is not read here"),
            (b"cposix\nsystem\n", "class posix.system is not read here"),
            (b"c__builtin__\neval\n", "class __builtin__.eval is not read here"),
            (b"c\xff\n\n", "class \\xff. is not read here"),
            (b"(ios\nsystem\n.", "byte 3: opcode INST is not followed here"),
            (b"X\x00\x00\x00\x00", "opcode BINUNICODE is not followed here"),
            (b"\x80\x02", "opcode PROTO is not followed here"),
            (b"N\xfe", "byte 3: 0xfe is not an opcode"),
            (b"cos\nsystem", "a name that does not end"),
            (b"c__builtin__\nlist\n)R.", "of class List cannot be made this way"),
            (b"cnumpy\nndarray\n)\x81.", "of class Array cannot be made this way"),
            (b"NNR.", "an object without a class or arguments"),
            (b"NNb.", "a state for something that takes none"),
            (b"NNa.", "items for something that is not a list"),
            (b"N(NNu.", "entries for something that is not a dict"),
            (b"}(Nu.", "a key without a value"),
            (b"a", "a value is needed, and there is none"),
            (b"N(a", "a value is needed, and there is none"),
            (b"Nt", "no mark to go back to"),
            (b"h\x05", "nothing was put in slot 5"),
            (b"T\xff\xff\xff\x7f", "a string of 2147483647 bytes, where 0 are left"),
            (b"T\xff\xff\xff\xff", "a string of -1 bytes"),
            (b"U\x09abc", "byte 2: a string of 9 bytes, where 3 are left"),
            (b"N", "byte 3: the pickle ends early"),
            (b"NN.", "the pickle ends with 2 values instead of one"),
            (b"N(.", "the pickle ends with 1 values instead of one"),
            (b"N.N", "1 bytes follow the end of the pickle"),
        ];
        for (opcodes, text) in cases {
            assert_error(program(opcodes), text);
        }
        assert_error(read(b""), "byte 0: this is not a pickle of protocol 2");
        assert_error(read(b"\x80\x04."), "this is not a pickle of protocol 2");
        assert_error(Pickle::read(Path::new("no such file"), LIMIT), "no such file");
    }

    #[test]
    fn values_of_the_wrong_kind_are_refused() {
        let none = program(b"N.").unwrap();
        assert_error(none.array(), "array: class: not an array");
        assert_error(none.csr(), "matrix: class: this pickle is not a csr_matrix");
        assert_error(none.lists(), "class: this pickle is not a dict of lists");
        assert_error(program(b"}(NNu.").unwrap().lists(), "entry 0: its key is not a number");
        assert_error(program(b"}(K\x07Nu.").unwrap().lists(), "key 7: its value is not a list");
        assert_error(program(b"}(K\x07]Nau.").unwrap().lists(), "key 7: its list holds more than numbers");

        let array = pickle_array(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
        let bad_array = |old: &[u8], new: &[u8]| read(&swap(&array, old, new)).unwrap().array();
        assert_error(bad_array(b"(K\x02K\x03t", b"(K\x02K\x04t"), "shape: [2, 4] of I32 does not take 24 bytes");
        assert_error(bad_array(b"(K\x02K\x03t", b"(J\xff\xff\xff\xffK\x03t"), "shape: a length of -1");
        assert_error(bad_array(b"(K\x02K\x03t", b"(K\x02Nt"), "shape: not a tuple of numbers");
        let huge = [&b"("[..], &b"J\xff\xff\xff\x7f".repeat(3), b"t"].concat();
        assert_error(bad_array(b"(K\x02K\x03t", &huge), "does not take 24 bytes");
        assert_error(bad_array(b"U\x02i4", b"U\x02O8"), "dtype: items of type '<O8' are pickled objects");
        assert_error(bad_array(b"U\x01<N", b"U\x01>N"), "dtype: items of type '>i4' are big-endian");
        assert_error(bad_array(b"U\x01<N", b"U\x01?N"), "dtype: not a dtype with a name and an order");
        assert_error(bad_array(b"\x89T", b"NT"), "state: not the five parts of an array");
        assert_error(bad_array(b"cnumpy\nndarray\n", b"cnumpy\ndtype\n"), "class: not an array of five parts");

        let bad_matrix = |old: &[u8], new: &[u8]| read(&swap(&matrix(), old, new)).unwrap().csr();
        assert_error(bad_matrix(b"_shape", b"-shape"), "matrix: state: key _shape is missing");
        assert_error(bad_matrix(b"K\x02K\x04\x86", b"K\x02\x85"), "matrix: _shape: not two numbers");
        assert_error(bad_matrix(b"K\x02K\x04\x86", b"K\x02K\x03\x86"), "matrix indices: item 1: 3 is outside 0..3");
        assert_error(bad_matrix(b"U\x04data", b"U\x04date"), "matrix: state: key data is missing");
    }

    #[test]
    fn memory_is_bounded() {
        let bomb = [&b"\x80\x02"[..], &b"]".repeat(1 << 20)].concat();
        assert_error(read(&bomb), "its values take more memory than is allowed here");
        let file = NamedTempFile::new().unwrap();
        fs::write(file.path(), &bomb).unwrap();
        assert_error(Pickle::read(file.path(), 1000), "size: more than the 1000 bytes read here");
        // One list of 10,000 items under 10,000 keys would be 100 million numbers.
        let keys: Vec<u8> = (0..10_000u16).flat_map(|key| [&b"M"[..], &key.to_le_bytes(), b"h\x01"].concat()).collect();
        let items = b"K\x01".repeat(10_000);
        let square = [&b"}(K\x00]q\x01("[..], &items, b"e", &keys, b"u."].concat();
        assert_error(program(&square).unwrap().lists(), "the lists take more memory than is allowed here");
        // A list within itself, and lists a million deep, are values like others.
        assert_error(program(b"]q\x01h\x01a.").unwrap().lists(), "not a dict of lists");
        let deep = [&b"]".repeat(100_000)[..], &b"a".repeat(99_999), b"."].concat();
        assert_error(program(&deep).unwrap().array(), "not an array");
    }

    /// Asks for everything; what comes back does not matter, only that something does.
    fn read_all(bytes: &[u8]) -> bool {
        read(bytes)
            .is_ok_and(|pickle| [pickle.csr().is_ok(), pickle.array().is_ok(), pickle.lists().is_ok()].contains(&true))
    }

    #[test]
    fn cut_and_garbled_pickles_never_panic() {
        let start = Instant::now();
        let lists = pickle_lists(&[(0, vec![1, 300, 70_000]), (1, vec![0]), (2, vec![])]);
        for whole in [matrix(), pickle_array(&[2, 3], &[1i32, 2, 3, 4, 5, 6]), lists] {
            assert!(read_all(&whole));
            for n_bytes in 0..whole.len() {
                assert!(!read_all(&whole[..n_bytes]), "cut at {n_bytes}");
            }
            let n_good = garbled(&whole, 3000).filter(|bytes| read_all(bytes)).count();
            assert!((1..3000).contains(&n_good), "{n_good} of 3000 read");
        }
        assert!(start.elapsed().as_secs() < 60);
    }

    #[test]
    fn real_pickles_whole_and_garbled() {
        let Some(folder) = real_files("cora") else { return };
        for part in ["x", "y", "graph"] {
            let whole = fs::read(folder.join(format!("ind.cora.{part}"))).unwrap();
            assert!(read_all(&whole));
            let n_good = garbled(&whole, 1000).filter(|bytes| read_all(bytes)).count();
            assert!((1..1000).contains(&n_good), "{n_good} of 1000 read");
        }
    }
}
