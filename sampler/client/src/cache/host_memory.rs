//! Memory that processes of one user on one host share. The first process that asks for a name makes the memory and hands it to the
//! others over a socket. It has no file: the system frees it when the last process ends, however that happens.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::{
    cmsg_space,
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, shutdown, socket_with,
        sockopt::socket_peercred,
    },
    process::geteuid,
};

/// Attempts to find the process that has the memory, the pause after the first one, which doubles, and the time that each waits for an
/// answer. A process that gets no answer uses memory of its own.
const N_ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Pause of the thread that hands the file out, after an error of the system.
const PAUSE: Duration = Duration::from_millis(100);

/// A file in memory.
#[derive(Debug)]
pub(super) struct HostMemory {
    file: Arc<File>,
    /// The thread that hands the file to other processes, in the process that made it.
    _offer: Option<Offer>,
    is_shared: bool,
}

impl HostMemory {
    /// Memory of `n_bytes` with this name: that of another process, or zeros.
    pub(super) fn open(name: &str, n_bytes: u64) -> io::Result<HostMemory> {
        let address = SocketAddr::from_abstract_name(name)?;
        for attempt in 0..N_ATTEMPTS {
            match UnixListener::bind_addr(&address) {
                Ok(listener) => {
                    let file = Arc::new(new_file(n_bytes)?);
                    let offer = Offer::start(listener, Arc::clone(&file))?;
                    return Ok(HostMemory { file, _offer: Some(offer), is_shared: true });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    // An error here means that the other process has just begun or ended, is stopped, or is another user's.
                    if let Ok(file) = received(name, n_bytes) {
                        return Ok(HostMemory { file: Arc::new(file), _offer: None, is_shared: true });
                    }
                    std::thread::sleep(FIRST_PAUSE * (1 << attempt));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(HostMemory { file: Arc::new(new_file(n_bytes)?), _offer: None, is_shared: false })
    }

    /// True if other processes can have it too.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

/// A file of zeros in memory, sealed at its length.
fn new_file(n_bytes: u64) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Some systems insist on files that cannot be run; older ones do not know the flag.
    let made = memfd_create("kith-cache", flags | MemfdFlags::NOEXEC_SEAL);
    let file = File::from(made.or_else(|_| memfd_create("kith-cache", flags))?);
    file.set_len(n_bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

fn is_ours(stream: impl AsFd) -> io::Result<bool> {
    Ok(socket_peercred(stream)?.uid == geteuid())
}

/// The file that another process of this user offers.
fn received(name: &str, n_bytes: u64) -> io::Result<File> {
    // A full queue of connections is an error, not a wait.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let stream: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&stream, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    if !is_ours(&stream)? {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if poll(&mut [PollFd::new(&stream, PollFlags::IN)], Some(&PATIENCE))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(&stream, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let file = File::from(files.ok_or(io::ErrorKind::UnexpectedEof)?);
    let is_fixed = fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
    if !is_fixed || file.metadata()?.len() != n_bytes {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(file)
}

/// A thread that hands a file to every process of this user that connects.
#[derive(Debug)]
struct Offer {
    listener: Arc<UnixListener>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Offer {
    fn start(listener: UnixListener, file: Arc<File>) -> io::Result<Offer> {
        let (listener, is_over) = (Arc::new(listener), Arc::new(AtomicBool::new(false)));
        let (listener_there, is_over_there) = (Arc::clone(&listener), Arc::clone(&is_over));
        let work = move || {
            for stream in listener_there.incoming() {
                if is_over_there.load(Ordering::Relaxed) {
                    return;
                }
                match stream {
                    // On an error, the other process uses memory of its own.
                    Ok(stream) => drop(send(&stream, &file)),
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        };
        let thread = Some(std::thread::Builder::new().name("cache".to_owned()).spawn(work)?);
        Ok(Offer { listener, is_over, thread })
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Ends the thread's wait for connections.
        if shutdown(&self.listener, Shutdown::Both).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn send(stream: impl AsFd, file: &File) -> io::Result<()> {
    if !is_ours(&stream)? {
        return Ok(());
    }
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(stream, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn name(test: &str) -> String {
        format!("kith-test-{}-{test}", std::process::id())
    }

    #[test]
    fn one_name_is_one_memory() {
        let name = name("one");
        let first = HostMemory::open(&name, 8).unwrap();
        let second = HostMemory::open(&name, 8).unwrap();
        first.file().write_all_at(b"features", 0).unwrap();
        let mut found = [0; 8];
        second.file().read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"features");
        assert!(first.file().set_len(4).is_err(), "nobody can shorten it");
    }

    #[test]
    fn memory_outlives_the_process_that_made_it_and_a_name_is_free_again() {
        let name = name("outlives");
        let first = HostMemory::open(&name, 8).unwrap();
        let second = HostMemory::open(&name, 8).unwrap();
        first.file().write_all_at(b"features", 0).unwrap();
        drop(first);
        let third = HostMemory::open(&name, 8).unwrap();
        let read = |memory: &HostMemory| {
            let mut found = [1; 8];
            memory.file().read_exact_at(&mut found, 0).unwrap();
            found
        };
        assert_eq!((&read(&second), read(&third)), (b"features", [0; 8]));
    }

    #[test]
    fn a_process_that_has_just_begun_is_waited_for() {
        let name = name("begun");
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        let file = Arc::new(new_file(8).unwrap());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| HostMemory::open(&name, 8).unwrap().is_shared());
            std::thread::sleep(Duration::from_millis(50));
            rustix::net::listen(&socket, 8).unwrap();
            let offer = Offer::start(UnixListener::from(socket), file).unwrap();
            assert!(second.join().unwrap());
            drop(offer);
        });
    }

    #[test]
    fn a_name_that_another_program_holds_leaves_memory_of_its_own() {
        let name = name("held");
        let silent = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let own = HostMemory::open(&name, 8).unwrap();
        assert!(own.file().metadata().unwrap().len() == 8 && !own.is_shared());
        drop(silent);
        let other = name.clone() + "-length";
        let _first = HostMemory::open(&other, 16).unwrap();
        let own = HostMemory::open(&other, 8).unwrap();
        assert_eq!(own.file().metadata().unwrap().len(), 8, "memory of another length is not used");
    }
}
