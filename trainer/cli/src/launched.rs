//! Processes started by `kith launch`. Their stdin is a socket that only the launcher holds: its end means that the
//! launcher is gone. Rank 0 receives the listening socket of the ranks through it, so that no other process can take
//! its port.

use std::{
    env, io,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::TcpListener,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    thread,
    time::Duration,
};

use rustix::{
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
    process::{Signal, getpid, kill_process},
};

use crate::progress::say;

/// Environment variable that marks a launched process.
pub const LAUNCHED: &str = "KITH_LAUNCHED";

/// Environment variable that announces a listener on stdin.
pub const LISTENER: &str = "KITH_LISTENER";

/// Time that servers stay for the ranks' last step after the launcher is gone.
pub const LAST_STEP: Duration = Duration::from_secs(5);

/// Time for a server to answer calls in flight.
pub const PATIENCE: Duration = Duration::from_secs(5);

fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| value == "1")
}

/// Sends a listener to a process that has the other end as its stdin.
pub fn send(listener: &TcpListener, to: &UnixStream) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let sockets = [listener.as_fd()];
    message.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(to, &[IoSlice::new(&[1])], &mut message, SendFlags::empty())?;
    Ok(())
}

/// Receives the launcher's listener for this process, if any. Must be called before [`watch`].
pub fn listener() -> io::Result<Option<TcpListener>> {
    if !is_set(LAUNCHED) || !is_set(LISTENER) {
        return Ok(None);
    }
    receive(io::stdin())
}

fn receive(from: impl AsFd) -> io::Result<Option<TcpListener>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    recvmsg(from, &mut [IoSliceMut::new(&mut [0])], &mut message, RecvFlags::CMSG_CLOEXEC)?;
    let mut sockets = message.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets.collect::<Vec<OwnedFd>>()),
        _ => None,
    });
    Ok(sockets.next().and_then(|sockets| sockets.into_iter().next()).map(TcpListener::from))
}

/// Watches stdin on a thread, if this process was launched. `delay` after its end the process gets a SIGTERM, and a
/// SIGKILL `patience` later.
pub fn watch(delay: Duration, patience: Duration) {
    if is_set(LAUNCHED) {
        thread::spawn(move || {
            // No further data is sent; an error counts as the end.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            say("kith launch is gone: stopping");
            thread::sleep(delay);
            for signal in [Signal::TERM, Signal::KILL] {
                let _ = kill_process(getpid(), signal); // The own process always exists.
                thread::sleep(patience);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };

    use super::*;

    /// The received socket is the one sent, and its port is never free in between.
    #[test]
    fn a_listener_goes_from_one_process_to_another() {
        let (here, there) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        send(&listener, &here).unwrap();
        drop(listener);
        assert!(TcpListener::bind(address).is_err(), "the port is held while the socket is on its way");
        let received = receive(&there).unwrap().unwrap();
        assert_eq!(received.local_addr().unwrap(), address);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"x").unwrap();
        let mut byte = [0];
        received.accept().unwrap().0.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
        drop(here);
        assert!(receive(&there).unwrap().is_none(), "an end brings none");
    }
}
