//! Output of findings: tables, JSON and files.

use std::path::Path;

use kith_cli::{
    analyze::output::FoundArgs,
    answer::{print, print_json, print_table},
    progress::say,
};
use kith_lab::findings::Findings;

/// Writes findings if `--out` is given, and prints them.
pub(super) fn finish(args: &FoundArgs, findings: &Findings) -> anyhow::Result<()> {
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out).map_err(|error| anyhow::anyhow!("{}: {error}", out.display()))?;
        findings.write(out)?;
    }
    show(findings, args.json, args.out.as_deref())
}

/// Prints findings.
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
