//! Golden runs of the emulated GPU: the results of version 0.1.0, bit for bit. `tests/golden.rs` at the top level has
//! those of the CPU and of real GPUs.
#![allow(missing_docs)]

use std::{collections::BTreeMap, fmt::Write as _, fs, ops::ControlFlow, path::Path, sync::Arc};

use kith_run::{config::RunConfig, run_file::RunFile};
use kith_trainer::{
    data::{Data, opened::Opened},
    distributed::world::World,
    inference::layerwise::Room,
    output::keeper::Keeper,
    run::{Run, RunPlan},
    train::train,
};
use tch::Device;

const COMMON: &str = "
[model]
heads = 3
hidden = 4
out_heads = 2
dropout = 0.3
[optimizer]
learning_rate = 0.02
weight_decay = 1e-3

[train]
epochs = 7
evaluate_every = 3
";

const MODELS: [(&str, &[&str]); 9] = [
    ("supergat-go", &["model.kind=supergat", "model.attention=go", "edge_loss.weight=0.5"]),
    ("supergat-dp", &["model.kind=supergat", "model.attention=dp", "edge_loss.weight=0.5", "edge_loss.subset=each"]),
    (
        "supergat-sd",
        &["model.kind=supergat", "model.attention=sd", "edge_loss.weight=0.5", "edge_loss.neg_sample_ratio=2"],
    ),
    ("supergat-mx", &["model.kind=supergat", "model.attention=mx", "edge_loss.weight=0.5", "model.n_layers=3"]),
    ("gat", &["model.kind=gat"]),
    ("gat-dp", &["model.kind=gat", "model.attention=dp"]),
    ("gcn", &["model=off", "model.kind=gcn", "model.hidden=9", "model.dropout=0.3"]),
    ("sage", &["model=off", "model.kind=sage", "model.hidden=9", "model.dropout=0.3", "model.n_layers=3"]),
    ("mlp", &["model=off", "model.kind=mlp", "model.hidden=9", "model.dropout=0.3"]),
];

/// Each way to train: its name, the store, its settings, and the bytes of features that the GPU may hold.
const WAYS: [(&str, &str, &[&str], Option<u64>); 4] = [
    ("full-batch", "graph", &["train.epochs=20"], None),
    ("full-batch-of-a-set", "set", &[], None),
    ("mini-batch", "graph", MINI_BATCH, None),
    ("mini-batch-with-features-on-the-host", "directed", MINI_BATCH, Some(0)),
];

const MINI_BATCH: &[&str] = &[
    "train.mode=mini-batch",
    "train.fanouts=[4, 3]",
    "train.batch_size=26",
    "train.edge_seeds=9",
    "train.slices=3",
    "train.epochs=4",
];

/// Losses of all steps, evaluations and final weights of a run, as hexadecimal bits.
fn bits(config: RunConfig, store: &Path, gpu_rows: Option<u64>) -> String {
    let opened = Opened::open_store(store).unwrap();
    let data = Data::load(&opened, &config, 7).unwrap();
    let plan = RunPlan {
        config,
        run_key: 7,
        data: &data,
        source: opened.source(),
        device: Device::Cpu,
        gpu: Some(kith_cuda_emulator::gpu()),
        gpu_rows,
        out: None,
        init: None,
        resume: false,
        keeper: Keeper::default(),
        room: Room::default(),
        metrics: Arc::default(),
    };
    let mut world = World::alone();
    let mut run = Run::new(plan, &mut world).unwrap();
    let mut text = String::new();
    train(&mut run, |record| {
        write!(text, "{:016x} ", record.loss.to_bits()).unwrap();
        if let Some(found) = record.measured {
            let found = [found.valid_loss, found.valid, found.test].map(f64::to_bits);
            write!(text, "[{:016x} {:016x} {:016x}] ", found[0], found[1], found[2]).unwrap();
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    let weights = Vec::<f32>::try_from(run.model().weights().flat()).unwrap();
    let digest = weights
        .iter()
        .flat_map(|weight| weight.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3_u64));
    write!(text, "weights {digest:016x}").unwrap();
    text
}

#[test]
fn the_emulated_gpu_keeps_its_bits() {
    check(|model| ["supergat-mx", "gat", "gcn"].contains(&model));
}

#[test]
fn slow_the_emulated_gpu_keeps_the_bits_of_all_models() {
    if std::env::var_os("KITH_SLOW").is_some_and(|value| value == "1") {
        check(|_| true);
    }
}

/// Compares the runs of some models. With `KITH_GOLDEN_OUT` the file is written there instead.
fn check(is_meant: impl Fn(&str) -> bool) {
    kith_trainer::engine::device::start();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeMap::new();
    for (model, own) in MODELS.into_iter().filter(|(model, _)| is_meant(model)) {
        for (way, store, settings, gpu_rows) in WAYS {
            let mut file = RunFile::parse(COMMON, "golden").unwrap();
            own.iter().chain(settings).for_each(|setting| file.set(setting).unwrap());
            let store = root.join("../tests/fixtures/0.1.0").join(store);
            found.insert(format!("{model} {way}"), bits(file.resolve().unwrap(), &store, gpu_rows));
        }
    }
    if let Some(dir) = std::env::var_os("KITH_GOLDEN_OUT") {
        let text = serde_json::to_string_pretty(&found).unwrap() + "\n";
        fs::write(Path::new(&dir).join("emulator.json"), text).unwrap();
        return;
    }
    let text = fs::read_to_string(root.join("tests/golden/emulator.json")).unwrap();
    let mut expected: BTreeMap<String, String> = serde_json::from_str(&text).unwrap();
    expected.retain(|name, _| name.split(' ').next().is_some_and(&is_meant));
    assert_eq!(found, expected);
}
