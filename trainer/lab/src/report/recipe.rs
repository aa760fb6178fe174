//! Where a graph lies on the map of the paper's recipe.

use std::path::Path;

use kith_page::{
    page::{Figure, Page},
    plot::{
        Size,
        plane::{self, Kind, Plane, Point},
    },
};
use kith_partition::{progress::Progress, stats::stats};
use kith_store::Graph;
use kith_trainer::recipe::{Advice, Cell, DEGREES, PLACES};

use super::{error::ReportError, folder::Runs};

/// What the recipe looks at.
pub(super) struct Place {
    degree: f64,
    /// `None` without labels.
    homophily: Option<f64>,
    digest: String,
}

impl Place {
    /// Counts a store.
    pub(super) fn of(store: &Path, progress: &dyn Progress) -> Result<Place, ReportError> {
        let stats = stats(&Graph::open(store)?, progress)?;
        Ok(Place { degree: stats.degree_mean, homophily: stats.homophily, digest: stats.digest })
    }

    /// The section about it.
    pub(super) fn section(&self, page: &mut Page, runs: &Runs) {
        page.section("Recipe");
        let digests: Vec<&str> = runs.reports().filter_map(|report| report.text("/store_digest")).collect();
        if digests.iter().any(|digest| *digest != self.digest) {
            page.note("The store on this map is not the one that these runs were trained on.");
        }
        let Some(homophily) = self.homophily else {
            page.note("The store has no labels: the recipe cannot say where it lies.");
            return;
        };
        let cell = Cell::nearest(self.degree, homophily);
        let trained = runs.model.as_ref().map(|model| format!(" These runs trained {model}."));
        page.paragraph(&format!(
            "With an average degree of {:.2} and a homophily of {homophily:.2}, the paper's recipe says: {}.{}",
            self.degree,
            in_words(cell.advice()),
            trained.unwrap_or_default()
        ));
        let caption = "Which attention won on each of the paper's random graphs, the paper's datasets, and this graph.";
        page.figures(&[Figure { svg: map(self.degree, homophily).svg(), caption: caption.to_owned() }]);
    }
}

fn in_words(advice: Advice) -> &'static str {
    match advice {
        Advice::Sd => "SuperGAT with SD attention",
        Advice::Mx => "SuperGAT with MX attention",
        Advice::SupergatAny => "SuperGAT, with MX or with SD attention",
        Advice::GatAny => "GAT; SuperGAT wins nothing over it",
    }
}

/// The map with the paper's datasets and one graph on it.
fn map(degree: f64, homophily: f64) -> Plane {
    let kinds =
        [(Advice::Sd, "SD", 0), (Advice::Mx, "MX", 1), (Advice::SupergatAny, "any", 2), (Advice::GatAny, "GAT", 6)];
    let of_cell = |cell: &Cell| {
        let kind = kinds.iter().position(|kind| kind.0 == cell.advice()).expect("every advice has a kind");
        let tip = in_words(cell.advice()).to_owned();
        Some(plane::Cell { label: kinds[kind].1.to_owned(), kind, dot: None, tip })
    };
    let cells: Vec<Cell> = Cell::all().collect();
    let rows = cells.chunk_by(|a, b| a.homophily() == b.homophily());
    let mut points: Vec<Point> =
        PLACES.iter().map(|(name, x, y)| Point { name: (*name).to_owned(), x: *x, y: *y, is_own: false }).collect();
    points.push(Point { name: "your graph".to_owned(), x: degree, y: homophily, is_own: true });
    let legend = |advice: Advice, label: &str| match advice {
        Advice::SupergatAny => format!("{label}: SuperGAT, SD or MX"),
        Advice::GatAny => label.to_owned(),
        _ => format!("SuperGAT {label}"),
    };
    Plane {
        title: "The paper's recipe".to_owned(),
        description: "Which form of attention won, by average degree and homophily of a graph.".to_owned(),
        x_label: "average degree".to_owned(),
        y_label: "homophily".to_owned(),
        columns: DEGREES.to_vec(),
        rows: rows.clone().map(|row| row[0].homophily()).collect(),
        kinds: kinds
            .iter()
            .map(|(advice, label, color)| Kind { name: legend(*advice, label), color: *color })
            .collect(),
        cells: rows.map(|row| row.iter().map(of_cell).collect()).collect(),
        points,
        size: Size { width: 960.0, height: 500.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_has_every_square_and_every_dataset() {
        let svg = map(4.5, 0.79).svg();
        assert_eq!(svg.matches("class=\"cell\"").count(), 144 + 4, "squares and the legend");
        assert!(svg.contains("average degree 5, homophily 0.8: SuperGAT with MX attention"), "{svg}");
        assert!(svg.contains("your graph: average degree 4.5, homophily 0.79"));
        for (name, ..) in PLACES {
            assert!(svg.contains(&format!(">{name}</text>")), "{name} has no name on the map");
        }
    }
}
