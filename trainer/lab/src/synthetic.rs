//! The paper's random partition graphs: every model with every setting of its grid on graphs of many degrees and
//! homophilies, and the resulting recipe.

mod choose;
mod figures;
mod options;
mod results;
mod tables;

use kith_partition::progress::Progress;
use kith_run::preset::Preset;

pub use self::options::SyntheticOptions;
use self::results::Setting;
use crate::{
    bench::{machine, run},
    error::LabError,
    experiment::{Cell, Done, Training, Workplace},
    findings::Findings,
    presets::{Changes, cell_of},
    subject::{Subject, synthetic},
};

/// Trains the grid and derives its findings.
pub fn run_grid(
    asked: &SyntheticOptions<'_>,
    place: &Workplace,
    progress: &dyn Progress,
) -> Result<Findings, LabError> {
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

/// Adds the cells of all models and settings on one graph, described by `graph`.
fn add_graph(
    asked: &SyntheticOptions<'_>,
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
                let mut own = vec![format!("optimizer.weight_decay={weight_decay:?}")];
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
