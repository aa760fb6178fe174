//! Methods of hyperparameter search.

use serde::{Deserialize, Serialize};

use crate::choice::Choice;

/// Method that chooses the next point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Expected improvement by a Gaussian process.
    Gp,
    /// Blindly.
    Random,
}

impl Choice for Method {
    const ALL: &'static [(&'static str, Self)] = &[("gp", Self::Gp), ("random", Self::Random)];
}
