//! Item types of a column.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

#[cfg(target_endian = "big")]
compile_error!("columns are little-endian and mapped as they are");

/// The type of a column's items, as the manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Dtype {
    U8,
    U16,
    U32,
    U64,
    F16,
    Bf16,
    F32,
}

impl Dtype {
    /// Bytes per item.
    pub fn n_bytes(self) -> u64 {
        match self {
            Dtype::U8 => 1,
            Dtype::U16 | Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::U32 | Dtype::F32 => 4,
            Dtype::U64 => 8,
        }
    }

    /// The name in the manifest, also the ending of the column's file.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::U8 => "u8",
            Dtype::U16 => "u16",
            Dtype::U32 => "u32",
            Dtype::U64 => "u64",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
            Dtype::F32 => "f32",
        }
    }
}

/// A type that columns can hold.
pub trait Item: bytemuck::Pod + Send + Sync {
    /// Its name in the manifest.
    const DTYPE: Dtype;
}

impl Item for u8 {
    const DTYPE: Dtype = Dtype::U8;
}
impl Item for u16 {
    const DTYPE: Dtype = Dtype::U16;
}
impl Item for u32 {
    const DTYPE: Dtype = Dtype::U32;
}
impl Item for u64 {
    const DTYPE: Dtype = Dtype::U64;
}
impl Item for f16 {
    const DTYPE: Dtype = Dtype::F16;
}
impl Item for bf16 {
    const DTYPE: Dtype = Dtype::Bf16;
}
impl Item for f32 {
    const DTYPE: Dtype = Dtype::F32;
}
