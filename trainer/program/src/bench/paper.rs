//! Experiments of the paper: their folder and device, and the output of their findings.

use std::{ops::Range, slice};

use kith_cli::{
    bench::paper::{
        DataArgs, PlaceArgs, attention, links, sensitivity, synthetic,
        table::{SupervisedArgs, TableArgs},
        tuned, wallclock,
    },
    progress::Shown,
};
use kith_lab::{
    experiment::Workplace,
    findings::Findings,
    grid::Grid,
    synthetic::{SyntheticOptions, run_grid},
    tuned::TunedOptions,
};
use kith_partition::dataset::catalog::CATALOG;

use crate::analyze::show;

/// Folder, device, workers and memory of an experiment.
fn place(args: &PlaceArgs) -> Workplace {
    Workplace {
        dir: args.out.clone(),
        device: args.device.clone(),
        n_workers: args.workers.map(|n| n as usize),
        memory: args.memory,
    }
}

/// Writes and prints findings.
fn finish(args: &PlaceArgs, findings: &Findings) -> anyhow::Result<()> {
    findings.write(&args.out)?;
    show(findings, args.json, Some(&args.out))
}

/// The datasets of experiments that do not take all of them.
const PLANETOID: [&str; 3] = ["cora", "citeseer", "pubmed"];

fn grid<'a>(
    data: &'a DataArgs,
    usual: &[&'a str],
    models: &'a [String],
    run_keys: &Range<u64>,
    place: &'a PlaceArgs,
) -> Grid<'a> {
    Grid {
        data: &data.data,
        datasets: data.names(usual),
        models: models.iter().map(String::as_str).collect(),
        run_keys: run_keys.clone(),
        assignments: &place.assignments,
    }
}

pub(super) fn run_attention(args: &attention::Args) -> anyhow::Result<()> {
    let asked = grid(&args.data, &PLANETOID, &args.models, &args.run_keys, &args.place);
    finish(&args.place, &kith_lab::attention::attention(&asked, &place(&args.place), &Shown::new())?)
}

pub(super) fn run_links(args: &links::Args) -> anyhow::Result<()> {
    let asked = grid(&args.data, &PLANETOID, &args.models, &args.run_keys, &args.place);
    finish(&args.place, &kith_lab::links::links(&asked, &args.edge_weights, &place(&args.place), &Shown::new())?)
}

pub(super) fn run_sensitivity(args: &sensitivity::Args) -> anyhow::Result<()> {
    let asked = grid(&args.data, &PLANETOID, slice::from_ref(&args.model), &args.run_keys, &args.place);
    finish(&args.place, &kith_lab::sensitivity::sensitivity(&asked, &place(&args.place), &Shown::new())?)
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
    let asked = grid(&args.data, &PLANETOID, &args.models, &args.run_keys, &args.place);
    finish(&args.place, &kith_lab::wallclock::wallclock(&asked, &place(&args.place), &Shown::new())?)
}

pub(super) fn run_table(args: &TableArgs) -> anyhow::Result<()> {
    let all: Vec<&str> = CATALOG.iter().map(|dataset| dataset.name).collect();
    let asked = grid(&args.data, &all, &args.models, &args.run_keys, &args.place);
    finish(&args.place, &kith_lab::table::table("main", &asked, &place(&args.place), &Shown::new())?)
}

pub(super) fn run_tuned(args: &tuned::Args) -> anyhow::Result<()> {
    let asked = TunedOptions {
        data: &args.data.data,
        splits: args.splits.as_deref(),
        datasets: args.data.names(&kith_lab::tuned::datasets()),
        models: args.models.iter().map(String::as_str).collect(),
        run_keys: args.run_keys.clone(),
        assignments: &args.place.assignments,
    };
    finish(&args.place, &kith_lab::tuned::table(&asked, &place(&args.place), &Shown::new())?)
}

pub(super) fn run_supervised(args: &SupervisedArgs) -> anyhow::Result<()> {
    let asked = grid(&args.data, &PLANETOID, &args.models, &args.run_keys, &args.place);
    finish(&args.place, &kith_lab::table::table("supervised", &asked, &place(&args.place), &Shown::new())?)
}
