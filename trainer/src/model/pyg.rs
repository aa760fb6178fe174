//! Weights of layers in PyG's names.

/// A tensor of a layer of PyG.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PygTensor {
    /// Its name in the layer.
    pub(crate) theirs: &'static str,
    /// Kith's weight, with `{}` for the number of the layer.
    pub(crate) ours: &'static str,
    /// Conversion between the two.
    pub(crate) map: PygMap,
}

/// Conversion of a weight of Kith into a tensor of PyG. K is the number of heads, F the number of features per head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PygMap {
    /// The same values.
    Same,
    /// Transposed.
    Turned,
    /// Half of K × 2F: K × F from column `half · F` on, as 1 × K × F.
    Half(usize),
    /// K × F as 1 × K × F.
    Heads,
    /// Bias of the sources of a GATv2, K·F: written as zeros. Reading adds it to the weight, which is the bias of targets, and, with heads
    /// joined, to the layer's bias: scores and outputs are the same.
    SourceBias,
    /// One number that must be zero: ε of a GIN.
    Zero,
}

impl PygTensor {
    /// The same values under two names.
    pub(crate) const fn same(ours: &'static str, theirs: &'static str) -> PygTensor {
        PygTensor { theirs, ours, map: PygMap::Same }
    }

    /// A matrix, transposed.
    pub(crate) const fn turned(ours: &'static str, theirs: &'static str) -> PygTensor {
        PygTensor { theirs, ours, map: PygMap::Turned }
    }

    /// Kith's name of the weight in a layer.
    pub(crate) fn ours(&self, layer: usize) -> String {
        self.ours.replace("{}", &layer.to_string())
    }
}
