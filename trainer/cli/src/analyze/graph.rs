//! `kith analyze graph`.

use std::path::PathBuf;

use super::output::FoundArgs;

/// Show the distributions of degree and homophily, the graph's place on the map of the paper's recipe, and the recipe's advice.
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Output.
    #[command(flatten)]
    pub found: FoundArgs,
}
