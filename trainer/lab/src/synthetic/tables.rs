//! Tables of the grid: accuracies, gains over GAT, and the recipe.

use kith_report::{paper, statistics::Spread};
use kith_run::recipe::{Advice, Cell as Square};

use super::{
    figures::figures,
    options::SyntheticOptions,
    results::{OnGraph, Rule, Setting, over_draws},
};
use crate::findings::{Cell, Findings, Table};

const NOTES: [&str; 3] = [
    "accuracies in percent at the best validation epoch, mean ± population standard deviation over seeds; of several draws \
     of a graph, the mean of both",
    "by validation: the setting with the highest mean validation accuracy; by test: the one with the highest mean test \
     accuracy, which is what the paper shows and what flatters models with more settings",
    "a graph's advice: GAT where the better SuperGAT does not differ from it, SD or MX where the two do not differ from each \
     other (two-sided t-tests, p < .05), else the better one",
];

pub(super) fn findings(asked: &SyntheticOptions<'_>, graphs: &[OnGraph]) -> Findings {
    let (accuracies, near) = accuracies(graphs);
    let (recipe, agreed) = recipe(graphs);
    let mut notes: Vec<String> = NOTES.map(str::to_owned).to_vec();
    notes.extend(near);
    notes.extend(agreed);
    if asked.models.contains(&"gat") {
        notes.push("gains are against GAT on the same graph".to_owned());
    }
    let tables = vec![accuracies, gains(graphs), recipe];
    Findings { kind: "synthetic", tables, figures: figures(asked, graphs), notes, ..Findings::default() }
}

fn shown(spread: Spread) -> Cell {
    Cell::shown(spread.mean, format!("{:.1} ± {:.1}", spread.mean, spread.std))
}

/// Groups of draws of the same graph.
fn by_graph(graphs: &[OnGraph]) -> impl Iterator<Item = &[OnGraph]> {
    graphs.chunk_by(|a, b| (a.homophily, a.degree) == (b.homophily, b.degree))
}

fn accuracies(graphs: &[OnGraph]) -> (Table, Option<String>) {
    let columns = [
        "homophily",
        "degree",
        "model",
        "by validation",
        "by test",
        "draws",
        "paper",
        "by test − paper",
        "λ_2, λ_E by validation",
        "λ_2, λ_E by test",
    ];
    let mut table = Table::new("Accuracy on random partition graphs", &columns);
    let (mut n, mut n_near, mut sum) = (0, 0, 0.0);
    for draws in by_graph(graphs) {
        let OnGraph { degree, homophily, .. } = draws[0];
        for chosen in &draws[0].models {
            let model = chosen.model.as_str();
            let printed = paper::synthetic(model, degree, homophily);
            let test = over_draws(draws, model, Rule::Test);
            let difference = printed.map_or(f64::NAN, |(mean, _)| test.mean - mean);
            if difference.is_finite() {
                (n, sum) = (n + 1, sum + difference.abs());
                n_near += usize::from(difference.abs() <= 3.0);
            }
            let means = draws.iter().filter_map(|draw| draw.of(model, Rule::Test));
            let means: Vec<String> = means.map(|spread| format!("{:.1}", spread.mean)).collect();
            let setting = |rule| {
                let settings = draws.iter().filter_map(|draw| draw.models.iter().find(|own| own.model == model));
                let texts: Vec<String> = settings.map(|chosen| said(&chosen.best(rule).setting)).collect();
                Cell::text(texts.join("; "))
            };
            table.rows.push(vec![
                Cell::number(homophily, 1),
                Cell::number(degree, 1),
                Cell::text(model),
                shown(over_draws(draws, model, Rule::Validation)),
                shown(test),
                Cell::text(means.join(", ")),
                printed.map_or(Cell::text(""), |(mean, std)| Cell::shown(mean, format!("{mean:.1} ± {std:.1}"))),
                Cell::shown(difference, format!("{difference:+.1}")),
                setting(Rule::Validation),
                setting(Rule::Test),
            ]);
        }
    }
    let near = (n > 0).then(|| {
        let mean = sum / n as f64;
        format!("{n_near} of {n} accuracies by test are within 3 points of the published grid; mean distance {mean:.2}")
    });
    (table, near)
}

fn said(setting: &Setting) -> String {
    let edge_weight = setting.edge_weight.map(|weight| format!(", {weight:?}")).unwrap_or_default();
    format!("{:?}{edge_weight}", setting.weight_decay)
}

fn gains(graphs: &[OnGraph]) -> Table {
    let columns = ["homophily", "degree", "model", "gain by validation", "gain by test", "gain in the paper"];
    let mut table = Table::new("Gain over GAT, in points", &columns);
    let number = |gain: f64| Cell::shown(gain, format!("{gain:+.1}"));
    for draws in by_graph(graphs) {
        let OnGraph { degree, homophily, .. } = draws[0];
        for chosen in draws[0].models.iter().filter(|chosen| chosen.model != "gat") {
            let gain = |rule| {
                let of = |model| over_draws(draws, model, rule).mean;
                number(of(&chosen.model) - of("gat"))
            };
            let printed = |model: &str| paper::synthetic(model, degree, homophily).map(|(mean, _)| mean);
            let in_paper = printed(&chosen.model).zip(printed("gat")).map_or(f64::NAN, |(own, gat)| own - gat);
            table.rows.push(vec![
                Cell::number(homophily, 1),
                Cell::number(degree, 1),
                Cell::text(&chosen.model),
                gain(Rule::Validation),
                gain(Rule::Test),
                number(in_paper),
            ]);
        }
    }
    table
}

fn recipe(graphs: &[OnGraph]) -> (Table, Option<String>) {
    let columns = ["homophily", "degree", "draw", "by validation", "by test", "the paper's recipe", "by test agrees"];
    let mut table = Table::new("The recipe", &columns);
    let (mut n, mut n_same, mut n_no_conflict) = (0, 0, 0);
    for graph in graphs {
        let (Some(by_validation), Some(by_test)) = (graph.advice(Rule::Validation), graph.advice(Rule::Test)) else {
            continue;
        };
        let square = Square::nearest(graph.degree, graph.homophily);
        let is_of_grid =
            (square.degree() - graph.degree).abs() < 1e-9 && (square.homophily() - graph.homophily).abs() < 1e-9;
        let printed = is_of_grid.then(|| square.advice());
        let agrees = printed.map(|printed| agreement(by_test, printed));
        n += usize::from(agrees.is_some());
        n_same += usize::from(agrees == Some("yes"));
        n_no_conflict += usize::from(matches!(agrees, Some("yes" | "partly")));
        table.rows.push(vec![
            Cell::number(graph.homophily, 1),
            Cell::number(graph.degree, 1),
            Cell::text(graph.graph_key.to_string()),
            Cell::text(by_validation.to_string()),
            Cell::text(by_test.to_string()),
            Cell::text(printed.map(|advice| advice.to_string()).unwrap_or_default()),
            Cell::text(agrees.unwrap_or_default()),
        ]);
    }
    let agreed = (n > 0).then(|| {
        format!("the recipe by test is the published one on {n_same} of {n} graphs, and does not contradict it on {n_no_conflict}")
    });
    (table, agreed)
}

/// Agreement of two advices: `yes` if equal, `partly` if both can be followed, else `no`.
fn agreement(own: Advice, printed: Advice) -> &'static str {
    let is_super = |advice| matches!(advice, Advice::Sd | Advice::Mx | Advice::SupergatAny);
    match (own, printed) {
        _ if own == printed => "yes",
        (Advice::SupergatAny, other) | (other, Advice::SupergatAny) if is_super(other) => "partly",
        _ => "no",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advices_agree_where_both_can_be_followed() {
        assert_eq!(agreement(Advice::Sd, Advice::Sd), "yes");
        assert_eq!(agreement(Advice::SupergatAny, Advice::Mx), "partly");
        assert_eq!(agreement(Advice::Sd, Advice::SupergatAny), "partly");
        assert_eq!(agreement(Advice::Sd, Advice::Mx), "no");
        assert_eq!(agreement(Advice::GatAny, Advice::SupergatAny), "no");
    }
}
