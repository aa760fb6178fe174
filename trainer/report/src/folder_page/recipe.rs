//! Position of a graph on the map of the paper's recipe.

use std::path::Path;

use kith_partition::{progress::Progress, stats::stats};
use kith_run::recipe::Cell;
use kith_store::Graph;

use super::{error::ReportError, folder::Runs};
use crate::{
    page::{Figure, Page},
    recipe_plane::{in_words, published},
};

/// Degree and homophily of a graph.
pub(super) struct RecipePoint {
    degree: f64,
    /// `None` without labels.
    homophily: Option<f64>,
    digest: String,
}

impl RecipePoint {
    /// Analyzes a store.
    pub(super) fn of(store: &Path, progress: &dyn Progress) -> Result<RecipePoint, ReportError> {
        let stats = stats(&Graph::open(store)?, progress)?;
        Ok(RecipePoint { degree: stats.degree_mean, homophily: stats.homophily, digest: stats.digest })
    }

    /// Adds the section about the recipe.
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
        page.figures(&[Figure { svg: published(self.degree, homophily).svg(), caption: caption.to_owned() }]);
    }
}

#[cfg(test)]
mod tests {
    use kith_run::recipe::PLACES;

    use super::*;

    #[test]
    fn the_map_has_every_square_and_every_dataset() {
        let svg = published(4.5, 0.79).svg();
        assert_eq!(svg.matches("class=\"cell\"").count(), 144 + 4, "squares and the legend");
        assert!(svg.contains("average degree 5, homophily 0.8: SuperGAT with MX attention"), "{svg}");
        assert!(svg.contains("your graph: average degree 4.5, homophily 0.79"));
        for (name, ..) in PLACES {
            assert!(svg.contains(&format!(">{name}</text>")), "{name} has no name on the map");
        }
    }
}
