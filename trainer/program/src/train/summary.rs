//! Results of one or several runs.

use std::path::Path;

use kith_cli::answer::{print, print_fields, print_json, print_table};
use kith_run::{
    clock::Phases,
    files::publish_bytes,
    phase::Phase,
    report::{EvaluatedNodes, REPORT, Report, Results},
    seal::seal,
};
use serde::Serialize;
use serde_json::{Value, json};

/// One run, for programs.
#[derive(Serialize)]
struct Line<'a> {
    dataset: &'a str,
    model: &'a str,
    seed: u64,
    epochs: u64,
    best_epoch: u64,
    valid: f64,
    test: f64,
    test_last: f64,
    seconds: f64,
}

/// Prints one line for programs.
pub(super) fn print_line(report: &Report) -> anyhow::Result<()> {
    let Results { epochs, best_epoch, valid, test, test_last, seconds, .. } = report.results;
    let Report { dataset, model, run_key, .. } = report;
    print_json(&Line { dataset, model, seed: *run_key, epochs, best_epoch, valid, test, test_last, seconds })
}

/// A list for one run, a table for several.
pub(super) fn print_results(reports: &[Report]) -> anyhow::Result<()> {
    let Some(metric) = reports.first().map(|report| report.metric) else { return Ok(()) };
    let show = |value: f64| metric.show(value);
    if let [report] = reports {
        let results = &report.results;
        let stopped = if results.stopped_early { " (stopped early)" } else { "" };
        let mut fields = vec![
            ("dataset", report.dataset.clone()),
            ("model", format!("{}, {} weights", report.model, report.n_weights)),
            ("seed", report.run_key.to_string()),
            ("epochs", format!("{}{stopped}, {:.1} s", results.epochs, results.seconds)),
            ("metric", report.metric.shown().to_owned()),
            (
                "best epoch",
                format!("{}: valid {}, test {}", results.best_epoch, show(results.valid), show(results.test)),
            ),
            (
                "last epoch",
                format!("{}: valid {}, test {}", results.epochs - 1, show(results.valid_last), show(results.test_last)),
            ),
        ];
        let ranks: Vec<String> = (0..report.phases.len()).map(|rank| format!("rank {rank}")).collect();
        let named = ranks.iter().map(|name| if ranks.len() == 1 { "time" } else { name });
        fields.extend(named.zip(report.phases.iter().map(where_it_went)));
        fields.extend(report.evaluated_nodes.as_ref().map(|nodes| ("evaluation", what_was_evaluated(nodes))));
        return print_fields(&fields);
    }
    let mut rows =
        vec![["seed", "epochs", "best epoch", "valid", "test", "test_last", "seconds"].map(String::from).to_vec()];
    for Report { run_key, results, .. } in reports {
        rows.push(vec![
            run_key.to_string(),
            results.epochs.to_string(),
            results.best_epoch.to_string(),
            show(results.valid),
            show(results.test),
            show(results.test_last),
            format!("{:.1}", results.seconds),
        ]);
    }
    print_table(&rows)?;
    let spread = |of: fn(&Results) -> f64| {
        let Spread { mean, std } = Spread::of(reports, of);
        format!("{} ± {}", metric.show(mean), metric.show(std))
    };
    print(&format!(
        "{} {}, {} runs: valid {}, test {}, test_last {}\n",
        reports[0].dataset,
        reports[0].model,
        reports.len(),
        spread(|results| results.valid),
        spread(|results| results.test),
        spread(|results| results.test_last),
    ))
}

/// Time of a rank by phase, the longest first.
fn where_it_went(phases: &Phases) -> String {
    let total = phases.total().max(1) as f64;
    let mut shares: Vec<(f64, &str)> =
        Phase::ALL.iter().map(|phase| (phases.of(*phase) as f64 / total, phase.name())).collect();
    shares.retain(|(share, _)| *share >= 0.0005);
    shares.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let shares: Vec<String> = shares.iter().map(|(share, name)| format!("{name} {:.1}%", 100.0 * share)).collect();
    format!("{:.1} s: {}", total / 1e6, shares.join(", "))
}

/// Shares of the nodes that an evaluation needs.
fn what_was_evaluated(EvaluatedNodes { graph, features, layers }: &EvaluatedNodes) -> String {
    let percent = |n_nodes: &u64| match n_nodes {
        all if all == graph => "all".to_owned(),
        some => format!("{:.1}%", 100.0 * *some as f64 / *graph as f64),
    };
    let layers: Vec<String> = layers.iter().map(percent).collect();
    format!("layers compute {} of the nodes, from the features of {}", layers.join(", "), percent(features))
}

/// Writes the report of several runs beside their folders.
pub(super) fn write(reports: &[Report], out: &Path) -> anyhow::Result<()> {
    let spread = |of: fn(&Results) -> f64| {
        let Spread { mean, std } = Spread::of(reports, of);
        json!({ "mean": mean, "std": std })
    };
    let runs: Vec<Value> = reports.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    let report = json!({
        "valid": spread(|results| results.valid),
        "test": spread(|results| results.test),
        "test_last": spread(|results| results.test_last),
        "runs": runs,
    });
    let path = out.join(REPORT);
    let text = seal(&serde_json::to_string_pretty(&report)?) + "\n";
    Ok(publish_bytes(&path, text.as_bytes())?)
}

/// Mean and population standard deviation over runs.
#[derive(Debug, PartialEq)]
struct Spread {
    mean: f64,
    std: f64,
}

impl Spread {
    fn of(reports: &[Report], of: fn(&Results) -> f64) -> Spread {
        Spread::over(&reports.iter().map(|report| of(&report.results)).collect::<Vec<_>>())
    }

    fn over(values: &[f64]) -> Spread {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
        Spread { mean, std: variance.sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluations_say_how_many_nodes_they_need() {
        let nodes = EvaluatedNodes { graph: 1000, features: 1000, layers: vec![250, 3] };
        let expected = "layers compute 25.0%, 0.3% of the nodes, from the features of all";
        assert_eq!(what_was_evaluated(&nodes), expected);
    }

    #[test]
    fn the_spread_is_that_of_the_runs_themselves() {
        assert_eq!(Spread::over(&[1.0, 3.0]), Spread { mean: 2.0, std: 1.0 });
        assert_eq!(Spread::over(&[0.5]), Spread { mean: 0.5, std: 0.0 });
    }
}
