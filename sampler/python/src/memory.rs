//! Memory that Rust and Python share. The only `unsafe` of this package is here.
#![allow(unsafe_code)]

use std::{
    marker::PhantomData,
    sync::{Arc, Mutex},
};

use pyo3::{prelude::*, types::PyDict};

use crate::error::Failed;

/// A number that numpy knows.
///
/// # Safety
///
/// `TYPE` is numpy's name of exactly this type, and any bytes are a value of it.
pub(crate) unsafe trait Number: Copy + Send + Sync + 'static {
    /// As numpy writes its type.
    const TYPE: &str;
}

// SAFETY: this is numpy's name.
unsafe impl Number for i64 {
    const TYPE: &str = "<i8";
}

// SAFETY: this is numpy's name.
unsafe impl Number for f32 {
    const TYPE: &str = "<f4";
}

// SAFETY: this is numpy's name.
unsafe impl Number for u8 {
    const TYPE: &str = "|u1";
}

/// Numbers of a numpy array that lie one behind the other, read where they are. As everywhere in numpy, nobody may write to the array
/// while it is read: the GIL is not held.
pub(crate) struct Borrowed<'py, T> {
    _array: Bound<'py, PyAny>,
    address: usize,
    n: usize,
    kind: PhantomData<T>,
}

impl<'py, T: Number> Borrowed<'py, T> {
    /// Of an array of any shape; `name` is that of the argument.
    pub(crate) fn of(array: &Bound<'py, PyAny>, name: &str) -> PyResult<Borrowed<'py, T>> {
        let interface = array.getattr("__array_interface__")?.cast_into::<PyDict>()?;
        let entry = |key: &str| -> PyResult<Bound<'py, PyAny>> {
            interface.get_item(key)?.ok_or_else(|| Failed::new(format!("{name}: no {key}")).into())
        };
        let kind: String = entry("typestr")?.extract()?;
        let shape: Vec<usize> = entry("shape")?.extract()?;
        let (address, _): (usize, bool) = entry("data")?.extract()?;
        let is_apart = interface.get_item("strides")?.is_some_and(|strides| !strides.is_none());
        if kind != T::TYPE || is_apart || !address.is_multiple_of(align_of::<T>()) {
            let problem = format!("{name}: expected numbers of type {} one behind the other, found {kind}", T::TYPE);
            return Err(Failed::new(problem).into());
        }
        Ok(Borrowed { _array: array.clone(), address, n: shape.iter().product(), kind: PhantomData })
    }

    /// The numbers.
    pub(crate) fn numbers(&self) -> &[T] {
        // SAFETY: numpy says that this many aligned numbers of this type are there; the array is alive as long as this value, and
        // its owner does not write to it meanwhile.
        unsafe { slice_at(self.address, self.n) }
    }
}

/// # Safety
///
/// There are `n` aligned numbers of this type at the address, which nobody writes to during the lifetime that the caller gives.
unsafe fn slice_at<'a, T: Number>(address: usize, n: usize) -> &'a [T] {
    if n == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(address as *const T, n) }
}

/// Labels of all nodes, in a numpy array that threads read.
#[pyclass(frozen, module = "kith._kith")]
pub(crate) struct Labels {
    /// Keeps the array alive.
    _array: Py<PyAny>,
    address: usize,
    n: usize,
    /// Numbers of a node; `None` for an array of one dimension.
    width: Option<usize>,
    is_float: bool,
}

/// Labels of some nodes.
pub(crate) enum SomeLabels {
    /// Classes.
    Classes(Vec<i64>),
    /// Rows of numbers.
    Rows(Vec<f32>),
}

#[pymethods]
impl Labels {
    /// Of an int64 or float32 array that nobody writes to.
    #[new]
    fn new(array: Bound<'_, PyAny>) -> PyResult<Labels> {
        let (is_float, address, n) = match Borrowed::<i64>::of(&array, "y") {
            Ok(classes) => (false, classes.address, classes.n),
            Err(_) => Borrowed::<f32>::of(&array, "y").map(|rows| (true, rows.address, rows.n))?,
        };
        let shape: Vec<usize> = array.getattr("shape")?.extract()?;
        Ok(Labels { _array: array.unbind(), address, n, width: shape.get(1).copied(), is_float })
    }
}

impl Labels {
    /// The labels of nodes, and their shape.
    pub(crate) fn of_nodes(&self, nodes: &[u64]) -> (SomeLabels, Vec<usize>) {
        let shape = [Some(nodes.len()), self.width].into_iter().flatten().collect();
        let width = self.width.unwrap_or(1);
        let labels = if self.is_float {
            // SAFETY: numpy said so when this was made; the array is alive and read-only.
            SomeLabels::Rows(rows(unsafe { slice_at(self.address, self.n) }, width, nodes))
        } else {
            // SAFETY: as above.
            SomeLabels::Classes(rows(unsafe { slice_at(self.address, self.n) }, width, nodes))
        };
        (labels, shape)
    }
}

fn rows<T: Copy>(all: &[T], width: usize, nodes: &[u64]) -> Vec<T> {
    match width {
        1 => nodes.iter().map(|node| all[*node as usize]).collect(),
        _ => nodes.iter().flat_map(|node| &all[*node as usize * width..][..width]).copied().collect(),
    }
}

/// Vectors that wait to be used again.
#[derive(Clone, Debug)]
pub(crate) struct Shelf<T> {
    kept: Arc<Mutex<Vec<Vec<T>>>>,
    most: usize,
}

impl<T> Shelf<T> {
    /// Keeps up to `most` vectors.
    pub(crate) fn new(most: usize) -> Shelf<T> {
        Shelf { kept: Arc::default(), most }
    }

    /// A used vector, whose contents mean nothing, or a new one.
    pub(crate) fn take(&self) -> Vec<T> {
        self.kept.lock().expect("nobody panics here").pop().unwrap_or_default()
    }

    /// Keeps a vector for later.
    pub(crate) fn put(&self, numbers: Vec<T>) {
        let mut kept = self.kept.lock().expect("nobody panics here");
        if kept.len() < self.most {
            kept.push(numbers);
        }
    }
}

/// Fills a new tensor of PyTorch.
pub(crate) fn fill<T: Number>(numbers: &[T], address: usize, n: usize) {
    assert_eq!(numbers.len(), n, "as many numbers as the tensor was made for");
    if n > 0 {
        // SAFETY: PyTorch gave room for this many numbers of this type, and nobody else knows the tensor yet.
        unsafe { std::ptr::copy_nonoverlapping(numbers.as_ptr(), address as *mut T, n) };
    }
}
