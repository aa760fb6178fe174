use kith_block::Subset;
use kith_sampler::Fanout;

use super::*;
use crate::config::{Exclude, Mode, Supervision};

const FILE: &str = "
[model]
kind = \"supergat\"
form = \"mx\"
dropout = 0.5

[train]
learning_rate = 0.005
weight_decay = 1e-6
epochs = 490

[edge_loss]
weight = 4

[early_stop]
burn_in = 485
window = 484
loss_threshold = 0.009317052513589488
metric_threshold = 0.0011587124922279313
";

fn file() -> RunFile {
    RunFile::parse(FILE, "my.toml").unwrap()
}

fn with(assignments: &[&str]) -> Result<RunConfig, RunFileError> {
    let mut file = file();
    for assignment in assignments {
        file.set(assignment)?;
    }
    file.resolve()
}

#[test]
fn what_is_not_said_has_its_default() {
    let config = file().resolve().unwrap();
    let model = ModelConfig {
        kind: ModelKind::Supergat,
        form: Form::Mx,
        n_layers: 2,
        heads: 8,
        features: 8,
        out_heads: 8,
        dropout: 0.5,
    };
    assert_eq!(config.model, model);
    let train = TrainConfig {
        learning_rate: 0.005,
        weight_decay: 1e-6,
        epochs: 490,
        split: None,
        supervision: Supervision::Split,
        kernels: Kernels::Fused,
        checkpoint_every: 50,
        checkpoint_every_steps: None,
        checkpoint_minutes: 10.0,
        checkpoints_kept: 2,
        deterministic: None,
        evaluate_every: 1,
        mode: Mode::Full,
    };
    assert_eq!(config.train, train);
    let edge_loss =
        EdgeLossConfig { weight: 4.0, negatives: 0.5, kept: 0.8, exclude: Exclude::Symmetric, subset: Subset::Union };
    assert_eq!(config.edge_loss, Some(edge_loss));
    assert_eq!(config.early_stop.unwrap().window, 484);
}

#[test]
fn any_key_can_be_set() {
    let config = with(&[
        "train.learning_rate=0.01",
        "edge_loss.weight = 7",
        "model.form=sd",
        "train.split=\"my split\"",
        "train.supervision=full",
        "early_stop=off",
        "edge_loss.subset=each",
    ])
    .unwrap();
    assert_eq!(config.train.learning_rate, 0.01);
    assert_eq!(config.edge_loss.as_ref().unwrap().weight, 7.0);
    assert_eq!(config.edge_loss.as_ref().unwrap().subset, Subset::Each);
    assert_eq!(config.model.form, Form::Sd);
    assert_eq!(config.train.split.as_deref(), Some("my split"));
    assert_eq!(config.early_stop, None);
    assert_eq!(config.name(), "supergat-sd-full");
    for key in KEYS {
        let value = match &key.takes {
            Takes::OneOf(names) => names()[0].to_owned(),
            Takes::Flag => "false".to_owned(),
            Takes::Text => "text".to_owned(),
            Takes::Number(..) => "0.5".to_owned(),
            Takes::Count(low, _) => (low + 1).to_string(),
            Takes::Fanouts => "[\"all\", 5]".to_owned(),
        };
        file().set(&format!("{}={value}", key.name)).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_model_without_attention_has_a_width() {
    let config =
        with(&["model=off", "model.kind=sage", "edge_loss=off", "early_stop=off", "model.n_layers=3"]).unwrap();
    assert_eq!((config.model.features, config.name().as_str()), (64, "sage-3-layers"));
    assert_eq!(config.edge_loss, None);
}

#[test]
fn batches_have_fanouts_and_counts() {
    let mode = |assignments: &[&str]| with(assignments).unwrap().train.mode;
    let ten = Fanout::at_most(10).unwrap();
    let batches = BatchesConfig { fanouts: vec![ten, ten], seeds_per_step: None, edge_seeds: None, slices: 1 };
    assert_eq!(mode(&[]), Mode::Full);
    assert_eq!(mode(&["train.mode=batches"]), Mode::Batches(batches.clone()));
    assert_eq!(
        mode(&["train.mode=batches", "train.fanouts=all"]),
        Mode::Batches(BatchesConfig { fanouts: vec![Fanout::All], ..batches.clone() })
    );
    let wrong = |assignments: &[&str]| with(assignments).unwrap_err().to_string();
    let of_layers = wrong(&["train.mode=batches", "train.fanouts=[5, 5, 5]"]);
    assert!(of_layers.contains("3 fanouts for 2 layers"), "{of_layers}");
    assert!(wrong(&["train.fanouts=[5]"]).contains("`train.fanouts` is for batches"));
    for fanouts in ["0", "[10, 0]", "[]", "some", "-1"] {
        let sentence = file().set(&format!("train.fanouts={fanouts}")).unwrap_err().to_string();
        assert!(sentence.contains("`train.fanouts` must be \"all\", or a list"), "{sentence}");
    }

    let counts = |n_nodes, n_seeds, has_edge_loss| {
        let settled = batches.settled(n_nodes, n_seeds, has_edge_loss);
        (settled.seeds_per_step.unwrap(), settled.edge_seeds.unwrap())
    };
    assert_eq!(counts(20_000, 1999, true), (1024, 1024));
    assert_eq!(counts(20_000, 2000, true), (1024, 0), "one node in ten is enough");
    assert_eq!(counts(20_000, 60, false), (60, 0), "without an edge loss nobody would look at them");
    assert_eq!(counts(500, 10, true), (10, 500));
}

#[test]
fn a_loss_that_weighs_nothing_is_none() {
    let config = with(&["edge_loss.weight=0"]).unwrap();
    assert_eq!(config.edge_loss, None);
    assert_eq!(RunFile::parse(&config.to_toml(), "again").unwrap().resolve().unwrap(), config);
}

#[test]
fn a_resolved_file_means_the_same() {
    for assignments in [
        &[][..],
        &["train.split=a \"quoted\" split", "train.supervision=full", "early_stop=off", "train.weight_decay=1e-300"],
        &["model=off", "model.kind=gcn", "edge_loss=off"],
        &["model.kind=gat", "edge_loss=off", "train.weight_decay=0"],
        &CGAT,
        &[&CGAT[..], &["cgat.boundary_weight=2", "cgat.boundary_margin=0", "cgat.top_k=4"]].concat(),
        &[&CGAT[..], &["cgat.negatives=9", "train.kernels=reference", "train.supervision=full-and-valid"]].concat(),
        &["train.mode=batches"],
        &["train.mode=batches", "train.fanouts=all", "train.edge_seeds=0", "train.slices=3"],
        &["train.mode=batches", "train.fanouts=[\"all\", 5]", "train.seeds_per_step=7"],
    ] {
        let config = with(assignments).unwrap();
        let again = RunFile::parse(&config.to_toml(), "again").unwrap().resolve().unwrap();
        assert_eq!(again, config, "{}", config.to_toml());
    }
}

const CGAT: [&str; 5] =
    ["model.kind=cgat", "model.form=go", "edge_loss=off", "cgat.graph_weight=1", "cgat.graph_margin=0.1"];

#[test]
fn a_cgat_is_computed_by_tensor_operations() {
    let config = with(&CGAT).unwrap();
    assert_eq!((config.train.kernels, config.name().as_str()), (Kernels::Reference, "cgat"));
    let expected = CgatConfig { graph_weight: 1.0, graph_margin: 0.1, boundary: None, top_k: None, negatives: 5 };
    assert_eq!(config.cgat, Some(expected));
    let full = with(&[&CGAT[..], &["cgat.boundary_weight=2", "cgat.boundary_margin=0.5"]].concat()).unwrap();
    assert_eq!(full.cgat.unwrap().boundary, Some(BoundaryConfig { weight: 2.0, margin: 0.5 }));
    for (more, sentence) in [
        (&["train.kernels=fused"][..], "`train.kernels`: a cgat has no fused kernels: say reference, or nothing"),
        (&["train.mode=batches"], "`train.mode`: a cgat trains on whole graphs: say full"),
        (&["model.form=mx"], "`model.form`: a cgat scores by go alone"),
        (&["cgat=off"], "`cgat` is missing: a cgat learns from edges (a gat does not)"),
        (&["model.kind=gat"], "`cgat` is for a cgat: a gat learns without it"),
        (&["edge_loss.weight=1"], "`edge_loss` is for a supergat: a cgat learns without it"),
        (&["cgat.boundary_weight=1"], "`cgat.boundary_margin` is missing"),
        (&["cgat.boundary_margin=1"], "`cgat.boundary_margin` is for a boundary loss: say cgat.boundary_weight too"),
        (&["cgat=off", "cgat.graph_weight=1"], "`cgat.graph_margin` is missing"),
    ] {
        assert_eq!(with(&[&CGAT[..], more].concat()).unwrap_err().to_string(), format!("my.toml: {sentence}"));
    }
}

#[test]
fn every_mistake_is_a_sentence_that_names_the_key() {
    for (assignments, sentence) in [
        (
            &["train.learning_rat=1"][..],
            "--set train.learning_rat=1: a run file has no `train.learning_rat`: did you mean `train.learning_rate`?",
        ),
        (
            &["lambda=1"],
            "--set lambda=1: a run file has no `lambda`: its sections are model, train, edge_loss, cgat and \
             early_stop",
        ),
        (
            &["learning_rate=1"],
            "--set learning_rate=1: a run file has no `learning_rate`: did you mean `train.learning_rate`?",
        ),
        (
            &["train.learning_rate=fast"],
            "--set train.learning_rate=fast: `train.learning_rate` must be a number above 0, not \"fast\"",
        ),
        (
            &["train.learning_rate=0"],
            "--set train.learning_rate=0: `train.learning_rate` must be a number above 0, not 0",
        ),
        (
            &["train.learning_rate=nan"],
            "--set train.learning_rate=nan: `train.learning_rate` must be a number above 0, not nan",
        ),
        (&["model.dropout=1.0"], "--set model.dropout=1.0: `model.dropout` must be a number from 0 below 1, not 1.0"),
        (&["edge_loss.kept=1.5"], "--set edge_loss.kept=1.5: `edge_loss.kept` must be a number above 0 to 1, not 1.5"),
        (
            &["train.epochs=-1"],
            "--set train.epochs=-1: `train.epochs` must be a whole number from 1 to 1000000000, not -1",
        ),
        (&["model.form=mix"], "--set model.form=mix: `model.form` must be go, dp, sd or mx, not \"mix\""),
        (&["train"], "--set train: write it as key=value, for example train.learning_rate=0.01"),
        (&["edge_loss=off"], "my.toml: `edge_loss` is missing: a supergat learns from edges (a gat does not)"),
        (&["model.kind=gat"], "my.toml: `edge_loss` is for a supergat: a gat learns without it"),
        (&["model.kind=gcn", "edge_loss=off"], "my.toml: `model.form` is for attention: a gcn has none"),
        (&["train=off"], "my.toml: `train.learning_rate` is missing"),
        (&["early_stop=off", "early_stop.window=3"], "my.toml: `early_stop.burn_in` is missing"),
    ] {
        assert_eq!(with(assignments).unwrap_err().to_string(), sentence);
    }
}

#[test]
fn files_that_are_no_run_files() {
    for (text, sentence) in [
        ("[model\nkind = 1", "my.toml: line 1: "),
        ("[model]\nkind = \"gat\"\nkind = \"gcn\"", "my.toml: line 3: duplicate key"),
        ("[modell]\n", "my.toml: a run file has no `modell`: did you mean `model`?"),
        ("model = 3\n", "my.toml: a run file has no `model`"),
        ("[model]\nkind = 3", "my.toml: `model.kind` must be supergat, gat, gcn, sage, mlp or cgat, not 3"),
        ("[train]\nlr = 0.1", "my.toml: a run file has no `train.lr`"),
    ] {
        let error = RunFile::parse(text, "my.toml").unwrap_err().to_string();
        assert!(error.starts_with(sentence), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let error = RunFile::read(Path::new("nowhere.toml")).unwrap_err().to_string();
    assert!(error.starts_with("nowhere.toml: No such file"), "{error}");
}

#[test]
fn every_default_is_a_value_its_key_takes() {
    for key in KEYS {
        let Some(default) = key.default else { continue };
        let table: Table = format!("value = {default}").parse().unwrap();
        assert!(key.takes.accepts(&table["value"]), "{}", key.name);
    }
}

/// The table of models in the guide, made from the kinds.
#[test]
fn the_guide_lists_every_model() {
    let mut table = "| `model.kind` | model |\n|---|---|\n".to_owned();
    for (name, kind) in ModelKind::ALL {
        assert!(!kind.about().is_empty(), "{name}");
        table += &format!("| `{name}` | {} |\n", kind.about());
    }
    let guide = include_str!("../../../../docs/RUN_FILE.md");
    assert!(guide.contains(&format!("\n\n{table}\n")), "docs/RUN_FILE.md should hold this table:\n{table}");
}

/// The table of keys in the guide, made from the keys.
#[test]
fn the_guide_lists_every_key() {
    let mut table = "| key | values | default | meaning |\n|---|---|---|---|\n".to_owned();
    for Key { name, takes, default, about } in KEYS {
        let default = default.map_or(String::new(), |default| format!("`{}`", default.trim_matches('"')));
        table += &format!("| `{name}` | {takes} | {default} | {about} |\n");
    }
    let guide = include_str!("../../../../docs/RUN_FILE.md");
    assert!(guide.contains(&format!("\n\n{table}\n")), "docs/RUN_FILE.md should hold this table:\n{table}");
}
