//! The paper's recipe: the attention to use, by a graph's average degree and homophily.
//!
//! The authors trained every attention on 144 random partition graphs and recorded the winner for each. A graph takes
//! the answer of the nearest of them: its column is nearest to its average degree by ratio (the columns go from 1 to
//! 100, so 9 is as far from 3 as from 27), its row is nearest to its homophily (halves round up).

use std::fmt;

use kith_block::Form;

use crate::model_kind::ModelKind;

/// Advice of the recipe for a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// SuperGAT with SD attention wins.
    Sd,
    /// SuperGAT with MX attention wins.
    Mx,
    /// Either SuperGAT wins over GAT.
    SupergatAny,
    /// Nothing wins over GAT.
    GatAny,
}

use Advice::{GatAny as GA, Mx as MX, Sd as SD, SupergatAny as SA};

/// Average degrees of the columns.
pub const DEGREES: [f64; 16] =
    [1.0, 1.5, 2.5, 3.5, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 25.0, 32.5, 40.0, 50.0, 75.0, 100.0];

/// Rows from homophily 0.1 up to 0.9.
const MAP: [[Advice; 16]; 9] = [
    [SD, SD, SD, SD, SD, SD, SD, SD, SD, SA, SD, SD, SD, SD, SD, GA],
    [SD, SD, SD, SD, SD, SD, SA, SA, SD, SA, SA, SD, SA, SA, SA, SA],
    [SD, SD, SD, SD, SD, SA, SA, MX, SA, MX, MX, SA, MX, SA, SD, SA],
    [SD, SD, SD, SD, SD, SA, MX, MX, MX, MX, MX, MX, SA, MX, SA, SD],
    [GA, SD, SD, SD, SD, MX, SA, MX, MX, SA, SA, SA, SA, SA, SA, SD],
    [GA, GA, SD, SA, SA, SA, SA, MX, SA, SA, SA, SD, SD, SD, SA, SA],
    [GA, GA, SD, SA, SA, SA, GA, SA, SA, SA, GA, SA, SA, SA, GA, GA],
    [GA, GA, SA, SA, MX, SA, GA, SA, SA, SA, SA, SA, GA, SA, GA, GA],
    [GA, GA, MX, GA, MX, MX, MX, GA, GA, GA, GA, GA, GA, GA, GA, GA],
];

/// The paper's datasets: name, average degree, homophily.
pub const PLACES: [(&str, f64, f64); 17] = [
    ("four-univ", 1.83, 0.16),
    ("ppi", 28.0, 0.17),
    ("chameleon", 15.85, 0.21),
    ("crocodile", 15.48, 0.26),
    ("flickr", 10.08, 0.32),
    ("cora-full", 6.41, 0.59),
    ("ogbn-arxiv", 7.68, 0.63),
    ("wiki-cs", 26.4, 0.68),
    ("citeseer", 2.78, 0.72),
    ("pubmed", 4.5, 0.79),
    ("cora-ml", 5.45, 0.81),
    ("dblp", 5.97, 0.81),
    ("computers", 35.76, 0.81),
    ("cora", 3.9, 0.83),
    ("cs", 8.93, 0.83),
    ("photo", 31.13, 0.85),
    ("physics", 14.38, 0.91),
];

/// One square of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    row: usize,
    column: usize,
}

impl Cell {
    /// The square nearest to a graph.
    pub fn nearest(degree: f64, homophily: f64) -> Cell {
        let distance = |column: &usize| (DEGREES[*column].ln() - degree.max(f64::MIN_POSITIVE).ln()).abs();
        let column = (0..DEGREES.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))).expect("there are columns");
        // 0.85 times 10 is exactly 8.5; other halves may be off by a bit, which changes nothing that matters.
        let row = (homophily * 10.0).round().clamp(1.0, 9.0) as usize - 1;
        Cell { row, column }
    }

    /// All squares, row by row from the lowest homophily, each from the lowest degree.
    pub fn all() -> impl Iterator<Item = Cell> {
        (0..MAP.len()).flat_map(|row| (0..DEGREES.len()).map(move |column| Cell { row, column }))
    }

    /// Its average degree.
    pub fn degree(self) -> f64 {
        DEGREES[self.column]
    }

    /// Its homophily.
    pub fn homophily(self) -> f64 {
        (self.row + 1) as f64 / 10.0
    }

    /// Its advice.
    pub fn advice(self) -> Advice {
        MAP[self.row][self.column]
    }

    /// The square this many rows and columns away, if there is one.
    fn away(self, rows: isize, columns: isize) -> Option<Cell> {
        let row = self.row.checked_add_signed(rows).filter(|row| *row < MAP.len())?;
        let column = self.column.checked_add_signed(columns).filter(|column| *column < DEGREES.len())?;
        Some(Cell { row, column })
    }

    /// The square and those around it as a small map, higher homophily above, itself in brackets.
    pub fn with_neighbors(self) -> String {
        let columns = || (-1..=1).filter(|columns| self.away(0, *columns).is_some());
        let mut text = "homophily | degree".to_owned();
        for cell in columns().filter_map(|columns| self.away(0, columns)) {
            text += &format!("{:>11}", cell.degree());
        }
        for row in [1, 0, -1].into_iter().filter(|rows| self.away(*rows, 0).is_some()) {
            for (place, cell) in columns().filter_map(|columns| self.away(row, columns)).enumerate() {
                if place == 0 {
                    text += &format!("\n{:>9} |       ", cell.homophily());
                }
                let shown = if cell == self { format!("[{}]", cell.advice()) } else { cell.advice().to_string() };
                text += &format!("{shown:>11}");
            }
        }
        text + "\n"
    }
}

impl Advice {
    /// The model that follows the advice. Where any SuperGAT will do it is MX, which the paper recommends first.
    pub fn model(self) -> (ModelKind, Form) {
        match self {
            Advice::Sd => (ModelKind::Supergat, Form::Sd),
            Advice::Mx | Advice::SupergatAny => (ModelKind::Supergat, Form::Mx),
            Advice::GatAny => (ModelKind::Gat, Form::Go),
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Advice::Sd => "SD",
            Advice::Mx => "MX",
            Advice::SupergatAny => "SD or MX",
            Advice::GatAny => "GAT",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published map, rows from 0.9 down, as printed.
    const PRINTED: &str = "
        ga ga MX ga MX MX MX ga ga ga ga ga ga ga ga ga
        ga ga sa sa MX sa ga sa sa sa sa sa ga sa ga ga
        ga ga SD sa sa sa ga sa sa sa ga sa sa sa ga ga
        ga ga SD sa sa sa sa MX sa sa sa SD SD SD sa sa
        ga SD SD SD SD MX sa MX MX sa sa sa sa sa sa SD
        SD SD SD SD SD sa MX MX MX MX MX MX sa MX sa SD
        SD SD SD SD SD sa sa MX sa MX MX sa MX sa SD sa
        SD SD SD SD SD SD sa sa SD sa sa SD sa sa sa sa
        SD SD SD SD SD SD SD SD SD sa SD SD SD SD SD ga";

    #[test]
    fn the_map_is_the_published_one() {
        let printed: Vec<Vec<&str>> = PRINTED.trim().lines().map(|line| line.split_whitespace().collect()).collect();
        for (row, cells) in printed.iter().rev().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                let expected = match *cell {
                    "SD" => SD,
                    "MX" => MX,
                    "sa" => SA,
                    _ => GA,
                };
                assert_eq!(Cell { row, column }.advice(), expected, "row {row} column {column}");
            }
        }
        let count = |advice| MAP.iter().flatten().filter(|cell| **cell == advice).count();
        assert_eq!([SD, MX, SA, GA].map(count), [44, 20, 52, 28]);
    }

    /// For each of [`PLACES`]: the nearest square and its advice; the paper's advice for the dataset, and the distance
    /// in squares to the same advice on the map (`None`: more than two; the paper's two misfits).
    #[allow(clippy::type_complexity)]
    const FOUND: [(&str, (f64, f64, Advice), Advice, Option<isize>); 17] = [
        ("four-univ", (1.5, 0.2, SD), SD, Some(0)),
        ("ppi", (25.0, 0.2, SA), SD, Some(1)),
        ("chameleon", (15.0, 0.2, SD), MX, Some(1)),
        ("crocodile", (15.0, 0.3, SA), GA, None),
        ("flickr", (10.0, 0.3, SA), GA, None),
        ("cora-full", (7.5, 0.6, SA), MX, Some(1)),
        ("ogbn-arxiv", (7.5, 0.6, SA), MX, Some(1)),
        ("wiki-cs", (25.0, 0.7, GA), SA, Some(1)),
        ("citeseer", (2.5, 0.7, SD), GA, Some(1)),
        ("pubmed", (5.0, 0.8, MX), MX, Some(0)),
        ("cora-ml", (5.0, 0.8, MX), MX, Some(0)),
        ("dblp", (5.0, 0.8, MX), MX, Some(0)),
        ("computers", (32.5, 0.8, SA), GA, Some(1)),
        ("cora", (3.5, 0.8, SA), MX, Some(1)),
        ("cs", (10.0, 0.8, GA), MX, Some(1)),
        ("photo", (32.5, 0.9, GA), GA, Some(0)),
        ("physics", (15.0, 0.9, GA), MX, Some(2)),
    ];

    #[test]
    fn the_datasets_have_their_published_places() {
        for ((name, degree, homophily), (found, square, published, distance)) in PLACES.into_iter().zip(FOUND) {
            assert_eq!(name, found);
            let cell = Cell::nearest(degree, homophily);
            assert_eq!((cell.degree(), cell.homophily(), cell.advice()), square, "{name}");
            let says_so =
                |rows: isize, columns: isize| cell.away(rows, columns).is_some_and(|cell| cell.advice() == published);
            let found = (0..=2isize)
                .find(|most| (-most..=*most).any(|rows| (-most..=*most).any(|columns| says_so(rows, columns))));
            assert_eq!(found, distance, "{name}");
        }
        let n_misfits = FOUND.iter().filter(|found| found.3.is_none()).count();
        assert_eq!(n_misfits, 2, "the recipe holds for 15 of 17");
    }

    #[test]
    fn graphs_beyond_the_map_take_its_edge() {
        assert_eq!(Cell::nearest(0.0, 0.0), Cell { row: 0, column: 0 });
        assert_eq!(Cell::nearest(1e9, 1.0), Cell { row: 8, column: 15 });
        assert_eq!(Cell::nearest(9.0, 0.5).degree(), 10.0, "nearest by ratio");
    }

    #[test]
    fn neighbors_are_shown_around_the_square() {
        let shown = "\
homophily | degree        3.5          5        7.5
      0.9 |               GAT         MX         MX
      0.8 |          SD or MX       [MX]   SD or MX
      0.7 |          SD or MX   SD or MX   SD or MX
";
        assert_eq!(Cell::nearest(4.5, 0.79).with_neighbors(), shown);
        let corner = Cell::nearest(1.0, 0.1).with_neighbors();
        assert_eq!(corner.lines().count(), 3, "{corner}");
    }
}
