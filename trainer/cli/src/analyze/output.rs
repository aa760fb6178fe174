//! Output of findings.

use std::path::PathBuf;

/// Output of an analysis.
#[derive(clap::Args)]
pub struct FoundArgs {
    /// Folder for tables and figures (default: they are not kept); `kith report` makes an HTML report of it.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
