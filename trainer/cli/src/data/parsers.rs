//! Parsers of options of `kith data`.

use kith_partition::split::Fractions;
use kith_store::Dtype;

/// The type of dense rows, as typed.
pub(super) fn dtype(text: &str) -> Result<Dtype, String> {
    match text {
        "f32" => Ok(Dtype::F32),
        "f16" => Ok(Dtype::F16),
        "bf16" => Ok(Dtype::Bf16),
        _ => Err("write f32, f16 or bf16".to_owned()),
    }
}

/// Shares of nodes, as typed: `0.6/0.2/0.2`.
pub(super) fn shares(text: &str) -> Result<Fractions, String> {
    let parts: Vec<f64> = text.split('/').map_while(|part| part.parse().ok()).collect();
    match parts[..] {
        [train, valid, test] if text.split('/').count() == 3 => Ok(Fractions { train, valid, test }),
        _ => Err("write three shares, as in 0.6/0.2/0.2".to_owned()),
    }
}
