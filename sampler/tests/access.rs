//! Access to a server: tokens, certificates and their names, and reloading without a restart.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use kith_proto::{v2, v2::sampler_client::SamplerClient};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tonic::{
    Code, Request, Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::process::{Process, cluster, packed, program, run};

mod lists;
#[allow(dead_code)] // Each test uses some of it.
mod process;

const ONE: &str = "the-first-of-all-tokens";
const TWO: &str = "the-second-of-all-tokens";

/// Asks for facts with a token, or without.
async fn ask(channel: Channel, token: Option<&str>) -> Result<(), Status> {
    let mut request = Request::new(v2::InfoRequest::default());
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let mut replies = SamplerClient::new(channel).info(request).await?.into_inner();
    while replies.message().await?.is_some() {}
    Ok(())
}

/// A channel that connects when it is used.
fn plain(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy()
}

/// Waits until something is so.
async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn tokens_are_asked_for_and_replaced_without_a_restart() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    let tokens = temp.path().join("tokens");
    fs::write(&tokens, format!("# first\n{ONE}\n")).unwrap();
    let server = Process::start(&cluster, &["--token-file", tokens.to_str().unwrap()]);
    run(async {
        let channel = plain(server.address());
        let code = |token: Option<&'static str>| {
            let asked = ask(channel.clone(), token);
            async move { asked.await.map_or_else(|status| status.code(), |()| Code::Ok) }
        };
        assert_eq!(code(Some(ONE)).await, Code::Ok);
        for wrong in [None, Some(""), Some("the-first-of-all-tokenS"), Some("the-first-of-all-token"), Some(TWO)] {
            assert_eq!(code(wrong).await, Code::Unauthenticated, "{wrong:?}");
        }
        // Rotation: both, and then the new one alone. A file that is no good changes nothing.
        fs::write(&tokens, format!("{ONE}\n{TWO}\n")).unwrap();
        until("the second token is taken", || async { code(Some(TWO)).await == Code::Ok }).await;
        assert_eq!(code(Some(ONE)).await, Code::Ok);
        fs::write(&tokens, "short\n").unwrap();
        tokio::time::sleep(Duration::from_millis(2500)).await;
        assert_eq!(code(Some(TWO)).await, Code::Ok);
        fs::write(&tokens, format!("{TWO}\n")).unwrap();
        until("the first token is refused", || async { code(Some(ONE)).await == Code::Unauthenticated }).await;
        assert_eq!(code(Some(TWO)).await, Code::Ok);
    });
    // Probes have no token.
    let health = program().args(["health", &server.address().to_string()]).status().unwrap();
    assert!(health.success());
    drop(server);
    let mut command = program();
    command.env("KITH_SAMPLER_TOKEN", ONE);
    let server = Process::start_with(&mut command, &cluster, &[]);
    run(async {
        let channel = plain(server.address());
        assert_eq!(ask(channel.clone(), None).await.unwrap_err().code(), Code::Unauthenticated);
        ask(channel, Some(ONE)).await.unwrap();
    });
}

/// An authority, and files of what it signs.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = folder.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
        Authority { issuer, folder }
    }

    /// PEM of a certificate for these DNS names and this common name, and of its key.
    fn sign(&self, names: &[&str], common: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// Replaces the certificate of the server as most tools do: by renaming.
    fn install(&self, into: &Authority) {
        let (certificate, key) = self.sign(&["sampler"], "a server");
        for (name, text) in [("server.pem", certificate), ("server.key", key), ("clients.pem", self.issuer.pem())] {
            let new = into.folder.join(format!("{name}.new"));
            fs::write(&new, text).unwrap();
            fs::rename(&new, into.folder.join(name)).unwrap();
        }
    }
}

/// Connects to a server that an authority signed, as somebody or as nobody.
async fn encrypted(address: SocketAddr, ca: &Authority, own: Option<&(String, String)>) -> Result<Channel, Status> {
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca.issuer.pem())).domain_name("sampler");
    if let Some((certificate, key)) = own {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap().tls_config(tls).unwrap();
    endpoint.connect().await.map_err(|error| Status::unavailable(error.to_string()))
}

async fn ask_encrypted(address: SocketAddr, ca: &Authority, own: Option<&(String, String)>) -> Result<(), Status> {
    ask(encrypted(address, ca, own).await?, None).await
}

#[test]
fn certificates_are_limited_to_names_and_replaced_without_a_restart() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    let (old, new) = (Authority::new(temp.path(), "old"), Authority::new(temp.path(), "new"));
    old.install(&old);
    let files = [old.path("server.pem"), old.path("server.key"), old.path("clients.pem")];
    let names = ["--tls-client-name", "trainer.example", "--tls-client-name", "a trainer", "--max-handshake", "3"];
    let tls = ["--tls-cert", &files[0], "--tls-key", &files[1], "--tls-client-ca", &files[2]];
    let server = Process::start(&cluster, &[&tls[..], &names[..]].concat());
    let address = server.address();
    run(async {
        ask_encrypted(address, &old, Some(&old.sign(&["trainer.example"], "somebody"))).await.unwrap();
        ask_encrypted(address, &old, Some(&old.sign(&["other.example"], "a trainer"))).await.unwrap();
        let other = ask_encrypted(address, &old, Some(&old.sign(&["other.example"], "trainer.example.org"))).await;
        let status = other.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        assert!(status.message().contains("other.example, trainer.example.org"), "{status}");
        assert!(ask_encrypted(address, &old, None).await.is_err(), "no certificate");
        let foreign = new.sign(&["trainer.example"], "a trainer");
        assert!(ask_encrypted(address, &old, Some(&foreign)).await.is_err(), "another authority's");

        // A connection from before goes on.
        let own = old.sign(&["trainer.example"], "a trainer");
        let before = encrypted(address, &old, Some(&own)).await.unwrap();
        ask(before.clone(), None).await.unwrap();
        fs::write(old.folder.join("server.pem"), "no certificate").unwrap();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        ask_encrypted(address, &old, Some(&own)).await.expect("what cannot be read changes nothing");
        new.install(&old);
        until("the new authority signs both ends", || async {
            ask_encrypted(address, &new, Some(&foreign)).await.is_ok()
        })
        .await;
        assert!(ask_encrypted(address, &old, Some(&own)).await.is_err(), "the old authority is nobody here");
        ask(before, None).await.unwrap();

        // Handshakes that are not ended have a limit, and hold nobody else up.
        let silent = tokio::net::TcpStream::connect(address).await.unwrap();
        let half = tokio::net::TcpStream::connect(address).await.unwrap();
        half.try_write(&[0x16, 3, 1, 2, 0, 1]).unwrap();
        ask_encrypted(address, &new, Some(&foreign)).await.unwrap();
        for stream in [silent, half] {
            let ended = async {
                loop {
                    stream.readable().await.unwrap();
                    match stream.try_read(&mut [0; 64]) {
                        Ok(0) => return,
                        Ok(_) => {}
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(_) => return,
                    }
                }
            };
            tokio::time::timeout(Duration::from_secs(15), ended).await.expect("it is closed");
        }
    });
}

/// A reachable server starts only with access control, or with an option that allows everyone.
#[test]
fn nobody_is_let_in_by_accident() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    let authority = Authority::new(temp.path(), "own");
    authority.install(&authority);
    let tokens = temp.path().join("tokens");
    fs::write(&tokens, ONE).unwrap();
    let tokens = tokens.to_str().unwrap();
    let files = [authority.path("server.pem"), authority.path("server.key"), authority.path("clients.pem")];
    let tls = ["--tls-cert", files[0].as_str(), "--tls-key", &files[1]];
    let everywhere = ["--listen", "0.0.0.0:0"];
    let refused: [&[&str]; 3] = [&[], &tls, &["--token-file", tokens]];
    for more in refused {
        for listen in ["0.0.0.0:0", "[::]:0"] {
            let mut command = program();
            command.arg("--graph").arg(cluster.dir()).args(["--listen", listen]).args(more);
            let output = command.output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{more:?}: {text}");
            assert!(text.contains("is not on loopback") && text.lines().count() == 1, "{more:?}: {text}");
        }
    }
    let ca = [&tls[..], &["--tls-client-ca", &files[2]]].concat();
    let token = [&tls[..], &["--token-file", tokens]].concat();
    for more in [&["--insecure"][..], &ca, &token] {
        let server = Process::start(&cluster, &[&everywhere[..], more].concat());
        assert!(server.line.starts_with("serving shards 0,1,2 of 3 on 0.0.0.0:"), "{more:?}: {}", server.line);
    }
}

/// Options that make no sense, or would overflow, are refused in a sentence.
#[test]
fn times_and_sizes_that_make_no_sense_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    let short = temp.path().join("short");
    fs::write(&short, "0123456789abcde").unwrap();
    let most = u64::MAX.to_string();
    let mut cases = vec![(vec!["--token-file", short.to_str().unwrap()], "at least 16 bytes, found 15")];
    for option in ["--max-call", "--max-drain", "--max-handshake", "--max-idle"] {
        cases.push((vec![option, &most], option));
        cases.push((vec![option, "31536001"], option));
        cases.push((vec![option, "-1"], "-1"));
    }
    for option in ["--max-message", "--max-frontier", "--request-memory", "--max-connections", "--max-per-address"] {
        cases.push((vec![option, &most], option));
        cases.push((vec![option, "0"], option));
        cases.push((vec![option, "18446744073709551616"], option));
    }
    for option in ["--max-in-flight", "--threads", "--max-fanout"] {
        cases.push((vec![option, &most], option));
    }
    cases.push((vec!["--max-in-flight", "0"], "--max-in-flight"));
    cases.push((vec!["--request-memory", "1048576"], "does not fit into --request-memory 1048576"));
    cases.push((vec!["--tls-client-name", "x"], "--tls-client-ca"));
    for (more, says) in cases {
        let mut command = program();
        command.arg("--graph").arg(cluster.dir()).args(["--listen", "127.0.0.1:0"]).args(&more);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{more:?}: {text}");
        assert!(text.contains(says) && !text.contains("panicked"), "{more:?}: {text}");
    }
    let output = program().args(["health", "127.0.0.1:1", "--timeout", &most]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
    // The longest of all times are times all the same.
    let year = "31536000";
    let longest = ["--max-call", year, "--max-drain", year, "--max-handshake", year, "--max-idle", year];
    let server = Process::start(&cluster, &longest);
    run(async { ask(plain(server.address()), None).await.unwrap() });
}

/// The second port reports the shutdown while calls end, and answers even when the first port refuses connections.
#[test]
fn health_has_a_port_of_its_own() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 3_000_000);
    let more = ["--metrics", "127.0.0.1:0", "--max-connections", "1", "--max-per-address", "1"];
    let mut server = Process::start(&cluster, &more);
    let place = format!("http://{}", server.metrics_address());
    run(async {
        let mut client = SamplerClient::new(plain(server.address())).max_decoding_message_size(64 << 20);
        let request = v2::SampleHopRequest {
            graph: cluster.digest().to_owned(),
            parts: packed([0, 5]),
            frontier: packed([0; 5]),
            most: Some(v2::sample_hop_request::Most::All(true)),
            ..Default::default()
        };
        let mut replies = client.sample_hop(request).await.unwrap().into_inner();
        // The one connection that there may be is at work: others are turned away.
        let other = plain(server.address());
        assert!(ask(other, None).await.is_err());
        assert_eq!(server.page("/health"), ("HTTP/1.1 200 OK".into(), "serving\n".into()));
        assert!(program().args(["health", &place]).status().unwrap().success());
        assert!(server.metric("kith_sampler_refused_connections_total") >= 1.0);
        server.signal("TERM");
        until("it says that it goes", || async { server.page("/health").0 == "HTTP/1.1 503 Service Unavailable" })
            .await;
        let output = program().args(["health", &place]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("stopping"), "{output:?}");
        assert_eq!(server.page("/other").0, "HTTP/1.1 404 Not Found");
        while replies.message().await.unwrap().is_some() {}
    });
    assert_eq!(server.wait(Duration::from_secs(15)), Some(0));
}
