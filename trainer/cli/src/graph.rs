//! Which graph a command works on, and how it is reached.

use std::{env, path::PathBuf, time::Duration};

use kith_client::{
    TransportChoice,
    remote::{RemoteConfig, RemoteTls, TokenSource},
};
use kith_sampler::server::{TOKEN_VARIABLE, seconds};
use kith_store::Verify;

/// The graph: a store, or what `kith partition` made of it.
#[derive(clap::Args, Clone, Debug)]
pub struct GraphArgs {
    /// The store to work on: its folder, or the URL that it was pushed to.
    #[arg(long, value_name = "STORE", conflicts_with_all = ["shards", "samplers"])]
    pub store: Option<PathBuf>,
    /// The folder that `kith partition` made of the store, or the URL that it was pushed to.
    #[arg(long, value_name = "DIR")]
    pub shards: Option<PathBuf>,
    /// Sampling servers that have the shards (see `kith serve`), with commas between them. Where several have a shard, one is
    /// asked, and the next when that one is lost or slow.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub samplers: Vec<String>,
    /// auto: read shards that are in --shards here, ask servers for the others; grpc: ask servers for all; local: ask none.
    #[arg(long, default_value = "auto", value_name = "auto|grpc|local", value_parser = transport, conflicts_with = "store")]
    pub transport: TransportChoice,
    /// When blocks of the store or the shards are compared with their checksums: when they are first read, all of them at the
    /// start, or never. A block that does not match ends the command.
    #[arg(long, default_value_t, value_name = "first-touch|open|off")]
    pub verify: Verify,
    /// Keep rows that servers have in memory, up to this percentage of all nodes: those that batches need most.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent, conflicts_with = "store")]
    pub cache: f64,
    /// The longest that sampling servers may take without sending anything new, retries included, before the command gives
    /// up. A slow line on which answers advance never ends it.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = seconds(1))]
    pub sampler_timeout: u64,
    /// The token to show to sampling servers that ask for one: the first line of this file, or else the environment's
    /// KITH_SAMPLER_TOKEN. It is read again when a server refuses it.
    #[arg(long, value_name = "FILE", requires = "samplers")]
    pub token_file: Option<PathBuf>,
    /// Who signs sampling servers, PEM: connections are encrypted.
    #[arg(long, value_name = "FILE", requires = "samplers")]
    pub tls_ca: Option<PathBuf>,
    /// The certificate to show to sampling servers that ask for one, PEM.
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub tls_cert: Option<PathBuf>,
    /// Its private key, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// The name in the servers' certificates, if it is not the host of their address.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub tls_name: Option<String>,
}

impl GraphArgs {
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
