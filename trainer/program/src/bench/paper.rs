//! The paper's experiments: where they compute, and what they found.

use std::ops::Range;

use kith_cli::{
    bench::paper::{
        DataArgs, PlaceArgs, attention, links, sensitivity, synthetic,
        table::{SupervisedArgs, TableArgs},
        wallclock,
    },
    progress::Shown,
};
use kith_lab::{
    attention::AttentionOptions,
    experiment::Workplace,
    findings::Findings,
    links::LinkOptions,
    sensitivity::SensitivityOptions,
    synthetic::{SyntheticOptions, run_grid},
    table::{TableOptions, table},
    wallclock::WallclockOptions,
};
use kith_partition::dataset::catalog::CATALOG;

use crate::analyze::show;

/// Where an experiment computes.
fn place(args: &PlaceArgs) -> Workplace {
    Workplace {
        dir: args.out.clone(),
        device: args.device.clone(),
        n_workers: args.workers.map(|n| n as usize),
        memory: args.memory,
    }
}

/// Writes and says what was found.
fn finish(args: &PlaceArgs, findings: &Findings) -> anyhow::Result<()> {
    findings.write(&args.out)?;
    show(findings, args.json, Some(&args.out))
}

pub(super) fn run_attention(args: &attention::Args) -> anyhow::Result<()> {
    let asked = AttentionOptions {
        datasets: args.data.names(&["cora", "citeseer", "pubmed"]),
        models: args.models.iter().map(String::as_str).collect(),
        run_keys: args.run_keys.clone(),
        assignments: &args.place.assignments,
    };
    finish(&args.place, &kith_lab::attention::attention(&asked, &args.data.data, &place(&args.place), &Shown::new())?)
}

pub(super) fn run_links(args: &links::Args) -> anyhow::Result<()> {
    let asked = LinkOptions {
        datasets: args.data.names(&["cora", "citeseer", "pubmed"]),
        models: args.models.iter().map(String::as_str).collect(),
        edge_weights: args.edge_weights.clone(),
        run_keys: args.run_keys.clone(),
        assignments: &args.place.assignments,
    };
    finish(&args.place, &kith_lab::links::links(&asked, &args.data.data, &place(&args.place), &Shown::new())?)
}

pub(super) fn run_sensitivity(args: &sensitivity::Args) -> anyhow::Result<()> {
    let asked = SensitivityOptions {
        datasets: args.data.names(&["cora", "citeseer", "pubmed"]),
        model: &args.model,
        run_keys: args.run_keys.clone(),
        assignments: &args.place.assignments,
    };
    finish(
        &args.place,
        &kith_lab::sensitivity::sensitivity(&asked, &args.data.data, &place(&args.place), &Shown::new())?,
    )
}

pub(super) fn run_synthetic(args: &synthetic::Args) -> anyhow::Result<()> {
    let mut asked = SyntheticOptions { assignments: &args.place.assignments, ..SyntheticOptions::paper() };
    let replace = |usual: &mut Vec<f64>, said: &[f64]| {
        if !said.is_empty() {
            *usual = said.to_vec();
        }
    };
    replace(&mut asked.degrees, &args.degrees);
    replace(&mut asked.homophilies, &args.homophilies);
    replace(&mut asked.weight_decays, &args.weight_decays);
    replace(&mut asked.edge_weights, &args.edge_weights);
    if !args.models.is_empty() {
        asked.models = args.models.iter().map(String::as_str).collect();
    }
    (asked.run_keys, asked.graph_keys) = (args.run_keys.clone(), args.graph_keys.clone());
    finish(&args.place, &run_grid(&asked, &place(&args.place), &Shown::new())?)
}

pub(super) fn run_wallclock(args: &wallclock::Args) -> anyhow::Result<()> {
    let asked = WallclockOptions {
        datasets: args.data.names(&["cora", "citeseer", "pubmed"]),
        models: args.models.iter().map(String::as_str).collect(),
        run_keys: args.run_keys.clone(),
        assignments: &args.place.assignments,
    };
    finish(&args.place, &kith_lab::wallclock::wallclock(&asked, &args.data.data, &place(&args.place), &Shown::new())?)
}

pub(super) fn run_table(args: &TableArgs) -> anyhow::Result<()> {
    let all: Vec<&str> = CATALOG.iter().map(|dataset| dataset.name).collect();
    make("main", &args.data, &all, &args.models, &args.run_keys, &args.place)
}

pub(super) fn run_supervised(args: &SupervisedArgs) -> anyhow::Result<()> {
    make("supervised", &args.data, &["cora", "citeseer", "pubmed"], &args.models, &args.run_keys, &args.place)
}

fn make(
    which: &'static str,
    data: &DataArgs,
    usual: &[&str],
    models: &[String],
    run_keys: &Range<u64>,
    args: &PlaceArgs,
) -> anyhow::Result<()> {
    let asked = TableOptions {
        table: which,
        datasets: data.names(usual),
        models: models.iter().map(String::as_str).collect(),
        run_keys: run_keys.clone(),
        assignments: &args.assignments,
    };
    finish(args, &table(&asked, &data.data, &place(args), &Shown::new())?)
}
