//! Published results to compare with.

/// What the paper says of a dataset and a model: mean and standard deviation over runs, in percent.
pub type Paper<'a> = &'a dyn Fn(&str, &str) -> Option<(f64, f64)>;
