//! The paper's experiments: shared options.

pub mod attention;
pub mod links;
pub mod sensitivity;
pub mod synthetic;
pub mod table;
pub mod tuned;
pub mod wallclock;

use std::{ops::Range, path::PathBuf};

use clap::builder::NonEmptyStringValueParser;

/// Device, workers, memory and output folder of an experiment.
#[derive(clap::Args)]
#[command(next_help_heading = "Every experiment")]
pub struct PlaceArgs {
    /// Folder for runs, tables and figures. Finished runs in it are not run again.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Device: cpu, cuda or cuda:N (default: cpu). A GPU computes many runs together; small runs without GPU kernels run on the
    /// CPU at the same time.
    #[arg(long, default_value = "cpu", hide_default_value = true)]
    pub device: String,
    /// Number of runs at a time on the CPU (default: one per core, if memory allows).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub workers: Option<u64>,
    /// Memory of all runs on the CPU together, as in 8GiB (default: 70% of the available memory).
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    pub memory: Option<u64>,
    /// Set a key of every run file; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Datasets and their folder.
#[derive(clap::Args)]
#[command(next_help_heading = "Datasets")]
pub struct DataArgs {
    /// Folder of the datasets (default: data). DIR/NAME is a store, or has the raw files of a dataset (see `kith data fetch`).
    #[arg(long, value_name = "DIR", default_value = "data", hide_default_value = true)]
    pub data: PathBuf,
    /// Names of datasets, comma-separated (default: those of the experiment).
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub datasets: Vec<String>,
}

impl DataArgs {
    /// The requested datasets, or the `usual` ones.
    pub fn names<'a>(&'a self, usual: &[&'a str]) -> Vec<&'a str> {
        if self.datasets.is_empty() { usual.to_vec() } else { self.datasets.iter().map(String::as_str).collect() }
    }
}

/// Parses seeds: A..B.
pub fn run_keys(text: &str) -> Result<Range<u64>, String> {
    let range = crate::train::run_keys(text)?;
    Ok(*range.start()..range.end() + 1)
}
