//! Asking a server how it is: what probes of containers run.

use std::{fs, path::PathBuf, time::Duration};

use clap::Args;
use kith_proto::{SERVICE, sentence};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::server::error::ServeError;

/// What is typed to ask a server how it is.
#[derive(Clone, Debug, Args)]
pub struct HealthArgs {
    /// The server
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// The longest that the answer may take
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Who signs the server, PEM: the connection is encrypted
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The certificate to show to a server that asks for one, PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the host of the address
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
