mod text_0_1_0;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
};

use kith_block::Form;
use kith_sampler::Fanout;

use self::text_0_1_0::text_0_1_0;
use super::*;
use crate::{
    choice::Choice,
    config::{Activation, Exclude, Mode, ModelConfig, Norm, OptimizerName, Residual, RunConfig, Supervision},
    measured::Metric,
    model_kind::ModelKind,
};

fn config(name: &str) -> RunConfig {
    Preset::get(name)
        .and_then(Preset::run_file)
        .and_then(|file| file.resolve())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The published model in mini-batches.
fn is_mini_batch(preset: &Preset) -> bool {
    preset.name.ends_with(MINI_BATCH)
}

const MINI_BATCH: &str = "-mini-batch";

fn of_the_paper() -> impl Iterator<Item = &'static Preset> {
    PRESETS.iter().filter(|preset| !preset.is_tuned() && !preset.is_of_leaderboard() && !is_mini_batch(preset))
}

#[test]
fn every_preset_can_run_and_is_called_what_it_is() {
    assert_eq!((of_the_paper().count(), PRESETS.len()), (153, 213));
    for preset in PRESETS {
        let config = config(preset.name);
        let ending = if is_mini_batch(preset) { MINI_BATCH } else { "" };
        let (dataset, kind) = (preset.dataset(), config.model.kind.name());
        let expected = match preset.name.split('/').next() {
            Some(folder @ ("tuned" | "leaderboard")) => format!("{folder}/{dataset}/{kind}"),
            _ => format!("{dataset}/{}{ending}", config.name()),
        };
        assert_eq!(preset.name, expected);
        assert!(preset.about().ends_with('.') || preset.about().ends_with("other"), "{}", preset.about());
        let again = RunFile::parse(&config.to_toml(), preset.name).unwrap().resolve().unwrap();
        assert_eq!(again, config, "{}", preset.name);
    }
}

#[test]
fn a_preset_that_does_not_exist_is_a_sentence() {
    let error = Preset::get("cora/supergat-max").unwrap_err().to_string();
    assert!(error.starts_with("cora/supergat-max: no such model or preset: did you mean cora/supergat-mx"), "{error}");
    assert!(Preset::get("reddit").unwrap_err().to_string().contains("no such model or preset (models: "));
}

/// Published settings beside this repository; says so where they are absent.
#[allow(clippy::print_stderr)]
fn published(file: &str) -> Option<String> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")).join(file);
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        eprintln!("skipped: no {}", path.display());
    }
    text
}

/// The fields of a line of csv.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => fields.last_mut().unwrap().push(letter),
        }
    }
    fields
}

#[test]
fn every_published_row_is_a_preset() {
    let Some(text) = published("paper/hyperparameters.csv") else { return };
    let mut lines = text.lines();
    let names = fields(lines.next().unwrap());
    let mut n_compared = 0;
    for line in lines {
        let row: HashMap<&str, String> = names.iter().map(String::as_str).zip(fields(line)).collect();
        let is_usable = !row["experiment"].contains("without top-k") && !row["model"].ends_with("broken");
        if is_usable && row["lambda_2_adam_weight_decay"] != "grid" {
            compare(&row);
            n_compared += 1;
        }
    }
    assert_eq!(n_compared, 125);
}

fn compare(row: &HashMap<&str, String>) {
    let (kind, n_layers) = match row["model"].as_str() {
        "GAT" => (ModelKind::Gat, 2),
        "GAT (4 layers)" => (ModelKind::Gat, 4),
        "SuperGAT" => (ModelKind::Supergat, 2),
        "GCN" => (ModelKind::Gcn, 2),
        "GraphSAGE" => (ModelKind::Sage, 2),
        "CGAT" => (ModelKind::Cgat, 2),
        other => panic!("{other}"),
    };
    let form = row["attention_form"].to_lowercase();
    let is_full = row["experiment"].starts_with("full-supervised");
    let mut name = format!("{}/{}", row["dataset"].to_lowercase(), kind.name());
    if kind == ModelKind::Supergat || (kind == ModelKind::Gat && form == "dp") {
        name += &format!("-{form}");
    }
    name += if n_layers == 4 { "-4-layers" } else { "" };
    name += if is_full { "-full" } else { "" };

    let config = config(&name);
    let number = |column: &str| row[column].parse::<f64>().unwrap_or_else(|_| panic!("{name}: {column}"));
    let count = |column: &str| row[column].parse::<u64>().unwrap_or_else(|_| panic!("{name}: {column}"));
    assert_eq!(config.model.kind, kind, "{name}");
    assert_eq!(config.model.n_layers as u64, count("num_layers"), "{name}");
    assert_eq!(config.model.hidden as u64, count("features_per_head_hidden"), "{name}");
    assert_eq!(config.model.dropout, number("dropout"), "{name}");
    if kind.has_attention() {
        assert_eq!(Some(config.model.attention), Form::from_name(&form), "{name}");
        assert_eq!(config.model.heads as u64, count("heads_hidden"), "{name}");
        assert_eq!(config.model.out_heads as u64, count("out_heads"), "{name}");
    }
    assert_eq!(config.optimizer.learning_rate, number("lr"), "{name}");
    assert_eq!(config.optimizer.weight_decay, number("lambda_2_adam_weight_decay"), "{name}");
    assert_eq!(config.train.epochs, count("max_epochs"), "{name}");
    assert_eq!(config.train.supervision == Supervision::Full, is_full, "{name}");
    assert_eq!(config.edge_loss.is_some(), row["edge_supervised"] == "yes", "{name}");
    if let Some(edge_loss) = &config.edge_loss {
        assert_eq!(edge_loss.weight, number("lambda_E"), "{name}");
        assert_eq!(edge_loss.neg_sample_ratio, number("p_n"), "{name}");
        assert_eq!(edge_loss.edge_sampling_ratio, number("p_e"), "{name}");
        // Sets of several graphs went through a sampler that ignored the wish.
        let is_symmetric = row["symmetrise_graph_for_negative_sampling"] == "yes" && row["dataset"] != "Four-Univ";
        assert_eq!(edge_loss.exclude == Exclude::Symmetric, is_symmetric, "{name}");
    }
    assert_eq!(config.cgat.is_some(), kind == ModelKind::Cgat, "{name}");
    if let Some(cgat) = &config.cgat {
        assert_eq!(cgat.graph_weight, number("cgat_graph_lambda"), "{name}");
        assert_eq!(cgat.graph_margin, number("cgat_graph_margin"), "{name}");
        assert_eq!(cgat.negatives as u64, count("cgat_negatives_per_edge"), "{name}");
        assert_eq!(cgat.top_k.map(|k| k as u64), Some(count("cgat_k")), "{name}");
        assert_eq!(cgat.boundary().is_some(), is_full, "{name}");
        if let Some((weight, margin)) = cgat.boundary() {
            assert_eq!(weight, number("cgat_boundary_lambda"), "{name}");
            assert_eq!(margin, number("cgat_boundary_margin"), "{name}");
        }
    }
    assert_eq!(config.early_stop.is_some(), row["early_stop"] == "yes", "{name}");
    if let Some(early_stop) = config.early_stop.as_ref().map(|early_stop| early_stop.rule().unwrap()) {
        assert_eq!(early_stop.burn_in, count("es_patience_burn_in"), "{name}");
        assert_eq!(early_stop.window as u64, count("es_window"), "{name}");
        assert_eq!(early_stop.loss_threshold, number("es_rel_threshold_loss"), "{name}");
        assert_eq!(early_stop.metric_threshold, number("es_rel_threshold_metric"), "{name}");
    }
}

#[test]
fn presets_without_published_settings_follow_those_that_have_them() {
    for dataset in ["cora", "citeseer", "pubmed"] {
        let gat = config(&format!("{dataset}/gat"));
        for model in ["gcn", "sage"] {
            let own = config(&format!("{dataset}/{model}"));
            assert_eq!((own.model.hidden, own.model.dropout, own.optimizer.learning_rate), (64, 0.6, 0.01));
            assert_eq!((own.train.epochs, &own.early_stop), (gat.train.epochs, &gat.early_stop));
            assert!([5e-4, 1e-3, 5e-3, 1e-2].contains(&own.optimizer.weight_decay));
        }
    }
    let datasets: HashSet<&str> = of_the_paper().map(Preset::dataset).collect();
    for dataset in datasets {
        let (mlp, gcn) = (config(&format!("{dataset}/mlp")), config(&format!("{dataset}/gcn")));
        assert_eq!(mlp, RunConfig { model: mlp.model.clone(), ..gcn.clone() }, "{dataset}");
        assert_eq!(mlp.model, ModelConfig { kind: ModelKind::Mlp, ..gcn.model }, "{dataset}");
    }
    for model in ["gcn", "gat", "supergat-sd", "supergat-mx"] {
        let made = config(&format!("partition-graph/{model}"));
        assert_eq!((made.optimizer.weight_decay, made.model.dropout, made.train.epochs), (1e-5, 0.2, 500));
        assert!(made.edge_loss.is_none_or(|loss| loss.weight == 0.1));
    }
}

/// The published models with a tenth of the learning rate: an epoch has many steps.
#[test]
fn mini_batch_presets_are_published_models() {
    let presets: Vec<&Preset> = PRESETS.iter().filter(|preset| is_mini_batch(preset)).collect();
    assert_eq!(presets.len(), 10);
    for preset in presets {
        let (own, full) = (config(preset.name), config(preset.name.strip_suffix(MINI_BATCH).unwrap()));
        assert_eq!(own.train.mode, Mode::MiniBatch);
        assert_eq!((&own.model, &own.edge_loss), (&full.model, &full.edge_loss), "{}", preset.name);
        assert_eq!(own.optimizer.weight_decay, full.optimizer.weight_decay);
        assert!((own.optimizer.learning_rate * 10.0 - full.optimizer.learning_rate).abs() < 1e-12, "{}", preset.name);
    }
}

/// Checksums of what presets meant in 0.1.0, as run files that say everything.
const GOLDEN: &str = include_str!("golden-0.1.0.txt");

/// A line of such a run file that 0.1.0 did not know.
const ADDED: &str = "checkpoint_minutes = 10.0\n";

#[test]
fn every_preset_means_what_it_meant_in_0_1_0() {
    let meant = |preset: &Preset| {
        let text = text_0_1_0(&preset.run_file().unwrap().resolve().unwrap());
        assert!(text.contains(ADDED), "{text}");
        format!("{} {:08x}\n", preset.name, crc32fast::hash(text.replace(ADDED, "").as_bytes()))
    };
    let mut lines: Vec<String> = of_the_paper().map(meant).collect();
    lines.sort();
    assert_eq!(lines.len(), 153);
    for (found, golden) in lines.iter().zip(GOLDEN.split_inclusive('\n')) {
        assert_eq!(found, golden);
    }
    assert_eq!(GOLDEN.lines().count(), 153);
}

/// Names of datasets in the table of tuned settings that differ from those of presets.
const OTHER_NAMES: [(&str, &str); 7] = [
    ("amazon-computer", "computers"),
    ("amazon-photo", "photo"),
    ("coauthor-cs", "cs"),
    ("coauthor-physics", "physics"),
    ("wikics", "wiki-cs"),
    ("squirrel", "squirrel-filtered"),
    ("chameleon", "chameleon-filtered"),
];

#[test]
fn every_tuned_setting_is_a_preset() {
    let Some(text) = published("tuned/settings.csv") else { return };
    let mut lines = text.lines();
    let names = fields(lines.next().unwrap());
    let mut n_compared = 0;
    for line in lines {
        let row: HashMap<&str, String> = names.iter().map(String::as_str).zip(fields(line)).collect();
        let own = row["dataset"].as_str();
        let dataset = OTHER_NAMES.iter().find(|(name, _)| *name == own).map_or(own, |(_, name)| name);
        let name = format!("tuned/{dataset}/{}", row["model"]);
        let RunConfig { model, optimizer, train, early_stop, schedule, .. } = config(&name);
        let number = |column: &str| row[column].parse::<f64>().unwrap_or_else(|_| panic!("{name}: {column}"));
        let is_set = |column: &str| row[column] == "yes";
        assert_eq!(model.kind.name(), row["model"], "{name}");
        assert_eq!([model.n_layers, model.hidden].map(|n| n as f64), ["layers", "hidden"].map(number), "{name}");
        assert_eq!((model.dropout, model.input_dropout()), (number("dropout"), 0.0), "{name}");
        assert_eq!(model.norm().name(), row["norm"], "{name}");
        assert_eq!(model.residual() == Residual::Linear, is_set("residual"), "{name}");
        assert_eq!(model.has_input_linear(), is_set("input_linear"), "{name}");
        assert_eq!((model.activation(), model.has_output_linear()), (Activation::Relu, true), "{name}");
        assert_eq!(model.has_root_weight(), model.kind == ModelKind::Sage, "{name}");
        if model.kind == ModelKind::Gat {
            assert_eq!((model.heads as f64, model.attention_dropout()), (number("heads"), 0.0), "{name}");
            assert!(!model.has_bias() && model.attention == Form::Go, "{name}");
        } else {
            assert!(model.has_bias(), "{name}");
        }
        assert_eq!([optimizer.learning_rate, optimizer.weight_decay], ["lr", "weight_decay"].map(number), "{name}");
        assert_eq!(optimizer.name, OptimizerName::Adam, "{name}");
        assert_eq!(train.epochs as f64, number("epochs"), "{name}");
        assert_eq!(train.metric == Some(Metric::RocAuc), row["metric"] == "rocauc", "{name}");
        assert!(early_stop.is_none() && schedule.is_none(), "{name}");
        n_compared += 1;
    }
    assert_eq!(n_compared, 42);
}

/// Weights of a model: those of graph layers, linear residuals and batch norms.
fn n_weights(model: &ModelConfig, dim: usize, n_classes: usize) -> usize {
    let is_gat = model.kind == ModelKind::Gat;
    let has_residual = model.residual() == Residual::Linear;
    let wide = |heads: usize| if is_gat { heads * model.hidden } else { model.hidden };
    let mut n_weights = 0;
    for layer in 0..model.n_layers {
        let is_last = layer + 1 == model.n_layers;
        let n_in = if layer == 0 { dim } else { wide(model.heads) };
        let n_out = if is_last { n_classes } else { wide(model.heads) };
        let heads = if is_last { model.out_heads } else { model.heads };
        n_weights += match model.kind {
            // Two vectors of attention; averaged heads have weights each.
            ModelKind::Gat if is_last => (n_in + 2) * n_out * heads,
            ModelKind::Gat => (n_in + 2) * n_out,
            ModelKind::Sage => 2 * n_in * n_out,
            _ => n_in * n_out,
        };
        n_weights += if model.has_bias() { n_out } else { 0 };
        n_weights += if has_residual { (n_in + 1) * n_out } else { 0 };
        n_weights += if model.norm() == Norm::Batch && !is_last { 2 * n_out } else { 0 };
    }
    n_weights
}

/// A model with another number of weights is another model: these are the counts of the example code.
#[test]
fn leaderboard_presets_are_the_published_models() {
    use Activation::{Elu, Relu};
    // DGL counts 1,441,580 with 40 labels as features, one attention vector per layer, and no bias but the last.
    let arxiv_gat = 1_441_580 - 2 * 40 * 750 + 2 * 1540 - 40;
    // Learning rate and epochs; fanouts and batch size of mini-batches; dropout, input dropout, activation and norm.
    let facts = [
        ("ogbn-arxiv/gcn", Some(([128, 40], 110_120)), (0.01, 500), None, (0.5, 0.0, Relu, Norm::Batch)),
        ("ogbn-arxiv/sage", Some(([128, 40], 218_664)), (0.01, 500), None, (0.5, 0.0, Relu, Norm::Batch)),
        ("ogbn-arxiv/gat", Some(([128, 40], arxiv_gat)), (0.002, 2000), None, (0.75, 0.1, Relu, Norm::Batch)),
        ("ogbn-products/gcn", Some(([100, 47], 103_727)), (0.01, 300), None, (0.5, 0.0, Relu, Norm::None)),
        (
            "ogbn-products/sage",
            Some(([100, 47], 206_895)),
            (0.003, 20),
            Some(([15, 10, 5], 1024)),
            (0.5, 0.0, Relu, Norm::None),
        ),
        (
            "ogbn-products/gat",
            Some(([100, 47], 751_574)),
            (0.001, 100),
            Some(([10, 10, 10], 512)),
            (0.5, 0.0, Elu, Norm::None),
        ),
        ("ogbn-papers100M/sage", None, (0.003, 10), Some(([10, 10, 10], 1024)), (0.5, 0.0, Relu, Norm::None)),
        ("ogbn-papers100M/gat", None, (0.003, 10), Some(([10, 10, 10], 1024)), (0.5, 0.0, Relu, Norm::None)),
    ];
    assert_eq!(PRESETS.iter().filter(|preset| preset.is_of_leaderboard()).count(), facts.len());
    for (name, weights, (rate, epochs), batches, layers) in facts {
        let RunConfig { model, optimizer, train, early_stop, edge_loss, .. } = config(&format!("leaderboard/{name}"));
        if let Some(([dim, n_classes], expected)) = weights {
            assert_eq!(n_weights(&model, dim, n_classes), expected, "{name}");
        }
        assert_eq!((optimizer.learning_rate, train.epochs), (rate, epochs), "{name}");
        assert_eq!(train.mode == Mode::MiniBatch, batches.is_some(), "{name}");
        if let Some((fanouts, batch_size)) = batches {
            assert_eq!(train.fanouts, fanouts.map(|fanout| Fanout::at_most(fanout).unwrap()), "{name}");
            assert_eq!(train.batch_size, Some(batch_size), "{name}");
        }
        assert_eq!((model.dropout, model.input_dropout(), model.activation(), model.norm()), layers, "{name}");
        assert_eq!((optimizer.name, optimizer.weight_decay), (OptimizerName::Adam, 0.0), "{name}");
        assert!(early_stop.is_none() && edge_loss.is_none(), "{name}");
        // PyG's SAGEConv has no self-loops: a second matrix is for the node itself.
        let is_sage = model.kind == ModelKind::Sage;
        assert_eq!((model.has_self_loops(), model.has_root_weight()), (!is_sage, is_sage), "{name}");
    }
}

/// Checksum of what all tuned presets mean: one that changes changes results.
#[test]
fn tuned_presets_keep_their_meaning() {
    let tuned = PRESETS.iter().filter(|preset| preset.is_tuned());
    let text: String = tuned.map(|preset| format!("{}\n{}", preset.name, config(preset.name).to_toml())).collect();
    assert_eq!(crc32fast::hash(text.as_bytes()), 0xf3f5_83ea, "{text}");
}
