//! `kith bench table` and `kith bench supervised`.

use std::ops::Range;

use super::{DataArgs, PlaceArgs, run_keys};

/// The paper's table of accuracies: datasets × models, mean ± std beside what was printed, t-tests against GAT.
#[derive(clap::Args)]
#[command(after_help = "\
All there is:   kith bench table --data data --out benches/table
A few cells:    kith bench table --datasets cora,pubmed --models gat,supergat-mx --run-keys 42..52 --out benches/few
On a GPU:       kith bench table --device cuda --run-keys 42..142 --out benches/hundred")]
pub struct TableArgs {
    /// Datasets.
    #[command(flatten)]
    pub data: DataArgs,
    /// Models, as presets call them.
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', default_value = "gcn,sage,gat,supergat-sd,supergat-mx")]
    pub models: Vec<String>,
    /// One run of every cell for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..62", value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// The paper's table of models that are trained on every labeled node that neither validates nor tests: Cora, Citeseer, Pubmed.
#[derive(clap::Args)]
#[command(after_help = "\
As described:      kith bench supervised --out benches/supervised
As the paper did:  kith bench supervised --set train.supervision=full-and-valid --out benches/supervised-as-published
                   (its code trained on the valid nodes too)")]
pub struct SupervisedArgs {
    /// Datasets.
    #[command(flatten)]
    pub data: DataArgs,
    /// Models, as presets call them.
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', default_value = "gat-full,cgat-full,supergat-mx-full")]
    pub models: Vec<String>,
    /// One run of every cell for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..52", value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}
