//! The plane of degree and homophily, colored by the winning attention.

use kith_run::recipe::{Advice, Cell, DEGREES, PLACES};

use crate::plot::{
    Size,
    plane::{self, Kind, Plane, Point},
};

/// Advices with their labels and colors.
const KINDS: [(Advice, &str, usize); 4] =
    [(Advice::Sd, "SD", 0), (Advice::Mx, "MX", 1), (Advice::SupergatAny, "any", 2), (Advice::GatAny, "GAT", 6)];

/// An advice as the end of a sentence.
pub fn in_words(advice: Advice) -> &'static str {
    match advice {
        Advice::Sd => "SuperGAT with SD attention",
        Advice::Mx => "SuperGAT with MX attention",
        Advice::SupergatAny => "SuperGAT, with MX or with SD attention",
        Advice::GatAny => "GAT; SuperGAT wins nothing over it",
    }
}

/// Cell of an advice; `gain` is SuperGAT's gain in percentage points.
pub fn square(advice: Advice, gain: Option<f64>) -> plane::Cell {
    let kind = KINDS.iter().position(|kind| kind.0 == advice).expect("every advice has a kind");
    let gain_text = gain.map(|gain| format!(", {gain:+.1} points over GAT")).unwrap_or_default();
    plane::Cell {
        label: KINDS[kind].1.to_owned(),
        kind,
        dot: gain.map(f64::abs),
        tip: format!("{}{gain_text}", in_words(advice)),
    }
}

/// A plane of cells, by rows of homophily.
pub fn plane(
    title: &str,
    (columns, rows): (Vec<f64>, Vec<f64>),
    cells: Vec<Vec<Option<plane::Cell>>>,
    points: Vec<Point>,
) -> Plane {
    let legend = |advice: Advice, label: &str| match advice {
        Advice::SupergatAny => format!("{label}: SuperGAT, SD or MX"),
        Advice::GatAny => label.to_owned(),
        _ => format!("SuperGAT {label}"),
    };
    Plane {
        title: title.to_owned(),
        description: "Which form of attention won, by average degree and homophily of a graph.".to_owned(),
        x_label: "average degree".to_owned(),
        y_label: "homophily".to_owned(),
        columns,
        rows,
        kinds: KINDS
            .iter()
            .map(|(advice, label, color)| Kind { name: legend(*advice, label), color: *color })
            .collect(),
        cells,
        points,
        size: Size { width: 960.0, height: 500.0 },
    }
}

/// The paper's recipe with the paper's datasets and one graph on it.
pub fn published(degree: f64, homophily: f64) -> Plane {
    let all: Vec<Cell> = Cell::all().collect();
    let rows = all.chunk_by(|a, b| a.homophily() == b.homophily());
    let mut points: Vec<Point> =
        PLACES.iter().map(|(name, x, y)| Point { name: (*name).to_owned(), x: *x, y: *y, is_own: false }).collect();
    points.push(Point { name: "your graph".to_owned(), x: degree, y: homophily, is_own: true });
    let axes = (DEGREES.to_vec(), rows.clone().map(|row| row[0].homophily()).collect());
    let cells = rows.map(|row| row.iter().map(|cell| Some(square(cell.advice(), None))).collect()).collect();
    plane("The paper's recipe", axes, cells, points)
}
