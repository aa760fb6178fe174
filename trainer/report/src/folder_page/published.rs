//! Published results to compare with.

/// Published mean and standard deviation over runs, in percent, by dataset and model.
pub type Paper<'a> = &'a dyn Fn(&str, &str) -> Option<(f64, f64)>;
