//! Loopback device, disk and name of this machine.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
    time::Instant,
};

use rustix::fs::{Advice, fadvise};

/// Messages of a round.
const N_MESSAGES: usize = 2000;
const FILE_BYTES: u64 = 256 << 20;
const PAGE: usize = 4096;
const N_PAGES: u64 = 1000;

/// Seconds of a round trip over the loopback device.
pub(super) fn loopback() -> io::Result<f64> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let echo = thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut message = [0; 64];
        for _ in 0..N_MESSAGES {
            stream.read_exact(&mut message)?;
            stream.write_all(&message)?;
        }
        Ok(())
    });
    let measure = || -> io::Result<f64> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut message = [0; 64];
        let began = Instant::now();
        for _ in 0..N_MESSAGES {
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
        }
        Ok(began.elapsed().as_secs_f64() / N_MESSAGES as f64)
    };
    let measured = measure()?;
    echo.join().map_err(|_| io::Error::other("the other end of the connection failed"))??;
    Ok(measured)
}

/// A file on the disk to measure.
pub(super) struct Disk(File);

impl Disk {
    /// Writes the file; it is not in memory afterwards.
    pub(super) fn new(folder: &Path) -> io::Result<Disk> {
        let path = folder.join("disk");
        let mut file = File::options().create_new(true).read(true).write(true).open(path)?;
        let piece: Vec<u8> = (0..1 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        (0..FILE_BYTES >> 20).try_for_each(|_| file.write_all(&piece))?;
        file.sync_all()?;
        Ok(Disk(file))
    }

    /// Seconds to read a page at a random place.
    pub(super) fn measure(&mut self) -> io::Result<f64> {
        // Not in memory, and nothing is read ahead.
        fadvise(&self.0, 0, None, Advice::DontNeed)?;
        fadvise(&self.0, 0, None, Advice::Random)?;
        let mut page = [0; PAGE];
        let began = Instant::now();
        for n in 0..N_PAGES {
            // A walk whose places are far from each other and differ.
            let place = n.wrapping_mul(40_503) % (FILE_BYTES / PAGE as u64);
            self.0.seek(SeekFrom::Start(place * PAGE as u64))?;
            self.0.read_exact(&mut page)?;
        }
        Ok(began.elapsed().as_secs_f64() / N_PAGES as f64)
    }
}

/// Name of the processor, as the system calls it.
pub(super) fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_loopback_device_and_a_disk() {
        let latency = loopback().unwrap();
        assert!(latency > 1e-7 && latency < 0.1, "{latency}");
        let temp = tempfile::tempdir().unwrap();
        let page = Disk::new(temp.path()).unwrap().measure().unwrap();
        assert!(page > 0.0 && page < 1.0, "{page}");
        assert!(!processor().is_empty());
    }
}
