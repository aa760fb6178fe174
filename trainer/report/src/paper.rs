//! The paper's published results. Accuracies are in percent.

use std::sync::LazyLock;

/// One published result.
#[derive(Clone, Debug, PartialEq)]
pub struct Printed {
    /// `main` (all node classification tables), `supervised` or `wallclock`.
    pub table: &'static str,
    /// The dataset, as in `kith data list`.
    pub dataset: &'static str,
    /// The model, as in presets; models that Kith lacks have the paper's names.
    pub model: &'static str,
    /// Mean, in percent; in seconds in `wallclock`.
    pub mean: f64,
    /// Population standard deviation, if published.
    pub std: Option<f64>,
    /// Number of runs, if published.
    pub runs: Option<u64>,
    /// True if the paper took it from another paper.
    pub is_reprint: bool,
    /// Significance mark against GAT.
    pub mark: Mark,
}

/// Significance mark of a model against GAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// No mark.
    None,
    /// Better, p < .0005.
    One,
    /// Better, p < .0001.
    Two,
    /// Worse.
    Worse,
}

impl Mark {
    /// Mark of a difference from GAT with p-value `p`.
    pub fn of(difference: f64, p: f64) -> Mark {
        match difference {
            _ if difference < 0.0 => Mark::Worse,
            _ if p < 1e-4 => Mark::Two,
            _ if p < 5e-4 => Mark::One,
            _ => Mark::None,
        }
    }

    /// The published symbol.
    pub fn symbol(self) -> &'static str {
        match self {
            Mark::None => "",
            Mark::One => "*",
            Mark::Two => "**",
            Mark::Worse => "↓",
        }
    }
}

static RESULTS: LazyLock<Vec<Printed>> = LazyLock::new(|| {
    let lines = include_str!("paper/results.csv").lines().skip(1);
    lines
        .map(|line| {
            let fields: Vec<&'static str> = line.split(',').collect();
            let [table, dataset, model, mean, std, runs, reprinted, mark] = fields[..] else {
                panic!("a line of results.csv has eight fields")
            };
            Printed {
                table,
                dataset,
                model,
                mean: mean.parse().expect("a mean is a number"),
                std: std.parse().ok(),
                runs: runs.parse().ok(),
                is_reprint: reprinted == "yes",
                mark: match mark {
                    "**" => Mark::Two,
                    "*" => Mark::One,
                    "down" => Mark::Worse,
                    _ => Mark::None,
                },
            }
        })
        .collect()
});

/// All published results.
pub fn results() -> &'static [Printed] {
    &RESULTS
}

/// The published result of a model on a dataset.
pub fn printed(table: &str, dataset: &str, model: &str) -> Option<&'static Printed> {
    RESULTS.iter().find(|printed| printed.table == table && printed.dataset == dataset && printed.model == model)
}

/// A published result of a tuned model: the test metric at the best validation epoch, in percent.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// The dataset, as in presets.
    pub dataset: &'static str,
    /// The model, as in presets.
    pub model: &'static str,
    /// Number of runs.
    pub runs: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub std: f64,
}

static TUNED: LazyLock<Vec<Tuned>> = LazyLock::new(|| {
    let lines = include_str!("paper/tuned.csv").lines().skip(1);
    lines
        .map(|line| {
            let fields: Vec<&'static str> = line.split(',').collect();
            let [dataset, model, _metric, runs, mean, std] = fields[..] else {
                panic!("a line of tuned.csv has six fields")
            };
            let number = |text: &str| text.parse::<f64>().expect("a number");
            Tuned { dataset, model, runs: number(runs) as u64, mean: number(mean), std: number(std) }
        })
        .collect()
});

/// Results of "Classic GNNs are Strong Baselines" (NeurIPS 2024): GCN, GraphSAGE and GAT with norms, residuals and depth.
pub fn tuned() -> &'static [Tuned] {
    &TUNED
}

/// Models of the synthetic grids, as in presets.
pub const SYNTHETIC_MODELS: [&str; 4] = ["gcn", "gat", "supergat-sd", "supergat-mx"];

/// Published mean and standard deviation of a model on the random partition graph of a degree and homophily, if it is
/// one of the 144.
pub fn synthetic(model: &str, degree: f64, homophily: f64) -> Option<(f64, f64)> {
    let grid = match model {
        "gcn" => include_str!("paper/synthetic-gcn.csv"),
        "gat" => include_str!("paper/synthetic-gat.csv"),
        "supergat-sd" => include_str!("paper/synthetic-sd.csv"),
        "supergat-mx" => include_str!("paper/synthetic-mx.csv"),
        _ => return None,
    };
    grid.lines().skip(1).find_map(|line| {
        let fields: Vec<f64> = line.split(',').filter_map(|field| field.parse().ok()).collect();
        let [of_degree, of_homophily, mean, std] = fields[..] else { panic!("a line of a grid has four numbers") };
        let is_it = (of_degree - degree).abs() < 1e-9 && (of_homophily - homophily).abs() < 1e-9;
        is_it.then_some((mean, std))
    })
}

#[cfg(test)]
mod tests {
    use kith_run::recipe::DEGREES;

    use super::*;

    #[test]
    fn the_tables_hold_what_was_printed() {
        let mx = printed("main", "cora", "supergat-mx").unwrap();
        assert_eq!((mx.mean, mx.std, mx.runs, mx.is_reprint, mx.mark), (84.3, Some(0.6), Some(100), false, Mark::Two));
        assert!(printed("main", "cora", "gat").unwrap().is_reprint);
        assert_eq!(printed("main", "flickr", "supergat-sd").unwrap().mark, Mark::Worse);
        assert_eq!(printed("main", "wiki-cs", "supergat-mx").unwrap().mark, Mark::One);
        assert_eq!(printed("wallclock", "pubmed", "supergat-mx").unwrap().mean, 151.4);
        assert_eq!(results().iter().filter(|printed| printed.table == "main").count(), 99);
    }

    #[test]
    fn the_grids_have_144_graphs_each() {
        for model in SYNTHETIC_MODELS {
            let found = DEGREES.iter().flat_map(|degree| (1..=9).map(move |h| (*degree, f64::from(h) / 10.0)));
            assert_eq!(found.filter_map(|(degree, h)| synthetic(model, degree, h)).count(), 144, "{model}");
        }
        assert_eq!(synthetic("gat", 1.0, 0.1), Some((33.7, 0.9)));
        assert_eq!(synthetic("mlp", 1.0, 0.1), None);
    }

    #[test]
    fn marks_follow_the_difference_and_the_test() {
        assert_eq!(Mark::of(0.3, 1e-5), Mark::Two);
        assert_eq!(Mark::of(0.3, 2e-4), Mark::One);
        assert_eq!(Mark::of(0.3, 0.01), Mark::None);
        assert_eq!(Mark::of(-0.3, 1e-9), Mark::Worse);
        assert_eq!(Mark::of(0.3, f64::NAN), Mark::None);
    }
}
