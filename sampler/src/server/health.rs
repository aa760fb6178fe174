//! Health check of a server, for container probes.

use std::{fs, io, path::PathBuf, time::Duration};

use clap::Args;
use kith_proto::{SERVICE, sentence};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::server::{args::seconds, error::ServeError};

/// Arguments of `kith-sampler health`.
#[derive(Clone, Debug, Args)]
pub struct HealthArgs {
    /// Address of the server. With http://, the metrics port is asked, which answers even if the gRPC port is overloaded.
    #[arg(value_name = "[http://]HOST:PORT")]
    address: String,
    /// Longest time until the response (default: 5).
    #[arg(long, value_name = "SECONDS", default_value_t = 5, hide_default_value = true, value_parser = seconds(1))]
    timeout: u64,
    /// CA certificates of the server, PEM; turns TLS on.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Client certificate, PEM.
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// Private key of the client certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Name in the server's certificate (default: the host of the address).
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_name: Option<String>,
}

/// Asks a server whether it serves; an error says why not.
pub fn ask_health(args: &HealthArgs) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ServeError::System(error.to_string()))?;
    let limit = Duration::from_secs(args.timeout);
    let asked = runtime.block_on(async { tokio::time::timeout(limit, ask(args)).await });
    asked.unwrap_or_else(|_| Err(unhealthy(args, format!("no answer within {} s", args.timeout))))
}

async fn ask(args: &HealthArgs) -> Result<(), ServeError> {
    if let Some(address) = args.address.strip_prefix("http://") {
        return ask_page(args, address.trim_end_matches('/')).await;
    }
    let scheme = if args.tls_ca.is_some() { "https" } else { "http" };
    let lost = |error: tonic::transport::Error| unhealthy(args, sentence(&error));
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", args.address)).map_err(lost)?;
    if let Some(tls) = tls(args)? {
        endpoint = endpoint.tls_config(tls).map_err(lost)?;
    }
    let mut client = HealthClient::new(endpoint.connect().await.map_err(lost)?);
    let answer = client.check(HealthCheckRequest { service: SERVICE.to_owned() }).await;
    match answer.map_err(|status| unhealthy(args, sentence(&status)))?.into_inner().status() {
        ServingStatus::Serving => Ok(()),
        status => Err(unhealthy(args, format!("it says {}", status.as_str_name()))),
    }
}

/// Asks the port for metrics.
async fn ask_page(args: &HealthArgs, address: &str) -> Result<(), ServeError> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET /health HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = asked.await.map_err(|error| unhealthy(args, error.to_string()))?;
    let mut lines = answer.lines();
    match lines.next() {
        Some(line) if line.starts_with("HTTP/1.1 200 ") => Ok(()),
        Some(line) => Err(unhealthy(args, format!("it says {line}: {}", lines.next_back().unwrap_or_default()))),
        None => Err(unhealthy(args, "it says nothing".to_owned())),
    }
}

/// Bytes of an answer that are read.
const MAX_ANSWER_BYTES: u64 = 4 << 10;

fn tls(args: &HealthArgs) -> Result<Option<ClientTlsConfig>, ServeError> {
    let Some(ca) = &args.tls_ca else { return Ok(None) };
    let read = |path: &PathBuf| {
        fs::read(path).map_err(|error| ServeError::Tls { path: path.clone(), problem: error.to_string() })
    };
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
    if let Some((certificate, key)) = args.tls_cert.as_ref().zip(args.tls_key.as_ref()) {
        tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    if let Some(name) = &args.tls_name {
        tls = tls.domain_name(name);
    }
    Ok(Some(tls))
}

fn unhealthy(args: &HealthArgs, problem: String) -> ServeError {
    ServeError::Unhealthy { address: args.address.clone(), problem }
}
