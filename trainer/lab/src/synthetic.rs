//! The paper's random partition graphs: every model with every setting of its grid on graphs of many degrees and homophilies,
//! and the recipe that comes of it.

mod choose;
mod figures;
mod tables;

use std::ops::Range;

use kith_partition::progress::Progress;
use kith_trainer::{
    preset::Preset,
    recipe::{Advice, DEGREES},
};

use self::choose::Chosen;
use crate::{
    bench::{machine, run},
    error::LabError,
    experiment::{Cell, Done, Place, Training},
    findings::Findings,
    paper::SYNTHETIC_MODELS,
    presets::{Changes, cell_of},
    statistics::{Spread, pooled_t_test},
    subject::{Subject, synthetic},
};

/// Which graphs and settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked<'a> {
    /// Average degrees.
    pub degrees: Vec<f64>,
    /// Homophilies.
    pub homophilies: Vec<f64>,
    /// Models, as presets call them.
    pub models: Vec<&'a str>,
    /// λ_2: all models try each.
    pub weight_decays: Vec<f64>,
    /// λ_E: SuperGATs try each with every λ_2.
    pub edge_weights: Vec<f64>,
    /// Run keys of every setting.
    pub run_keys: Range<u64>,
    /// Each names a draw of every graph.
    pub graph_keys: Range<u64>,
    /// Changes to every run file, as `kith train --set` takes them.
    pub assignments: &'a [String],
}

impl Asked<'_> {
    /// The paper's 144 graphs, models, settings and run keys.
    pub fn paper() -> Asked<'static> {
        Asked {
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

/// Where a cell stands in the grid.
#[derive(Clone, Debug, PartialEq)]
struct Setting {
    graph_key: u64,
    degree: f64,
    homophily: f64,
    model: String,
    weight_decay: f64,
    edge_weight: Option<f64>,
}

/// What was found on one draw of a graph.
struct OnGraph {
    graph_key: u64,
    degree: f64,
    homophily: f64,
    /// By model, with its best setting.
    models: Vec<Chosen>,
}

/// Which choice of settings is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The highest mean validation accuracy: what a person could have chosen.
    Validation,
    /// The highest mean test accuracy: what the paper did.
    Test,
}

impl OnGraph {
    fn of(&self, model: &str, rule: Rule) -> Option<Spread> {
        self.models.iter().find(|chosen| chosen.model == model).map(|chosen| chosen.accuracy(rule))
    }

    /// What the recipe would say of this graph, by the paper's rule.
    fn advice(&self, rule: Rule) -> Option<Advice> {
        let of = |model| self.of(model, rule);
        let (sd, mx, gat) = (of("supergat-sd")?, of("supergat-mx")?, of("gat")?);
        Some(advice(sd, mx, gat))
    }
}

/// Which model wins: a SuperGAT where it differs from GAT at all, and which one where the two differ.
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

/// Trains the grid and reads it.
pub fn run_grid(asked: &Asked<'_>, place: &Place, progress: &dyn Progress) -> Result<Findings, LabError> {
    let stores = place.dir.join("stores");
    let (mut cells, mut settings) = (Vec::new(), Vec::new());
    for homophily in &asked.homophilies {
        for degree in &asked.degrees {
            for graph_key in asked.graph_keys.clone() {
                let subject = synthetic(*degree, *homophily, graph_key, &stores, progress)?;
                let setting = Setting {
                    graph_key,
                    degree: *degree,
                    homophily: *homophily,
                    model: String::new(),
                    weight_decay: 0.0,
                    edge_weight: None,
                };
                add_graph(asked, &subject, &setting, (&mut cells, &mut settings))?;
            }
        }
    }
    let done = run(cells, &Training, place, progress)?;
    let graphs = choose::by_graph(&done, &settings);
    let mut findings = tables::findings(asked, &graphs);
    findings.notes.extend(done.iter().flat_map(Done::failures));
    findings.machine = machine(&done);
    Ok(findings)
}

/// Adds the cells of all models and settings on one graph; `graph` says which it is.
fn add_graph(
    asked: &Asked<'_>,
    subject: &Subject,
    graph: &Setting,
    (cells, settings): (&mut Vec<Cell>, &mut Vec<Setting>),
) -> Result<(), LabError> {
    for model in &asked.models {
        let file = Preset::get(&format!("partition-graph/{model}"))?.run_file()?;
        let has_edge_loss = file.resolve()?.edge_loss.is_some();
        let edge_weights: Vec<Option<f64>> = match has_edge_loss {
            true => asked.edge_weights.iter().copied().map(Some).collect(),
            false => vec![None],
        };
        for weight_decay in &asked.weight_decays {
            for edge_weight in &edge_weights {
                let mut own = vec![format!("train.weight_decay={weight_decay:?}")];
                own.extend(edge_weight.map(|edge_weight| format!("edge_loss.weight={edge_weight:?}")));
                let changes = Changes { own: &own, asked: asked.assignments };
                cells.push(cell_of(subject, model, file.clone(), changes, asked.run_keys.clone())?);
                let (weight_decay, edge_weight) = (*weight_decay, *edge_weight);
                settings.push(Setting { model: (*model).to_owned(), weight_decay, edge_weight, ..graph.clone() });
            }
        }
    }
    Ok(())
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

    #[test]
    fn the_whole_grid_is_that_of_the_paper() {
        let asked = Asked::paper();
        assert_eq!(asked.degrees.len() * asked.homophilies.len(), 144);
        assert_eq!(asked.weight_decays.len() * asked.edge_weights.len(), 24);
        assert_eq!(asked.run_keys.count(), 5);
    }
}
