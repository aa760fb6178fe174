//! Stored numbers and their target types. Conversion is in bulk and checks every number in the same pass.

use std::fmt::Display;

use bytemuck::Pod;
use half::f16;

/// A type that stored items are converted to: `u32`, `u64` or `f32`.
pub trait Item: Copy {
    /// The converted number, and whether it is the same number.
    fn from_number(number: impl Number) -> (Self, bool);

    /// Message for a number that does not convert exactly.
    const PROBLEM: &'static str;
}

impl Item for u64 {
    const PROBLEM: &'static str = "is not a whole number from 0 up";

    fn from_number(number: impl Number) -> (u64, bool) {
        number.to_index()
    }
}

impl Item for u32 {
    const PROBLEM: &'static str = "is not a whole number in 0..4294967296";

    fn from_number(number: impl Number) -> (u32, bool) {
        let (index, fits) = number.to_index();
        (index as u32, fits && index <= u64::from(u32::MAX))
    }
}

impl Item for f32 {
    const PROBLEM: &'static str = "is not a finite 32-bit float";

    fn from_number(number: impl Number) -> (f32, bool) {
        let value = number.to_f32();
        (value, value.is_finite())
    }
}

/// A stored number.
pub trait Number: Pod + Display {
    /// As an index, and whether it is one.
    fn to_index(self) -> (u64, bool);

    /// The nearest 32-bit float.
    fn to_f32(self) -> f32;
}

macro_rules! numbers {
    ($($type:ty: $index:expr, $float:expr;)*) => {$(
        impl Number for $type {
            fn to_index(self) -> (u64, bool) {
                $index(self)
            }

            fn to_f32(self) -> f32 {
                $float(self)
            }
        }
    )*};
}

numbers! {
    i8: |x| (x as u64, x >= 0), f32::from;
    i16: |x| (x as u64, x >= 0), f32::from;
    i32: |x| (x as u64, x >= 0), |x| x as f32;
    i64: |x| (x as u64, x >= 0), |x| x as f32;
    u8: |x| (u64::from(x), true), f32::from;
    u16: |x| (u64::from(x), true), f32::from;
    u32: |x| (u64::from(x), true), |x| x as f32;
    u64: |x| (x, true), |x| x as f32;
    f16: |_| (0, false), f16::to_f32;
    f32: |_| (0, false), |x| x;
    f64: |_| (0, false), |x| x as f32;
}

/// Appends converted numbers; on the first that does not fit, its position and what is wrong with it.
pub(crate) fn extend<T: Item, N: Number>(to: &mut Vec<T>, from: &[N]) -> Result<(), (usize, String)> {
    let mut is_good = true;
    to.extend(from.iter().map(|&number| {
        let (item, fits) = T::from_number(number);
        is_good &= fits;
        item
    }));
    if is_good {
        return Ok(());
    }
    let item = from.iter().position(|&number| !T::from_number(number).1).expect("one of them did not fit");
    Err((item, format!("{} {}", from[item], T::PROBLEM)))
}
