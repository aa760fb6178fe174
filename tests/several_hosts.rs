//! Two hosts with sampling servers and two with ranks, each with its own network. Losses are bit-identical to one
//! process with any latency and after link failures; if a host stays away, all others stop in time and name it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::{
    hosts::Hosts,
    kith::{finish_within, is_slow_asked_for, kith, program},
    servers::Sampler,
    whole_path::steps,
    worlds::Ranks,
};

const SAMPLERS: [&str; 2] = ["sampler-a", "sampler-b"];
const RANKS: [&str; 2] = ["rank-a", "rank-b"];
/// Ports on these hosts are all free.
const PORT: u16 = 7000;
const LIMIT: Duration = Duration::from_secs(80);
/// Duration of a link failure.
const CUT: Duration = Duration::from_secs(5);
/// Longer than a link failure and TCP's exponential backoff after it.
const PATIENCE: [&str; 4] = ["--heartbeat-timeout", "30", "--sampler-timeout", "60"];

/// A graph, and hosts that train on it.
struct Made {
    temp: tempfile::TempDir,
    n_epochs: u64,
    hosts: Hosts,
}

impl Made {
    /// `None` if this machine permits no hosts.
    fn new(n_epochs: u64) -> Option<Made> {
        let hosts = Hosts::new(&[SAMPLERS, RANKS].concat())?;
        let made = Made { temp: tempfile::tempdir().unwrap(), n_epochs, hosts };
        let (store, cluster) = (made.path("store"), made.path("cluster"));
        let options = ["--nodes", "1009", "--degree", "6", "--classes", "4", "--dim", "16", "--seed", "7"];
        kith([&["data", "generate", "power-law", "--out", store.to_str().unwrap()], &options[..]].concat());
        kith(["partition", store.to_str().unwrap(), "--shards", "2", "--out", cluster.to_str().unwrap()]);
        Some(made)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Arguments common to any number of ranks.
    fn train(&self, command: &mut Command, out: &str) {
        command.args(["train", "partition-graph/supergat-mx", "--out"]).arg(self.path(out));
        let batches = ["train.mode=mini-batch", "train.fanouts=[5, 5]", "train.batch_size=101", "train.edge_seeds=53"];
        let few = ["train.slices=2", "train.evaluate_every=1000", "early_stop=off"];
        let epochs = format!("train.epochs={}", self.n_epochs);
        let all = batches.iter().chain(&few).copied().chain([epochs.as_str()]);
        command.args(all.flat_map(|assignment| ["--set", assignment])).env("RAYON_NUM_THREADS", "1");
    }

    /// A server on each of its hosts, with one shard of two.
    fn serve(&self, more: impl Fn(&str) -> Vec<PathBuf>) -> Vec<Sampler> {
        let start = |(shard, host): (usize, &&str)| {
            let mut command = self.hosts.command(host, program().with_file_name("kith-sampler"));
            command.arg("--graph").arg(self.path("cluster"));
            command.args(["--shards", &shard.to_string(), "--listen", &format!("0.0.0.0:{PORT}")]);
            let more = more(host);
            // The hosts' network is isolated.
            if more.is_empty() {
                command.arg("--insecure");
            }
            command.args(more);
            Sampler::launch(command)
        };
        SAMPLERS.iter().enumerate().map(start).collect()
    }

    /// A rank on each of its hosts.
    fn start(&self, out: &str, more: &[&str]) -> Ranks {
        self.start_each(out, |_| more.to_vec())
    }

    /// A rank on each of its hosts, each with its own options.
    fn start_each<'a>(&self, out: &str, more: impl Fn(usize) -> Vec<&'a str>) -> Ranks {
        let samplers = SAMPLERS.map(|host| format!("{host}:{PORT}")).join(",");
        let mut ranks = Ranks::none();
        for (rank, host) in RANKS.iter().enumerate() {
            let mut command = self.hosts.command(host, program());
            self.train(&mut command, out);
            command.args(["--samplers", &samplers, "--join-timeout", "30"]).args(more(rank));
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", RANKS.len().to_string());
            command.env("MASTER_ADDR", RANKS[0]).env("KITH_TOKEN", "a secret of these hosts");
            ranks.add(&self.path(&format!("{out}-said")), command);
        }
        ranks
    }

    /// Waits for the end of a run and compares it with that of one process.
    #[track_caller]
    fn assert_same(&self, mut ranks: Ranks, out: &str) {
        let codes = ranks.wait(LIMIT);
        assert_eq!(codes, [0, 0], "{}", ranks.all_said());
        if !self.path("alone").exists() {
            let mut alone = Command::new(program());
            self.train(&mut alone, "alone");
            let finished = finish_within(alone.arg("--graph").arg(self.path("store")), LIMIT);
            assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        }
        assert_eq!(steps(&self.path(out)), steps(&self.path("alone")));
    }

    /// Waits until `n_steps` steps are made, but not all.
    #[track_caller]
    fn wait_for_steps(&self, ranks: &mut Ranks, out: &str, n_steps: usize) {
        let started = Instant::now();
        while self.n_steps(out) < n_steps {
            assert!(!ranks.have_ended() && started.elapsed() < LIMIT, "no steps were made:\n{}", ranks.all_said());
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!ranks.have_ended(), "it was over before it was disturbed");
    }

    fn n_steps(&self, out: &str) -> usize {
        fs::read_to_string(self.path(out).join("steps.jsonl")).map_or(0, |text| text.lines().count())
    }
}

/// PEM certificates for the servers' hosts and one for clients, signed by one CA.
fn certify(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    fs::write(dir.join("ca.pem"), issuer.pem()).unwrap();
    for name in SAMPLERS.iter().chain(&["trainer"]) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([(*name).to_owned()]).unwrap();
        fs::write(dir.join(format!("{name}.pem")), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// TLS options of a program.
fn tls_options(dir: &Path, who: &str, ca: &str) -> Vec<PathBuf> {
    let file = |ending: &str| dir.join(format!("{who}.{ending}"));
    let options = [("--tls-cert", file("pem")), ("--tls-key", file("key")), (ca, dir.join("ca.pem"))];
    options.into_iter().flat_map(|(option, path)| [option.into(), path]).collect()
}

#[test]
#[allow(clippy::print_stderr)]
fn long_lines_change_nothing() {
    let Some(mut made) = Made::new(2) else { return };
    if let Err(reason) = made.hosts.lengthen() {
        eprintln!("skipped: {reason}");
        return;
    }
    let _servers = made.serve(|_| Vec::new());
    made.hosts.delay(Duration::from_millis(20));
    let mut ranks = made.start("hosts", &PATIENCE);
    made.wait_for_steps(&mut ranks, "hosts", 1);
    made.hosts.lose(1).unwrap();
    for _ in 0..3 {
        made.hosts.stall();
        thread::sleep(Duration::from_millis(300));
        made.hosts.go_on();
        thread::sleep(Duration::from_millis(100));
    }
    made.assert_same(ranks, "hosts");
}

/// Cuts the links of some hosts for a while; the run pauses, continues, and ends with the same results.
fn cut_and_heal(made: &Made, hosts: &[&str], out: &str, more: &[&str]) {
    let mut ranks = made.start(out, &[&PATIENCE, more].concat());
    made.wait_for_steps(&mut ranks, out, 5);
    hosts.iter().for_each(|host| made.hosts.cut(host));
    thread::sleep(CUT / 2);
    let n_steps = made.n_steps(out);
    thread::sleep(CUT / 2);
    assert!(!ranks.have_ended(), "{}", ranks.all_said());
    assert_eq!(made.n_steps(out), n_steps, "no step can be made without {hosts:?}");
    hosts.iter().for_each(|host| made.hosts.heal(host));
    made.assert_same(ranks, out);
}

#[test]
fn several_hosts_are_one_process() {
    let Some(made) = Made::new(4) else { return };
    let dir = made.path("tls");
    certify(&dir);
    let _servers = made.serve(|host| tls_options(&dir, host, "--tls-client-ca"));
    let own = tls_options(&dir, "trainer", "--tls-ca");
    let own: Vec<&str> = own.iter().map(|option| option.to_str().unwrap()).collect();
    let ranks = made.start("hosts", &own);
    made.assert_same(ranks, "hosts");
}

#[test]
fn a_link_that_is_cut_and_healed_changes_nothing() {
    let Some(made) = Made::new(10) else { return };
    let _servers = made.serve(|_| Vec::new());
    cut_and_heal(&made, &["sampler-b", "rank-b"], "healed", &[]);
}

#[test]
fn slow_any_link_that_is_cut_and_healed_changes_nothing() {
    if !is_slow_asked_for() {
        return;
    }
    let Some(made) = Made::new(100) else { return };
    let _servers = made.serve(|_| Vec::new());
    for host in SAMPLERS.iter().chain(&RANKS) {
        cut_and_heal(&made, &[host], host, &[]);
    }
}

/// Cuts the link of a host for good. Every rank exits with the code for a retry, and names an unreachable host; `named`
/// lists the possible names for each rank.
fn cut_for_good(made: &Made, host: &str, named: [&[&str]; 2]) {
    let out = format!("without-{host}");
    let mut ranks = made.start(&out, &["--heartbeat-timeout", "2", "--sampler-timeout", "3"]);
    made.wait_for_steps(&mut ranks, &out, 5);
    made.hosts.cut(host);
    // The heartbeat interval is 1 s; some more seconds are for passing on the decision.
    let codes = ranks.wait(Duration::from_secs(10));
    assert_eq!(codes, [75, 75], "{}", ranks.all_said());
    for (rank, names) in named.into_iter().enumerate() {
        let said = ranks.said(rank);
        let sentence = said.lines().last().unwrap_or_default();
        let is_named = sentence.starts_with("error: ") && names.iter().any(|name| sentence.contains(name));
        assert!(is_named, "rank {rank} does not say {names:?}:\n{said}");
    }
    made.hosts.heal(host);
}

#[test]
fn a_link_that_is_cut_for_good_stops_all() {
    let Some(made) = Made::new(1000) else { return };
    let _servers = made.serve(|_| Vec::new());
    // For the isolated rank, all others are unreachable.
    let others = ["rank 0 on rank-a was lost", " at sampler-a:7000: ", " at sampler-b:7000: "];
    cut_for_good(&made, "rank-b", [&["rank 1 on rank-b was lost"], &others]);
    cut_for_good(&made, "sampler-b", [&[" at sampler-b:7000: "], &[" at sampler-b:7000: "]]);
}

#[test]
fn slow_any_link_that_is_cut_for_good_stops_all() {
    if !is_slow_asked_for() {
        return;
    }
    let Some(made) = Made::new(1000) else { return };
    let _servers = made.serve(|_| Vec::new());
    let others = ["rank 1 on rank-b was lost", " at sampler-a:7000: ", " at sampler-b:7000: "];
    cut_for_good(&made, "rank-a", [&others, &["rank 0 on rank-a was lost"]]);
    cut_for_good(&made, "sampler-a", [&[" at sampler-a:7000: "], &[" at sampler-a:7000: "]]);
}

/// Encryption is on by default, and a rank without it is refused with a reason.
#[test]
fn slow_lines_between_hosts_are_encrypted() {
    if !is_slow_asked_for() {
        return;
    }
    let Some(made) = Made::new(1) else { return };
    let _samplers = made.serve(|_| Vec::new());
    let options = |rank: usize| [&["--heartbeat-timeout", "1"][..], [&[][..], &["--rank-tls", "off"]][rank]].concat();
    let mut ranks = made.start_each("plain", options);
    let started = Instant::now();
    while !ranks.said(1).contains("error: ") && started.elapsed() < LIMIT {
        thread::sleep(Duration::from_millis(10));
    }
    ranks.kill(0);
    assert_eq!(ranks.wait(LIMIT), [-1, 1], "{}", ranks.all_said());
    let said = ranks.said(1);
    assert!(said.contains("wants an encrypted line: give --rank-tls on to every rank"), "{said}");
}
