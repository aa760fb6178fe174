//! Best settings and accuracies of models on a graph of the grid.

use kith_report::statistics::{Spread, pooled_t_test};
use kith_run::recipe::Advice;

/// Position of a cell in the grid.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) graph_key: u64,
    pub(super) degree: f64,
    pub(super) homophily: f64,
    pub(super) model: String,
    pub(super) weight_decay: f64,
    pub(super) edge_weight: Option<f64>,
}

/// Rule for selecting settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Highest mean validation accuracy: possible without test labels.
    Validation,
    /// Highest mean test accuracy: the paper's rule.
    Test,
}

/// A model on a graph, with its best settings.
pub(super) struct Chosen {
    pub(super) model: String,
    pub(super) by_validation: Best,
    pub(super) by_test: Best,
}

/// One setting and its accuracies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Best {
    pub(super) setting: Setting,
    pub(super) valid: Spread,
    /// Test accuracy at the best validation epoch of each run.
    pub(super) test: Spread,
}

impl Chosen {
    pub(super) fn best(&self, rule: Rule) -> &Best {
        match rule {
            Rule::Validation => &self.by_validation,
            Rule::Test => &self.by_test,
        }
    }

    pub(super) fn accuracy(&self, rule: Rule) -> Spread {
        self.best(rule).test
    }
}

/// Results on one draw of a graph.
pub(super) struct OnGraph {
    pub(super) graph_key: u64,
    pub(super) degree: f64,
    pub(super) homophily: f64,
    /// Best setting of each model.
    pub(super) models: Vec<Chosen>,
}

impl OnGraph {
    pub(super) fn of(&self, model: &str, rule: Rule) -> Option<Spread> {
        self.models.iter().find(|chosen| chosen.model == model).map(|chosen| chosen.accuracy(rule))
    }

    /// The recipe's advice for this graph, by the paper's significance test.
    pub(super) fn advice(&self, rule: Rule) -> Option<Advice> {
        let of = |model| self.of(model, rule);
        let (sd, mx, gat) = (of("supergat-sd")?, of("supergat-mx")?, of("gat")?);
        Some(advice(sd, mx, gat))
    }
}

/// The winning model: a SuperGAT if it differs significantly from GAT; SD or MX if these two differ.
fn advice(sd: Spread, mx: Spread, gat: Spread) -> Advice {
    const LEVEL: f64 = 0.05;
    let (first, own) = if mx.mean > sd.mean { (mx, Advice::Mx) } else { (sd, Advice::Sd) };
    let or_one = |p: f64| if p.is_nan() { 1.0 } else { p };
    match () {
        _ if or_one(pooled_t_test(first, gat)) >= LEVEL => Advice::GatAny,
        _ if or_one(pooled_t_test(sd, mx)) >= LEVEL => Advice::SupergatAny,
        _ => own,
    }
}

/// Accuracy of a model on all draws of a graph: mean of the draws' means, and mean of their standard deviations.
pub(super) fn over_draws(draws: &[OnGraph], model: &str, rule: Rule) -> Spread {
    let found: Vec<Spread> = draws.iter().filter_map(|draw| draw.of(model, rule)).collect();
    let mean = |of: fn(&Spread) -> f64| found.iter().map(of).sum::<f64>() / found.len() as f64;
    Spread { mean: mean(|spread| spread.mean), std: mean(|spread| spread.std), n: found.iter().map(|own| own.n).sum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(mean: f64, std: f64) -> Spread {
        Spread { mean, std, n: 5 }
    }

    #[test]
    fn the_recipe_follows_two_tests() {
        let gat = spread(50.0, 0.5);
        assert_eq!(advice(spread(55.0, 0.5), spread(52.0, 0.5), gat), Advice::Sd);
        assert_eq!(advice(spread(52.0, 0.5), spread(55.0, 0.5), gat), Advice::Mx);
        assert_eq!(advice(spread(55.0, 0.5), spread(55.1, 0.5), gat), Advice::SupergatAny);
        assert_eq!(advice(spread(50.1, 0.5), spread(45.0, 0.5), gat), Advice::GatAny);
        assert_eq!(advice(spread(50.0, 0.0), spread(50.0, 0.0), spread(50.0, 0.0)), Advice::GatAny, "nothing differs");
    }
}
