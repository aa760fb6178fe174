//! Encryption of connections between ranks: TLS 1.3 with a throw-away certificate of each process.
//!
//! Certificates prove nothing here and nobody signs them. The token proves an end's identity, over a value that only
//! the two ends of one TLS connection share (see `token.rs`). A relay between two connections has two such values.

use std::{fmt, io, sync::Arc};

use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, ServerConfig, ServerConnection,
    SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls13_signature},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    version::TLS13,
};

/// The name in all certificates: nobody looks at it.
const NAME: &str = "kith-rank";

/// Keys of this process, made for one process group.
#[derive(Clone)]
pub(super) struct Keys {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(…)")
    }
}

impl Keys {
    /// Draws a key and signs its certificate with it.
    pub(super) fn draw() -> io::Result<Keys> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(io::Error::other)?;
        let certificate = made.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(ring::default_provider());
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.into())
            .map_err(io::Error::other)?;
        // No line is resumed. A ticket that the other end never reads would turn the end of its connection into a reset,
        // which can overtake the last bytes that it sent.
        server.send_tls13_tickets = 0;
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        Ok(Keys { client: Arc::new(client), server: Arc::new(server) })
    }

    /// The end that connects.
    pub(super) fn client(&self) -> io::Result<Connection> {
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let connection = ClientConnection::new(self.client.clone(), name).map_err(io::Error::other)?;
        Ok(connection.into())
    }

    /// The end that was connected to.
    pub(super) fn server(&self) -> io::Result<Connection> {
        let connection = ServerConnection::new(self.server.clone()).map_err(io::Error::other)?;
        Ok(connection.into())
    }
}

/// Takes every certificate whose key signed the handshake.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("ranks speak TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
