//! Two-dimensional tensors as plain numbers.

use tch::{Kind, Tensor};

use crate::error::TrainError;

/// A matrix as plain numbers.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    pub(crate) values: Vec<f32>,
    pub(crate) width: usize,
}

impl Matrix {
    pub(crate) fn row(&self, place: usize) -> &[f32] {
        &self.values[place * self.width..][..self.width]
    }
}

/// The values of a tensor of rows.
pub(crate) fn rows_of(tensor: &Tensor) -> Result<Matrix, TrainError> {
    let (n_rows, width) = tensor.size2()?;
    let mut values = vec![0.0; (n_rows * width) as usize];
    let n_values = values.len();
    tensor.f_to_kind(Kind::Float)?.f_contiguous()?.f_copy_data(&mut values, n_values)?;
    Ok(Matrix { values, width: width as usize })
}

/// The score of a pair: the dot product of two outputs.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32
}
