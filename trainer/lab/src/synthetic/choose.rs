//! Best setting of a model on a graph: by validation, which is honest, and by test, as in the paper.

use super::results::{Best, Chosen, OnGraph, Setting};
use crate::experiment::Done;

/// Results of each graph, in the order of the cells.
pub(super) fn by_graph(done: &[Done], settings: &[Setting]) -> Vec<OnGraph> {
    let tried: Vec<Best> = done
        .iter()
        .zip(settings)
        .map(|(done, setting)| Best { setting: setting.clone(), valid: done.valid(), test: done.test() })
        .collect();
    tried
        .chunk_by(|a, b| graph_of(&a.setting) == graph_of(&b.setting))
        .map(|on_graph| OnGraph {
            graph_key: on_graph[0].setting.graph_key,
            degree: on_graph[0].setting.degree,
            homophily: on_graph[0].setting.homophily,
            models: on_graph.chunk_by(|a, b| a.setting.model == b.setting.model).filter_map(choose).collect(),
        })
        .collect()
}

fn graph_of(setting: &Setting) -> (f64, f64, u64) {
    (setting.homophily, setting.degree, setting.graph_key)
}

/// Best of the settings tried for a model; settings whose runs all failed are skipped.
fn choose(tried: &[Best]) -> Option<Chosen> {
    let best = |of: fn(&Best) -> f64| {
        let able = tried.iter().filter(|best| of(best).is_finite());
        // The first of equals: smaller weights.
        able.fold(None, |best: Option<&Best>, next| match best {
            Some(best) if of(best) >= of(next) => Some(best),
            _ => Some(next),
        })
        .cloned()
    };
    Some(Chosen {
        model: tried[0].setting.model.clone(),
        by_validation: best(|best| best.valid.mean)?,
        by_test: best(|best| best.test.mean)?,
    })
}

#[cfg(test)]
mod tests {
    use kith_report::statistics::Spread;

    use super::*;
    use crate::synthetic::results::Rule;

    fn tried(weight_decay: f64, valid: f64, test: f64) -> Best {
        let spread = |mean| Spread { mean, std: 0.5, n: 5 };
        let setting = Setting {
            graph_key: 1,
            degree: 1.0,
            homophily: 0.1,
            model: "gat".to_owned(),
            weight_decay,
            edge_weight: None,
        };
        Best { setting, valid: spread(valid), test: spread(test) }
    }

    #[test]
    fn each_rule_looks_at_its_own_nodes() {
        let all = [tried(0.1, 70.0, 60.0), tried(0.2, 69.0, 65.0), tried(0.3, 70.0, 61.0), tried(0.4, f64::NAN, 99.0)];
        let chosen = choose(&all[..3]).unwrap();
        assert_eq!(chosen.best(Rule::Validation).setting.weight_decay, 0.1, "the first of equals");
        assert_eq!(chosen.best(Rule::Test).setting.weight_decay, 0.2);
        assert_eq!(chosen.accuracy(Rule::Validation).mean, 60.0);
        assert!(choose(&all[3..]).is_none(), "what failed is not chosen");
    }
}
