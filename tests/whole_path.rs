//! The whole path with real processes: generate → verify → stats → train → resume → train on a GPU → predict → analyze
//! → tune → report, replay → report, then partition → push → pull → serve → train from servers. Results do not depend
//! on the number of threads.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    kith::{finish, kith, newest_checkpoint, program, run_kith},
    memory::needed_mib,
    servers::Sampler,
};

#[test]
fn from_generate_to_stats() {
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("graph");
    let store = store.to_str().unwrap();
    let options = ["--degree", "10", "--homophily", "0.7", "--seed", "7", "--json"];
    let made = kith([&["data", "generate", "partition-graph", "--out", store], &options[..]].concat()).json();
    assert_eq!(made["n_nodes"], 5000);

    assert_eq!(run_kith(["data", "verify", store]).code, Some(0));
    let stats = kith(["data", "stats", store, "--json"]).json();
    assert_eq!(stats["digest"], made["digest"]);
    assert_eq!(stats["n_classes"], 10);
    assert_eq!(stats["dim"], 2);
    assert_eq!(stats["is_symmetric"], true);
    assert_eq!(stats["splits"]["fixed"], serde_json::json!({ "train": 200, "valid": 500, "test": 1000 }));
    assert!((stats["degree_mean"].as_f64().unwrap() - 10.0).abs() < 0.3, "{stats}");
    assert!((stats["homophily"].as_f64().unwrap() - 0.7).abs() < 0.02, "{stats}");
    let readable = kith(["data", "stats", store]).stdout;
    assert!(readable.contains("nodes") && readable.contains("5,000"), "{readable}");

    // The same seed on one thread: a bit-identical store.
    let again = temp.path().join("again");
    let again_args =
        [&["data", "generate", "partition-graph", "--out", again.to_str().unwrap()], &options[..]].concat();
    let finished = finish(Command::new(program()).args(again_args).env("RAYON_NUM_THREADS", "1"));
    assert_eq!(finished.json()["digest"], made["digest"]);
}

/// Lines of a run's `steps.jsonl`, without the times.
pub(crate) fn steps(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("steps.jsonl")).unwrap();
    let mut steps: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for step in &mut steps {
        assert!(step["phases"][0]["compute"].is_u64(), "{step}");
        assert!(step["n_seeds"].as_u64() > Some(0) && step["n_edges"].as_u64() > Some(0), "{step}");
        for own in ["micros", "phases", "sent_bytes", "slices", "crc32"] {
            step[own] = Value::Null;
        }
    }
    steps
}

/// Report of a run, without the time.
pub(crate) fn report(run: &Path) -> Value {
    let mut report: Value = serde_json::from_str(&fs::read_to_string(run.join("report.json")).unwrap()).unwrap();
    assert!(report["results"]["seconds"].as_f64().unwrap() > 0.0);
    report["results"]["seconds"] = Value::Null;
    report["results"]["seconds_evaluating"] = Value::Null;
    report["phases"] = Value::Null;
    report["crc32"] = Value::Null; // Covers the times.
    report["sessions"] = Value::Null; // Names of this run's clients, with servers.
    report
}

/// Mini-batches sampled on a GPU equal those of the CPU, with nearly the same losses. Without a GPU, training fails at
/// once without leftovers, and `kith devices` agrees.
#[allow(clippy::print_stderr)]
fn on_a_gpu(store: &str, dir: &Path) {
    let train = |name: &str, more: &[&str]| {
        let out = dir.join(name);
        let batches = ["train.mode=mini-batch", "train.fanouts=5", "train.batch_size=16", "train.epochs=2"];
        let mut args = vec!["train", "partition-graph/supergat-mx", "--graph", store, "--out", out.to_str().unwrap()];
        batches.iter().for_each(|assignment| args.extend(["--set", assignment]));
        (run_kith([&args[..], more].concat()), out)
    };
    let cuda = &kith(["devices", "--json"]).json()["cuda"];
    let (finished, out) = train("batches-gpu", &["--device", "cuda"]);
    if let Some(reason) = cuda["missing"].as_str() {
        eprintln!("no GPU here: {reason}");
        assert_ne!(finished.code, Some(0));
        assert!(finished.stderr.contains(&format!("device cuda: {reason}")), "{}", finished.stderr);
        assert!(!out.exists(), "nothing was trained");
        return;
    }
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let (expected, on_cpu) = train("batches-cpu", &[]);
    assert_eq!(expected.code, Some(0), "{}", expected.stderr);
    let (found, expected) = (steps(&out), steps(&on_cpu));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found["digests"], expected["digests"]);
        let loss = |step: &Value| step["loss"].as_f64().unwrap();
        assert!((loss(found) - loss(expected)).abs() <= 1e-3 * loss(expected), "{found} {expected}");
    }
}

#[test]
fn from_train_to_report() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    let store = path("graph");
    let options = ["--nodes-per-class", "200", "--classes", "3", "--homophily", "0.8", "--seed", "7"];
    kith([&["data", "generate", "partition-graph", "--out", &store], &options[..]].concat());

    // Two runs of a few epochs.
    let runs = path("runs");
    let few = ["--set", "train.epochs=6", "--set", "train.checkpoint_every=4"];
    let train = |out: &str, more: &[&str]| {
        let args =
            [&["train", "partition-graph/supergat-mx", "--graph", &store, "--out", out], &few[..], more].concat();
        kith(args)
    };
    let answer = train(&runs, &["--seeds", "42..44", "--json"]);
    let lines: Vec<Value> = answer.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    for (line, run_key) in lines.iter().zip(42..) {
        assert_eq!(line["dataset"], "partition-graph");
        assert_eq!(line["model"], "supergat-mx");
        assert_eq!(line["seed"], run_key);
        assert_eq!(line["epochs"], 6);
        for share in ["valid", "test", "test_last"] {
            assert!((0.0..=1.0).contains(&line[share].as_f64().unwrap()), "{line}");
        }
        assert!(line["best_epoch"].as_u64().unwrap() < 6 && line["seconds"].as_f64().unwrap() > 0.0, "{line}");
    }
    let both: Value = serde_json::from_str(&fs::read_to_string(Path::new(&runs).join("report.json")).unwrap()).unwrap();
    let mean = (lines[0]["test"].as_f64().unwrap() + lines[1]["test"].as_f64().unwrap()) / 2.0;
    assert!((both["test"]["mean"].as_f64().unwrap() - mean).abs() < 1e-12, "{both}");
    assert!(train(&path("table"), &["--seeds", "42..44"]).stdout.contains(" ± "));

    // One run, uninterrupted and resumed: the same bits.
    let (whole, cut) = (path("whole"), path("cut"));
    let alone = train(&whole, &["--seed", "42"]);
    assert!(alone.stdout.contains("best epoch"), "{}", alone.stdout);
    let (whole, cut_dir) = (Path::new(&whole), Path::new(&cut));
    assert_eq!(steps(whole), steps(&Path::new(&runs).join("run-42")), "a run does not know of others");
    train(&cut, &["--seed", "42", "--set", "train.epochs=3"]);
    kith([&["train", "--resume", "--graph", &store, "--out", &cut, "--seed", "42"], &few[..]].concat());
    assert_eq!((steps(cut_dir), report(cut_dir)), (steps(whole), report(whole)));
    assert_eq!(steps(whole).len(), 6);
    assert!(steps(whole).iter().all(|step| step["loss"].is_f64() && step["valid"].is_f64()));
    assert_eq!(report(whole)["results"]["test_last"], steps(whole)[5]["test"]);
    let resolved = fs::read_to_string(whole.join("run.toml")).unwrap();
    assert!(resolved.contains("epochs = 6") && resolved.contains("attention = \"mx\""), "{resolved}");

    // On one thread: the same bits.
    let thin = path("thin");
    let args = ["train", "partition-graph/supergat-mx", "--graph", &store, "--out", &thin];
    let finished = finish(Command::new(program()).args(args).args(few).env("RAYON_NUM_THREADS", "1"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(steps(Path::new(&thin)), steps(whole));

    on_a_gpu(&store, temp.path());

    // Predictions of the model.
    let predict = |what: &str, file: &str, more: &[&str]| {
        let file = path(file);
        let whole = whole.to_str().unwrap();
        kith([&["predict", whole, "--graph", &store, "--what", what, "--out", &file], more].concat());
        fs::read(file).unwrap()
    };
    let table = String::from_utf8(predict("probabilities", "classes.csv", &["--weights", "last"])).unwrap();
    assert_eq!(table.lines().next(), Some("id,class_0,class_1,class_2"));
    assert_eq!(table.lines().count(), 601);
    for line in table.lines().skip(1) {
        let sum: f64 = line.split(',').skip(1).map(|share| share.parse::<f64>().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{line}");
    }
    assert!(predict("embeddings", "rows.npy", &[]).starts_with(b"\x93NUMPY"));
    assert_eq!(fs::read_to_string(path("rows.ids.csv")).unwrap().lines().count(), 601);
    let attention = String::from_utf8(predict("attention", "attention.csv", &["--layer", "0"])).unwrap();
    let heads = (0..8).map(|head| format!(",head_{head}")).collect::<String>();
    assert_eq!(attention.lines().next().unwrap(), format!("source,destination{heads}"));
    let first: f64 = attention
        .lines()
        .skip(1)
        .filter(|line| line.split(',').nth(1) == Some("17"))
        .map(|line| line.split(',').nth(2).unwrap().parse::<f64>().unwrap())
        .sum();
    assert!((first - 1.0).abs() < 1e-5, "the attention of a node sums to one, not {first}");

    // Attention, graph analysis, hyperparameter search, and a report of each.
    let out = path("attention");
    kith(["analyze", "attention", whole.to_str().unwrap(), "--graph", &store, "--out", &out]);
    let (graph, tuned) = (path("analysis"), path("tuned"));
    kith(["analyze", "graph", &store, "--out", &graph]);
    let settings = ["--trials", "2", "--seeds", "42..44", "--set", "train.epochs=3"];
    let mut args = vec!["tune", "partition-graph/supergat-mx", "--graph", &store, "--out", &tuned];
    args.extend(settings);
    kith(args);
    let best = Path::new(&tuned).join("best.toml");
    kith(["train", best.to_str().unwrap(), "--graph", &store, "--out", &path("best")]);
    for folder in [&runs, &out, &graph, &path("best")] {
        let page = kith(["report", folder, "--json"]).json();
        let html = fs::read_to_string(page["page"].as_str().unwrap()).unwrap();
        assert!(html.contains("data-from=") && html.contains("<svg"), "{folder}");
    }
}

/// Mini-batches, from a generated graph to the report: trained, replayed, predicted.
#[test]
fn from_batches_to_report() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    let (store, run) = (path("graph"), path("run"));
    let options = ["--nodes-per-class", "300", "--classes", "3", "--homophily", "0.8", "--seed", "7"];
    kith([&["data", "generate", "partition-graph", "--out", &store], &options[..]].concat());
    let set = ["train.mode=mini-batch", "train.epochs=10", "train.batch_size=20", "train.slices=3"];
    let set = set.map(|set| ["--set", set]).concat();
    kith([&["train", "partition-graph/supergat-mx", "--graph", &store, "--out", &run], &set[..]].concat());
    let steps = steps(Path::new(&run));
    let n_steps = steps.len();
    assert!(n_steps > 10 && n_steps.is_multiple_of(10), "several steps per epoch: {n_steps}");
    assert!(steps.iter().all(|step| step["digests"].as_array().unwrap().len() == 3));

    // Every mini-batch can be replayed.
    let replay = |more: &[&str]| kith([&["replay", &run, "--graph", &store], more].concat());
    for (step, recorded) in steps.iter().enumerate().step_by(7) {
        let again = replay(&["--step", &step.to_string(), "--json"]).json();
        assert_eq!((&again["step"], &again["epoch"]), (&recorded["step"], &recorded["epoch"]));
        let slices = again["slices"].as_array().unwrap();
        let digests: Vec<&Value> = slices.iter().map(|slice| &slice["digest"]).collect();
        assert_eq!(digests, recorded["digests"].as_array().unwrap().iter().collect::<Vec<_>>());
        for slice in slices {
            let layers = slice["layers"].as_array().unwrap();
            assert_eq!(layers.len(), 2);
            assert_eq!(layers[0]["n_destinations"], layers[1]["n_sources"]);
            assert_eq!(layers[1]["n_destinations"], slice["n_roots"]);
            assert!(slice["n_seeds"].as_u64() <= slice["n_roots"].as_u64(), "{slice}");
            assert!(layers[0]["n_edges"].as_u64() > layers[0]["n_destinations"].as_u64(), "{slice}");
            assert!(layers[0]["n_negatives"].as_u64() > Some(0), "{slice}");
        }
    }
    let readable = replay(&["--step", "3", "--slice", "1"]).stdout;
    assert!(readable.contains("negatives") && readable.contains("slice 1: "), "{readable}");
    assert!(readable.ends_with("step 3 (epoch 1) of seed 42: as recorded\n"), "{readable}");

    // Predictions with any memory limit.
    let predict = |what: &str, file: &str, more: &[&str]| {
        let out = path(file);
        kith([&["predict", &run, "--graph", &store, "--what", what, "--out", &out], more].concat());
        fs::read_to_string(out).unwrap()
    };
    let args = ["predict", &run, "--graph", &store, "--out", &path("refused.csv"), "--memory", "1"];
    let least = format!("{}MiB", needed_mib(run_kith(args).sentence()));
    for (what, n_lines) in [("probabilities", 901), ("embeddings", 901)] {
        let table = predict(what, "free.csv", &[]);
        assert_eq!(table.lines().count(), n_lines);
        assert_eq!(predict(what, "tight.csv", &["--memory", &least]), table, "{what}");
    }
    // Of some nodes, the same lines.
    let (all, test) =
        (predict("probabilities", "free.csv", &[]), predict("probabilities", "test.csv", &["--nodes", "test"]));
    assert!(test.lines().all(|line| all.contains(line)) && (100..900).contains(&test.lines().count()));
    fs::write(path("nodes.txt"), "17\n3\n").unwrap();
    let two = predict("probabilities", "two.csv", &["--nodes", &path("nodes.txt"), "--memory", &least]);
    let ids: Vec<&str> = two.lines().filter_map(|line| line.split(',').next()).collect();
    assert!(ids == ["id", "3", "17"] && two.lines().all(|line| all.contains(line)), "{two}");

    let attention = predict("attention", "attention.csv", &["--memory", &least]);
    let of_17 = attention.lines().skip(1).filter(|line| line.split(',').nth(1) == Some("17"));
    let sum: f64 = of_17.map(|line| line.split(',').nth(2).unwrap().parse::<f64>().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-5, "the attention of a node sums to one, not {sum}");
    let names: Vec<_> = fs::read_dir(temp.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with('.')), "scratch files stay: {names:?}");

    let report = report(Path::new(&run));
    assert_eq!((&report["results"]["epochs"], &report["results"]["steps"]), (&10.into(), &n_steps.into()));
    assert!(report["run_file"].as_str().unwrap().contains("slices = 3"), "{report}");

    // The same from servers of the graph's shards: steps, predictions and report.
    let cluster = path("cluster");
    kith(["partition", &store, "--shards", "3", "--out", &cluster]);
    // Servers pull their shards from a bucket, as hosts without a shared file system do.
    let bucket = format!("file://{}", path("bucket"));
    kith(["data", "push", &cluster, &bucket]);
    let samplers = ["0,1", "2"].map(|shards| {
        let own = path(&format!("host-{shards}"));
        kith(["data", "pull", &bucket, &own, "--shards", shards]);
        Sampler::start(Path::new(&own), shards)
    });
    let addresses = samplers.each_ref().map(|sampler| sampler.address.to_string()).join(",");
    let served = path("served");
    let graph = ["--samplers", &addresses, "--cache", "10"];
    kith([&["train", "partition-graph/supergat-mx", "--out", &served], &graph[..], &set[..]].concat());
    assert_eq!(self::steps(Path::new(&served)), steps);
    let out = path("served.csv");
    kith([&["predict", &served, "--out", &out], &graph[..2]].concat());
    assert_eq!(fs::read_to_string(out).unwrap(), predict("probabilities", "stored.csv", &[]));
    let (mut from_servers, mut from_store) = (self::report(Path::new(&served)), report);
    let (rows, all) = (from_servers["features"].take(), from_store["features"].take());
    let number = |rows: &Value, from: &str| rows[from].as_u64().unwrap();
    assert!(number(&rows, "cached") > 0 && number(&rows, "remote") > 0, "{rows}");
    assert_eq!(number(&rows, "cached") + number(&rows, "remote"), number(&all, "local"));
    assert_eq!(from_servers, from_store);

    // And with several ranks that share its slices, with their own servers.
    let ranks = path("ranks");
    let launch = ["launch", "--ranks", "3", "--samplers", "2", "partition-graph/supergat-mx", "--shards", &cluster];
    kith([&launch[..], &["--out", &ranks, "--cache", "10"], &set[..]].concat());
    assert_eq!(self::steps(Path::new(&ranks)), steps);
    let mut from_ranks = self::report(Path::new(&ranks));
    assert_eq!((from_ranks["n_ranks"].take(), from_servers["n_ranks"].take()), (3.into(), 1.into()));
    // A cache is filled as features are fetched, so the numbers depend on time; their sum does not.
    let of_ranks = from_ranks["features"].take();
    assert!(number(&of_ranks, "cached") > 0, "{of_ranks}");
    let sum = |rows: &Value| number(rows, "cached") + number(rows, "remote");
    assert_eq!(sum(&of_ranks), sum(&rows));
    assert_eq!(from_ranks, from_servers);

    // The plan of a run matches its statistics: features per step from servers, with and without the cache.
    // Many epochs: the first ones fill the cache.
    let set = ["train.mode=mini-batch", "train.epochs=12", "train.batch_size=20", "train.edge_seeds=0"];
    let set = set.map(|set| ["--set", set]).concat();
    let planned = ["--batch-size", "20", "--steps", "12", "--cache", "10", "--json"];
    let plan = kith([&["plan", &cluster], &planned[..]].concat()).json();
    for (cache, key) in [("0", "remote_rows"), ("10", "remote_rows_cached")] {
        let run = path(key);
        let graph = ["--samplers", &addresses, "--cache", cache];
        kith([&["train", "partition-graph/supergat-mx", "--out", &run], &graph[..], &set[..]].concat());
        let report = self::report(Path::new(&run));
        let measured = number(&report["features"], "remote") as f64 / report["results"]["steps"].as_f64().unwrap();
        let planned = plan["per_step"][key].as_f64().unwrap();
        assert!((planned / measured - 1.0).abs() < 0.15, "{key}: {planned} planned, {measured} measured");
    }
}

/// Killed and resumed, a run ends with the same bits as an uninterrupted one.
#[test]
fn a_killed_run_goes_on_unseen() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    let store = path("graph");
    let options = ["--nodes-per-class", "200", "--classes", "3", "--seed", "7"];
    kith([&["data", "generate", "partition-graph", "--out", store.to_str().unwrap()], &options[..]].concat());
    let set = ["train.epochs=150", "train.checkpoint_every=10", "early_stop=off"];
    let command = |out: &Path, more: &[&str]| {
        let mut command = Command::new(program());
        command.args(["train", "partition-graph/supergat-sd"]).arg("--graph").arg(&store).arg("--out").arg(out);
        command.args(set.iter().flat_map(|set| ["--set", set])).args(more);
        command
    };
    let (whole, killed) = (path("whole"), path("killed"));
    assert_eq!(finish(&mut command(&whole, &[])).code, Some(0));

    let mut child = command(&killed, &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while newest_checkpoint(&killed).is_none() {
        assert!(started.elapsed() < Duration::from_secs(60), "no checkpoint within a minute");
        thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!killed.join("report.json").exists(), "the run was over before it was killed");
    let resumed = finish(&mut command(&killed, &["--resume"]));
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    assert_eq!((steps(&killed), report(&killed)), (steps(&whole), report(&whole)));
}

#[test]
fn the_recipe_chooses_by_degree_and_homophily() {
    let temp = tempfile::tempdir().unwrap();
    for (degree, homophily, model) in [("2.5", "0.2", "supergat-sd"), ("15", "0.9", "gat")] {
        let store = temp.path().join(format!("graph-{model}"));
        let store = store.to_str().unwrap();
        let options = ["--nodes-per-class", "200", "--classes", "5", "--degree", degree, "--homophily", homophily];
        kith([&["data", "generate", "partition-graph", "--out", store], &options[..]].concat());
        let trained = kith(["train", "--attention", "auto", "--graph", store, "--set", "train.epochs=1", "--json"]);
        assert_eq!(trained.json()["model"], model, "{}", trained.stderr);
        assert!(trained.stderr.contains("homophily | degree"), "{}", trained.stderr);
    }
}

#[test]
fn a_flipped_byte_is_found_and_named() {
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("graph");
    kith(["data", "generate", "power-law", "--nodes", "1000", "--dim", "4", "--out", store.to_str().unwrap()]);
    let path = store.join("features.f32");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[1000] ^= 0x40;
    std::fs::write(&path, bytes).unwrap();
    let verified = run_kith(["data", "verify", store.to_str().unwrap()]);
    assert_eq!(verified.code, Some(1));
    assert_eq!(verified.stdout, "features, block 0 (bytes 0..16000): the checksum differs\n");
}

#[test]
fn the_command_explains_itself() {
    assert!(kith(["--help"]).stdout.contains("data"));
    assert!(kith(["--version"]).stdout.starts_with("kith "));
    assert!(kith(["data", "list"]).stdout.contains("ogbn-arxiv"));
    assert_eq!(kith(["data", "list", "--json"]).json().as_array().unwrap().len(), 25);
    assert!(kith(["train", "--list-presets"]).stdout.contains("cora/supergat-mx"));
    assert_eq!(kith(["train", "--list-presets", "--json"]).json().as_array().unwrap().len(), 213);
    assert!(kith(["devices"]).stdout.contains("libtorch"));
    assert_eq!(run_kith(["data", "nonsense"]).code, Some(1));
}
