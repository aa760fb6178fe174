//! Arrays of batches: numpy reads them without a copy, and their memory is used again.

use std::{mem, sync::RwLock};

use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};

use crate::memory::{Labels, Number, Shelf, SomeLabels, fill};

/// Numbers in memory that Rust filled. `numpy.asarray` gives a view of it, which keeps it alive.
#[pyclass(frozen, module = "kith._kith")]
#[derive(Debug)]
pub struct Array {
    /// Rust does not read it again once Python has it: Python may write to it.
    numbers: Numbers,
    address: usize,
    shape: Vec<usize>,
}

#[derive(Debug)]
enum Numbers {
    Int64(Lent<i64>),
    Float32(Lent<f32>),
}

/// A vector that goes back to its shelf.
#[derive(Debug)]
struct Lent<T> {
    numbers: Vec<T>,
    shelf: Option<Shelf<T>>,
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        if let Some(shelf) = &self.shelf {
            shelf.put(mem::take(&mut self.numbers));
        }
    }
}

impl Array {
    /// Whole numbers in this shape.
    pub(crate) fn int64(numbers: Vec<i64>, shape: &[usize]) -> Array {
        Array::lent_int64(numbers, shape, None)
    }

    /// Numbers of 32 bits in this shape.
    pub(crate) fn float32(numbers: Vec<f32>, shape: &[usize]) -> Array {
        Array::lent_float32(numbers, shape, None)
    }

    fn lent_int64(mut numbers: Vec<i64>, shape: &[usize], shelf: Option<&Shelf<i64>>) -> Array {
        let address = address_of(&mut numbers, shape);
        Array { numbers: Numbers::Int64(Lent { numbers, shelf: shelf.cloned() }), address, shape: shape.to_vec() }
    }

    fn lent_float32(mut numbers: Vec<f32>, shape: &[usize], shelf: Option<&Shelf<f32>>) -> Array {
        let address = address_of(&mut numbers, shape);
        Array { numbers: Numbers::Float32(Lent { numbers, shelf: shelf.cloned() }), address, shape: shape.to_vec() }
    }

    fn kind(&self) -> &'static str {
        match self.numbers {
            Numbers::Int64(_) => i64::TYPE,
            Numbers::Float32(_) => f32::TYPE,
        }
    }
}

fn address_of<T>(numbers: &mut [T], shape: &[usize]) -> usize {
    assert_eq!(numbers.len(), shape.iter().product::<usize>(), "a number for every place");
    numbers.as_mut_ptr() as usize
}

#[pymethods]
impl Array {
    /// Numpy's protocol for memory of others.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.kind())?;
        interface.set_item("data", (self.address, false))?;
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        Ok(interface)
    }
}

/// An array, or a pinned tensor that holds the same.
#[derive(IntoPyObject)]
pub(crate) enum Column {
    /// In memory of Rust.
    Here(Array),
    /// In memory of PyTorch.
    Pinned(Py<PyAny>),
}

/// Memory of a loader's batches.
#[pyclass(frozen, weakref, module = "kith._kith")]
pub(crate) struct Memory {
    /// Ends of edges, the longest of all.
    edges: Shelf<i64>,
    /// Ids of nodes and edges.
    ids: Shelf<i64>,
    pub(crate) floats: Shelf<f32>,
    /// Gives pinned tensors; `None` for memory of Rust. Held while Python is asked.
    allocate: RwLock<Option<Py<PyAny>>>,
}

#[pymethods]
impl Memory {
    /// Keeps the memory of up to `most` batches. `allocate([(shape, type), …])` gives pinned tensors and their addresses.
    #[new]
    fn new(most: usize, allocate: Option<Py<PyAny>>) -> Memory {
        let allocate = RwLock::new(allocate);
        Memory { edges: Shelf::new(2 * most), ids: Shelf::new(2 * most), floats: Shelf::new(most), allocate }
    }

    /// Asks Python for nothing from now on: it ends.
    fn close(&self, py: Python<'_>) {
        drop(py.detach(|| self.allocate.write().ok().and_then(|mut allocate| allocate.take())));
    }
}

impl Memory {
    /// Ids for Python.
    pub(crate) fn ids(&self, ids: impl Iterator<Item = u64>) -> Column {
        let mut numbers = self.ids.take();
        numbers.clear();
        numbers.extend(ids.map(|id| id as i64));
        let n = numbers.len();
        Column::Here(Array::lent_int64(numbers, &[n], Some(&self.ids)))
    }

    /// Sources, then destinations, that `write` appends to an empty vector.
    pub(crate) fn edge_index(&self, write: impl FnOnce(&mut Vec<i64>)) -> Column {
        let mut numbers = self.edges.take();
        numbers.clear();
        write(&mut numbers);
        let n = numbers.len();
        Column::Here(Array::lent_int64(numbers, &[2, n / 2], Some(&self.edges)))
    }

    /// Numbers of 32 bits, in a vector of `floats`.
    pub(crate) fn float32(&self, numbers: Vec<f32>, shape: &[usize]) -> Column {
        Column::Here(Array::lent_float32(numbers, shape, Some(&self.floats)))
    }

    /// Weights and features of edges from numbers edge by edge: the weight, if there is one, then `dim` features.
    pub(crate) fn edge_data(&self, data: &[f32], has_weights: bool, dim: usize) -> (Option<Column>, Option<Column>) {
        let edges = || data.chunks_exact(usize::from(has_weights) + dim);
        let weights = has_weights.then(|| {
            let weights: Vec<f32> = edges().map(|edge| edge[0]).collect();
            let n = weights.len();
            Column::Here(Array::float32(weights, &[n]))
        });
        let features = (dim > 0).then(|| {
            let mut features = self.floats.take();
            features.clear();
            edges().for_each(|edge| features.extend_from_slice(&edge[usize::from(has_weights)..]));
            let n = features.len() / dim;
            self.float32(features, &[n, dim])
        });
        (weights, features)
    }

    /// Puts columns into pinned memory, if that is wanted. They stay where they are while Python ends, and if it has no such memory.
    pub(crate) fn pin<'a>(&self, columns: impl IntoIterator<Item = &'a mut Column>) {
        let allocate = self.allocate.read().expect("nobody panics with it");
        let Some(allocate) = allocate.as_ref() else { return };
        let mut columns: Vec<&mut Column> = columns.into_iter().collect();
        let arrays = columns.iter().filter_map(|column| match column {
            Column::Here(array) => Some((array.shape.clone(), array.kind())),
            Column::Pinned(_) => None,
        });
        let wanted: Vec<(Vec<usize>, &str)> = arrays.collect();
        // Python is asked once for all of them: each time, a training loop may let us wait.
        let made = Python::try_attach(|py| allocate.call1(py, (wanted,))?.extract::<Vec<(Py<PyAny>, usize)>>(py));
        let Some(Ok(tensors)) = made else { return };
        columns.retain(|column| matches!(column, Column::Here(_)));
        for (column, (tensor, address)) in columns.into_iter().zip(tensors) {
            if let Column::Here(array) = column {
                let n = array.shape.iter().product();
                match &array.numbers {
                    Numbers::Int64(lent) => fill(&lent.numbers, address, n),
                    Numbers::Float32(lent) => fill(&lent.numbers, address, n),
                }
                *column = Column::Pinned(tensor);
            }
        }
    }
}

/// Whole numbers in memory that is not used again: a caller may keep them for long.
pub(crate) fn few(numbers: Vec<i64>) -> Column {
    let n = numbers.len();
    Column::Here(Array::int64(numbers, &[n]))
}

/// Labels of nodes.
pub(crate) fn labels_of(labels: &Labels, nodes: &[u64]) -> Column {
    Column::Here(match labels.of_nodes(nodes) {
        (SomeLabels::Classes(classes), shape) => Array::int64(classes, &shape),
        (SomeLabels::Rows(rows), shape) => Array::float32(rows, &shape),
    })
}
