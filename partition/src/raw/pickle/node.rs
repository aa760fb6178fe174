//! Values of a pickle, and the classes that it may name.

use std::ops::Range;

/// A value's place among all values of a pickle.
pub(super) type NodeId = u32;

/// A value.
#[derive(Debug)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i64),
    Bytes(Range<usize>),
    Class(Class),
    List(Vec<NodeId>),
    Tuple(Vec<NodeId>),
    Dict(Vec<[NodeId; 2]>),
    Object { class: Class, args: NodeId, state: Option<NodeId>, items: Vec<[NodeId; 2]> },
}

/// All that a pickle may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Array,
    ArrayMaker,
    Dtype,
    Csr,
    DefaultDict,
    List,
}

/// The classes by module and name.
pub(super) const CLASSES: [(&[u8], &[u8], Class); 6] = [
    (b"numpy", b"ndarray", Class::Array),
    (b"numpy.core.multiarray", b"_reconstruct", Class::ArrayMaker),
    (b"numpy", b"dtype", Class::Dtype),
    (b"scipy.sparse.csr", b"csr_matrix", Class::Csr),
    (b"collections", b"defaultdict", Class::DefaultDict),
    (b"__builtin__", b"list", Class::List),
];
