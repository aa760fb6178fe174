//! The paper's experiments: where they compute, and what they found.

pub mod attention;
pub mod links;
pub mod sensitivity;
pub mod synthetic;
pub mod table;
pub mod wallclock;

use std::{ops::Range, path::PathBuf};

use clap::builder::NonEmptyStringValueParser;

/// Where an experiment computes, and where it keeps its runs.
#[derive(clap::Args)]
#[command(next_help_heading = "Every experiment")]
pub struct PlaceArgs {
    /// The folder to keep runs and findings in: what is finished there is not done again.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Where to compute: cpu, cuda or cuda:N. A GPU computes many runs together; small runs that it has no kernels for are
    /// computed on the CPU beside it.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Runs at a time on the CPU; one per core unless said, as memory allows.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub workers: Option<u64>,
    /// Bytes that runs on the CPU may take together, as in 8GiB; most of what is free unless said.
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    pub memory: Option<u64>,
    /// Change a key of every run file; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Named datasets, and where they are.
#[derive(clap::Args)]
#[command(next_help_heading = "Datasets")]
pub struct DataArgs {
    /// The folder of datasets: DIR/NAME is a store, or holds the raw files of one (see `kith data fetch`).
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub data: PathBuf,
    /// Datasets, with commas between them.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub datasets: Vec<String>,
}

impl DataArgs {
    /// The datasets that were asked for, or these.
    pub fn names<'a>(&'a self, usual: &[&'a str]) -> Vec<&'a str> {
        if self.datasets.is_empty() { usual.to_vec() } else { self.datasets.iter().map(String::as_str).collect() }
    }
}

/// Run keys as a person writes them.
pub fn run_keys(text: &str) -> Result<Range<u64>, String> {
    let range = crate::train::run_keys(text)?;
    Ok(*range.start()..range.end() + 1)
}
