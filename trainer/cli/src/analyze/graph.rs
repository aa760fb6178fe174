//! `kith analyze graph`.

use std::path::PathBuf;

use super::output::FoundArgs;

/// How degrees and homophilies of a graph are distributed, where it lies in the plane of the recipe, and what that advises.
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// What to do with findings.
    #[command(flatten)]
    pub found: FoundArgs,
}
