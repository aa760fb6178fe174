//! Command lines of servers and ranks.

use std::{
    ffi::{OsStr, OsString},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    process::Command,
    thread,
    time::Duration,
};

use anyhow::Context;
use kith_sampler::server::TOKEN_VARIABLE;
use kith_store::{Cluster, Verify};

use super::args::Args;
use crate::{programs, token::draw_token};

pub(crate) const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Variables of other launchers, which would contradict ours.
const FOREIGN: [&str; 4] = ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "JOB_COMPLETION_INDEX"];

/// Parts of all command lines.
#[derive(Debug)]
pub(crate) struct CommandLine {
    pub(crate) program: PathBuf,
    pub(crate) n_ranks: usize,
    pub(crate) n_servers: usize,
    /// Folder of the partitioned graph, and its number of shards.
    pub(crate) cluster: Option<(PathBuf, usize)>,
    /// Options of `kith train`.
    pub(crate) passed: Vec<OsString>,
    /// Metrics address of rank 0; the other ranks use the following ports.
    pub(crate) metrics: Option<SocketAddr>,
    /// Metrics address of every server.
    pub(crate) server_metrics: Option<SocketAddr>,
    /// Folder of checkpoints, from which a run resumes.
    pub(crate) out: Option<PathBuf>,
    pub(crate) is_resumed: bool,
    /// Time for ranks to save a checkpoint after a signal.
    pub(crate) grace: Duration,
    pub(crate) token: OsString,
    /// Token for the servers started here, which reject other clients.
    pub(crate) sampler_token: OsString,
    /// Time of the servers' checksum verification.
    pub(crate) verify: Verify,
    pub(crate) threads: Threads,
    /// Core of process i is `cores[i % len]`, ranks first; empty: not pinned.
    pub(crate) cores: Vec<usize>,
}

/// Threads of each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threads {
    pub(crate) rank: usize,
    pub(crate) server: usize,
}

impl Threads {
    /// Divides the cores among ranks, and again among servers.
    pub(crate) fn shared(n_ranks: usize, n_servers: usize) -> Threads {
        let n_threads = thread::available_parallelism().map_or(1, usize::from);
        Threads { rank: share(n_threads, n_ranks), server: share(n_threads, n_servers) }
    }
}

impl CommandLine {
    /// Command lines of `kith launch`; `typed` are the words after it.
    pub(super) fn new(args: &Args, n_ranks: usize, typed: &[OsString]) -> anyhow::Result<CommandLine> {
        let train = &args.train;
        let n_servers = servers_to_start(&train.graph.samplers)?;
        let mut own = vec!["--ranks", "--restarts", "--metrics", "--launcher-metrics"];
        let mut cluster = None;
        if let Some(n_servers) = n_servers {
            let Some(dir) = train.graph.place()?.shards else {
                anyhow::bail!(
                    "--samplers {n_servers} starts servers of a partitioned graph: give its folder with --graph"
                );
            };
            if train.graph.tls_ca.is_some() {
                anyhow::bail!(
                    "servers that kith launch starts are asked on this host and do not encrypt: leave --tls-ca out"
                );
            }
            let n_shards = Cluster::open(&dir)?.n_shards() as usize;
            if n_servers == 0 || n_servers > n_shards {
                anyhow::bail!("{n_servers} servers for {n_shards} shards: ask for 1 to {n_shards} with --samplers");
            }
            // Ranks with access to the folder would read it themselves.
            own.extend(["--samplers", "--shards", "--graph", "--store"]);
            cluster = Some((dir, n_shards));
        }
        let n_servers = n_servers.unwrap_or(0);
        let mut threads = Threads::shared(n_ranks, n_servers);
        if let Some(n) = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()) {
            threads.rank = n;
        }
        Ok(CommandLine {
            program: programs::kith()?,
            n_ranks,
            n_servers,
            cluster,
            passed: without(typed, &own),
            metrics: train.metrics,
            server_metrics: None,
            out: train.out.clone(),
            is_resumed: train.resume,
            grace: train.grace(),
            token: match std::env::var_os("KITH_TOKEN") {
                Some(token) => token,
                None => draw_token()?.into(),
            },
            sampler_token: draw_token()?.into(),
            verify: train.graph.verify,
            threads,
            cores: Vec::new(),
        })
    }

    /// The program, on the core of a process if processes have cores of their own.
    fn program(&self, process: usize) -> Command {
        let Some(core) = self.cores.get(process % self.cores.len().max(1)) else { return Command::new(&self.program) };
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &core.to_string()]).arg(&self.program);
        command
    }

    /// Server `number`: it serves every `n_servers`-th shard.
    pub(super) fn server(&self, number: usize) -> Command {
        let (dir, n_shards) = self.cluster.as_ref().expect("servers have a cluster");
        let shards: Vec<String> = (number..*n_shards).step_by(self.n_servers).map(|shard| shard.to_string()).collect();
        let mut command = self.program(self.n_ranks + number);
        command.arg("serve").arg("--graph").arg(dir).args(["--shards", &shards.join(",")]);
        command.args(["--listen", &format!("{HOST}:0")]);
        command.args(["--threads", &self.threads.server.to_string(), "--verify", &self.verify.to_string()]);
        command.env(TOKEN_VARIABLE, &self.sampler_token);
        command.env(kith_log::FORMAT_VARIABLE, kith_log::format().name());
        command.envs(kith_log::collector().map(|url| (kith_log::OTLP_VARIABLE, url)));
        if let Some(address) = self.server_metrics {
            command.args(["--metrics", &address.to_string()]);
        }
        command
    }

    /// A rank that joins the process group at `port`.
    pub(super) fn rank(&self, rank: usize, port: u16, samplers: &[String], is_restart: bool) -> Command {
        let mut command = self.program(rank);
        command.arg("train").args(&self.passed);
        if !samplers.is_empty() {
            command.args(["--samplers", &samplers.join(",")]).env(TOKEN_VARIABLE, &self.sampler_token);
        }
        if let Some(address) = self.metrics {
            command.args(["--metrics", &metrics_of(address, rank).to_string()]);
        }
        if is_restart && self.out.is_some() && !self.is_resumed {
            command.arg("--resume");
        }
        FOREIGN.iter().for_each(|name| {
            command.env_remove(name);
        });
        let numbers = [
            ("RANK", rank),
            ("LOCAL_RANK", rank),
            ("WORLD_SIZE", self.n_ranks),
            ("LOCAL_WORLD_SIZE", self.n_ranks),
            ("MASTER_PORT", port.into()),
        ];
        command.envs(numbers.map(|(name, number)| (name, number.to_string())));
        command.env("MASTER_ADDR", HOST.to_string()).env("KITH_TOKEN", &self.token);
        command.env("RAYON_NUM_THREADS", self.threads.rank.to_string());
        command.env(kith_log::FORMAT_VARIABLE, kith_log::format().name());
        command.envs(kith_log::collector().map(|url| (kith_log::OTLP_VARIABLE, url)));
        command
    }

    /// A listening socket for rank 0 and its port, which no other process can take.
    pub(super) fn listen(&self) -> anyhow::Result<(TcpListener, u16)> {
        let listener = TcpListener::bind((HOST, 0)).with_context(|| format!("{HOST} has no free port"))?;
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    }
}

/// Metrics address of a rank; port 0 stays 0, for any free port.
fn metrics_of(mut address: SocketAddr, rank: usize) -> SocketAddr {
    if address.port() != 0 {
        address.set_port(address.port().saturating_add(rank as u16));
    }
    address
}

/// Threads of each of `n` processes.
fn share(n_threads: usize, n: usize) -> usize {
    (n_threads / n.max(1)).max(1)
}

/// Number of servers to start: `--samplers 2`. `None` for addresses of running servers.
pub(super) fn servers_to_start(samplers: &[String]) -> anyhow::Result<Option<usize>> {
    match samplers {
        [number] if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            Ok(Some(number.parse().with_context(|| format!("{number} servers are too many"))?))
        }
        _ => Ok(None),
    }
}

/// The words without these options and their values.
fn without(typed: &[OsString], options: &[&str]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut typed = typed.iter();
    while let Some(part) = typed.next() {
        let is = |option: &&&str| part == OsStr::new(option);
        let has_value =
            |option: &&&str| part.to_string_lossy().strip_prefix(**option).is_some_and(|rest| rest.starts_with('='));
        if options.iter().find(is).is_some() {
            typed.next();
        } else if options.iter().find(has_value).is_none() {
            kept.push(part.clone());
        }
    }
    kept
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn what_is_ours_is_not_passed_on() {
        let typed = ["--ranks", "2", "my.toml", "--set", "train.epochs=3", "--ranks=4", "--restarts", "1", "--resume"];
        let typed = typed.map(OsString::from);
        assert_eq!(without(&typed, &["--ranks", "--restarts"]), ["my.toml", "--set", "train.epochs=3", "--resume"]);
        assert_eq!(without(&typed[..1], &["--ranks"]), Vec::<OsString>::new());
        assert_eq!(without(&[OsString::from("--ranksx=1")], &["--ranks"]), ["--ranksx=1"]);
    }

    #[test]
    fn a_number_starts_servers_and_addresses_do_not() {
        let of = |text: &str| servers_to_start(&text.split(',').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!((of("2").unwrap(), of("0").unwrap()), (Some(2), Some(0)));
        assert_eq!((of("host:7000").unwrap(), of("1,2").unwrap(), of("").unwrap()), (None, None, None));
        assert!(of("99999999999999999999").unwrap_err().to_string().contains("too many"));
        assert_eq!(servers_to_start(&[]).unwrap(), None);
    }

    #[test]
    fn everybody_has_a_thread() {
        assert_eq!([share(8, 2), share(7, 2), share(2, 3), share(4, 0)], [4, 3, 1, 4]);
    }

    #[test]
    fn every_rank_has_metrics_of_its_own() {
        let of = |address: &str| [0, 3].map(|rank| metrics_of(address.parse().unwrap(), rank).port());
        assert_eq!((of("127.0.0.1:9100"), of("127.0.0.1:0")), ([9100, 9103], [0, 0]));
    }

    pub(in crate::launch) fn command_line(n_ranks: usize) -> CommandLine {
        CommandLine {
            program: "kith".into(),
            n_ranks,
            n_servers: 0,
            cluster: None,
            passed: Vec::new(),
            metrics: None,
            server_metrics: None,
            out: None,
            is_resumed: false,
            grace: Duration::ZERO,
            token: OsString::new(),
            sampler_token: OsString::new(),
            verify: Verify::default(),
            threads: Threads { rank: 3, server: 1 },
            cores: Vec::new(),
        }
    }

    #[test]
    fn pinned_processes_have_cores_of_their_own() {
        let any = command_line(2);
        assert_eq!(any.rank(0, 29500, &[], false).get_program(), "kith");
        let pinned =
            CommandLine { cores: vec![4, 6, 5], n_servers: 2, cluster: Some(("g".into(), 2)), ..command_line(2) };
        let core = |command: Command| {
            assert_eq!(command.get_program(), "taskset");
            let args: Vec<String> = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
            assert_eq!((args[0].as_str(), args[2].as_str()), ("--cpu-list", "kith"));
            args[1].clone()
        };
        assert_eq!([0, 1].map(|rank| core(pinned.rank(rank, 29500, &[], false))), ["4", "6"]);
        assert_eq!([0, 1].map(|number| core(pinned.server(number))), ["5", "4"], "over again");
    }

    #[test]
    fn ranks_are_numbered_in_their_environment() {
        let command = command_line(4).rank(3, 29500, &[], false);
        let variable = |name: &str| command.get_envs().find(|(key, _)| *key == name).and_then(|(_, value)| value);
        let expected = [
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "3"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("RAYON_NUM_THREADS", "3"),
        ];
        for (name, value) in expected {
            assert_eq!(variable(name), Some(OsStr::new(value)), "{name}");
        }
        assert!(!command.get_envs().any(|(name, _)| name.to_string_lossy().starts_with("NCCL_")), "they are inherited");
    }

    #[test]
    fn tokens_differ() {
        let (one, other) = (draw_token().unwrap(), draw_token().unwrap());
        assert!(one.len() == 32 && one != other);
    }
}
