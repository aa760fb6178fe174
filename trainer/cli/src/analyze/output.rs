//! Output of findings.

use std::path::PathBuf;

/// Output of an analysis.
#[derive(clap::Args)]
pub struct FoundArgs {
    /// Folder to write tables and figures to (default: tables are only printed); `kith report` makes an HTML report of
    /// this folder.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
