//! Attention scores of a layer.

/// The forms of attention: what the score e of an edge is made of, and which logit s the edge loss sees. With h_i the
/// row of the destination and h_j of the source, in one head of F features:
///
/// | form | e | s |
/// |---|---|---|
/// | GO | a₁·h_i + a₂·h_j | e |
/// | DP | h_i·h_j | e |
/// | SD | h_i·h_j / √F | e |
/// | MX | (a₁·h_i + a₂·h_j) · sigmoid(h_i·h_j) | h_i·h_j |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// One layer on the two rows: GAT's own.
    Go = 0, // The numbers are those of layer.cuh.
    /// Dot product.
    Dp,
    /// Scaled dot product.
    Sd,
    /// GO, gated by the dot product.
    Mx,
}

impl Form {
    /// True if the attention has weights `a`.
    pub fn has_weights(self) -> bool {
        matches!(self, Form::Go | Form::Mx)
    }

    /// True if the attention uses dot products of hidden features.
    pub fn has_products(self) -> bool {
        self != Form::Go
    }
}
