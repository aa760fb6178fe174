//! Certificates of a server, reloaded when their files change.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

use crate::server::{config::TlsFiles, error::ServeError};

/// TLS of a server.
pub(crate) struct Tls {
    files: TlsFiles,
    acceptor: RwLock<TlsAcceptor>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads certificates and key.
    pub(crate) fn read(files: &TlsFiles) -> Result<Tls, ServeError> {
        Ok(Tls { files: files.clone(), acceptor: RwLock::new(acceptor(files)?) })
    }

    /// Reads them again, for connections that are made from now on. If they cannot be read, those from before stay.
    pub(crate) fn reload(&self) -> Result<(), ServeError> {
        let new = acceptor(&self.files)?;
        *self.acceptor.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// The files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let TlsFiles { certificate, key, client_ca } = &self.files;
        [certificate, key].into_iter().chain(client_ca)
    }

    /// Makes encrypted connections.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, ServeError> {
    let TlsFiles { certificate, key, client_ca } = files;
    let failed = |path: &Path, problem: String| ServeError::Tls { path: path.to_owned(), problem };
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| ServeError::System(error.to_string()))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(path)? {
                roots.add(root).map_err(|error| failed(path, error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| failed(path, error.to_string()))?)
        }
    };
    let chain = certificates(certificate)?;
    let private_key = PrivateKeyDer::from_pem_slice(&read(key)?)
        .map_err(|error| failed(key, format!("expected a private key in PEM: {error}")))?;
    let mut config =
        builder.with_single_cert(chain, private_key).map_err(|error| failed(certificate, error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let failed = |problem: String| ServeError::Tls { path: path.to_owned(), problem };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let found = found.map_err(|error| failed(format!("expected certificates in PEM: {error}")))?;
    if found.is_empty() { Err(failed("expected a certificate in PEM, found none".to_owned())) } else { Ok(found) }
}

fn read(path: &Path) -> Result<Vec<u8>, ServeError> {
    fs::read(path).map_err(|error| ServeError::Tls { path: path.to_owned(), problem: error.to_string() })
}
