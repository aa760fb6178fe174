//! Facts about this process that other ranks learn: its host, device and program.

use std::{
    fs::File,
    io::{self, Read},
};

use kith_draw::arithmetic;
use kith_group::member::{Hello, Member, Program};
use sha2::{Digest, Sha256};

/// Properties of a rank: its device and its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub(super) device: String,
    pub(super) program: Program,
    /// The identity of its GPU, if it has one.
    pub(super) gpu: Option<String>,
    /// True if it may share its GPU with other ranks.
    pub(super) shares_gpu: bool,
}

impl Facts {
    /// A rank that computes on a device; the program is this one.
    pub fn new(device: &str) -> io::Result<Facts> {
        let program = Program { version: env!("CARGO_PKG_VERSION").to_owned(), digest: own_digest()? };
        Ok(Facts { device: device.to_owned(), program, gpu: None, shares_gpu: false })
    }

    /// The same rank on a GPU of this identity, if it is known.
    pub(super) fn on_gpu(mut self, gpu: Option<String>, shares_gpu: bool) -> Facts {
        (self.gpu, self.shares_gpu) = (gpu, shares_gpu);
        self
    }
}

/// The file of the running program, even if another was put in its place since.
fn own_digest() -> io::Result<String> {
    let mut file = File::open("/proc/self/exe").or_else(|_| File::open(std::env::current_exe()?))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Introduction of this process.
pub(super) fn hello(rank: usize, n_ranks: usize, address: String, facts: &Facts) -> Hello {
    Hello { n_ranks, program: facts.program.clone(), member: member(rank, address, facts) }
}

/// This process as a rank.
pub(super) fn member(rank: usize, address: String, facts: &Facts) -> Member {
    let (device, gpu, shares_gpu) = (facts.device.clone(), facts.gpu.clone(), facts.shares_gpu);
    Member { rank, address, device, gpu, shares_gpu, ..alone() }
}

/// The one member of a world of one.
pub(super) fn alone() -> Member {
    Member {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: std::process::id(),
        instruction_set: arithmetic().to_owned(),
        machine: machine(),
        ..Member::default()
    }
}

/// The machine that this process runs on; its hostname where the kernel does not say.
fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned());
    boot.unwrap_or_else(|_| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_knows_its_digest() {
        let facts = Facts::new("CPU").unwrap();
        assert_eq!(facts.program.digest.len(), 64);
        assert_eq!(facts.program, Facts::new("CUDA").unwrap().program);
    }
}
