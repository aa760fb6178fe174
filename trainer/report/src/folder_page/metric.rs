//! Metric of runs on their page.

use super::{folder::Runs, json::JsonPart};

/// Name and scale of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ShownMetric {
    /// Its name, or `metric` if it is unknown.
    pub(super) name: &'static str,
    /// True if it is shown in percent.
    is_share: bool,
}

impl ShownMetric {
    /// That of the first run with a report.
    pub(super) fn of(runs: &Runs) -> ShownMetric {
        let share = |name| ShownMetric { name, is_share: true };
        let number = |name| ShownMetric { name, is_share: false };
        match runs.reports().next().and_then(|report: &JsonPart| report.text("/metric")) {
            Some("micro_f1") => share("micro-F1"),
            Some("accuracy") => share("accuracy"),
            Some("balanced_accuracy") => share("balanced accuracy"),
            Some("macro_f1") => share("macro-F1"),
            Some("roc_auc" | "auc") => share("ROC AUC"),
            Some("average_precision") => share("average precision"),
            Some("r2") => number("R²"),
            Some("mae") => number("mean absolute error"),
            Some("rmse") => number("root mean squared error"),
            // Of runs without a report, shares are told by their values.
            _ => {
                let steps = runs.all.iter().flat_map(|run| &run.steps.all);
                let are_shares = steps.filter_map(|step| step.valid).all(|valid| (0.0..=1.0).contains(&valid));
                ShownMetric { name: "metric", is_share: are_shares }
            }
        }
    }

    /// A value of the metric as it is shown, without its unit.
    pub(super) fn show(self, value: f64) -> String {
        if self.is_share { format!("{:.2}", 100.0 * value) } else { format!("{value:.4}") }
    }

    /// A value of the metric on an axis.
    pub(super) fn on_axis(self, value: f64) -> f64 {
        if self.is_share { 100.0 * value } else { value }
    }

    /// Its unit: `%`, or nothing.
    pub(super) fn unit(self) -> &'static str {
        if self.is_share { "%" } else { "" }
    }

    /// A title with the unit.
    pub(super) fn titled(self, title: &str) -> String {
        if self.is_share { format!("{title} (%)") } else { title.to_owned() }
    }
}
