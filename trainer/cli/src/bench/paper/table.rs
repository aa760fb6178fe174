//! `kith bench table` and `kith bench supervised`.

use std::ops::Range;

use super::{DataArgs, PlaceArgs, run_keys};

/// The paper's table of accuracies: datasets × models, mean ± std next to the published values, t-tests against GAT.
#[derive(clap::Args)]
#[command(after_help = "\
All datasets:   kith bench table --data data --out benches/table
A part of it:   kith bench table --datasets cora,pubmed --models gat,supergat-mx --seeds 42..52 --out benches/few
On a GPU:       kith bench table --device cuda --seeds 42..142 --out benches/hundred")]
pub struct TableArgs {
    /// Datasets.
    #[command(flatten)]
    pub data: DataArgs,
    /// Models, by their names in presets (default: gcn,sage,gat,supergat-sd,supergat-mx).
    #[arg(
        long,
        value_name = "MODEL,…",
        value_delimiter = ',',
        default_value = "gcn,sage,gat,supergat-sd,supergat-mx",
        hide_default_value = true
    )]
    pub models: Vec<String>,
    /// One run of every model and dataset for each seed from A to B - 1 (default: 42..62).
    #[arg(long = "seeds", alias = "run-keys", value_name = "A..B", default_value = "42..62", hide_default_value = true,
        value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// The paper's table of full supervision, on Cora, Citeseer and Pubmed: training on all labeled nodes except validation and test.
#[derive(clap::Args)]
#[command(after_help = "\
As in the paper's text:  kith bench supervised --out benches/supervised
As in the paper's code:  kith bench supervised --set train.supervision=full-and-valid --out benches/supervised-as-published
                         (the code trains on the validation nodes too)")]
pub struct SupervisedArgs {
    /// Datasets.
    #[command(flatten)]
    pub data: DataArgs,
    /// Models, by their names in presets (default: gat-full,cgat-full,supergat-mx-full).
    #[arg(
        long,
        value_name = "MODEL,…",
        value_delimiter = ',',
        default_value = "gat-full,cgat-full,supergat-mx-full",
        hide_default_value = true
    )]
    pub models: Vec<String>,
    /// One run of every model and dataset for each seed from A to B - 1 (default: 42..52).
    #[arg(long = "seeds", alias = "run-keys", value_name = "A..B", default_value = "42..52", hide_default_value = true,
        value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}
