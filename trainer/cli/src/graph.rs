//! The graph of a command: its place, and the connection to sampling servers.

use std::{env, fmt, path::PathBuf, str::FromStr, time::Duration};

use anyhow::bail;
use kith_bucket::Wanted;
use kith_client::{
    CacheSize, TransportChoice,
    remote::{RemoteConfig, RemoteTls, TokenSource},
};
use kith_sampler::server::{TOKEN_VARIABLE, seconds};
use kith_store::{CutEntry, Manifest, Verify, memory::total_bytes};

use crate::pulled::local;

/// The graph.
#[derive(clap::Args, Clone, Debug)]
pub struct GraphArgs {
    /// The graph: a store or a partitioned graph (a folder, or a URL such as s3://BUCKET/FOLDER), or sampling servers
    /// (grpc://HOST:PORT,HOST:PORT; see `kith serve`).
    #[arg(long, alias = "store", value_name = "PLACE", conflicts_with = "shards")]
    pub graph: Option<PathBuf>,
    /// Partitioned graph of which this process reads the shards it has, together with --samplers for the others.
    #[arg(long, value_name = "DIR", hide = true)]
    pub shards: Option<PathBuf>,
    /// Sampling servers, comma-separated. If several serve a shard, one is asked, and the next if it fails or is slow.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', hide = true)]
    pub samplers: Vec<String>,
    /// Source of shards that exist both in a folder and on servers: auto and local read them from the folder, grpc
    /// reads them from the servers (default: auto).
    #[arg(long, default_value = "auto", hide_default_value = true, value_name = "auto|grpc|local", value_parser = transport)]
    pub transport: TransportChoice,
    /// Verification of checksums: first-touch checks each block when it is first read, open checks all blocks at the
    /// start, off checks nothing (default: first-touch). A mismatch ends the command.
    #[arg(long, default_value_t, hide_default_value = true, value_name = "first-touch|open|off")]
    pub verify: Verify,
    /// Size of the in-memory cache for features from sampling servers, as a percentage of all nodes; auto: as many as fit
    /// in an eighth of the memory of the host or container (default: 0, no cache). It caches the nodes that mini-batches most
    /// probably need. The ranks of a host share it.
    #[arg(long, value_name = "PERCENT|auto", default_value_t, hide_default_value = true)]
    pub cache: Cache,
    /// Give up when sampling servers have sent nothing new for this many seconds, retries included (default: 60). A
    /// slow answer is not given up as long as its bytes arrive.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, hide_default_value = true, value_parser = seconds(1))]
    pub sampler_timeout: u64,
    /// File whose first line is the bearer token for sampling servers (default: the token in the environment variable
    /// KITH_SAMPLER_TOKEN). The file is read again when a server rejects the token.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// PEM file with the CA certificates that signed the sampling servers' certificates; turns TLS on.
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// PEM file with a client certificate, for sampling servers that require one.
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the client certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Name to expect in the certificates of sampling servers (default: the host in the server's address).
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub tls_name: Option<String>,
}

/// Size of the cache for features from sampling servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cache {
    /// As many nodes as fit in a share of the memory of the host or container.
    Auto,
    /// A percentage of all nodes.
    Percent(f64),
}

impl Default for Cache {
    fn default() -> Cache {
        Cache::NONE
    }
}

impl Cache {
    /// No cache.
    pub(crate) const NONE: Cache = Cache::Percent(0.0);

    /// Of `memory` bytes of a host, an automatic cache takes at most one part in this many.
    pub(crate) const SHARE: u64 = 8;

    /// Size on this host.
    pub fn size(self) -> CacheSize {
        match self {
            Cache::Auto => CacheSize::Bytes(total_bytes().unwrap_or(0) / Cache::SHARE),
            Cache::Percent(percent) => CacheSize::Percent(percent),
        }
    }
}

impl FromStr for Cache {
    type Err = String;

    fn from_str(text: &str) -> Result<Cache, String> {
        match text {
            "auto" => Ok(Cache::Auto),
            text => percent(text).map(Cache::Percent).map_err(|error| format!("{error}, or auto")),
        }
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cache::Auto => f.write_str("auto"),
            Cache::Percent(percent) => percent.fmt(f),
        }
    }
}

/// The resolved place of a graph.
#[derive(Clone, Debug, Default)]
pub struct GraphPlace {
    /// A store on this machine.
    pub store: Option<PathBuf>,
    /// A partitioned graph on this machine.
    pub shards: Option<PathBuf>,
    /// Addresses of sampling servers.
    pub samplers: Vec<String>,
}

/// Prefix of a place that consists of sampling servers.
const SERVERS: &str = "grpc://";

impl GraphArgs {
    /// Resolves the place of the graph; pulls a URL.
    pub fn place(&self) -> anyhow::Result<GraphPlace> {
        let mut place = GraphPlace { samplers: self.samplers.clone(), ..GraphPlace::default() };
        if let Some(dir) = &self.shards {
            place.shards = Some(local(dir, &Wanted::All)?);
        }
        match self.graph.as_deref().map(|graph| (graph, graph.to_str().and_then(|text| text.strip_prefix(SERVERS)))) {
            None => {}
            Some((_, Some(servers))) => {
                let names =
                    servers.split(',').map(|name| name.trim().trim_start_matches(SERVERS).trim_end_matches('/'));
                place.samplers.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
            }
            Some((graph, None)) => {
                let dir = local(graph, &Wanted::All)?;
                if !dir.is_dir() {
                    bail!("{}: no such folder: give a store or a partitioned graph with --graph", dir.display());
                }
                match Manifest::read(&dir)?.contents.cut {
                    Some(CutEntry::Cluster(_)) => place.shards = Some(dir),
                    _ => place.store = Some(dir),
                }
            }
        }
        self.check(&place)?;
        Ok(place)
    }

    fn check(&self, place: &GraphPlace) -> anyhow::Result<()> {
        let for_servers = [
            ("--cache", self.cache != Cache::NONE && place.store.is_some()),
            ("--transport", self.transport != TransportChoice::Auto && place.store.is_some()),
            ("--samplers", !place.samplers.is_empty() && place.store.is_some()),
            ("--token-file", self.token_file.is_some() && place.samplers.is_empty()),
            ("--tls-ca", self.tls_ca.is_some() && place.samplers.is_empty()),
        ];
        match for_servers.iter().find(|(_, is_wrong)| *is_wrong) {
            Some((option @ ("--token-file" | "--tls-ca"), _)) => {
                bail!("{option} is for sampling servers: give --graph grpc://HOST:PORT")
            }
            Some((option, _)) => {
                bail!(
                    "{option} is for partitioned graphs and sampling servers, and --graph is a store: see `kith partition`"
                )
            }
            None => {}
        }
        if place.store.is_none() && place.shards.is_none() && place.samplers.is_empty() {
            bail!("no graph: give --graph PLACE (a store, a partitioned graph, or grpc://HOST:PORT)");
        }
        Ok(())
    }

    /// Limits, retries and credentials for sampling servers.
    pub fn remote(&self) -> anyhow::Result<RemoteConfig> {
        let max_call = Duration::from_secs(self.sampler_timeout);
        let usual = RemoteConfig::default();
        let token = match (&self.token_file, env::var_os(TOKEN_VARIABLE)) {
            (Some(path), _) => Some(TokenSource::File(path.clone())),
            (None, None) => None,
            (None, Some(token)) => {
                let token = token.into_string().map_err(|_| anyhow::anyhow!("{TOKEN_VARIABLE}: expected text"))?;
                Some(TokenSource::Text { origin: TOKEN_VARIABLE, token: token.into() })
            }
        };
        Ok(RemoteConfig {
            max_call,
            max_silence: usual.max_silence.min(max_call / 3),
            token,
            tls: self.tls_ca.clone().map(|ca| RemoteTls {
                ca,
                identity: self.tls_cert.clone().zip(self.tls_key.clone()),
                server_name: self.tls_name.clone(),
            }),
            ..usual
        })
    }
}

pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a number from 0 to 100".to_owned())
}

fn transport(text: &str) -> Result<TransportChoice, String> {
    match text {
        "auto" => Ok(TransportChoice::Auto),
        "grpc" => Ok(TransportChoice::Grpc),
        "local" => Ok(TransportChoice::Local),
        _ => Err("expected auto, grpc or local".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        graph: GraphArgs,
    }

    fn parse(options: &[&str]) -> Result<GraphArgs, String> {
        let typed = Typed::try_parse_from([&["kith", "--samplers", "here:7000"], options].concat());
        typed.map(|typed| typed.graph).map_err(|error| error.to_string())
    }

    #[test]
    fn times_that_overflow_are_refused() {
        for seconds in ["18446744073709551615", "18446744073709551616", "99999999999", "0", "1e9"] {
            let error = parse(&["--sampler-timeout", seconds]).unwrap_err();
            assert!(error.contains("--sampler-timeout") && error.contains(seconds), "{error}");
        }
        let longest = parse(&["--sampler-timeout", "31536000"]).unwrap().remote().unwrap();
        assert_eq!(longest.max_call, Duration::from_secs(31_536_000));
        assert_eq!(longest.max_silence, Duration::from_secs(20));
        let short = parse(&["--sampler-timeout", "3"]).unwrap().remote().unwrap();
        assert_eq!(short.max_silence, Duration::from_secs(1));
    }

    #[test]
    fn a_cache_has_a_size() {
        let size = |options: &[&str]| parse(options).map(|args| args.cache.size());
        assert_eq!(size(&["--cache", "20"]), Ok(CacheSize::Percent(20.0)));
        assert_eq!(size(&[]), Ok(CacheSize::Percent(0.0)));
        let Ok(CacheSize::Bytes(bytes)) = size(&["--cache", "auto"]) else { panic!("a size in bytes") };
        assert!(bytes > 1 << 20, "{bytes}");
        let error = size(&["--cache", "101"]).unwrap_err();
        assert!(error.contains("expected a number from 0 to 100, or auto"), "{error}");
    }

    #[test]
    fn a_token_is_read_from_a_file() {
        let remote = parse(&["--token-file", "token"]).unwrap().remote().unwrap();
        let Some(TokenSource::File(path)) = remote.token else { panic!("{:?}", remote.token) };
        assert_eq!(path.to_str(), Some("token"));
    }
}
