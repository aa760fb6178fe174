//! Analysis of a graph: distribution of degrees and homophily, its place in the recipe's plane, and the recipe's
//! advice.

use kith_partition::{
    progress::Progress,
    stats::{Distribution, Stats, distribution, stats},
};
use kith_report::{
    Axis,
    density::Density,
    plot::{
        Size,
        contours::{Contours, Set},
    },
    recipe_plane::{in_words, published},
};
use kith_run::recipe::Cell as Square;
use kith_store::Graph;

use crate::{
    bench::machine,
    error::LabError,
    findings::{Cell, Figure, Findings, Table},
};

/// Analyzes a store.
pub fn analyze(graph: &Graph, name: &str, progress: &dyn Progress) -> Result<Findings, LabError> {
    let stats = stats(graph, progress)?;
    let counts = distribution(graph, progress)?;
    let mut notes = stats.notes.clone();
    let mut figures = Vec::new();
    if let Some(homophily) = stats.homophily {
        let square = Square::nearest(stats.degree_mean, homophily);
        notes.push(format!(
            "with an average degree of {:.2} and a homophily of {homophily:.2} the paper's recipe says: {} (its nearest square is \
             degree {}, homophily {})",
            stats.degree_mean,
            in_words(square.advice()),
            square.degree(),
            square.homophily()
        ));
        notes.push("`kith train --attention auto` follows the recipe".to_owned());
        let title = format!("Where {name} lies in the plane of the recipe");
        figures.push(Figure { title, svg: published(stats.degree_mean, homophily).svg() });
    } else {
        notes.push("the store has no labels: it has no homophily, and the recipe cannot say where it lies".to_owned());
    }
    figures.extend(density(name, &counts));
    let mut tables = vec![facts(&stats), degrees(&counts, graph.n_nodes())];
    if stats.homophily.is_some() {
        tables.push(homophilies(&counts));
    }
    Ok(Findings { kind: "graph", tables, figures, notes, machine: machine(&[]) })
}

fn facts(stats: &Stats) -> Table {
    let mut table = Table::new("The graph", &["what", "value"]);
    let mut fact = |what: &str, value: Cell| table.rows.push(vec![Cell::text(what), value]);
    fact("nodes", Cell::number(stats.n_nodes as f64, 0));
    fact("edges", Cell::number(stats.n_edges as f64, 0));
    fact("isolated nodes", Cell::number(stats.n_isolated as f64, 0));
    fact("classes", Cell::number(stats.n_classes as f64, 0));
    fact("average degree", Cell::number(stats.degree_mean, 2));
    fact("its standard deviation", Cell::number(stats.degree_std, 2));
    fact("averaged over", Cell::text(stats.degree_over));
    fact("largest degree", Cell::number(stats.degree_max as f64, 0));
    if let Some(homophily) = stats.homophily {
        fact("homophily", Cell::number(homophily, 4));
    }
    table
}

/// Nodes by degree: 0, 1, 2 to 3, 4 to 7, …
fn degrees(counts: &Distribution, n_nodes: u64) -> Table {
    let mut table = Table::new("Degrees", &["degree", "nodes", "share", "homophily"]);
    let class = |degree: u64| degree.checked_ilog2().map_or(0, |log| log + 1);
    let all: Vec<(u64, Option<u16>, u64)> = counts.iter().map(|((degree, h), n)| (*degree, *h, *n)).collect();
    for own in all.chunk_by(|a, b| class(a.0) == class(b.0)) {
        let first = own[0].0;
        let (low, high) = match first.checked_ilog2() {
            None => (0, 0),
            Some(log) => (1u64 << log, (2u64 << log) - 1),
        };
        let range = if low == high { low.to_string() } else { format!("{low} to {high}") };
        let n: u64 = own.iter().map(|(_, _, n)| n).sum();
        let share = 100.0 * n as f64 / n_nodes as f64;
        table.rows.push(vec![
            Cell::shown(low as f64, range),
            Cell::number(n as f64, 0),
            Cell::shown(share, format!("{share:.1}%")),
            Cell::number(mean_homophily(own), 3),
        ]);
    }
    table
}

fn mean_homophily(counts: &[(u64, Option<u16>, u64)]) -> f64 {
    let known = || counts.iter().filter_map(|(_, h, n)| h.map(|h| (f64::from(h) / 1000.0, *n as f64)));
    known().map(|(h, n)| h * n).sum::<f64>() / known().map(|(_, n)| n).sum::<f64>()
}

/// Nodes by homophily, in tenths.
fn homophilies(counts: &Distribution) -> Table {
    let mut table = Table::new("Homophily of nodes", &["homophily", "nodes", "share"]);
    let tenth = |h: u16| (h / 100).min(9);
    let mut n_of = [0u64; 10];
    counts.iter().for_each(|((_, h), n)| n_of[h.map_or(0, tenth) as usize] += if h.is_some() { *n } else { 0 });
    let total: u64 = n_of.iter().sum();
    for (tenth, n) in n_of.iter().enumerate() {
        let share = 100.0 * *n as f64 / total.max(1) as f64;
        let low = tenth as f64 / 10.0;
        table.rows.push(vec![
            Cell::shown(low, format!("{low:.1} to {:.1}", low + 0.1)),
            Cell::number(*n as f64, 0),
            Cell::shown(share, format!("{share:.1}%")),
        ]);
    }
    table
}

/// Approximate maximum number of points of a density.
const N_POINTS: u64 = 1 << 22;

/// Density of nodes over log10 degree and homophily, as in the paper's appendix; `None` without variance in both.
fn density(name: &str, counts: &Distribution) -> Option<Figure> {
    let known = || counts.iter().filter_map(|((degree, h), n)| Some((*degree, (*h)?, *n)));
    // Points instead of weights: Scott's rule depends on their number. A large graph is thinned out.
    let share = (N_POINTS as f64 / known().map(|(_, _, n)| n as f64).sum::<f64>()).min(1.0);
    let points: Vec<(f64, f64)> = known()
        .flat_map(|(degree, h, n)| {
            let point = ((degree as f64).log10(), f64::from(h) / 1000.0);
            std::iter::repeat_n(point, (n as f64 * share).ceil() as usize)
        })
        .collect();
    let density = Density::of(&points, None)?;
    let title = format!("{name}: nodes by degree and homophily");
    let contours = Contours {
        title: title.clone(),
        description: "Kernel density of all nodes with an edge: Gaussian kernel, Scott's bandwidth, ten levels."
            .to_owned(),
        x: Axis::linear("log10 degree"),
        y: Axis::linear("homophily").within(0.0, 1.0),
        sets: vec![Set { name: name.to_owned(), density }],
        size: Size::HALF,
    };
    Some(Figure { title, svg: contours.svg() })
}

#[cfg(test)]
mod tests {
    use kith_partition::progress::Quiet;

    use super::*;
    use crate::subject::synthetic;

    #[test]
    fn a_graph_is_described_and_placed() {
        let temp = tempfile::tempdir().unwrap();
        let made = synthetic(5.0, 0.8, 1, temp.path(), &Quiet).unwrap();
        let found = analyze(made.opened.whole().unwrap(), "made", &Quiet).unwrap();
        let titles: Vec<&str> = found.tables.iter().map(|table| table.title.as_str()).collect();
        assert_eq!(titles, ["The graph", "Degrees", "Homophily of nodes"]);
        let advice = found.notes.iter().find(|note| note.contains("recipe says")).unwrap();
        assert!(
            advice.contains("SuperGAT with MX attention (its nearest square is degree 5, homophily 0.8)"),
            "{advice}"
        );
        let n_nodes: f64 = found.tables[1].rows.iter().map(|row| number(&row[1])).sum();
        assert_eq!(n_nodes, 5000.0, "every node has a degree");
        let n_connected: f64 = found.tables[2].rows.iter().map(|row| number(&row[1])).sum();
        assert_eq!(n_connected + number(&found.tables[0].rows[2][1]), 5000.0, "isolated nodes have no homophily");
        assert_eq!(found.figures.len(), 2);
        assert!(found.figures.iter().all(|figure| figure.svg.starts_with("<svg")));
    }

    fn number(cell: &Cell) -> f64 {
        match cell {
            Cell::Number { value, .. } => *value,
            Cell::Text(text) => panic!("{text} is no number"),
        }
    }
}
