//! Parsers of options of `kith data`.

use kith_partition::split::Fractions;
use kith_store::Dtype;

/// Parses the type of dense features.
pub(super) fn dtype(text: &str) -> Result<Dtype, String> {
    match text {
        "f32" => Ok(Dtype::F32),
        "f16" => Ok(Dtype::F16),
        "bf16" => Ok(Dtype::Bf16),
        _ => Err("expected f32, f16 or bf16".to_owned()),
    }
}

/// Parses fractions of nodes: `0.6/0.2/0.2`.
pub(super) fn shares(text: &str) -> Result<Fractions, String> {
    let parts: Vec<f64> = text.split('/').map_while(|part| part.parse().ok()).collect();
    match parts[..] {
        [train, valid, test] if text.split('/').count() == 3 => Ok(Fractions { train, valid, test }),
        _ => Err("expected three fractions, as in 0.6/0.2/0.2".to_owned()),
    }
}
