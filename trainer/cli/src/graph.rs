//! Which graph a command works on, and how it is reached.

use std::{env, path::PathBuf, sync::Arc, time::Duration};

use kith_bucket::Wanted;
use kith_client::{
    TransportChoice, Whereabouts,
    remote::{RemoteConfig, RemoteTls, TokenSource},
};
use kith_sampler::server::{TOKEN_VARIABLE, seconds};
use kith_store::{Cluster, Verify};
use kith_trainer::data::opened::Opened;

use crate::{progress::say, pulled::local};

/// The graph: a store, or what `kith partition` made of it.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct GraphArgs {
    /// The store to work on: its folder, or the URL that it was pushed to.
    #[arg(long, value_name = "STORE", conflicts_with_all = ["shards", "samplers"])]
    pub(crate) store: Option<PathBuf>,
    /// The folder that `kith partition` made of the store, or the URL that it was pushed to.
    #[arg(long, value_name = "DIR")]
    pub(crate) shards: Option<PathBuf>,
    /// Sampling servers that have the shards (see `kith serve`), with commas between them. Where several have a shard, one is
    /// asked, and the next when that one is lost or slow.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub(crate) samplers: Vec<String>,
    /// auto: read shards that are in --shards here, ask servers for the others; grpc: ask servers for all; local: ask none.
    #[arg(long, default_value = "auto", value_name = "auto|grpc|local", value_parser = transport, conflicts_with = "store")]
    transport: TransportChoice,
    /// When blocks of the store or the shards are compared with their checksums: when they are first read, all of them at the
    /// start, or never. A block that does not match ends the command.
    #[arg(long, default_value_t, value_name = "first-touch|open|off")]
    pub(crate) verify: Verify,
    /// Keep rows that servers have in memory, up to this percentage of all nodes: those that batches need most.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent, conflicts_with = "store")]
    pub(crate) cache: f64,
    /// The longest that sampling servers may take without sending anything new, retries included, before the command gives
    /// up. A slow line on which answers advance never ends it.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = seconds(1))]
    sampler_timeout: u64,
    /// The token to show to sampling servers that ask for one: the first line of this file, or else the environment's
    /// KITH_SAMPLER_TOKEN. It is read again when a server refuses it.
    #[arg(long, value_name = "FILE", requires = "samplers")]
    pub(crate) token_file: Option<PathBuf>,
    /// Who signs sampling servers, PEM: connections are encrypted.
    #[arg(long, value_name = "FILE", requires = "samplers")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The certificate to show to sampling servers that ask for one, PEM.
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The name in the servers' certificates, if it is not the host of their address.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_name: Option<String>,
}

impl GraphArgs {
    /// Opens it.
    pub(crate) fn open(&self) -> anyhow::Result<Opened> {
        self.open_as(0)
    }

    /// Opens it for a rank: of several servers of a shard, each begins with another.
    pub(crate) fn open_as(&self, rank: usize) -> anyhow::Result<Opened> {
        if let Some(store) = &self.store {
            return Ok(Opened::open_store_with(&local(store, &Wanted::All)?, self.verify)?);
        }
        let cluster = match &self.shards {
            Some(dir) => Some(Arc::new(Cluster::open_with(&local(dir, &Wanted::All)?, self.verify)?)),
            None => None,
        };
        if cluster.is_none() && self.samplers.is_empty() {
            anyhow::bail!("give --store, --shards or --samplers");
        }
        if !self.samplers.is_empty() {
            // Servers that are not there yet are waited for.
            say(&format!("asking {}, at most {} s without an answer", self.samplers.join(", "), self.sampler_timeout));
        }
        let whereabouts = Whereabouts {
            cluster,
            samplers: self.samplers.clone(),
            rank,
            transport: self.transport,
            remote: self.remote()?,
            cached_percent: self.cache,
        };
        let opened = Opened::find(whereabouts)?;
        for server in opened.silent_servers() {
            say(&format!("note: no answer from {server}: going on without it, because others have all shards"));
        }
        Ok(opened)
    }

    fn remote(&self) -> anyhow::Result<RemoteConfig> {
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
    percent.ok_or_else(|| "write a number from 0 to 100".to_owned())
}

fn transport(text: &str) -> Result<TransportChoice, String> {
    match text {
        "auto" => Ok(TransportChoice::Auto),
        "grpc" => Ok(TransportChoice::Grpc),
        "local" => Ok(TransportChoice::Local),
        _ => Err("write auto, grpc or local".to_owned()),
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
    fn a_token_is_read_from_a_file() {
        let remote = parse(&["--token-file", "token"]).unwrap().remote().unwrap();
        let Some(TokenSource::File(path)) = remote.token else { panic!("{:?}", remote.token) };
        assert_eq!(path.to_str(), Some("token"));
    }
}
