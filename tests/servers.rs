//! Sampling servers as processes, and a proxy that disturbs their connections.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use crate::kith::program;

/// A server that ends with the test.
pub(crate) struct Sampler {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Sampler {
    /// Serves some shards on a free port.
    pub(crate) fn start(cluster: &Path, shards: &str) -> Sampler {
        Sampler::start_at(cluster, shards, ([127, 0, 0, 1], 0).into())
    }

    /// Serves at an address.
    pub(crate) fn start_at(cluster: &Path, shards: &str, address: SocketAddr) -> Sampler {
        let mut command = Command::new(program().with_file_name("kith-sampler"));
        command.arg("--graph").arg(cluster).args(["--shards", shards, "--listen", &address.to_string()]);
        Sampler::launch(command)
    }

    /// Starts a server by a command, on any host, and waits until it is ready.
    pub(crate) fn launch(mut command: Command) -> Sampler {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it says when it is ready");
        let address = line.rsplit_once(" on ").and_then(|(_, address)| address.trim().parse().ok());
        Sampler { child, address: address.unwrap_or_else(|| panic!("not ready: {line:?}")) }
    }

    /// Sends a signal, by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
    }

    /// Kills it, as if its machine were lost.
    pub(crate) fn kill(mut self) -> SocketAddr {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
        self.address
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have been killed already.
        let _ = self.child.wait();
    }
}

/// State of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Undisturbed.
    Open,
    /// Responses arrive this much later.
    Late(Duration),
    /// Bandwidth in bytes per second.
    Slow(u64),
    /// Connections stay, and nothing arrives.
    Stalled,
    /// All connections are closed at both ends, also new ones.
    Cut,
    /// Servers can no longer send on existing connections; new ones are undisturbed.
    HalfClosed,
}

/// A TCP proxy whose state can change during use.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    way: Way,
    /// Number of disturbances so far: identifies connections from before a half-close.
    era: u64,
    is_over: bool,
}

const TICK: Duration = Duration::from_millis(5);

/// Bytes per write on a slow connection.
const PIECE_BYTES: usize = 4 << 10;

impl Proxy {
    pub(crate) fn start(to: SocketAddr) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        listener.set_nonblocking(true).expect("sockets can be polled");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(Mutex::new(State { way: Way::Open, era: 0, is_over: false }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            while !shared.lock().unwrap().is_over {
                match listener.accept() {
                    Ok((client, _)) => connect(client, to, &shared),
                    Err(_) => thread::sleep(TICK),
                }
            }
        });
        Proxy { address, state }
    }

    /// Changes the state from now on.
    pub(crate) fn set(&self, way: Way) {
        let mut state = self.state.lock().unwrap();
        state.way = way;
        state.era += 1;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Way::Cut);
        self.state.lock().unwrap().is_over = true;
    }
}

fn connect(client: TcpStream, to: SocketAddr, state: &Arc<Mutex<State>>) {
    let (way, era) = {
        let state = state.lock().unwrap();
        (state.way, state.era)
    };
    let server = TcpStream::connect_timeout(&to, Duration::from_secs(1));
    let (Ok(server), true) = (server, way != Way::Cut) else { return };
    for socket in [&client, &server] {
        socket.set_nonblocking(false).expect("sockets can wait");
        socket.set_nodelay(true).expect("sockets can hurry");
        socket.set_read_timeout(Some(TICK)).expect("reads can have a limit");
        socket.set_write_timeout(Some(Duration::from_secs(30))).expect("writes can have a limit");
    }
    let copy = |socket: &TcpStream| socket.try_clone().expect("sockets can be shared");
    pump(copy(&client), copy(&server), Arc::clone(state), None);
    pump(server, client, Arc::clone(state), Some(era));
}

/// Forwards bytes in one direction; `era` is set for the direction from the server.
fn pump(mut from: TcpStream, mut to: TcpStream, state: Arc<Mutex<State>>, era: Option<u64>) {
    let (sender, receiver) = sync_channel::<(Instant, Vec<u8>)>(1024);
    let reader = Arc::clone(&state);
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            if is_closed(&reader, era) {
                break;
            }
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    let way = reader.lock().unwrap().way;
                    let due = match (way, era) {
                        (Way::Late(by), Some(_)) => Instant::now() + by,
                        _ => Instant::now(),
                    };
                    if sender.send((due, buffer[..n].to_vec())).is_err() {
                        break;
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
        }
        drop(sender);
        let _ = from.shutdown(Shutdown::Read);
    });
    thread::spawn(move || {
        loop {
            if is_closed(&state, era) {
                break;
            }
            let (due, bytes) = match receiver.recv_timeout(TICK) {
                Ok(next) => next,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            while Instant::now() < due || state.lock().unwrap().way == Way::Stalled {
                if is_closed(&state, era) {
                    break;
                }
                thread::sleep(TICK);
            }
            let way = state.lock().unwrap().way;
            let mut pieces = bytes.chunks(if matches!(way, Way::Slow(_)) { PIECE_BYTES } else { bytes.len() });
            let has_failed = pieces.any(|piece| {
                if let Way::Slow(per_second) = way {
                    thread::sleep(Duration::from_micros(piece.len() as u64 * 1_000_000 / per_second));
                }
                is_closed(&state, era) || to.write_all(piece).is_err()
            });
            if has_failed {
                break;
            }
        }
        let _ =
            to.shutdown(if state.lock().unwrap().way == Way::HalfClosed { Shutdown::Write } else { Shutdown::Both });
    });
}

fn is_closed(state: &Mutex<State>, era: Option<u64>) -> bool {
    let state = state.lock().unwrap();
    match state.way {
        _ if state.is_over => true,
        Way::Cut => true,
        Way::HalfClosed => era.is_some_and(|era| era < state.era),
        _ => false,
    }
}
