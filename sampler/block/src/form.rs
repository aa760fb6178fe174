//! Attention scores of a layer.

/// The forms of attention: what the score e of an edge is made of, and which logit s the edge loss sees. With h_i the
/// row of the destination and h_j of the source, in one head of F features, and t_i the destination's product with weights of
/// its own:
///
/// | form | e | s |
/// |---|---|---|
/// | GO | a₁·h_i + a₂·h_j | e |
/// | DP | h_i·h_j | e |
/// | SD | h_i·h_j / √F | e |
/// | MX | (a₁·h_i + a₂·h_j) · sigmoid(h_i·h_j) | h_i·h_j |
/// | V2 | a·leaky_relu(t_i + h_j) | e |
///
/// V2 is GATv2's; its softmax is of e itself, that of the others of leaky_relu(e).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// One layer on the two rows: GAT's own.
    Go,
    /// Dot product.
    Dp,
    /// Scaled dot product.
    Sd,
    /// GO, gated by the dot product.
    Mx,
    /// GATv2's dynamic attention.
    V2,
}

impl Form {
    /// Every form.
    pub const ALL: [Form; 5] = [Form::Go, Form::Dp, Form::Sd, Form::Mx, Form::V2];

    /// True if the score has a term for each end of an edge: a₁·h_i + a₂·h_j.
    pub fn has_halves(self) -> bool {
        matches!(self, Form::Go | Form::Mx)
    }

    /// True if the score has a sum over features of both ends together.
    pub fn has_products(self) -> bool {
        self != Form::Go
    }

    /// True if destinations have weights of their own: GATv2's dynamic attention.
    pub fn is_dynamic(self) -> bool {
        self == Form::V2
    }
}
