use kith_block::Subset;
use kith_sampler::Fanout;

use super::*;
use crate::config::{
    BY_SEED, CgatConfig, ClassWeights, EarlyStopConfig, Exclude, LinksConfig, ModelConfig, OptimizerConfig, TrainConfig,
};

const FILE: &str = "
[model]
kind = \"supergat\"
attention = \"mx\"
dropout = 0.4

[optimizer]
learning_rate = 0.005
weight_decay = 1e-6

[train]
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
        attention: Form::Mx,
        n_layers: 2,
        heads: 8,
        hidden: 16,
        out_heads: 8,
        dropout: 0.4,
        ..ModelConfig::default()
    };
    assert_eq!(config.model, model);
    let optimizer = OptimizerConfig { weight_decay: 1e-6, ..OptimizerConfig::default() };
    assert_eq!(config.optimizer, optimizer);
    let train = TrainConfig { epochs: 490, ..TrainConfig::default() };
    assert_eq!(config.train, train);
    let edge_loss = EdgeLossConfig {
        weight: 4.0,
        neg_sample_ratio: 0.5,
        edge_sampling_ratio: 0.8,
        exclude: Exclude::Symmetric,
        subset: Subset::Union,
    };
    assert_eq!(config.edge_loss, Some(edge_loss));
    assert_eq!(config.early_stop.unwrap().window, Some(484));
}

#[test]
fn any_key_can_be_set() {
    let config = with(&[
        "optimizer.learning_rate=0.01",
        "edge_loss.weight = 7",
        "model.attention=sd",
        "train.split=\"my split\"",
        "train.supervision=full",
        "early_stop=off",
        "edge_loss.subset=each",
    ])
    .unwrap();
    assert_eq!(config.optimizer.learning_rate, 0.01);
    assert_eq!(config.edge_loss.as_ref().unwrap().weight, 7.0);
    assert_eq!(config.edge_loss.as_ref().unwrap().subset, Subset::Each);
    assert_eq!(config.model.attention, Form::Sd);
    assert_eq!(config.train.split.as_deref(), Some("my split"));
    assert_eq!(config.early_stop, None);
    assert_eq!(config.name(), "supergat-sd-full");
    for key in keys() {
        let value = match &key.takes {
            Takes::OneOf(names) => names[0].clone(),
            Takes::Flag => "false".to_owned(),
            Takes::Text => "text".to_owned(),
            Takes::Number(..) => "0.5".to_owned(),
            Takes::Count(low, _) => (low + 1).to_string(),
            Takes::Fanouts => "[\"all\", 5]".to_owned(),
            Takes::Weights(names) => names[0].clone(),
        };
        file().set(&format!("{}={value}", key.name)).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_model_without_attention_has_a_width() {
    let config =
        with(&["model=off", "model.kind=sage", "edge_loss=off", "early_stop=off", "model.n_layers=3"]).unwrap();
    assert_eq!((config.model.hidden, config.name().as_str()), (128, "sage-3-layers"));
    assert_eq!(config.edge_loss, None);
}

#[test]
fn mini_batches_have_fanouts_and_counts() {
    let train = |assignments: &[&str]| with(assignments).unwrap().train;
    let ten = Fanout::at_most(10).unwrap();
    assert_eq!(train(&[]).mode, Mode::FullBatch);
    let mini_batch = train(&["train.mode=mini-batch"]);
    assert_eq!((mini_batch.mode, mini_batch.fanouts, mini_batch.slices), (Mode::MiniBatch, vec![ten, ten], 1));
    assert_eq!((mini_batch.batch_size, mini_batch.edge_seeds), (None, None));
    assert_eq!(train(&["train.mode=mini-batch", "train.fanouts=all"]).fanouts, [Fanout::All]);
    assert_eq!(
        train(&["train.mode=mini-batch", "model.n_layers=1"]).fanouts,
        [ten],
        "the default is cut to the layers"
    );
    let wrong = |assignments: &[&str]| with(assignments).unwrap_err().to_string();
    let of_layers = wrong(&["train.mode=mini-batch", "train.fanouts=[5, 5, 5]"]);
    assert!(of_layers.contains("3 fanouts for 2 layers"), "{of_layers}");
    assert!(wrong(&["train.fanouts=[5]"]).contains("`train.fanouts` is for mini-batches"));
    for fanouts in ["0", "[10, 0]", "[]", "some", "-1"] {
        let sentence = file().set(&format!("train.fanouts={fanouts}")).unwrap_err().to_string();
        assert!(sentence.contains("`train.fanouts` must be \"all\", or a list"), "{sentence}");
    }

    let counts = |n_nodes, n_seeds, has_edge_loss| {
        let mut train = TrainConfig::default();
        train.settle((n_nodes, n_seeds), has_edge_loss, 1);
        (train.batch_size.unwrap(), train.edge_seeds.unwrap())
    };
    assert_eq!(counts(20_000, 1999, true), (1024, 1024));
    assert_eq!(counts(20_000, 2000, true), (1024, 0), "a tenth of the nodes is enough");
    assert_eq!(counts(20_000, 60, false), (60, 0), "only the edge loss uses them");
    assert_eq!(counts(500, 10, true), (10, 500));
    let of_ranks = |n_ranks| {
        let mut train = TrainConfig { batch_size_per_rank: Some(40), ..TrainConfig::default() };
        train.settle((1000, 200), false, n_ranks);
        (train.batch_size, train.batch_size_per_rank)
    };
    assert_eq!([of_ranks(1), of_ranks(4), of_ranks(64)], [(Some(40), None), (Some(160), None), (Some(200), None)]);
    let both = wrong(&["train.mode=mini-batch", "train.batch_size=7", "train.batch_size_per_rank=7"]);
    assert!(both.contains("remove one of them"), "{both}");
}

#[test]
fn the_mode_follows_the_graph_unless_it_is_set() {
    let small = GraphSize { n_nodes: 100, n_edges: 400, dim: 8, n_classes: 3, is_partitioned: false };
    let large = GraphSize { n_nodes: 10_000_000, ..small };
    let choose = |assignments: &[&str], graph| {
        let mut file = file();
        assignments.iter().for_each(|assignment| file.set(assignment).unwrap());
        let note = file.choose_mode(graph).unwrap();
        (file.resolve().unwrap().train.mode, note.unwrap_or_default())
    };
    assert_eq!(choose(&[], small).0, Mode::FullBatch);
    let (mode, note) = choose(&[], large);
    assert_eq!(mode, Mode::MiniBatch);
    assert!(note.starts_with("mini-batch training, because full-batch activations would take"), "{note}");
    assert_eq!(choose(&["train.mode=full-batch"], large), (Mode::FullBatch, String::new()));
    let mut kept = file();
    kept.set_mode_if_open(Mode::FullBatch);
    assert_eq!(kept.choose_mode(large).unwrap(), None, "a kept file of 0.1.0 stays full-batch");
    assert_eq!(kept.resolve().unwrap().train.mode, Mode::FullBatch);
    let by_key = (Mode::MiniBatch, "mini-batch training, because `train.batch_size` is set".to_owned());
    assert_eq!(choose(&["train.batch_size=7"], small), by_key);
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
        &[
            "train.split=a \"quoted\" split",
            "train.supervision=full",
            "early_stop=off",
            "optimizer.weight_decay=1e-300",
        ],
        &["model=off", "model.kind=gcn", "edge_loss=off"],
        &["model.kind=gat", "edge_loss=off", "optimizer.weight_decay=0"],
        &CGAT,
        &[&CGAT[..], &["cgat.boundary_weight=2", "cgat.boundary_margin=0", "cgat.top_k=4"]].concat(),
        &[&CGAT[..], &["cgat.negatives=9", "train.kernels=reference", "train.supervision=full-and-valid"]].concat(),
        &["train.mode=mini-batch"],
        &["train.mode=mini-batch", "train.fanouts=all", "train.edge_seeds=0", "train.slices=3"],
        &["train.mode=mini-batch", "train.fanouts=[\"all\", 5]", "train.batch_size=7"],
    ] {
        let config = with(assignments).unwrap();
        let again = RunFile::parse(&config.to_toml(), "again").unwrap().resolve().unwrap();
        assert_eq!(again, config, "{}", config.to_toml());
    }
}

const CGAT: [&str; 5] =
    ["model.kind=cgat", "model.attention=go", "edge_loss=off", "cgat.graph_weight=1", "cgat.graph_margin=0.1"];

#[test]
fn a_cgat_is_computed_by_tensor_operations() {
    let config = with(&CGAT).unwrap();
    assert_eq!((config.train.kernels, config.name().as_str()), (Kernels::Reference, "cgat"));
    assert_eq!(config.cgat, Some(CgatConfig::default()));
    assert_eq!(config.cgat.unwrap().boundary(), None);
    let full = with(&[&CGAT[..], &["cgat.boundary_weight=2", "cgat.boundary_margin=0.5"]].concat()).unwrap();
    assert_eq!(full.cgat.unwrap().boundary(), Some((2.0, 0.5)));
    for (more, sentence) in [
        (&["train.kernels=fused"][..], "`train.kernels`: a cgat has no fused kernels: use reference"),
        (&["train.mode=mini-batch"], "`train.mode`: a cgat supports full-batch only"),
        (&["model.attention=mx"], "`model.attention`: a cgat has go only"),
        (&["cgat=off"], "`cgat` is off: a cgat needs it"),
        (&["model.kind=gat"], "`cgat` is for a cgat: a gat has no such loss"),
        (&["edge_loss.weight=1"], "`edge_loss` is for a supergat: a cgat has no such loss"),
        (&["cgat.boundary_margin=1"], "`cgat.boundary_margin` needs a `cgat.boundary_weight` above 0 (default: 0)"),
    ] {
        assert_eq!(with(&[&CGAT[..], more].concat()).unwrap_err().to_string(), format!("my.toml: {sentence}"));
    }
}

#[test]
fn every_mistake_is_a_sentence_that_names_the_key() {
    for (assignments, sentence) in [
        (
            &["optimizer.learning_rat=1"][..],
            "--set optimizer.learning_rat=1: a run file has no `optimizer.learning_rat`: did you mean \
             `optimizer.learning_rate`?",
        ),
        (
            &["lambda=1"],
            "--set lambda=1: a run file has no `lambda`: its sections are model, optimizer, schedule, train, edge_loss, cgat, links, evaluate and \
             early_stop",
        ),
        (
            &["learning_rate=1"],
            "--set learning_rate=1: a run file has no `learning_rate`: did you mean `optimizer.learning_rate`?",
        ),
        (&["lr=1"], "--set lr=1: a run file has no `lr`: did you mean `optimizer.learning_rate`?"),
        (&["optimizer.lr=fast"], "--set optimizer.lr=fast: `optimizer.lr` must be a number above 0, not \"fast\""),
        (
            &["optimizer.learning_rate=0"],
            "--set optimizer.learning_rate=0: `optimizer.learning_rate` must be a number above 0, not 0",
        ),
        (
            &["optimizer.learning_rate=nan"],
            "--set optimizer.learning_rate=nan: `optimizer.learning_rate` must be a number above 0, not nan",
        ),
        (&["optimizer.momentum=0.9"], "my.toml: `optimizer.momentum` is for sgd: adam has no such setting"),
        (
            &["optimizer.name=sgd", "optimizer.nesterov=true"],
            "my.toml: `optimizer.nesterov` needs an `optimizer.momentum` above 0",
        ),
        (
            &["optimizer.clip_norm=0"],
            "--set optimizer.clip_norm=0: `optimizer.clip_norm` must be a number above 0, not 0",
        ),
        (&["optimizer.ema=1"], "--set optimizer.ema=1: `optimizer.ema` must be a number above 0 below 1, not 1"),
        (
            &["schedule.name=cosine", "schedule.every=3"],
            "my.toml: `schedule.every` is for step: cosine has no such setting",
        ),
        (
            &["schedule.name=linear", "schedule.factor=0.1"],
            "my.toml: `schedule.factor` is for step, plateau: linear has no such setting",
        ),
        (&["schedule.name=step"], "my.toml: `schedule.every` is missing: the epochs between reductions"),
        (
            &["schedule.warmup=100", "train.epochs=100"],
            "my.toml: `schedule.warmup` must be less than the 100 epochs, not 100",
        ),
        (
            &["train.class_weights=even"],
            "--set train.class_weights=even: `train.class_weights` must be equal, balanced, or a list of numbers from 0, as in [1.0, 2.5], not \"even\"",
        ),
        (&["model.dropout=1.0"], "--set model.dropout=1.0: `model.dropout` must be a number from 0 below 1, not 1.0"),
        (
            &["edge_loss.edge_sampling_ratio=1.5"],
            "--set edge_loss.edge_sampling_ratio=1.5: `edge_loss.edge_sampling_ratio` must be a number above 0 to 1, not 1.5",
        ),
        (
            &["train.epochs=-1"],
            "--set train.epochs=-1: `train.epochs` must be a whole number from 1 to 1000000000, not -1",
        ),
        (
            &["model.attention=mix"],
            "--set model.attention=mix: `model.attention` must be go, dp, sd, mx or v2, not \"mix\"",
        ),
        (&["train"], "--set train: expected KEY=VALUE, for example optimizer.learning_rate=0.01"),
        (
            &["edge_loss=off"],
            "my.toml: `edge_loss` is off: set edge_loss.weight = 0 to train a supergat without it, or train a gat",
        ),
        (&["model.kind=gat"], "my.toml: `edge_loss` is for a supergat: a gat has no such loss"),
        (
            &["model.kind=gcn", "edge_loss=off"],
            "my.toml: `model.attention` is for models with attention: a gcn has none",
        ),
        (
            &["early_stop=off", "early_stop.window=3"],
            "my.toml: `early_stop.burn_in` is missing: the paper's rule needs all four keys",
        ),
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
        ("[model]\nkind = 3", "my.toml: `model.kind` must be supergat, gat, gcn, sage, gin, mlp or cgat, not 3"),
        ("[train]\nrate = 0.1", "my.toml: a run file has no `train.rate`"),
        (
            "[optimizer]\nlr = 0.1\nlearning_rate = 0.1",
            "my.toml: `optimizer.lr` and `optimizer.learning_rate` are the same key: keep one of them",
        ),
        ("[early_stop]\n", "my.toml: `early_stop.patience` is missing"),
    ] {
        let error = RunFile::parse(text, "my.toml").and_then(|file| file.resolve()).unwrap_err().to_string();
        assert!(error.starts_with(sentence), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let error = RunFile::read(Path::new("nowhere.toml")).unwrap_err().to_string();
    assert!(error.starts_with("nowhere.toml: No such file"), "{error}");
}

#[test]
fn an_empty_file_is_a_run() {
    let config = RunFile::parse("", "my.toml").unwrap().resolve().unwrap();
    assert_eq!(config, RunConfig { edge_loss: Some(EdgeLossConfig::default()), ..RunConfig::default() });
    for (name, kind) in ModelKind::ALL {
        let file = RunFile::parse(&format!("[model]\nkind = \"{name}\"\n"), "my.toml").unwrap();
        assert_eq!(file.resolve().unwrap().model.kind, *kind);
    }
}

#[test]
fn a_model_is_a_run_with_defaults() {
    let name = |typed| RunFile::of_model(typed).map(|file| file.resolve().unwrap().name());
    for (typed, found) in [
        ("gat", Some("gat")),
        ("gat-dp", Some("gat-dp")),
        ("GATv2", Some("gat-v2")),
        ("GraphSAGE", Some("sage")),
        ("supergat", Some("supergat-mx")),
        ("supergat-sd", Some("supergat-sd")),
        ("gcn", Some("gcn")),
        ("gcn-mx", None),
        ("cgat-mx", None),
        ("gta", None),
    ] {
        assert_eq!(name(typed).as_deref(), found, "{typed}");
    }
}

#[test]
fn patience_needs_no_other_key() {
    let config = with(&["early_stop=off", "early_stop.patience=20"]).unwrap();
    assert_eq!(config.early_stop, Some(EarlyStopConfig { patience: Some(20), ..EarlyStopConfig::default() }));
    assert_eq!(config.early_stop.unwrap().rule(), None);
}

/// Every key and value of 0.1.0 is understood, and a note says what it is called now.
#[test]
fn files_of_0_1_0_are_understood() {
    let text = include_str!("tests/run-0.1.0.toml");
    let file = RunFile::parse(text, "my.toml").unwrap();
    let config = file.resolve().unwrap();
    assert_eq!(config.model.attention, Form::Sd);
    assert_eq!((config.model.hidden, config.train.batch_size), (7, Some(9)));
    assert_eq!((config.optimizer.learning_rate, config.optimizer.weight_decay), (0.25, 0.5));
    assert_eq!((config.train.mode, config.train.split.as_deref()), (Mode::MiniBatch, Some(BY_SEED)));
    let edge_loss = config.edge_loss.unwrap();
    assert_eq!((edge_loss.neg_sample_ratio, edge_loss.edge_sampling_ratio), (3.0, 0.75));
    assert_eq!(file.notes().len(), RENAMED.len() + 2, "{:?}", file.notes());
    for (before, now) in RENAMED {
        assert!(file.notes().contains(&format!("`{before}` is now called `{now}`")), "{:?}", file.notes());
    }
    assert!(file.notes().contains(&"`train.mode = \"batches\"` is now written \"mini-batch\"".to_owned()));
    for key in include_str!("tests/keys-0.1.0.txt").lines() {
        let (now, _) = renamed::key(key);
        assert!(keys::find(now).is_some(), "{key}");
    }
}

#[test]
fn every_default_is_a_value_its_key_takes() {
    for key in keys() {
        let Some(default) = &key.default else { continue };
        let value = format!("value = {default}")
            .parse::<Table>()
            .map_or(Value::String(default.clone()), |mut table| table.remove("value").unwrap());
        assert!(key.takes.accepts(&value), "{}", key.name);
    }
}

/// The names come from an example, the values from the schema: neither has a key that the other lacks.
#[test]
fn the_schema_has_the_keys_of_the_structs() {
    let schema = schema();
    let mut of_schema = Vec::new();
    for (section, values) in schema["properties"].as_object().unwrap() {
        let names = keys::properties(values).as_object().unwrap().keys();
        of_schema.extend(names.map(|name| format!("{section}.{name}")));
    }
    let mut of_structs = keys::names();
    of_structs.sort();
    of_schema.sort();
    assert_eq!(of_structs, of_schema);
    assert!(keys().iter().all(|key| !key.about.is_empty()));
    assert_eq!(
        sections(),
        ["model", "optimizer", "schedule", "train", "edge_loss", "cgat", "links", "evaluate", "early_stop"]
    );
}

#[test]
fn comments_explain_every_key() {
    let text = with(&["train.mode=mini-batch"]).unwrap().to_commented_toml();
    assert!(text.contains("# number of graph layers [a whole number from 1 to 64]\nn_layers = 2\n"), "{text}");
    assert!(text.contains("# The optimizer.\n[optimizer]\n"), "{text}");
    assert_eq!(RunFile::parse(&text, "again").unwrap().resolve(), with(&["train.mode=mini-batch"]));
}

/// The table of models in the guide, made from the kinds.
#[test]
fn the_guide_lists_every_model() {
    let mut table = "| `model.kind` | model |\n|---|---|\n".to_owned();
    for (name, kind) in ModelKind::ALL {
        assert!(!kind.about().is_empty(), "{name}");
        table += &format!("| `{name}` | {} |\n", kind.about());
    }
    let guide = include_str!("../../../../docs/reference/run-file.md");
    assert!(guide.contains(&format!("\n\n{table}\n")), "docs/reference/run-file.md should hold this table:\n{table}");
}

/// The table of keys in the guide, made from the keys.
#[test]
fn the_guide_lists_every_key() {
    let mut table = "| key | values | default | meaning |\n|---|---|---|---|\n".to_owned();
    for Key { name, takes, default, about } in keys() {
        let default = default.as_ref().map_or(String::new(), |default| format!("`{default}`"));
        table += &format!("| `{name}` | {takes} | {default} | {about} |\n");
    }
    let guide = include_str!("../../../../docs/reference/run-file.md");
    assert!(guide.contains(&format!("\n\n{table}\n")), "docs/reference/run-file.md should hold this table:\n{table}");
}

#[test]
fn options_of_layers_must_fit_together() {
    let error = |assignments: &[&str]| with(assignments).unwrap_err().problem;
    assert_eq!(
        error(&["model.root_weight=true"]),
        "`model.root_weight` is for a sage, not a supergat: remove it, or set model.kind = \"sage\""
    );
    assert_eq!(
        error(&["model.output_linear=true", "model.out_heads=8"]),
        "`model.out_heads` has no effect with model.output_linear = true: remove it; all graph layers have `model.heads` heads"
    );
    assert_eq!(
        error(&["model.jumping=max"]),
        "`model.jumping` needs a linear layer after the last graph layer: set model.output_linear = true"
    );
    let gin = ["model=off", "model.kind=gin", "edge_loss=off"];
    assert_eq!(
        error(&[&gin[..], &["model.self_loops=false"]].concat()),
        "`model.self_loops` = false is not for a gin, which always adds the node itself to the sum: remove the key"
    );
    let gcn = ["model=off", "model.kind=gcn", "edge_loss=off", "train.mode=mini-batch", "model.self_loops=false"];
    assert!(error(&gcn).contains("of a gcn needs full-batch training"));
    assert!(error(&["model.self_loops=false"]).contains("is not for a supergat, whose edge loss"));
    assert!(with(&["model.kind=gat", "edge_loss=off", "model.self_loops=false", "model.edge_dropout=0.2"]).is_ok());
    assert_eq!(
        error(&["model=off", "model.kind=mlp", "edge_loss=off", "model.edge_dropout=0.1"]),
        "`model.edge_dropout` is not for a mlp: remove the key"
    );
    assert!(error(&["model.residual=identity"]).starts_with("`model.residual` = \"identity\" has no effect"));
    assert!(with(&["model.residual=identity", "model.n_layers=3"]).is_ok());
    for key in ["model.norm=batch", "model.activation=relu"] {
        let (name, _) = key.split_once('=').unwrap();
        assert_eq!(
            error(&["model.n_layers=1", key]),
            format!(
                "`{name}` needs a hidden layer, found none: set model.n_layers to 2 or more, or model.output_linear = true"
            )
        );
        assert!(with(&["model.n_layers=1", "model.output_linear=true", key]).is_ok());
    }
    assert!(
        error(&["model=off", "model.kind=gcn", "edge_loss=off", "model.attention_dropout=0.1"])
            .contains("a gcn has none")
    );
}

#[test]
fn link_prediction_is_a_task_of_its_own() {
    let links = |assignments: &[&str]| {
        let mut file = RunFile::of_model("gcn").unwrap();
        file.predict_links();
        assignments.iter().for_each(|assignment| file.set(assignment).unwrap());
        file.set_mode_by_keys();
        file.resolve()
    };
    let config = links(&["train.metric=hits@50"]).unwrap();
    assert_eq!((config.links.clone(), config.name()), (Some(LinksConfig::default()), "gcn-links".to_owned()));
    assert_eq!(RunFile::parse(&config.to_toml(), "again").unwrap().resolve().unwrap(), config);
    let mut off = RunFile::parse(&config.to_toml(), "again").unwrap();
    off.set("links=off").unwrap();
    assert!(
        !off.predicts_links() && off.resolve().unwrap_err().problem.ends_with("for link prediction: add --task links")
    );
    for (assignments, sentence) in [
        (
            &["links.exclude_targets=true", "train.mode=full-batch"][..],
            "`links.exclude_targets` is for mini-batches: set train.mode = \"mini-batch\"",
        ),
        (
            &["links.ranking=exact", "train.metric=average-precision"],
            "`links.ranking`: exact ranks have no average precision: use roc-auc, mrr, hits@10, hits@50 or hits@100",
        ),
        (
            &["links.pairs_digest=00"],
            "`links.pairs_digest` is that of a file of pairs: set links.pairs, or remove the key",
        ),
        (&["train.split=public"], "`train.split` is for labels of nodes, and this run predicts links: remove it"),
        (
            &["links.valid=0.5", "links.test=0.5"],
            "`links.valid` and `links.test` must leave edges to train on: together they are 1",
        ),
        (
            &["train.metric=accuracy"],
            "`train.metric`: accuracy is for nodes: use roc-auc, average-precision, mrr, hits@10, hits@50 or hits@100",
        ),
    ] {
        assert_eq!(links(assignments).unwrap_err().problem, sentence);
    }
    // Outputs of 64 numbers, however many classes the labels have.
    let graph = GraphSize { n_nodes: 1 << 16, n_edges: 1 << 17, dim: 8, n_classes: 1 << 16, is_partitioned: false };
    for (is_partitioned, mode) in [(false, "full-batch"), (true, "mini-batch")] {
        let mut open = RunFile::of_model("gat").unwrap();
        open.predict_links();
        let note = open.choose_mode(GraphSize { is_partitioned, ..graph }).unwrap().unwrap();
        assert!(note.starts_with(mode), "{note}");
    }
}

#[test]
fn class_weights_are_named_or_listed() {
    for (written, expected) in [
        ("balanced", ClassWeights::Balanced),
        ("equal", ClassWeights::Equal),
        ("[1, 2.5]", ClassWeights::Given(vec![1.0, 2.5])),
    ] {
        let config = with(&[&format!("train.class_weights={written}")]).unwrap();
        assert_eq!(config.train.class_weights, Some(expected));
        assert_eq!(RunFile::parse(&config.to_toml(), "again").unwrap().resolve().unwrap(), config);
    }
    for written in ["even", "[]", "[1, -2]", "3"] {
        let error = with(&[&format!("train.class_weights={written}")]).unwrap_err().problem;
        assert!(error.contains("must be equal, balanced, or a list of numbers from 0"), "{error}");
    }
}

#[test]
fn labels_are_input_where_they_cannot_reach_their_own_loss() {
    let config = with(&["train.label_input=0.5", "train.label_reuse=2"]).unwrap();
    assert_eq!((config.train.label_input, config.train.label_reuse), (Some(0.5), Some(2)));
    assert_eq!(RunFile::parse(&config.to_toml(), "again").unwrap().resolve().unwrap(), config);
    assert!(with(&["train.label_input=1", "train.mode=mini-batch"]).is_ok());
    let problem = |assignments: &[&str]| with(assignments).unwrap_err().problem;
    for (assignments, sentence) in [
        (&["train.label_reuse=1"][..], "`train.label_reuse` needs labels as input"),
        (&["train.label_input=0"], "`train.label_input` must be a number above 0 to 1, not 0"),
        (&["train.label_input=1.5"], "`train.label_input` must be a number above 0 to 1, not 1.5"),
        (
            &["train.label_input=0.5", "train.loss=mae"],
            "`train.label_input` is for classes, and this run predicts targets",
        ),
        (
            &["train.label_input=0.5", "train.metric=r2"],
            "`train.label_input` is for classes, and this run predicts targets",
        ),
        (
            &["edge_loss=off", "model=off", "model.kind=cgat", "train.label_input=0.5"],
            "`train.label_input` is not for a cgat",
        ),
        (
            &["edge_loss=off", "model=off", "model.kind=mlp", "train.label_input=0.5"],
            "`train.label_input` is not for an mlp",
        ),
        (
            &["train.label_input=0.5", "train.supervision=full-and-valid"],
            "`train.label_input` shows the labels of training nodes, and with train.supervision",
        ),
        (
            &["train.label_input=1", "train.mode=full-batch"],
            "`train.label_input` must be below 1 in full-batch training",
        ),
        (
            &["train.label_input=0.5", "train.label_reuse=1", "train.mode=mini-batch"],
            "`train.label_reuse` needs predictions of all nodes in every step",
        ),
    ] {
        let problem = problem(assignments);
        assert!(problem.contains(sentence), "{assignments:?}: {problem}");
    }
    let mut links = RunFile::of_model("gat").unwrap();
    links.predict_links();
    links.set("train.label_input=0.5").unwrap();
    let problem = links.resolve().unwrap_err().problem;
    assert_eq!(problem, "`train.label_input` is for labels of nodes, and this run predicts links: remove it");

    let choose = |assignments: &[&str], dim| {
        let mut file = RunFile::of_model("gcn").unwrap();
        assignments.iter().for_each(|assignment| file.set(assignment).unwrap());
        let graph = GraphSize { n_nodes: 1_000_000, n_edges: 1, dim, n_classes: 40, is_partitioned: false };
        file.choose_mode(graph).unwrap();
        file.resolve().unwrap().train.mode
    };
    // Label columns count: 8 bytes for each of the 1,000,000 × (60 + 8 + 8 + 40) numbers are below 1 GiB, and above it with 40 more.
    assert_eq!(choose(&["model.hidden=8"], 60), Mode::FullBatch);
    assert_eq!(choose(&["model.hidden=8", "train.label_input=0.5"], 60), Mode::MiniBatch);
    assert_eq!(choose(&["model.hidden=8", "train.label_input=0.5", "train.label_reuse=1"], 60), Mode::FullBatch);
}

/// Models of 0.1.0 are those without any of the options: their layers are computed as they were.
#[test]
fn presets_have_plain_layers() {
    let plain = ModelConfig::default();
    assert!(plain.is_plain() && plain.has_bias());
    for assignment in ["model.norm=layer", "model.residual=linear", "model.activation=relu", "model.input_linear=true"]
    {
        assert!(!with(&[assignment]).unwrap().model.is_plain(), "{assignment}");
    }
    let config = with(&["model.dropout=0.3", "model.input_dropout=0"]).unwrap().model;
    assert!(config.is_plain());
    assert_eq!((config.input_dropout(), config.attention_dropout()), (0.0, 0.3));
}
