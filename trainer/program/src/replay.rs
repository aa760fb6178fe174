//! `kith replay`: recomputes the mini-batches of a past step, and compares them with the run's records.

use kith_bucket::Wanted;
use kith_cli::{
    answer::{print, print_json, print_table},
    progress::grouped,
    pulled::local,
    replay::Args,
};
use kith_trainer::inference::replay::{Question, Replayed, ReplayedSlice, replay};

use crate::graph::open;

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let opened = open(&args.graph)?;
    let Args { step, slice, run_key, .. } = &args;
    let run = &local(&args.run, &Wanted::All)?;
    let replayed = replay(&Question { run, opened: &opened, run_key: *run_key, step: *step, slice: *slice })?;
    if args.json {
        return print_json(&replayed);
    }
    let Replayed { step, epoch, run_key, slices } = &replayed;
    print_table(&table(slices))?;
    for ReplayedSlice { slice, digest, n_roots, n_seeds, .. } in slices {
        let (n_roots, n_seeds) = (grouped(*n_roots as u64), grouped(*n_seeds as u64));
        print(&format!("slice {slice}: {n_seeds} seeds among {n_roots} roots, digest {digest}, as recorded\n"))?;
    }
    print(&format!("step {step} (epoch {epoch}) of seed {run_key}: as recorded\n"))
}

fn table(slices: &[ReplayedSlice]) -> Vec<Vec<String>> {
    let mut rows = vec![["slice", "layer", "sources", "destinations", "edges", "negatives"].map(String::from).to_vec()];
    for slice in slices {
        for (number, layer) in slice.layers.iter().enumerate() {
            let counts = [layer.n_sources, layer.n_destinations, layer.n_edges, layer.n_negatives];
            let mut row = vec![slice.slice.to_string(), number.to_string()];
            row.extend(counts.map(|count| grouped(count as u64)));
            rows.push(row);
        }
    }
    rows
}
