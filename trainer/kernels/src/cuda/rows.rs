//! Features of a store on a GPU.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use super::{
    error::GpuError,
    machine::Gpu,
    memory::{Address, Array, Sink},
};
use crate::rows::InputRows;

/// Numbers that one thread copies: the rows of a batch are more than one can copy in time.
const N_COPIED: usize = 1 << 18;

/// The rows that the first layer reads.
#[derive(Debug)]
pub struct DeviceRows {
    pub(super) n_rows: usize,
    pub(super) dim: usize,
    pub(super) values: Values,
}

#[derive(Debug)]
pub(super) enum Values {
    Dense(Array<f32>),
    Sparse(Box<Sparse>),
}

/// Sparse rows, and again by column, each column's entries in the order of rows.
#[derive(Debug)]
pub(super) struct Sparse {
    indptr: Array<u32>,
    columns: Array<u32>,
    values: Array<f32>,
    column_indptr: Array<u32>,
    column_rows: Array<u32>,
    column_values: Array<f32>,
}

/// As `struct SparseRows` in multiply.cu.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct SparseRows {
    n_rows: u32,
    dim: u32,
    indptr: Address,
    columns: Address,
    values: Address,
    column_indptr: Address,
    column_rows: Address,
    column_values: Address,
    ids: Address,
}

impl SparseRows {
    pub(super) fn n_rows(&self) -> u32 {
        self.n_rows
    }
}

impl DeviceRows {
    /// Copies rows.
    pub fn new(gpu: &Gpu, rows: &InputRows) -> Result<DeviceRows, GpuError> {
        const WHAT: &str = "the rows";
        let values = match rows {
            InputRows::Dense { values, .. } => Values::Dense(Array::of(gpu, values, WHAT)?),
            InputRows::Sparse(sparse) => {
                let starts = |indptr: &[usize]| indptr.iter().map(|start| *start as u32).collect::<Vec<u32>>();
                let (column_indptr, column_rows, column_values) = by_column(sparse);
                Values::Sparse(Box::new(Sparse {
                    indptr: Array::of(gpu, &starts(&sparse.indptr), WHAT)?,
                    columns: Array::of(gpu, &sparse.columns, WHAT)?,
                    values: Array::of(gpu, &sparse.values, WHAT)?,
                    column_indptr: Array::of(gpu, &column_indptr, WHAT)?,
                    column_rows: Array::of(gpu, &column_rows, WHAT)?,
                    column_values: Array::of(gpu, &column_values, WHAT)?,
                }))
            }
        };
        Ok(DeviceRows { n_rows: rows.n_rows(), dim: rows.dim(), values })
    }
}

impl Sparse {
    /// As kernels take them; `ids` name the rows in draws.
    pub(super) fn arg(&self, (n_rows, dim): (usize, usize), ids: Address) -> SparseRows {
        SparseRows {
            n_rows: n_rows as u32,
            dim: dim as u32,
            indptr: self.indptr.at(),
            columns: self.columns.at(),
            values: self.values.at(),
            column_indptr: self.column_indptr.at(),
            column_rows: self.column_rows.at(),
            column_values: self.column_values.at(),
            ids,
        }
    }
}

/// The rows of a batch, as kernels take them.
#[derive(Clone, Copy, Debug)]
pub(super) enum PlacedRows {
    Dense(Address),
    Sparse(SparseRows),
}

impl PlacedRows {
    pub(super) fn place(sink: &mut impl Sink, rows: &InputRows) -> Result<PlacedRows, GpuError> {
        match rows {
            InputRows::Dense { values, .. } => {
                let copy = |to: &mut [f32]| {
                    let parts = to.par_chunks_mut(N_COPIED).zip(values.par_chunks(N_COPIED));
                    parts.for_each(|(to, from)| to.copy_from_slice(from));
                };
                Ok(PlacedRows::Dense(sink.place(values.len(), copy)?))
            }
            InputRows::Sparse(rows) => Ok(PlacedRows::Sparse(SparseRows {
                n_rows: rows.indptr.len() as u32 - 1,
                dim: rows.dim as u32,
                indptr: sink.place(rows.indptr.len(), |to: &mut [u32]| {
                    to.iter_mut().zip(&rows.indptr).for_each(|(to, start)| *to = *start as u32);
                })?,
                columns: sink.copy(&rows.columns)?,
                values: sink.copy(&rows.values)?,
                ..SparseRows::zeroed()
            })),
        }
    }
}

fn by_column(rows: &crate::rows::SparseRows) -> (Vec<u32>, Vec<u32>, Vec<f32>) {
    let mut starts = vec![0u32; rows.dim + 1];
    rows.columns.iter().for_each(|column| starts[*column as usize + 1] += 1);
    for column in 0..rows.dim {
        starts[column + 1] += starts[column];
    }
    let mut next = starts.clone();
    let (mut of_rows, mut values) = (vec![0; rows.values.len()], vec![0.0; rows.values.len()]);
    for (row, places) in rows.indptr.windows(2).enumerate() {
        for place in places[0]..places[1] {
            let to = &mut next[rows.columns[place] as usize];
            of_rows[*to as usize] = row as u32;
            values[*to as usize] = rows.values[place];
            *to += 1;
        }
    }
    (starts, of_rows, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_hold_the_same_entries() {
        let rows = InputRows::sparse(3, vec![0, 2, 2, 4], vec![0, 2, 1, 2], vec![1.0, 2.0, 3.0, 4.0]);
        let InputRows::Sparse(rows) = rows else { unreachable!() };
        assert_eq!(by_column(&rows), (vec![0, 1, 2, 4], vec![0, 2, 0, 2], vec![1.0, 3.0, 2.0, 4.0]));
    }
}
