//! Interface between Rust and libtorch: tensors as slices, products of slices, and autograd nodes whose backward is in
//! Rust. Contains `unsafe` code; the C++ side is `bridge.cpp`.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString, c_char, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
};

use tch::{Device, Kind, TchError, Tensor};

use crate::buffer;

/// Backward of a step: takes the gradients of its outputs, gives those of its inputs, `None` where there is none.
pub(crate) type Backward = Box<dyn FnMut(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>, TchError>>;

/// A tensor of libtorch, as C++ holds it.
type RawTensor = *mut c_void;

unsafe extern "C" {
    fn kith_attach(
        node: *mut c_void,
        inputs: *const RawTensor,
        n_inputs: usize,
        outputs: *const RawTensor,
        n_outputs: usize,
    ) -> *mut c_char;
    fn kith_prepare();
    fn kith_trim();
    #[allow(clippy::too_many_arguments)]
    fn kith_multiply(
        out: *mut f32,
        a: *const f32,
        b: *const f32,
        m: i64,
        k: i64,
        n: i64,
        a_turned: bool,
        b_turned: bool,
    ) -> *mut c_char;
}

/// Makes the allocator keep what a step frees, for the next step. Call it once, before training.
pub fn prepare() {
    // SAFETY: sets two numbers of the allocator, from any thread, at any time.
    unsafe { kith_prepare() };
}

/// Returns memory kept for the next step to the system. For other work, within memory limits, between steps.
pub fn trim() {
    buffer::trim();
    // SAFETY: gives back memory that nobody has, from any thread, at any time.
    unsafe { kith_trim() };
}

/// Makes `outputs` depend on `inputs` in the autograd graph: `backward` runs when a gradient reaches them.
pub(crate) fn attach(inputs: &[&Tensor], outputs: &[&Tensor], backward: Backward) -> Result<(), TchError> {
    let raw = |tensors: &[&Tensor]| -> Vec<RawTensor> {
        tensors.iter().map(|tensor| tensor.as_ptr().cast_mut().cast()).collect()
    };
    let (inputs, outputs) = (raw(inputs), raw(outputs));
    let node: *mut Backward = Box::into_raw(Box::new(backward));
    // SAFETY: the tensors live through the call, which takes its own references to them; the node is given away, and
    // comes back once, to `kith_node_drop`.
    check(unsafe { kith_attach(node.cast(), inputs.as_ptr(), inputs.len(), outputs.as_ptr(), outputs.len()) })
}

/// Calls a node's backward for C++. Gradients given and made are owned by the one who receives them.
#[unsafe(no_mangle)]
extern "C" fn kith_node_backward(
    node: *mut c_void,
    gradients: *const RawTensor,
    n_gradients: usize,
    inputs: *mut RawTensor,
    n_inputs: usize,
) -> *mut c_char {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: `node` came from `attach` and was not dropped: C++ forgets it when it drops it. Autograd runs a node
        // on one thread at a time.
        let backward = unsafe { &mut *node.cast::<Backward>() };
        // SAFETY: C++ passes that many pointers, each null or a new tensor that is ours now.
        let gradients = unsafe { slice::from_raw_parts(gradients, n_gradients) };
        let own = |raw: &RawTensor| {
            // SAFETY: as above: a tensor of ours alone.
            (!raw.is_null()).then(|| unsafe { Tensor::from_ptr(raw.cast()) })
        };
        let gradients: Vec<Option<Tensor>> = gradients.iter().map(own).collect();
        let made = backward(&gradients)?;
        assert_eq!(made.len(), n_inputs, "one gradient per input");
        // SAFETY: C++ passes room for that many pointers and deletes the tensors behind them.
        let places = unsafe { slice::from_raw_parts_mut(inputs, n_inputs) };
        for (place, tensor) in places.iter_mut().zip(made) {
            if let Some(tensor) = tensor {
                *place = tensor.as_ptr().cast_mut().cast();
                std::mem::forget(tensor);
            }
        }
        Ok::<(), TchError>(())
    }));
    let message = match outcome {
        Ok(Ok(())) => return std::ptr::null_mut(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "a kernel panicked".to_owned(),
    };
    CString::new(message.replace('\0', " ")).unwrap_or_default().into_raw()
}

#[unsafe(no_mangle)]
extern "C" fn kith_node_drop(node: *mut c_void) {
    // SAFETY: `node` came from `attach`, and C++ calls this once.
    drop(unsafe { Box::from_raw(node.cast::<Backward>()) });
}

#[unsafe(no_mangle)]
extern "C" fn kith_error_drop(error: *mut c_char) {
    // SAFETY: `error` came from `kith_node_backward`.
    drop(unsafe { CString::from_raw(error) });
}

/// The error that C++ describes, if it does.
fn check(error: *mut c_char) -> Result<(), TchError> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: C++ gives a string that ends in zero and is ours now; it was made by `strdup`.
    let message = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    unsafe extern "C" {
        fn free(pointer: *mut c_void);
    }
    // SAFETY: as above, and nobody else has the pointer.
    unsafe { free(error.cast()) };
    Err(TchError::Torch(message))
}

/// A matrix in memory, row after row.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) numbers: &'a [f32],
    pub(crate) n_columns: usize,
    /// True to use the transpose.
    pub(crate) is_turned: bool,
}

impl Matrix<'_> {
    fn shape(&self) -> (usize, usize) {
        let n_rows = self.numbers.len().checked_div(self.n_columns).unwrap_or(0);
        assert_eq!(n_rows * self.n_columns, self.numbers.len(), "a matrix has whole rows");
        if self.is_turned { (self.n_columns, n_rows) } else { (n_rows, self.n_columns) }
    }
}

/// Rows from which on libtorch adds up products in an order that does not depend on the number of rows.
const FEW_ROWS: usize = 256;

/// `out = a · b`, on this thread. The bits of a row do not depend on the other rows unless `a` is turned.
pub(crate) fn multiply(out: &mut [f32], a: Matrix, b: Matrix) {
    let ((m, k), (k_too, n)) = (a.shape(), b.shape());
    assert_eq!(k, k_too, "the matrices fit");
    assert_eq!(out.len(), m * n, "the product has its size");
    if a.is_turned {
        return multiply_at_once(out, (a, b), (m, k, n));
    }
    if n == 1 {
        // A product with one column is a product with a vector for libtorch, and in an order of its own.
        let columns: Vec<f32> = b.numbers.iter().flat_map(|number| [*number, 0.0]).collect();
        let mut product = vec![0.0; 2 * m];
        multiply(&mut product, a, Matrix { numbers: &columns, n_columns: 2, is_turned: false });
        out.iter_mut().zip(product.chunks_exact(2)).for_each(|(out, row)| *out = row[0]);
        return;
    }
    let n_rest = m % FEW_ROWS;
    let (most, rest) = a.numbers.split_at((m - n_rest) * k);
    let (most_out, rest_out) = out.split_at_mut((m - n_rest) * n);
    multiply_at_once(most_out, (Matrix { numbers: most, ..a }, b), (m - n_rest, k, n));
    if n_rest > 0 {
        let mut rows = rest.to_vec();
        rows.resize(FEW_ROWS * k, 0.0);
        let mut product = vec![0.0; FEW_ROWS * n];
        multiply_at_once(&mut product, (Matrix { numbers: &rows, ..a }, b), (FEW_ROWS, k, n));
        rest_out.copy_from_slice(&product[..n_rest * n]);
    }
}

/// `out = a · b` in one call of libtorch: `m` by `k` numbers times `k` by `n`.
fn multiply_at_once(out: &mut [f32], (a, b): (Matrix, Matrix), (m, k, n): (usize, usize, usize)) {
    let (a_data, b_data) = (a.numbers.as_ptr(), b.numbers.as_ptr());
    // SAFETY: the sizes were just checked; the slices live through the call, which keeps no reference.
    let error = unsafe {
        kith_multiply(out.as_mut_ptr(), a_data, b_data, m as i64, k as i64, n as i64, a.is_turned, b.is_turned)
    };
    check(error).expect("a product of checked sizes");
}

/// The numbers of a dense float tensor in this machine's memory.
pub fn numbers(tensor: &Tensor) -> &[f32] {
    assert!(is_plain(tensor), "a dense float tensor on the CPU is expected");
    let n = tensor.numel();
    // SAFETY: checked: that many floats, side by side, in memory; the borrow keeps the tensor alive. Nothing writes to a
    // tensor while a kernel reads it: steps are computed one after the other.
    if n == 0 { &[] } else { unsafe { slice::from_raw_parts(tensor.data_ptr().cast(), n) } }
}

/// The numbers of a dense float tensor in this machine's memory, to be changed.
pub fn numbers_mut(tensor: &mut Tensor) -> &mut [f32] {
    assert!(is_plain(tensor), "a dense float tensor on the CPU is expected");
    let n = tensor.numel();
    // SAFETY: checked: that many floats, side by side, in memory; the borrow keeps others from this tensor. Views of the
    // same memory (weights are views of one flat tensor) are not read while it is changed: steps come one by one.
    if n == 0 { &mut [] } else { unsafe { slice::from_raw_parts_mut(tensor.data_ptr().cast(), n) } }
}

/// A new tensor, filled by a function that writes every number.
pub fn filled(shape: &[i64], fill: impl FnOnce(&mut [f32])) -> Tensor {
    let tensor = Tensor::empty(shape, (Kind::Float, Device::Cpu));
    let n = tensor.numel();
    if n > 0 {
        // SAFETY: a new tensor that nobody else has seen, with that many floats side by side.
        fill(unsafe { slice::from_raw_parts_mut(tensor.data_ptr().cast(), n) });
    }
    tensor
}

/// True if a tensor's memory is a plain array of floats: contiguous, on the CPU.
pub fn is_plain(tensor: &Tensor) -> bool {
    tensor.kind() == Kind::Float && tensor.device() == Device::Cpu && tensor.is_contiguous()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_passes_its_gradient_on() {
        let x = Tensor::from_slice(&[1f32, 2.0]).set_requires_grad(true);
        let y = filled(&[2], |y| y.copy_from_slice(&[3.0, 6.0]));
        attach(&[&x], &[&y], Box::new(|gradients| Ok(vec![gradients[0].as_ref().map(|gradient| gradient * 3.0)])))
            .unwrap();
        (y * Tensor::from_slice(&[10f32, 100.0])).sum(Kind::Float).backward();
        assert_eq!(numbers(&x.grad()), [30.0, 300.0]);
    }

    #[test]
    fn what_goes_wrong_backward_is_an_error() {
        type Made = Result<Vec<Option<Tensor>>, TchError>;
        let fails = |_: &[Option<Tensor>]| -> Made { Err(TchError::Shape("the reason".to_owned())) };
        let panics = |_: &[Option<Tensor>]| -> Made { panic!("on purpose") };
        for (backward, message) in [(Box::new(fails) as Backward, "the reason"), (Box::new(panics), "panicked")] {
            let x = Tensor::from_slice(&[1f32]).set_requires_grad(true);
            let y = filled(&[1], |y| y[0] = 1.0);
            attach(&[&x], &[&y], backward).unwrap();
            let error = y.f_backward().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn what_a_node_keeps_goes_with_it() {
        let kept = std::sync::Arc::new(());
        let in_node = kept.clone();
        let x = Tensor::from_slice(&[1f32]).set_requires_grad(true);
        let y = filled(&[1], |y| y[0] = 1.0);
        let backward: Backward = Box::new(move |gradients| {
            let _ = &in_node;
            Ok(vec![gradients[0].as_ref().map(Tensor::shallow_clone)])
        });
        attach(&[&x], &[&y], backward).unwrap();
        assert_eq!(std::sync::Arc::strong_count(&kept), 2);
        y.backward();
        assert_eq!(std::sync::Arc::strong_count(&kept), 1, "backward frees what was kept for it");
    }

    /// The number of nodes that are computed together must not change a bit of any of them.
    #[test]
    fn a_row_of_a_product_does_not_depend_on_the_others() {
        let number = |place: usize| ((place * 7919) % 1009) as f32 / 511.0 - 1.0;
        for (k, n) in [(1, 1), (100, 1), (16, 64), (100, 128), (128, 47), (500, 8), (1433, 64), (1433, 256)] {
            let a: Vec<f32> = (0..600 * k).map(number).collect();
            let b: Vec<f32> = (0..k * n).map(|place| number(place + 17)).collect();
            for is_turned in [false, true] {
                let b = Matrix { numbers: &b, n_columns: if is_turned { k } else { n }, is_turned };
                let product = |rows: std::ops::Range<usize>| {
                    let mut out = vec![0.0; rows.len() * n];
                    let a = &a[rows.start * k..rows.end * k];
                    multiply(&mut out, Matrix { numbers: a, n_columns: k, is_turned: false }, b);
                    out
                };
                let whole = product(0..600);
                for n_rows in [1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 100, 255, 256, 257, 593] {
                    assert!(product(7..7 + n_rows) == whole[7 * n..][..n_rows * n], "{n_rows} rows of {k}, {n} wide");
                }
            }
        }
    }

    #[test]
    fn products_of_slices_are_products() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 0.0, 2.0, 0.0, 1.0, 3.0]);
        let plain = |numbers, n_columns| Matrix { numbers, n_columns, is_turned: false };
        let mut out = [0.0; 4];
        multiply(&mut out, plain(&a, 3), Matrix { is_turned: true, ..plain(&b, 3) });
        assert_eq!(out, [7.0, 11.0, 16.0, 23.0]);
        let mut out = [0.0; 9];
        multiply(&mut out, Matrix { is_turned: true, ..plain(&a, 3) }, plain(&b, 3));
        assert_eq!(out, [1.0, 4.0, 14.0, 2.0, 5.0, 19.0, 3.0, 6.0, 24.0]);
    }
}
