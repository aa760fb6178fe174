//! Output of findings.

use std::path::PathBuf;

/// What to do with what is found.
#[derive(clap::Args)]
pub struct FoundArgs {
    /// The folder to write tables and figures to; `kith report` makes a page of it.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
