//! Relay in front of a server that can disturb the connection.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// State of the line from the server to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)] // Every test uses another part.
pub(crate) enum Line {
    Open,
    /// Bytes pass at this speed.
    Slow {
        bytes_per_second: u64,
    },
    /// Connections break after `n_bytes`, open ones and new ones.
    CutAfter {
        n_bytes: u64,
    },
    /// Nothing passes after `n_bytes`.
    StallAfter {
        n_bytes: u64,
    },
    /// Every read of the server's bytes is delayed.
    Late(Duration),
    /// One bit is flipped after `n_bytes`.
    FlipAfter {
        n_bytes: u64,
    },
}

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    line: Line,
    /// Counts changes of the line: bytes are counted from the last one on.
    era: u64,
    is_over: bool,
}

const TICK: Duration = Duration::from_millis(2);

impl Relay {
    pub(crate) fn start(to: SocketAddr) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { line: Line::Open, era: 0, is_over: false }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            while !shared.lock().unwrap().is_over {
                match listener.accept() {
                    Ok((client, _)) => connect(client, to, &shared),
                    Err(_) => thread::sleep(TICK),
                }
            }
        });
        Relay { address, state }
    }

    /// Changes the line from now on.
    pub(crate) fn set(&self, line: Line) {
        let mut state = self.state.lock().unwrap();
        (state.line, state.era) = (line, state.era + 1);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.lock().unwrap().is_over = true;
    }
}

fn connect(client: TcpStream, to: SocketAddr, state: &Arc<Mutex<State>>) {
    let Ok(server) = TcpStream::connect(to) else { return };
    for socket in [&client, &server] {
        socket.set_nonblocking(false).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(TICK)).unwrap();
        socket.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    let copies = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (there, back) = (Arc::clone(state), Arc::clone(state));
    thread::spawn(move || pump(copies.0, copies.1, &there, false));
    thread::spawn(move || pump(server, client, &back, true));
}

/// Copies bytes in one direction; only the direction to the client is disturbed.
fn pump(mut from: TcpStream, mut to: TcpStream, state: &Mutex<State>, is_back: bool) {
    let mut buffer = vec![0; 16 << 10];
    let (mut own_era, mut n_passed) = (0, 0);
    'open: loop {
        let n = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if state.lock().unwrap().is_over {
                    break;
                }
                continue;
            }
            Err(_) => break,
        };
        loop {
            let (line, era, is_over) = {
                let state = state.lock().unwrap();
                (state.line, state.era, state.is_over)
            };
            if era != own_era {
                (own_era, n_passed) = (era, 0);
            }
            match line {
                _ if is_over => break 'open,
                Line::CutAfter { n_bytes } if is_back && n_passed + n as u64 > n_bytes => break 'open,
                Line::StallAfter { n_bytes } if is_back && n_passed + n as u64 > n_bytes => {
                    thread::sleep(TICK);
                    continue;
                }
                Line::Slow { bytes_per_second } if is_back => {
                    thread::sleep(Duration::from_secs_f64(n as f64 / bytes_per_second as f64));
                }
                Line::Late(by) if is_back => thread::sleep(by),
                Line::FlipAfter { n_bytes } if is_back && (n_passed..n_passed + n as u64).contains(&n_bytes) => {
                    buffer[(n_bytes - n_passed) as usize] ^= 1 << (n_bytes % 8);
                }
                _ => {}
            }
            break;
        }
        n_passed += n as u64;
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
