//! Training from shards and from sampling servers, with real processes: bit-identical losses, also when servers or
//! their network fail.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    kith::{Finished, finish_within, is_slow_asked_for, kith, program, run_kith},
    servers::{Proxy, Sampler, Way},
    whole_path::steps,
};

const LIMIT: Duration = Duration::from_secs(50);

/// A store, a partitioned graph of three shards, and a run on the store.
struct Made {
    temp: tempfile::TempDir,
    store: PathBuf,
    cluster: PathBuf,
    run: PathBuf,
}

impl Made {
    fn new() -> Made {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        let (store, cluster, run) = (path("store"), path("cluster"), path("run"));
        let options = ["--nodes", "3000", "--degree", "8", "--classes", "4", "--dim", "16", "--seed", "7"];
        kith([&["data", "generate", "power-law", "--out", store.to_str().unwrap()], &options[..]].concat());
        let options = ["--shards", "3", "--out", cluster.to_str().unwrap()];
        kith([&["partition", store.to_str().unwrap()], &options[..]].concat());
        let made = Made { temp, store, cluster, run };
        let finished = made.train(&["--graph", made.store.to_str().unwrap()], &made.run);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn command(&self, graph: &[&str], out: &Path) -> Command {
        let mut command = Command::new(program());
        command.args(["train", "partition-graph/supergat-mx", "--out", out.to_str().unwrap()]).args(graph);
        let set = ["train.mode=mini-batch", "train.fanouts=[5, 5]", "train.batch_size=100", "train.edge_seeds=50"];
        let few = ["train.epochs=12", "train.evaluate_every=6", "train.checkpoint_every=100", "early_stop=off"];
        command.args(set.iter().chain(&few).flat_map(|assignment| ["--set", assignment]));
        command.env("RAYON_NUM_THREADS", "1");
        command
    }

    fn train(&self, graph: &[&str], out: &Path) -> Finished {
        finish_within(&mut self.command(graph, out), LIMIT)
    }

    /// Trains on a thread; `disturb` is called after some steps.
    fn train_disturbed(&self, samplers: &str, more: &[&str], disturb: impl FnOnce()) -> (PathBuf, Finished) {
        let out = self.path("disturbed");
        let mut command = self.command(&[&["--samplers", samplers], more].concat(), &out);
        let running = thread::spawn(move || finish_within(&mut command, LIMIT));
        let started = Instant::now();
        let n_steps = || fs::read_to_string(out.join("steps.jsonl")).map_or(0, |text| text.lines().count());
        while n_steps() < 5 && !running.is_finished() {
            assert!(started.elapsed() < LIMIT, "no step was made");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(n_steps() < steps(&self.run).len(), "it was over before it was disturbed");
        disturb();
        (out.clone(), running.join().unwrap())
    }

    #[track_caller]
    fn assert_same(&self, (out, finished): &(PathBuf, Finished)) {
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert_eq!(steps(out), steps(&self.run));
    }
}

fn addresses(samplers: &[&Sampler]) -> String {
    samplers.iter().map(|sampler| sampler.address.to_string()).collect::<Vec<_>>().join(",")
}

#[test]
fn a_store_its_shards_and_its_servers_are_one_graph() {
    are_one_graph(&["beside"]);
}

#[test]
fn slow_all_ways_to_a_cluster_are_one_graph() {
    if is_slow_asked_for() {
        are_one_graph(&["shards", "servers", "asked", "beside"]);
    }
}

fn are_one_graph(wanted: &[&str]) {
    let made = Made::new();
    let cluster = made.cluster.to_str().unwrap();
    let samplers = [Sampler::start(&made.cluster, "0,2"), Sampler::start(&made.cluster, "1")];
    let addresses = addresses(&[&samplers[0], &samplers[1]]);
    let ways: [(&str, &[&str]); 4] = [
        ("shards", &["--shards", cluster]),
        ("servers", &["--samplers", &addresses]),
        ("beside", &["--shards", cluster, "--samplers", &addresses]),
        ("asked", &["--shards", cluster, "--samplers", &addresses, "--transport", "grpc"]),
    ];
    let store = made.store.to_str().unwrap();
    let predict = |graph: &[&str], run: &Path, name: &str| {
        let out = made.path(name);
        kith([&["predict", run.to_str().unwrap(), "--out", out.to_str().unwrap()], graph].concat());
        fs::read(&out).unwrap()
    };
    let expected = predict(&["--graph", store], &made.run, "store.csv");
    let ways = ways.into_iter().filter(|(name, _)| wanted.contains(name)).collect::<Vec<_>>();
    for &(name, graph) in &ways {
        let out = made.path(name);
        made.assert_same(&(out.clone(), made.train(graph, &out)));
        assert!(predict(graph, &out, &format!("{name}.csv")) == expected, "{name}");
        let run = out.to_str().unwrap();
        let replayed = kith([&["replay", run, "--step", "3"], graph].concat());
        assert!(replayed.stdout.contains("as recorded"), "{}", replayed.stdout);
        // A run resumes from any place of its graph.
        let more = ["train", "--resume", "--out", run, "--set", "train.epochs=13"];
        kith([&more[..], graph].concat());
    }
    let resumed: Vec<_> = ways.iter().map(|(name, _)| steps(&made.path(name))).collect();
    assert!(resumed.iter().all(|own| *own == resumed[0] && own.len() > steps(&made.run).len()));
    let refused = run_kith(["train", "partition-graph/supergat-mx", "--samplers", &addresses]);
    assert!(refused.sentence().contains("needs the whole graph"), "{}", refused.stderr);
}

/// A shard is copied, another one is moved while it is served: the servers of both folders, old and new, are one graph.
#[test]
fn servers_of_copied_and_moved_shards_are_one_graph() {
    let made = Made::new();
    let (source, other) = (made.cluster.to_str().unwrap(), made.path("other"));
    let to = other.to_str().unwrap();
    kith(["shards", "copy", source, "--shards", "1", "--to", to]);
    let before = Sampler::start(&made.cluster, "0,2");
    kith(["shards", "move", source, "--shards", "2", "--to", to]);
    let replica = Sampler::start(&other, "1");
    let out = made.path("before");
    // The first server was started before the move.
    made.assert_same(&(out.clone(), made.train(&["--samplers", &addresses(&[&before, &replica])], &out)));
    before.kill();
    let after = [Sampler::start(&made.cluster, "0-1"), Sampler::start(&other, "1-2")];
    let out = made.path("after");
    made.assert_same(&(out.clone(), made.train(&["--samplers", &addresses(&[&after[0], &after[1]])], &out)));
}

#[test]
fn a_killed_server_is_waited_for() {
    let made = Made::new();
    let (one, other) = (Sampler::start(&made.cluster, "0,1"), Sampler::start(&made.cluster, "2"));
    let mut again = None;
    let disturbed = made.train_disturbed(&addresses(&[&one, &other]), &[], || {
        let address = other.kill();
        thread::sleep(Duration::from_millis(700));
        again = Some(Sampler::start_at(&made.cluster, "2", address));
    });
    made.assert_same(&disturbed);
}

/// One of two servers of a shard is killed, and the run continues without a wait; a third never existed.
#[test]
fn a_killed_server_with_a_stand_in_is_not_missed() {
    let made = Made::new();
    let (one, other) = (Sampler::start(&made.cluster, "all"), Sampler::start(&made.cluster, "0,2,1"));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let never = nobody.local_addr().unwrap().to_string();
    let addresses = addresses(&[&one, &other]) + "," + &never;
    let mut one = Some(one);
    // An attempt may take a third of the timeout.
    let disturbed = made.train_disturbed(&addresses, &["--sampler-timeout", "6"], || {
        one.take().unwrap().kill();
    });
    made.assert_same(&disturbed);
    let note = format!("warning: no answer from {never}: skipped, other servers have all shards");
    assert!(disturbed.1.stderr.lines().any(|line| line == note), "{}", disturbed.1.stderr);
}

#[test]
fn a_paused_server_is_waited_for() {
    let made = Made::new();
    let sampler = Sampler::start(&made.cluster, "all");
    let disturbed = made.train_disturbed(&addresses(&[&sampler]), &[], || {
        sampler.signal("STOP");
        thread::sleep(Duration::from_secs(2));
        sampler.signal("CONT");
    });
    made.assert_same(&disturbed);
}

#[test]
fn a_server_that_stays_away_is_named() {
    let made = Made::new();
    let (one, other) = (Sampler::start(&made.cluster, "0,1"), Sampler::start(&made.cluster, "2"));
    let address = other.address;
    let mut started = None;
    let (_, finished) = made.train_disturbed(&addresses(&[&one, &other]), &["--sampler-timeout", "3"], || {
        other.signal("STOP");
        started = Some(Instant::now());
    });
    let sentence = finished.sentence_with(75);
    assert!(sentence.contains(&format!("shard 2 at {address}")), "{sentence}");
    assert!(started.unwrap().elapsed() < Duration::from_secs(12), "it took {:?}", started.unwrap().elapsed());
    other.signal("CONT");
}

/// Trains under each of these network conditions, one after the other.
fn changes_nothing(ways: &[Way]) {
    let made = Made::new();
    let sampler = Sampler::start(&made.cluster, "all");
    let proxy = Proxy::start(sampler.address);
    let disturbed = made.train_disturbed(&proxy.address.to_string(), &[], || {
        for way in ways {
            proxy.set(*way);
            thread::sleep(Duration::from_millis(300));
        }
    });
    made.assert_same(&disturbed);
}

#[test]
fn connections_that_are_cut_change_nothing() {
    changes_nothing(&[Way::Cut, Way::Open, Way::Cut, Way::Open]);
}

#[test]
fn slow_connections_that_are_half_closed_change_nothing() {
    if is_slow_asked_for() {
        changes_nothing(&[Way::HalfClosed]);
    }
}

#[test]
fn late_answers_change_nothing() {
    changes_nothing(&[Way::Late(Duration::from_secs(2)), Way::Open]);
}

#[test]
fn slow_answers_at_a_trickle_change_nothing() {
    if is_slow_asked_for() {
        changes_nothing(&[Way::Slow(8 << 20)]);
    }
}

#[test]
fn a_way_that_stalls_is_named() {
    let made = Made::new();
    let sampler = Sampler::start(&made.cluster, "all");
    let proxy = Proxy::start(sampler.address);
    let stall = || proxy.set(Way::Stalled);
    let (_, finished) = made.train_disturbed(&proxy.address.to_string(), &["--sampler-timeout", "2"], stall);
    let sentence = finished.sentence_with(75);
    assert!(sentence.contains("shard") && sentence.contains(&proxy.address.to_string()), "{sentence}");
}

/// Features take longer than the timeouts of silence and of calls without progress, but bytes keep arriving.
#[test]
fn slow_a_slow_line_is_waited_for() {
    if !is_slow_asked_for() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    let (store, cluster) = (path("store"), path("cluster"));
    let options = ["--nodes", "12000", "--degree", "4", "--classes", "4", "--dim", "256", "--seed", "7"];
    kith([&["data", "generate", "power-law", "--out", &store], &options[..]].concat());
    kith(["partition", &store, "--shards", "2", "--out", &cluster]);
    let sampler = Sampler::start(Path::new(&cluster), "all");
    let proxy = Proxy::start(sampler.address);
    // 12 MB for the cache at 0.5 MB per second: 24 s. Silence may last 1 s, a call without progress 3 s.
    proxy.set(Way::Slow(512 << 10));
    let address = proxy.address.to_string();
    let train = |graph: &[&str], out: &str| {
        let mut command = Command::new(program());
        command.args(["train", "partition-graph/supergat-mx", "--out", out]).args(graph);
        let set = ["train.mode=mini-batch", "train.epochs=1", "train.batch_size=600", "early_stop=off"];
        command.args(set.iter().flat_map(|assignment| ["--set", assignment]));
        finish_within(&mut command, Duration::from_secs(120))
    };
    let started = Instant::now();
    let cached = ["--samplers", &address, "--cache", "100", "--sampler-timeout", "3"];
    let finished = train(&cached, &path("slow"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(started.elapsed() > Duration::from_secs(20), "the line was not slow: {:?}", started.elapsed());
    assert_eq!(train(&["--graph", &store], &path("run")).code, Some(0));
    assert_eq!(steps(Path::new(&path("slow"))), steps(Path::new(&path("run"))));
}

/// One of two servers of all shards becomes slow during a run: the other one is used.
#[test]
fn a_slow_replica_is_not_waited_for() {
    let made = Made::new();
    let (one, other) = (Sampler::start(&made.cluster, "all"), Sampler::start(&made.cluster, "all"));
    let proxy = Proxy::start(one.address);
    let addresses = format!("{},{}", proxy.address, other.address);
    let mut disturbed_at = None;
    let disturbed = made.train_disturbed(&addresses, &[], || {
        proxy.set(Way::Late(Duration::from_secs(2)));
        disturbed_at = Some(Instant::now());
    });
    made.assert_same(&disturbed);
    // More than a hundred steps are left, each with several sequential calls.
    let took = disturbed_at.unwrap().elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// Steps per second: the median over many short intervals.
fn steps_per_second(steps: &Path, time: Duration) -> f64 {
    let n_steps = || fs::read_to_string(steps).map_or(0, |text| text.lines().count());
    let started = Instant::now();
    let mut rates = Vec::new();
    while started.elapsed() < time {
        let (n_before, since) = (n_steps(), Instant::now());
        thread::sleep(Duration::from_secs(1));
        rates.push((n_steps() - n_before) as f64 / since.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// One of two servers answers 100 times slower for a minute: seed nodes per second lose less than 10 %.
#[test]
fn slow_a_slow_replica_costs_little() {
    if !is_slow_asked_for() {
        return;
    }
    let made = Made::new();
    let (one, other) = (Sampler::start(&made.cluster, "all"), Sampler::start(&made.cluster, "all"));
    let proxy = Proxy::start(one.address);
    let stand_in = Proxy::start(other.address);
    let out = made.path("long");
    let addresses = format!("{},{}", proxy.address, stand_in.address);
    let mut command = made.command(&["--samplers", &addresses], &out);
    let mut child = command.args(["--set", "train.epochs=1000000"]).spawn().unwrap();
    let steps = out.join("steps.jsonl");
    let started = Instant::now();
    while fs::read_to_string(&steps).map_or(0, |text| text.lines().count()) < 20 {
        assert!(started.elapsed() < LIMIT, "no step was made");
        thread::sleep(Duration::from_millis(20));
    }
    let minute = Duration::from_secs(60);
    let before = steps_per_second(&steps, minute / 3);
    proxy.set(Way::Late(Duration::from_millis(200)));
    let slow = steps_per_second(&steps, minute);
    proxy.set(Way::Open);
    let after = steps_per_second(&steps, minute / 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let usual = (before + after) / 2.0;
    assert!(slow > 0.9 * usual, "{slow:.1} steps/s instead of {before:.1} before and {after:.1} after");
}
