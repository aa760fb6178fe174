//! Figures of the grid: the resulting recipe, and gains over GAT by degree.

use kith_report::{
    Axis, paper,
    plot::{
        Size,
        lines::{Lines, Series},
    },
    recipe_plane::{plane, square},
};

use super::{
    options::SyntheticOptions,
    results::{OnGraph, Rule, over_draws},
};
use crate::findings::Figure;

/// Models compared with GAT.
const COMPARED: [&str; 3] = ["gcn", "supergat-sd", "supergat-mx"];

pub(super) fn figures(asked: &SyntheticOptions<'_>, graphs: &[OnGraph]) -> Vec<Figure> {
    let mut all: Vec<Figure> = [("by validation", Rule::Validation), ("by test, as the paper did", Rule::Test)]
        .map(|(how, rule)| recipe(&format!("The recipe found here, settings chosen {how}"), asked, graphs, rule))
        .to_vec();
    all.extend(asked.homophilies.iter().map(|homophily| gains(*homophily, asked, graphs)));
    all
}

/// Plane of the first draw of every graph; the size of a dot shows SuperGAT's gain.
fn recipe(title: &str, asked: &SyntheticOptions<'_>, graphs: &[OnGraph], rule: Rule) -> Figure {
    let on = |degree: f64, homophily: f64| {
        let graph = graphs.iter().find(|graph| (graph.degree, graph.homophily) == (degree, homophily))?;
        let best = f64::max(graph.of("supergat-sd", rule)?.mean, graph.of("supergat-mx", rule)?.mean);
        Some(square(graph.advice(rule)?, Some(best - graph.of("gat", rule)?.mean)))
    };
    let row = |homophily: &f64| asked.degrees.iter().map(|degree| on(*degree, *homophily)).collect();
    let cells = asked.homophilies.iter().map(row).collect();
    let drawn = plane(title, (asked.degrees.clone(), asked.homophilies.clone()), cells, Vec::new());
    Figure { title: title.to_owned(), svg: drawn.svg() }
}

/// Gains by degree at one homophily; the paper's are dashed.
fn gains(homophily: f64, asked: &SyntheticOptions<'_>, graphs: &[OnGraph]) -> Figure {
    let mut series = Vec::new();
    let own = asked.models.iter().filter(|model| COMPARED.contains(model)).enumerate();
    for (color, model) in own {
        let found = |degree: &f64| {
            let of = |graph: &&OnGraph| (graph.degree, graph.homophily) == (*degree, homophily);
            let first = graphs.iter().position(|graph| of(&graph))?;
            let draws = &graphs[first..][..graphs[first..].iter().take_while(|graph| of(graph)).count()];
            let mean = |model| over_draws(draws, model, Rule::Test).mean;
            Some((*degree, mean(model) - mean("gat"))).filter(|(_, gain)| gain.is_finite())
        };
        let printed = |degree: &f64| {
            let of = |model| paper::synthetic(model, *degree, homophily).map(|(mean, _)| mean);
            Some((*degree, of(model)? - of("gat")?))
        };
        let line = |name: String, points: Vec<(f64, f64)>, is_dashed| Series {
            name,
            points,
            color: Some(color),
            is_dashed,
            ..Series::default()
        };
        series.push(line((*model).to_owned(), asked.degrees.iter().filter_map(found).collect(), false));
        series.push(line(format!("{model}, paper"), asked.degrees.iter().filter_map(printed).collect(), true));
    }
    let title = format!("Gain over GAT at homophily {homophily}");
    let lines = Lines {
        title: title.clone(),
        description: "Mean accuracy less that of GAT, settings chosen by test, by average degree.".to_owned(),
        x: Axis::log("average degree"),
        y: Axis::linear("gain (points)"),
        series,
        references: Vec::new(),
        size: Size::HALF,
    };
    Figure { title, svg: lines.svg() }
}
