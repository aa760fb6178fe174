//! `kith analyze graph`.

use std::path::PathBuf;

use super::output::FoundArgs;

/// Show the distributions of degree and homophily, and the attention that the SuperGAT paper recommends for a graph
/// with this average degree and homophily.
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Output.
    #[command(flatten)]
    pub found: FoundArgs,
}
