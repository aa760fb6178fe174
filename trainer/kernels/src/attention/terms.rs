//! Terms of a score, as constants of the loops over edges.

/// The terms of an attention's scores.
pub(super) trait Terms: Send {
    /// A sum over features of both ends together.
    const PRODUCTS: bool;
    /// A term for each end: a₁·h_i + a₂·h_j.
    const HALVES: bool;
    /// The sum over features is that of GATv2: a·leaky_relu(t_i + h_j).
    const DYNAMIC: bool;
}

/// GO.
pub(super) struct Halves;
/// DP and SD.
pub(super) struct Dots;
/// MX.
pub(super) struct GatedHalves;
/// V2.
pub(super) struct Dynamic;

impl Terms for Halves {
    const PRODUCTS: bool = false;
    const HALVES: bool = true;
    const DYNAMIC: bool = false;
}

impl Terms for Dots {
    const PRODUCTS: bool = true;
    const HALVES: bool = false;
    const DYNAMIC: bool = false;
}

impl Terms for GatedHalves {
    const PRODUCTS: bool = true;
    const HALVES: bool = true;
    const DYNAMIC: bool = false;
}

impl Terms for Dynamic {
    const PRODUCTS: bool = true;
    const HALVES: bool = false;
    const DYNAMIC: bool = true;
}
