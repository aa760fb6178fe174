//! Golden runs: losses, evaluations and final weights that version 0.1.0 computed, bit for bit, and the files it wrote.
//!
//! `tests/golden/NAME.json` holds the runs of one instruction set and vendor of CPUs, or of one GPU. To write such a file with another
//! program or on another machine, see `golden_files_are_written_on_request`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    kith::{finish_within, is_slow_asked_for, kith, newest_checkpoint, program, root, run_kith},
    servers::Sampler,
    worlds::Ranks,
};

const LIMIT: Duration = Duration::from_secs(110);

/// Settings shared by all runs. Each has about 20 steps.
const COMMON: &str = "
[model]
hidden = 4
dropout = 0.3
[optimizer]
learning_rate = 0.02
weight_decay = 1e-3

[train]
checkpoint_every = 100
";

/// Each model with its own settings.
#[rustfmt::skip]
const MODELS: [(&str, &[&str]); 12] = [
    ("supergat-go", &["model.kind=supergat", HEADS, OUT_HEADS, "model.attention=go", "edge_loss.weight=0.5"]),
    ("supergat-dp", &["model.kind=supergat", HEADS, OUT_HEADS, "model.attention=dp", "edge_loss.weight=0.5", "edge_loss.subset=each"]),
    ("supergat-sd", &["model.kind=supergat", HEADS, OUT_HEADS, "model.attention=sd", "edge_loss.weight=0.5", "edge_loss.neg_sample_ratio=2"]),
    ("supergat-mx", &["model.kind=supergat", HEADS, OUT_HEADS, "model.attention=mx", "edge_loss.weight=0.5"]),
    ("supergat-mx-3-layers", &["model.kind=supergat", HEADS, OUT_HEADS, "model.attention=mx", "edge_loss.weight=0.5", "model.n_layers=3"]),
    ("supergat-mx-reference", &["model.kind=supergat", HEADS, OUT_HEADS, "model.attention=mx", "edge_loss.weight=0.5", REFERENCE]),
    ("gat", &["model.kind=gat", HEADS, OUT_HEADS]),
    ("gat-dp", &["model.kind=gat", HEADS, OUT_HEADS, "model.attention=dp"]),
    ("gcn", &["model.kind=gcn"]),
    ("sage", &["model.kind=sage"]),
    ("mlp", &["model.kind=mlp"]),
    ("cgat", &["model.kind=cgat", HEADS, OUT_HEADS, "cgat.graph_weight=0.3", "cgat.graph_margin=0.1", "cgat.top_k=3", REFERENCE]),
];

const HEADS: &str = "model.heads=3";
const OUT_HEADS: &str = "model.out_heads=2";
const REFERENCE: &str = "train.kernels=reference";

/// Each way to train: name, store, settings.
const WAYS: [(&str, &str, &[&str]); 5] = [
    ("full-batch", "graph", &["train.epochs=20", "train.evaluate_every=5"]),
    ("full-batch-of-a-set", "set", &["train.epochs=7", "train.evaluate_every=3"]),
    ("mini-batch", "graph", MINI_BATCH),
    ("mini-batch-directed", "directed", MINI_BATCH),
    ("mini-batch-of-a-set", "set", MINI_BATCH),
];

/// Five steps per epoch of the graph: 126 seed nodes, 26 at a time.
const MINI_BATCH: &[&str] = &[
    "train.mode=mini-batch",
    "train.fanouts=[4, 3]",
    "train.batch_size=26",
    "train.edge_seeds=9",
    "train.slices=3",
    "train.epochs=4",
    "train.evaluate_every=2",
];

/// Bits of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Bits {
    /// Losses of all steps, as the hexadecimal bits of 64-bit numbers.
    losses: String,
    /// Validation loss, validation score and test score of each evaluation, in the same form.
    evaluations: String,
    /// FNV-1a of all tensors of the last checkpoint (weights, moments, best weights), in the order of their names.
    weights: String,
}

impl Bits {
    fn of(run: &Path) -> Bits {
        let text = fs::read_to_string(run.join("steps.jsonl")).unwrap();
        let steps: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let bits = |value: &Value| format!("{:016x}", value.as_f64().expect("a number").to_bits());
        let losses: Vec<String> = steps.iter().map(|step| bits(&step["loss"])).collect();
        let measured = steps.iter().filter(|step| step.get("valid_loss").is_some());
        let evaluations: Vec<String> =
            measured.flat_map(|found| ["valid_loss", "valid", "test"].map(|key| bits(&found[key]))).collect();
        assert!(!losses.is_empty() && !evaluations.is_empty(), "{text}");
        let weights = format!("{:016x}", digest_of(&newest_checkpoint(run).expect("a checkpoint")));
        Bits { losses: losses.join(" "), evaluations: evaluations.join(" "), weights }
    }
}

impl Bits {
    /// True if all losses, also of evaluations, are within a relative difference of 1e-6.
    fn is_near(&self, other: &Bits) -> bool {
        let numbers = |text: &str| -> Vec<f64> {
            let bits = text.split(' ').map(|bits| u64::from_str_radix(bits, 16).expect("hexadecimal bits"));
            bits.map(f64::from_bits).collect()
        };
        let valid_losses = |text: &str| -> Vec<f64> { numbers(text).into_iter().step_by(3).collect() };
        let are_near = |own: Vec<f64>, others: Vec<f64>| {
            own.len() == others.len()
                && own.iter().zip(others).all(|(own, other)| (own - other).abs() <= 1e-6 * other.abs())
        };
        are_near(numbers(&self.losses), numbers(&other.losses))
            && are_near(valid_losses(&self.evaluations), valid_losses(&other.evaluations))
    }
}

/// FNV-1a of the tensors in a safetensors file.
fn digest_of(checkpoint: &Path) -> u64 {
    let bytes = fs::read(checkpoint).unwrap();
    let (length, rest) = bytes.split_first_chunk::<8>().expect("a length");
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header: BTreeMap<String, Value> = serde_json::from_slice(header).unwrap();
    // Moments had another name in version 0.1.0: tensors stay in the order of those names.
    let earlier = |name: &str| name.replace("moments.", "adam.");
    let header: BTreeMap<String, Value> = header.into_iter().map(|(name, tensor)| (earlier(&name), tensor)).collect();
    let tensors = header.iter().filter(|(name, _)| *name != "__metadata__").flat_map(|(_, tensor)| {
        let place = |at: usize| tensor["data_offsets"][at].as_u64().expect("an offset") as usize;
        &data[place(0)..place(1)]
    });
    tensors.fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The graph of a run.
enum GraphPlace<'a> {
    Store(&'a Path),
    Shards(&'a Path),
    Servers(&'a [Sampler]),
}

impl GraphPlace<'_> {
    fn arguments(&self) -> [String; 2] {
        let text = |path: &Path| path.to_str().expect("a path of letters").to_owned();
        match self {
            GraphPlace::Store(store) => ["--graph".to_owned(), text(store)],
            GraphPlace::Shards(dir) => ["--shards".to_owned(), text(dir)],
            GraphPlace::Servers(servers) => {
                let addresses: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
                ["--samplers".to_owned(), addresses.join(",")]
            }
        }
    }
}

/// Computes golden runs in its own folder, with the same extra arguments and environment for each.
struct Bench {
    temp: tempfile::TempDir,
    arguments: Vec<&'static str>,
    instruction_set: Option<&'static str>,
}

impl Bench {
    fn new() -> Bench {
        Bench { temp: tempfile::tempdir().unwrap(), arguments: Vec::new(), instruction_set: None }
    }

    fn train(&self, settings: &[&str], place: &GraphPlace<'_>, out: &Path) -> Command {
        let run_file = self.temp.path().join("common.toml");
        if !run_file.exists() {
            fs::write(&run_file, COMMON).unwrap();
        }
        let mut command = Command::new(program());
        command.arg("train").arg(&run_file).args(place.arguments()).args(["--seed", "7", "--out"]).arg(out);
        command.args(settings.iter().flat_map(|setting| ["--set", setting])).args(&self.arguments);
        command.env("RAYON_NUM_THREADS", "1");
        if let Some(set) = self.instruction_set {
            command.env("ATEN_CPU_CAPABILITY", set);
        }
        command
    }

    /// The bits of a run on some ranks.
    #[track_caller]
    fn compute(&self, name: &str, settings: &[&str], place: &GraphPlace<'_>, n_ranks: usize) -> Bits {
        let out = self.temp.path().join(name);
        if n_ranks == 1 {
            let finished = finish_within(&mut self.train(settings, place, &out), LIMIT);
            assert_eq!(finished.code, Some(0), "{name}: {}", finished.stderr);
        } else {
            let said = self.temp.path().join(format!("{name}-said"));
            let mut ranks = Ranks::start(&said, n_ranks, |_| self.train(settings, place, &out));
            let codes = ranks.wait(LIMIT);
            assert!(codes.iter().all(|code| *code == 0), "{name}: {codes:?}\n{}", ranks.all_said());
        }
        let bits = Bits::of(&out);
        fs::remove_dir_all(&out).unwrap();
        bits
    }

    /// The arithmetic of these runs: the instruction set, and the vendor of a CPU that is not Intel's.
    fn arithmetic(&self) -> String {
        let mut command = Command::new(program());
        command.args(["devices", "--json"]);
        if let Some(set) = self.instruction_set {
            command.env("ATEN_CPU_CAPABILITY", set);
        }
        let report: Value = serde_json::from_str(&finish_within(&mut command, LIMIT).stdout).unwrap();
        report["instruction_set"].as_str().unwrap().to_owned()
    }
}

/// Golden runs of one arithmetic or GPU.
#[derive(Debug, Serialize, Deserialize)]
struct Golden {
    /// The program that computed them.
    program: String,
    /// The device that computed them.
    device: String,
    runs: BTreeMap<String, Bits>,
}

impl Golden {
    fn path(name: &str) -> PathBuf {
        root().join("tests/golden").join(format!("{name}.json"))
    }

    /// The file of this name.
    fn of(name: &str) -> Option<Golden> {
        let text = fs::read_to_string(Golden::path(name)).ok()?;
        Some(serde_json::from_str(&text).unwrap())
    }

    /// The runs of an arithmetic. One without a file uses those of the default set, which are near.
    fn of_arithmetic(name: &str) -> (Golden, Match) {
        let own = Golden::of(name).map(|golden| (golden, Match::Bits));
        own.unwrap_or_else(|| (Golden::of("default").expect("a file"), Match::Near))
    }

    #[track_caller]
    fn check(&self, name: &str, found: &Bits, on: &str, how: Match) {
        let expected = self.runs.get(name).unwrap_or_else(|| panic!("no golden run {name}"));
        match how {
            Match::Bits => assert_eq!(found, expected, "{name} on {on}: other bits than {}", self.program),
            Match::Near => assert!(found.is_near(expected), "{name} on {on}: {found:?} {expected:?}"),
        }
    }
}

/// Comparison of runs.
#[derive(Clone, Copy)]
enum Match {
    /// Bit for bit.
    Bits,
    /// Losses within a relative difference of 1e-6.
    Near,
}

/// A folder that version 0.1.0 wrote.
fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures/0.1.0").join(name)
}

/// All golden runs: name, settings, store.
fn all() -> impl Iterator<Item = (String, Vec<&'static str>, &'static str)> {
    MODELS.iter().flat_map(|(model, own)| {
        // A cgat has no mini-batch mode.
        let ways = WAYS.iter().filter(|(way, ..)| *model != "cgat" || way.starts_with("full-batch"));
        ways.map(move |(way, store, more)| (format!("{model} {way}"), [*own, *more].concat(), *store))
    })
}

/// Compares the runs of some models, on one rank that reads a store.
fn one_rank(bench: &Bench, is_meant: impl Fn(&str) -> bool) {
    let arithmetic = bench.arithmetic();
    let (golden, how) = Golden::of_arithmetic(&arithmetic);
    let mut n = 0;
    for (name, settings, store) in all().filter(|(name, ..)| is_meant(name)) {
        let found = bench.compute(&name, &settings, &GraphPlace::Store(&fixture(store)), 1);
        golden.check(&name, &found, &arithmetic, how);
        n += 1;
    }
    assert!(n > 0, "no run was meant");
}

/// The tolerance for a machine without its own file holds between all recorded instruction sets.
#[test]
fn instruction_sets_are_near_each_other() {
    let [plain, others @ ..] = ["default", "avx2", "avx512"].map(|name| Golden::of(name).expect("a file"));
    for other in others {
        assert_eq!(plain.runs.len(), other.runs.len());
        other.runs.iter().for_each(|(name, found)| plain.check(name, found, "another instruction set", Match::Near));
    }
}

#[test]
fn supergat_keeps_its_bits() {
    one_rank(&Bench::new(), |name| name.starts_with("supergat"));
}

#[test]
fn other_models_keep_their_bits() {
    one_rank(&Bench::new(), |name| !name.starts_with("supergat"));
}

/// Mini-batch runs on one and three ranks, from store, shards and servers. Full-batch runs use one rank and a store.
fn on_ranks(is_meant: impl Fn(&str) -> bool) {
    let bench = Bench::new();
    let (golden, how) = Golden::of_arithmetic(&bench.arithmetic());
    let (store, shards) = (fixture("graph"), fixture("graph-3-shards"));
    let servers: Vec<Sampler> = ["0,2", "1"].map(|own| Sampler::start(&shards, own)).into();
    let places = [
        ("the store", GraphPlace::Store(&store)),
        ("shards", GraphPlace::Shards(&shards)),
        ("servers", GraphPlace::Servers(&servers)),
    ];
    for (name, settings, _) in all().filter(|(name, ..)| name.ends_with(" mini-batch") && is_meant(name)) {
        for (on, place) in &places {
            for n_ranks in [1, 3] {
                let found = bench.compute(&name, &settings, place, n_ranks);
                golden.check(&name, &found, &format!("{n_ranks} ranks and {on}"), how);
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_ranks_or_servers() {
    on_ranks(|name| name.starts_with("supergat-mx "));
}

#[test]
fn slow_bits_of_all_models_do_not_depend_on_ranks_or_servers() {
    if is_slow_asked_for() {
        on_ranks(|_| true);
    }
}

#[test]
fn slow_models_keep_their_bits_on_every_instruction_set() {
    if is_slow_asked_for() {
        for set in ["default", "avx2"] {
            one_rank(&Bench { instruction_set: Some(set), ..Bench::new() }, |_| true);
        }
    }
}

/// Stores, shards and runs of 0.1.0 can be read.
#[test]
fn files_of_0_1_0_are_whole() {
    for store in ["graph", "directed", "set", "named"] {
        kith(["data", "verify", fixture(store).to_str().unwrap()]);
    }
    let (store, shards) = (fixture("graph"), fixture("graph-3-shards"));
    kith(["partition", "verify", shards.to_str().unwrap(), "--graph", store.to_str().unwrap()]);
}

/// A model trained by 0.1.0 has the same predictions.
#[test]
fn a_run_of_0_1_0_predicts_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let (run, store, found) = (fixture("run"), fixture("graph"), temp.path().join("predictions.csv"));
    let paths = [&run, &store, &found].map(|path| path.to_str().unwrap().to_owned());
    kith(["predict", &paths[0], "--graph", &paths[1], "--out", &paths[2]]);
    let [found, expected] = [found, fixture("predictions.csv")].map(|path| fs::read_to_string(path).unwrap());
    let report: Value = serde_json::from_slice(&fs::read(run.join("report.json")).unwrap()).unwrap();
    if report["instruction_set"] == Bench::new().arithmetic().as_str() {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
    for (found, expected) in found.lines().zip(expected.lines()) {
        for (found, expected) in found.split(',').zip(expected.split(',')) {
            match (found.parse::<f64>(), expected.parse::<f64>()) {
                (Ok(found), Ok(expected)) => assert!((found - expected).abs() < 1e-5, "{found} {expected}"),
                _ => assert_eq!(found, expected),
            }
        }
    }
}

/// The settings of the killed run.
fn killed_settings() -> PathBuf {
    fixture("killed").join("run.toml")
}

/// A run killed under 0.1.0 resumes, and ends with the bits of an uninterrupted run of 0.1.0.
#[test]
fn a_killed_run_of_0_1_0_goes_on() {
    let bench = Bench::new();
    let (golden, how) = Golden::of_arithmetic(&bench.arithmetic());
    let out = bench.temp.path().join("killed");
    copy(&fixture("killed"), &out);
    let n_before = fs::read_to_string(out.join("steps.jsonl")).unwrap().lines().count();
    let mut command = Command::new(program());
    command.arg("train").arg(killed_settings()).arg("--graph").arg(fixture("graph"));
    command.args(["--seed", "7", "--resume", "--out"]).arg(&out).env("RAYON_NUM_THREADS", "1");
    let finished = finish_within(&mut command, LIMIT);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let found = Bits::of(&out);
    assert!(found.losses.split(' ').count() > n_before, "it was to be continued");
    golden.check("killed", &found, "one rank", how);
}

/// Upgrades a folder of 0.1.0 to the current format.
fn upgraded(name: &str, temp: &Path) -> PathBuf {
    let out = temp.join(format!("{name}-now"));
    let made =
        kith(["data", "upgrade", fixture(name).to_str().unwrap(), "--out", out.to_str().unwrap(), "--json"]).json();
    assert_eq!(made["format_version"], 2, "{made}");
    out
}

/// Upgraded stores have the same files, are whole, and are known by the digest of 0.1.0.
#[test]
fn files_of_0_1_0_are_upgraded() {
    let temp = tempfile::tempdir().unwrap();
    for store in ["graph", "directed", "set", "named"] {
        let now = upgraded(store, temp.path());
        kith(["data", "verify", now.to_str().unwrap()]);
        let stats = |store: &Path| kith(["data", "stats", store.to_str().unwrap(), "--json"]).json();
        assert_eq!(stats(&now), stats(&fixture(store)), "{store}");
        assert!(now.join("indices.u32").exists() && !now.join("rows.f32").exists());
    }
    let (store, shards) = (temp.path().join("graph-now"), upgraded("graph-3-shards", temp.path()));
    for store in [&store, &fixture("graph")] {
        kith(["partition", "verify", shards.to_str().unwrap(), "--graph", store.to_str().unwrap()]);
    }
    let again = temp.path().join("again");
    let refused = run_kith(["data", "upgrade", store.to_str().unwrap(), "--out", again.to_str().unwrap()]);
    assert!(refused.sentence().contains("already of format 2: there is nothing to upgrade"), "{}", refused.sentence());
    let taken = run_kith(["data", "upgrade", fixture("graph").to_str().unwrap(), "--out", store.to_str().unwrap()]);
    assert!(taken.sentence().contains("already exists"), "{}", taken.sentence());
    // A host that has one of the shards.
    let part = temp.path().join("part");
    copy(&fixture("graph-3-shards"), &part);
    std::fs::remove_dir_all(part.join("shard-1")).unwrap();
    for args in [vec!["data", "upgrade"], vec!["plan"]] {
        let out: &[&str] = if args.len() == 2 { &["--out", again.to_str().unwrap()] } else { &[] };
        let refused = run_kith(args.iter().chain(&[part.to_str().unwrap()]).chain(out).copied());
        assert!(refused.sentence().contains("shard 1 is not in this folder"), "{}", refused.sentence());
    }
    assert!(!again.exists());
}

/// A run killed under 0.1.0 resumes on the upgraded store, and a run of an upgraded store on the earlier one; servers of an
/// upgraded partitioned graph serve both.
#[test]
fn runs_resume_on_upgraded_stores() {
    let bench = Bench::new();
    let (golden, how) = Golden::of_arithmetic(&bench.arithmetic());
    let temp = bench.temp.path();
    let (now, shards) = (upgraded("graph", temp), upgraded("graph-3-shards", temp));
    let out = temp.join("killed-now");
    copy(&fixture("killed"), &out);
    let train = |place: &[&std::ffi::OsStr], more: &[&str]| {
        let mut command = Command::new(program());
        command.arg("train").arg(killed_settings()).args(place).args(["--seed", "7", "--out"]).arg(&out).args(more);
        let finished = finish_within(command.env("RAYON_NUM_THREADS", "1"), LIMIT);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    };
    train(&["--graph".as_ref(), now.as_ref()], &["--resume"]);
    golden.check("killed", &Bits::of(&out), "an upgraded store", how);

    fs::remove_dir_all(&out).unwrap();
    let servers: Vec<Sampler> = ["0,2", "1"].map(|own| Sampler::start(&shards, own)).into();
    let addresses: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
    train(&["--samplers".as_ref(), addresses.join(",").as_ref()], &["--epochs", "30"]);
    train(&["--graph".as_ref(), fixture("graph").as_ref()], &["--resume"]);
    golden.check("killed", &Bits::of(&out), "servers of an upgraded graph, then the earlier store", how);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Runs with CUDA kernels, if a recorded GPU is present.
#[test]
#[allow(clippy::print_stderr)]
fn gpu_runs_keep_their_bits() {
    let Some(name) = gpu() else { return };
    let Some(golden) = Golden::of(&file_name(&name)) else {
        return eprintln!("skipped: no golden runs of {name}");
    };
    let bench = Bench { arguments: GPU.to_vec(), ..Bench::new() };
    for (run, settings, store) in all().filter(|(run, ..)| is_on_gpu(run)) {
        let found = bench.compute(&run, &settings, &GraphPlace::Store(&fixture(store)), 1);
        golden.check(&run, &found, &name, Match::Bits);
    }
}

const GPU: [&str; 2] = ["--device", "cuda"];

fn is_on_gpu(name: &str) -> bool {
    !name.starts_with("cgat") && !name.contains("reference")
}

/// Name of the first GPU; prints a note if there is none.
#[allow(clippy::print_stderr)]
fn gpu() -> Option<String> {
    let devices = kith(["devices", "--json"]).json();
    let name = devices["cuda"]["devices"][0]["name"].as_str().map(str::to_owned);
    if name.is_none() {
        eprintln!("skipped: no GPU");
    }
    name
}

fn file_name(device: &str) -> String {
    device.to_lowercase().replace(' ', "-")
}

/// Writes golden files to the folder `KITH_GOLDEN_OUT`, with the program `KITH_PROGRAM`: one for each instruction set of this machine, and one for its GPU.
#[test]
#[allow(clippy::print_stderr)]
fn golden_files_are_written_on_request() {
    let Some(dir) = std::env::var_os("KITH_GOLDEN_OUT").map(PathBuf::from) else {
        return eprintln!("skipped: KITH_GOLDEN_OUT is not set");
    };
    let own = Bench::new().arithmetic();
    for set in ["default", "avx2", "avx512"].into_iter().take_while({
        let mut is_past = false;
        move |set| !std::mem::replace(&mut is_past, own.split('-').next() == Some(*set))
    }) {
        let bench = Bench { instruction_set: Some(set), ..Bench::new() };
        write(&dir, &bench, &bench.arithmetic(), "cpu", |_| true);
    }
    if let Some(name) = gpu() {
        let bench = Bench { arguments: GPU.to_vec(), ..Bench::new() };
        write(&dir, &bench, &file_name(&name), &name, is_on_gpu);
    }
}

fn write(dir: &Path, bench: &Bench, name: &str, device: &str, is_meant: impl Fn(&str) -> bool) {
    let mut runs: BTreeMap<String, Bits> = all()
        .filter(|(run, ..)| is_meant(run))
        .map(|(run, settings, store)| {
            let bits = bench.compute(&run, &settings, &GraphPlace::Store(&fixture(store)), 1);
            (run, bits)
        })
        .collect();
    if device == "cpu" {
        fs::copy(killed_settings(), bench.temp.path().join("common.toml")).unwrap();
        runs.insert("killed".to_owned(), bench.compute("killed", &[], &GraphPlace::Store(&fixture("graph")), 1));
    }
    let program = kith(["--version"]).stdout.trim().to_owned();
    let golden = Golden { program, device: device.to_owned(), runs };
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join(format!("{name}.json")), serde_json::to_string_pretty(&golden).unwrap() + "\n").unwrap();
}
