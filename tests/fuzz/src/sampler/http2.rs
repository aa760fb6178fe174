//! A connection of arbitrary bytes: the server answers or closes it, and goes on to answer others.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    path::Path,
    sync::OnceLock,
    time::Duration,
};

use kith_sampler::server::{Limits, Server, ServerConfig};
use kith_store::{Contents, Cut, Graph, Provenance, StoreWriter, write_cluster};
use tempfile::TempDir;

use kith_corruption::scratch;

/// The first bytes of every connection: a client that sends others is closed at once.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// An empty SETTINGS frame.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// A PING frame, and the answer to it.
const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
const PONG: &[u8] = &[0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

/// Longer than any pause of a healthy server.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn run(bytes: &[u8]) {
    let address = server();
    let mut stream = connect(address);
    // The server may close the connection at any byte.
    let _ = stream.write_all(PREFACE).and_then(|()| stream.write_all(bytes));
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            panic!("the server neither answers nor closes")
        }
        _ => {}
    }
    let mut other = connect(address);
    other.write_all(&[PREFACE, SETTINGS, PING].concat()).expect("a healthy connection");
    let (mut answer, mut buffer) = (Vec::new(), [0; 256]);
    while !answer.windows(PONG.len()).any(|bytes| bytes == PONG) {
        let n_bytes = match other.read(&mut buffer) {
            // libFuzzer's clock is a signal.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read.expect("a healthy connection is answered"),
        };
        assert!(n_bytes > 0, "a healthy connection is closed");
        answer.extend_from_slice(&buffer[..n_bytes]);
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_nodelay(true).expect("an option of TCP");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option of TCP");
    stream.set_write_timeout(Some(PATIENCE)).expect("an option of TCP");
    stream
}

fn server() -> SocketAddr {
    static SERVER: OnceLock<(TempDir, Server)> = OnceLock::new();
    let (_, server) = SERVER.get_or_init(|| {
        let temp = scratch();
        let shards = temp.path().join("shards");
        write(&temp.path().join("store"), &shards);
        let limits = Limits {
            max_message_bytes: 1 << 20,
            request_memory: 4 << 20,
            max_handshake: Duration::from_millis(500),
            max_idle: Duration::from_millis(500),
            max_call: Duration::from_millis(500),
            ..Limits::default()
        };
        let config = ServerConfig::new(shards, (Ipv4Addr::LOCALHOST, 0).into());
        let server = Server::start(&ServerConfig { limits, n_threads: 1, ..config }).expect("our own graph");
        (temp, server)
    });
    server.address()
}

/// Two nodes with an edge in both directions, in two shards.
fn write(store: &Path, shards: &Path) {
    let mut writer = StoreWriter::create(store).expect("a new store");
    writer.write("indptr", &[0u64, 1, 2]).expect("written");
    writer.write("indices", &[1u32, 0]).expect("written");
    let contents = Contents { n_nodes: 2, n_edges: 2, is_symmetric: true, ..Contents::default() };
    writer.finish(contents, Provenance::default()).expect("a whole store");
    let (method, provenance) = ("by hand".to_owned(), Provenance::default());
    let cut = Cut { owner: &[0, 1], n_shards: 2, inclusion: None, method, provenance };
    write_cluster(&Graph::open(store).expect("our own store"), &cut, shards, &|_| ()).expect("written");
}
