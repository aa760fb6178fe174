//! Arrays that numpy reads without a copy.

use pyo3::{prelude::*, types::PyDict};

/// Numbers in memory that Rust filled. `numpy.asarray` gives a view of it, which keeps it alive.
#[pyclass(frozen, module = "kith._kith")]
#[derive(Debug)]
pub struct Array {
    /// Kept for its memory, which Rust does not read again: Python may write to it.
    _numbers: Numbers,
    address: usize,
    kind: &'static str,
    shape: Vec<usize>,
}

#[derive(Debug)]
enum Numbers {
    Int64 { _numbers: Vec<i64> },
    Float32 { _numbers: Vec<f32> },
}

impl Array {
    /// Whole numbers in this shape.
    pub(crate) fn int64(mut numbers: Vec<i64>, shape: &[usize]) -> Array {
        assert_eq!(numbers.len(), shape.iter().product::<usize>(), "a number for every place");
        let address = numbers.as_mut_ptr() as usize;
        Array { _numbers: Numbers::Int64 { _numbers: numbers }, address, kind: "<i8", shape: shape.to_vec() }
    }

    /// Numbers of 32 bits in this shape.
    pub(crate) fn float32(mut numbers: Vec<f32>, shape: &[usize]) -> Array {
        assert_eq!(numbers.len(), shape.iter().product::<usize>(), "a number for every place");
        let address = numbers.as_mut_ptr() as usize;
        Array { _numbers: Numbers::Float32 { _numbers: numbers }, address, kind: "<f4", shape: shape.to_vec() }
    }
}

#[pymethods]
impl Array {
    /// Numpy's protocol for memory of others.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.kind)?;
        interface.set_item("data", (self.address, false))?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        Ok(interface)
    }
}
