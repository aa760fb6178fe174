//! `kith analyze`.

mod attention;
mod graph;

use std::path::{Path, PathBuf};

use kith_lab::findings::Findings;

use crate::{
    answer::{print, print_json, print_table},
    progress::say,
};

/// Look at what a model attends to, or at what a graph is like.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Attention(Box<attention::Args>),
    Graph(graph::Args),
}

/// What to do with what is found.
#[derive(clap::Args)]
struct FoundArgs {
    /// The folder to write tables and figures to; `kith report` makes a page of it.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Attention(args) => attention::run(&args),
        Command::Graph(args) => graph::run(&args),
    }
}

impl FoundArgs {
    fn finish(&self, findings: &Findings) -> anyhow::Result<()> {
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
