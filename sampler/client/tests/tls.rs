//! Trust between clients and servers over TLS.

mod graphs;
mod served;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use graphs::{Edges, open};
use kith_client::{
    ClientError, FetchedRows,
    remote::{RemoteConfig, RemoteProblem, RemoteSampler, RemoteTls},
};
use kith_sampler::server::{Server, ServerConfig, TlsFiles};
use kith_store::Cluster;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use served::{config, cut, run};

/// Somebody who signs.
struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
    path: PathBuf,
}

impl Ca {
    fn new(folder: &Path, name: &str) -> Ca {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let path = folder.join(format!("{name}.pem"));
        fs::write(&path, issuer.pem()).unwrap();
        Ca { issuer, path }
    }

    /// A certificate for this host and its key, valid until a year.
    fn sign(&self, name: &str, until: i32) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "sampler.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let paths = (self.path.with_file_name(format!("{name}.pem")), self.path.with_file_name(format!("{name}.key")));
        fs::write(&paths.0, certificate.pem()).unwrap();
        fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    }
}

const LONG: i32 = 2100;
const OVER: i32 = 2020;

fn serve(cluster: &Cluster, (certificate, key): (PathBuf, PathBuf), client_ca: Option<&Ca>) -> Server {
    let client_ca = client_ca.map(|ca| ca.path.clone());
    Server::start(&ServerConfig { tls: Some(TlsFiles { certificate, key, client_ca }), ..config(cluster) }).unwrap()
}

fn connect(server: &Server, tls: Option<RemoteTls>) -> Result<RemoteSampler, ClientError> {
    let (max_silence, max_call) = (Duration::from_secs(1), Duration::from_secs(1));
    let config = RemoteConfig { tls, max_silence, max_call, ..RemoteConfig::default() };
    run(RemoteSampler::connect(&server.address().to_string(), None, config))
}

fn trusting(ca: &Ca, identity: Option<(PathBuf, PathBuf)>) -> Option<RemoteTls> {
    Some(RemoteTls { ca: ca.path.clone(), identity, server_name: None })
}

/// Refused for its certificate, at once.
#[track_caller]
fn assert_untrusted(server: &Server, tls: Option<RemoteTls>, says: &str) {
    let started = Instant::now();
    let Err(ClientError::Remote(error)) = connect(server, tls) else { panic!("nobody was refused") };
    assert!(matches!(error.problem, RemoteProblem::Untrusted(_)), "{error}");
    assert!(error.to_string().contains(says), "{error}");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}

#[test]
fn only_those_with_the_right_certificates_talk() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    let cluster = cut(folder, &open(folder, &Edges::ring(50)));
    let (own, foreign) = (Ca::new(folder, "own"), Ca::new(folder, "foreign"));
    // Servers prove who they are.
    let server = serve(&cluster, own.sign("server", LONG), None);
    assert_eq!(connect(&server, trusting(&own, None)).unwrap().facts().info.n_nodes, 50);
    let named = RemoteTls { server_name: Some("sampler.example".into()), ..trusting(&own, None).unwrap() };
    connect(&server, Some(named)).unwrap();
    let misnamed = RemoteTls { server_name: Some("other.example".into()), ..trusting(&own, None).unwrap() };
    assert_untrusted(&server, Some(misnamed), "certificate");
    assert_untrusted(&server, trusting(&foreign, None), "UnknownIssuer");
    let error = connect(&server, None).unwrap_err();
    assert!(matches!(&error, ClientError::Remote(error) if matches!(error.problem, RemoteProblem::Lost(_))), "{error}");
    server.stop().unwrap();
    let expired = serve(&cluster, own.sign("expired", OVER), None);
    assert_untrusted(&expired, trusting(&own, None), "expired");
    expired.stop().unwrap();
    // And so do clients, where they are asked.
    let server = serve(&cluster, own.sign("server", LONG), Some(&own));
    connect(&server, trusting(&own, Some(own.sign("client", LONG)))).unwrap();
    for identity in [None, Some(foreign.sign("stranger", LONG)), Some(own.sign("late", OVER))] {
        let error = connect(&server, trusting(&own, identity)).unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    server.stop().unwrap();
}

#[test]
fn files_that_are_no_certificates_get_a_sentence() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    let cluster = cut(folder, &open(folder, &Edges::ring(50)));
    let own = Ca::new(folder, "own");
    let absent = folder.join("absent.pem");
    let tls = |certificate: &Path, key: &Path| TlsFiles {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        client_ca: None,
    };
    let start = |tls| Server::start(&ServerConfig { tls: Some(tls), ..config(&cluster) });
    let (certificate, key) = own.sign("server", LONG);
    let error = start(tls(&certificate, &absent)).unwrap_err();
    assert!(error.to_string().starts_with(&format!("{}: ", absent.display())), "{error}");
    assert!(start(tls(&key, &certificate)).is_err());
    let server = start(tls(&certificate, &key)).unwrap();
    let unreadable = RemoteTls { ca: absent.clone(), identity: None, server_name: None };
    let error = connect(&server, Some(unreadable)).unwrap_err();
    assert!(error.to_string().contains(&absent.display().to_string()), "{error}");
    server.stop().unwrap();
}

/// A server comes back with certificates of another authority; the client's files are replaced, and it goes on.
#[test]
fn certificates_are_read_again_with_a_new_connection() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    let cluster = cut(folder, &open(folder, &Edges::ring(50)));
    let (old, new) = (Ca::new(folder, "old"), Ca::new(folder, "new"));
    let server = serve(&cluster, old.sign("server", LONG), Some(&old));
    let listen = server.address();
    // Files of the client's own, which change.
    let [ca, certificate, key] = ["ca.pem", "client.pem", "client.key"].map(|name| folder.join(name));
    let install = |from: &Ca| {
        let signed = from.sign("signed", LONG);
        for (from, to) in [(&from.path, &ca), (&signed.0, &certificate), (&signed.1, &key)] {
            fs::copy(from, to).unwrap();
        }
    };
    install(&old);
    let identity = Some((certificate.clone(), key.clone()));
    let tls = Some(RemoteTls { ca: ca.clone(), identity, server_name: None });
    let (max_silence, max_call) = (Duration::from_secs(2), Duration::from_secs(6));
    let config = RemoteConfig { tls, max_silence, max_call, ..RemoteConfig::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let remote = runtime.block_on(RemoteSampler::connect(&listen.to_string(), None, config)).unwrap();
    let fetch = || {
        let mut rows = FetchedRows::default();
        let shard = cluster.owners().of(8).unwrap();
        runtime.block_on(remote.fetch_features(shard, &[8], &mut rows)).map(|()| rows.values)
    };
    assert_eq!(fetch().unwrap(), [8.0, 8.5]);
    server.stop().unwrap();
    let (certificate, key) = new.sign("server", LONG);
    let files = TlsFiles { certificate, key, client_ca: Some(new.path.clone()) };
    let server = Server::start(&ServerConfig { listen, tls: Some(files), ..served::config(&cluster) }).unwrap();
    // With the old ones neither trusts the other.
    let error = fetch().unwrap_err();
    assert!(
        matches!(&error, ClientError::Remote(error) if matches!(error.problem, RemoteProblem::Untrusted(_))),
        "{error}"
    );
    install(&new);
    assert_eq!(fetch().unwrap(), [8.0, 8.5]);
    server.stop().unwrap();
}
