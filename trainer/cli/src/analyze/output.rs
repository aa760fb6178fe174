//! Output of findings.

use std::path::{Path, PathBuf};

use kith_lab::findings::Findings;

use crate::{
    answer::{print, print_json, print_table},
    progress::say,
};

/// What to do with what is found.
#[derive(clap::Args)]
pub(super) struct FoundArgs {
    /// The folder to write tables and figures to; `kith report` makes a page of it.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl FoundArgs {
    pub(super) fn finish(&self, findings: &Findings) -> anyhow::Result<()> {
        if let Some(out) = &self.out {
            std::fs::create_dir_all(out).map_err(|error| anyhow::anyhow!("{}: {error}", out.display()))?;
            findings.write(out)?;
        }
        show(findings, self.json, self.out.as_deref())
    }
}

/// Says what was found.
pub(crate) fn show(findings: &Findings, as_json: bool, kept: Option<&Path>) -> anyhow::Result<()> {
    if as_json {
        return print_json(findings);
    }
    for table in &findings.tables {
        print(&format!("{}\n", table.title))?;
        print_table(&table.texts())?;
        print("\n")?;
    }
    findings.notes.iter().try_for_each(|note| print(&format!("note: {note}\n")))?;
    if let Some(dir) = kept {
        say(&format!("kept in {}: `kith report` makes a page of it", dir.display()));
    }
    Ok(())
}
