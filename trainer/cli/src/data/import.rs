//! `kith data import`.

use std::{path::PathBuf, time::Instant};

use anyhow::bail;
use kith_partition::{
    csr::EdgeOptions,
    dataset::import::{DatasetImport, Features, GivenSplit, import as import_dataset},
    split::{Fractions, PerClass},
    tables::{self, EdgeWeightRule, IdRule, SplitRule, Tables},
};
use kith_store::Dtype;

use super::{memory, parsers::dtype, published::announce};
use crate::progress::Shown;

/// Import raw files into a store: a dataset by name, or your own tables.
#[derive(clap::Args)]
#[command(after_help = "\
A dataset by name:   kith data import cora --from data/cora --out stores/cora
Your own tables:     kith data import --edges edges.csv --features features.npy --labels labels.csv \\
                         --split 0.8/0.1/0.1 --symmetrize --merge-duplicates --out stores/mine")]
pub(crate) struct Args {
    /// Name of a dataset (see `kith data list`).
    #[arg(conflicts_with = "edges", requires = "from")]
    name: Option<String>,
    /// Folder of the dataset's raw files.
    #[arg(long, value_name = "DIR", requires = "name")]
    from: Option<PathBuf>,
    /// The store to write.
    #[arg(long, value_name = "STORE")]
    out: PathBuf,
    /// Features. Of your own tables: npy, parquet or csv; files, or folders of them. Of a dataset: as-published (preprocessed as in
    /// the paper), raw, normalized (raw, each node's features divided by their sum if it is above 1), or gaussian:DIM (synthetic, for datasets
    /// without features) (default: as-published).
    #[arg(long, alias = "rows", value_name = "PATH|KIND", num_args = 1..)]
    features: Vec<PathBuf>,
    /// The split. Of your own tables: a csv of `id,part`, a folder with train, valid and test, fractions (0.8/0.1/0.1), or nodes per
    /// class (20/30/rest). Of a dataset, in place of its own: fractions, or an npz with the ids of train, valid and test.
    #[arg(long, value_name = "PATH|RULE", value_parser = split_rule)]
    split: Option<SplitRule>,
    #[command(flatten)]
    tables: TableArgs,
    /// Add the reverse of every edge.
    #[arg(long)]
    symmetrize: bool,
    /// Drop self-loops.
    #[arg(long)]
    drop_loops: bool,
    /// Merge duplicate edges into one.
    #[arg(long)]
    merge_duplicates: bool,
    /// Type of dense features, of nodes and of edges: f32, f16 or bf16 (default: f32).
    #[arg(long, default_value = "f32", hide_default_value = true, value_parser = dtype)]
    dtype: Dtype,
    /// Memory limit (default: 2GiB).
    #[arg(long, value_name = "SIZE", default_value = "2GiB", hide_default_value = true,
        value_parser = crate::size::parse)]
    memory: u64,
    /// Seed of all random draws: start of a PCA, gaussian features, random splits (default: 42).
    #[arg(long = "seed", alias = "run-key", value_name = "N", default_value_t = 42, hide_default_value = true)]
    run_key: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Your own tables")]
struct TableArgs {
    /// Edges (source, destination): csv, tsv, txt (also .gz), npy or parquet; files, or folders of them.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    edges: Vec<PathBuf>,
    /// Weights of the edges, finite and not negative: a column of the edge tables, by name or by index, counted from 0; for npy edges,
    /// an npy file with one weight per edge.
    #[arg(long, value_name = "COLUMN|PATH", num_args = 1.., requires = "edges")]
    edge_weights: Option<Vec<PathBuf>>,
    /// Features of the edges, one row per edge in the order of --edges: npy, csv or parquet; files, or folders of them.
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "edges")]
    edge_features: Vec<PathBuf>,
    /// Labels (classes): csv or npy.
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "edges")]
    labels: Vec<PathBuf>,
    /// Targets (numbers to predict, regression), in place of labels: csv or npy.
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "edges", conflicts_with = "labels")]
    targets: Vec<PathBuf>,
    /// Number of nodes, if some have no edges.
    #[arg(long, value_name = "N", requires = "edges")]
    nodes: Option<u64>,
    /// Number of classes, if some have no nodes.
    #[arg(long, value_name = "N", requires = "labels", value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    classes: Option<u64>,
    /// Node ids: dense (already 0 to N - 1), mapped (renumbered; the original ids are kept), texts (mapped, even if they look
    /// like numbers), or auto (dense if possible, else mapped) (default: auto).
    #[arg(long, default_value = "auto", hide_default_value = true, value_parser = id_rule, requires = "edges")]
    ids: IdRule,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let started = Instant::now();
    let shown = Shown::new();
    let memory_bytes = memory::for_data(args.memory)?;
    let edges = EdgeOptions {
        symmetrize: args.symmetrize,
        drop_loops: args.drop_loops,
        merge_duplicates: args.merge_duplicates,
    };
    let manifest = match (args.name, args.from) {
        (Some(name), Some(from)) => {
            let import = DatasetImport {
                name,
                from,
                features: features_of_dataset(&args.features)?,
                split: args.split.map(split_of_dataset).transpose()?,
                edges,
                dtype: args.dtype,
                memory_bytes,
                run_key: args.run_key,
            };
            import_dataset(&import, &args.out, &shown)?
        }
        _ if args.tables.edges.is_empty() => bail!("nothing to import: name a dataset (--from DIR), or give --edges"),
        _ => {
            let tables = Tables {
                edges: args.tables.edges,
                edge_weights: args.tables.edge_weights.map(edge_weight_rule),
                edge_features: args.tables.edge_features,
                rows: tables_of_features(args.features)?,
                labels: args.tables.labels,
                targets: args.tables.targets,
                split: args.split,
                n_nodes: args.tables.nodes,
                n_classes: args.tables.classes,
                ids: args.tables.ids,
                edge_options: edges,
                dtype: args.dtype,
                memory_bytes,
                run_key: args.run_key,
                source: format!("tables (kith {})", env!("CARGO_PKG_VERSION")),
            };
            tables::import(&tables, &args.out, &shown)?
        }
    };
    announce(&manifest, &args.out, started, args.json)
}

/// One name is a column unless it is an npy file.
fn edge_weight_rule(given: Vec<PathBuf>) -> EdgeWeightRule {
    match &given[..] {
        [name] if name.extension().is_none_or(|extension| extension != "npy") && !name.is_dir() => {
            EdgeWeightRule::Column(name.to_string_lossy().into_owned())
        }
        _ => EdgeWeightRule::Files(given),
    }
}

fn tables_of_features(given: Vec<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    let is_kind = |path: &PathBuf| {
        let text = path.to_string_lossy();
        (["raw", "as-published", "normalized"].contains(&&*text) || text.starts_with("gaussian:")) && !path.exists()
    };
    match given.iter().find(|path| is_kind(path)) {
        Some(kind) => bail!("--features {} is for datasets: give the files of your own features", kind.display()),
        None => Ok(given),
    }
}

fn features_of_dataset(given: &[PathBuf]) -> anyhow::Result<Features> {
    let text = match given {
        [] => return Ok(Features::AsPublished),
        [one] => one.to_str().unwrap_or_default(),
        _ => "",
    };
    match (text, text.strip_prefix("gaussian:")) {
        ("as-published", _) => Ok(Features::AsPublished),
        ("raw", _) => Ok(Features::Raw),
        ("normalized", _) => Ok(Features::Normalized),
        (_, Some(dim)) => match dim.parse() {
            Ok(dim) if dim > 0 => Ok(Features::Gaussian { dim }),
            _ => bail!("--features gaussian:{dim}: expected a positive number of features"),
        },
        _ => bail!("--features of a dataset: expected as-published, raw, normalized or gaussian:DIM"),
    }
}

fn split_of_dataset(rule: SplitRule) -> anyhow::Result<GivenSplit> {
    match rule {
        SplitRule::Fractions(fractions) => Ok(GivenSplit::Fractions(fractions)),
        SplitRule::Path(path) if path.extension().is_some_and(|extension| extension == "npz") => {
            Ok(GivenSplit::File(path))
        }
        _ => {
            bail!("--split of a dataset: expected fractions such as 0.6/0.2/0.2, or an npz with train, valid and test")
        }
    }
}

fn id_rule(text: &str) -> Result<IdRule, String> {
    match text {
        "auto" => Ok(IdRule::Auto),
        "dense" => Ok(IdRule::Dense),
        "mapped" => Ok(IdRule::Mapped),
        "texts" => Ok(IdRule::Texts),
        _ => Err("expected auto, dense, mapped or texts".to_owned()),
    }
}

/// Parses a split: `0.8/0.1/0.1` are fractions, `20/30/rest` are nodes per class, anything else is a path.
fn split_rule(text: &str) -> Result<SplitRule, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let [train, valid, test] = parts[..] else { return Ok(SplitRule::Path(text.into())) };
    if let (Ok(train), Ok(valid)) = (train.parse(), valid.parse()) {
        match test {
            "rest" => return Ok(SplitRule::PerClass(PerClass { train, valid, test: None })),
            _ => {
                if let Ok(test) = test.parse() {
                    return Ok(SplitRule::PerClass(PerClass { train, valid, test: Some(test) }));
                }
            }
        }
    }
    match [train, valid, test].map(str::parse) {
        [Ok(train), Ok(valid), Ok(test)] => Ok(SplitRule::Fractions(Fractions { train, valid, test })),
        _ => Ok(SplitRule::Path(text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_rules_are_told_from_paths() {
        let per_class = |test| SplitRule::PerClass(PerClass { train: 20, valid: 30, test });
        assert_eq!(split_rule("20/30/rest"), Ok(per_class(None)));
        assert_eq!(split_rule("20/30/50"), Ok(per_class(Some(50))));
        let fractions = Fractions { train: 0.8, valid: 0.1, test: 0.1 };
        assert_eq!(split_rule("0.8/0.1/0.1"), Ok(SplitRule::Fractions(fractions)));
        for path in ["parts.csv", "a/b", "data/mine/parts.csv", "20/30/x"] {
            assert_eq!(split_rule(path), Ok(SplitRule::Path(path.into())), "{path}");
        }
    }
}
