//! Graphs and settings of the grid.

use std::ops::Range;

use kith_report::paper::SYNTHETIC_MODELS;
use kith_run::recipe::DEGREES;

/// Graphs and settings.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticOptions<'a> {
    /// Average degrees.
    pub degrees: Vec<f64>,
    /// Homophilies.
    pub homophilies: Vec<f64>,
    /// Models, by the names of presets.
    pub models: Vec<&'a str>,
    /// λ_2, tried with all models.
    pub weight_decays: Vec<f64>,
    /// λ_E, tried with SuperGATs and every λ_2.
    pub edge_weights: Vec<f64>,
    /// Seeds of every setting.
    pub run_keys: Range<u64>,
    /// Seeds of the graphs: one draw of every graph per seed.
    pub graph_keys: Range<u64>,
    /// Changes to every run file, as in `kith train --set`.
    pub assignments: &'a [String],
}

impl SyntheticOptions<'_> {
    /// The paper's 144 graphs, models, settings and seeds.
    pub fn paper() -> SyntheticOptions<'static> {
        SyntheticOptions {
            degrees: DEGREES.to_vec(),
            homophilies: (1..=9).map(|tenths| f64::from(tenths) / 10.0).collect(),
            models: SYNTHETIC_MODELS.to_vec(),
            weight_decays: vec![1e-7, 1e-5, 1e-3],
            edge_weights: vec![1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0],
            run_keys: 42..47,
            graph_keys: 42..43,
            assignments: &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_grid_is_that_of_the_paper() {
        let asked = SyntheticOptions::paper();
        assert_eq!(asked.degrees.len() * asked.homophilies.len(), 144);
        assert_eq!(asked.weight_decays.len() * asked.edge_weights.len(), 24);
        assert_eq!(asked.run_keys.count(), 5);
    }
}
