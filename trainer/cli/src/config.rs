//! `kith config`.

use std::path::{Path, PathBuf};

use anyhow::bail;
use kith_run::{
    files::publish_bytes,
    graph_size::GraphSize,
    run_file::{RunFile, schema},
};
use kith_store::Manifest;

use crate::{
    answer::{print, print_json},
    progress::say,
    train::run_file,
};

/// Write and show run files.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Write a commented run file for a graph, with the defaults of a model.
    #[command(after_help = "\
A GAT:        kith config init stores/mine --model gat --out my.toml
Then train:   kith train my.toml --graph stores/mine --out runs/mine")]
    Init(InitArgs),
    /// Show the resolved run file of a model, a preset or a file: every key with its value.
    Show(ShowArgs),
    /// Print the JSON Schema of run files.
    Schema,
}

#[derive(clap::Args)]
struct InitArgs {
    /// Folder of the graph: a store or a partitioned graph.
    #[arg(value_name = "GRAPH")]
    graph: PathBuf,
    /// The model: gat, supergat-mx, gcn, … (default: supergat-mx).
    #[arg(long, value_name = "MODEL", default_value = "supergat-mx", hide_default_value = true)]
    model: String,
    /// The file to write (default: print it). An existing file is not overwritten.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(clap::Args)]
struct ShowArgs {
    /// A model, a preset (see `kith train --list-presets`) or a run file.
    #[arg(value_name = "MODEL|PRESET|FILE")]
    run: String,
    /// Explain every key.
    #[arg(long)]
    comments: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Init(args) => init(&args),
        Command::Show(args) => show(&args),
        Command::Schema => print_json(&schema()),
    }
}

fn init(args: &InitArgs) -> anyhow::Result<()> {
    let Some(mut file) = RunFile::of_model(&args.model) else {
        bail!("no model is called {:?}: see the models in docs/reference/run-file.md", args.model);
    };
    if args.graph.to_string_lossy().contains("://") {
        bail!("{}: expected a folder on this machine", args.graph.display());
    }
    let contents = Manifest::read(&args.graph)?.contents;
    let size = GraphSize {
        n_nodes: contents.n_nodes,
        n_edges: contents.n_edges,
        dim: contents.features.map_or(0, |features| features.dim),
        n_classes: contents.labels.map_or(0, |labels| labels.n_classes),
        is_partitioned: contents.cut.is_some(),
    };
    if let Some(choice) = file.choose_mode(size)? {
        say(&choice);
    }
    let text = format!(
        "# Run file of {} for {}.\n\n{}",
        args.model,
        args.graph.display(),
        file.resolve()?.to_commented_toml()
    );
    let Some(out) = &args.out else { return print(&text) };
    if out.exists() {
        bail!("{}: exists already: choose another file", out.display());
    }
    publish_bytes(out, text.as_bytes())?;
    print(&format!(
        "{}: train it with `kith train {} --graph {}`\n",
        out.display(),
        out.display(),
        Path::new(&args.graph).display()
    ))
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let mut file = run_file(&args.run)?;
    if file.is_mode_open() {
        file.set_mode_by_keys();
        say("note: train.mode is not set: `kith train` chooses it by the graph");
    }
    file.notes().iter().for_each(|note| say(&format!("note: {note}")));
    let config = file.resolve()?;
    print(&if args.comments { config.to_commented_toml() } else { config.to_toml() })
}
