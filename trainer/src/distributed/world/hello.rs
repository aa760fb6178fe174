//! Messages between ranks when they meet, and the values that must agree.

use std::{
    fs::File,
    io::{self, Read},
};

use kith_draw::arithmetic;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A rank, as all others know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its number.
    pub rank: usize,
    /// The name of its host.
    pub host: String,
    /// Address where it listens for the previous rank.
    pub address: String,
    /// Its process.
    pub pid: u32,
    /// Its device.
    pub device: String,
    /// The CPU instructions its kernels use, and the vendor of a CPU that is not Intel's.
    pub instruction_set: String,
    /// Its machine, which hosts in containers of one machine share: the kernel's boot.
    pub machine: String,
    /// The identity of its GPU, where it computes on one that has one.
    pub gpu: Option<String>,
    /// True if it may share its GPU with other ranks.
    pub shares_gpu: bool,
}

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

/// Program of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Program {
    pub(super) version: String,
    /// SHA-256 of the file.
    pub(super) digest: String,
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

/// The first thing said on a connection, once both ends have proven themselves.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Opening {
    /// A rank wants to join.
    Join(Hello),
    /// The rank before in the ring connects.
    Ring { session: String, from: usize },
}

/// Introduction of a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) n_ranks: usize,
    pub(super) program: Program,
    pub(super) member: Member,
}

/// Answer of rank 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// All are here; a session that no other world has.
    Welcome { session: String, members: Vec<Member> },
    /// This cannot work.
    Refused(String),
    /// Not all ranks came in time.
    NeverCame(String),
    /// The seat has another process in it, which was heard of since.
    Taken(String),
    /// The seat may be free soon: its holder is about to end, or was not heard of since.
    Later(String),
    /// A world without such a seat is complete here.
    Full(String),
    /// Not all are here yet; rank 0 is.
    Wait,
}

impl Hello {
    pub(super) fn new(rank: usize, n_ranks: usize, address: String, facts: &Facts) -> Hello {
        let member = Member::own(rank, address, facts);
        Hello { n_ranks, program: facts.program.clone(), member }
    }

    /// As in: rank 1 on host-b.
    pub(super) fn name(&self) -> String {
        format!("rank {} on {}", self.member.rank, self.member.host)
    }

    /// Reason why another rank cannot join this one's process group, in a sentence.
    pub(super) fn objection(&self, other: &Hello) -> Option<String> {
        let (own_name, name) = (self.name(), other.name());
        if other.n_ranks != self.n_ranks {
            return Some(format!(
                "{name} was told that WORLD_SIZE is {} and {own_name} that it is {}: set the same on every rank",
                other.n_ranks, self.n_ranks
            ));
        }
        if other.member.rank >= self.n_ranks {
            return Some(format!("{name} is refused: ranks count from 0 to {}", self.n_ranks - 1));
        }
        if other.program != self.program {
            return Some(format!(
                "{name} runs another program ({}) than {own_name} ({}): run the same on every rank",
                other.program.short(),
                self.program.short()
            ));
        }
        None
    }
}

impl Member {
    pub(super) fn own(rank: usize, address: String, facts: &Facts) -> Member {
        let (device, gpu, shares_gpu) = (facts.device.clone(), facts.gpu.clone(), facts.shares_gpu);
        Member { rank, address, device, gpu, shares_gpu, ..Member::alone() }
    }

    /// The one member of a world of one.
    pub(super) fn alone() -> Member {
        Member {
            rank: 0,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            address: String::new(),
            pid: std::process::id(),
            device: String::new(),
            instruction_set: arithmetic().to_owned(),
            machine: machine(),
            gpu: None,
            shares_gpu: false,
        }
    }
}

/// The machine that this process runs on; its hostname where the kernel does not say.
fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned());
    boot.unwrap_or_else(|_| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

impl Program {
    fn short(&self) -> String {
        format!("{}, digest {}…", self.version, self.digest.get(..12).unwrap_or(&self.digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(rank: usize, n_ranks: usize) -> Hello {
        let program = Program { version: "1.2".to_owned(), digest: "0123456789abcdef".to_owned() };
        let mut hello = Hello::new(
            rank,
            n_ranks,
            String::new(),
            &Facts { device: "CPU".to_owned(), program, gpu: None, shares_gpu: false },
        );
        hello.member.host = ["host-a", "host-b"][rank.min(1)].to_owned();
        hello
    }

    #[test]
    fn what_keeps_a_rank_out_is_named() {
        let own = hello(0, 2);
        let objection = |other: &Hello| own.objection(other).unwrap_or_default();
        assert_eq!(own.objection(&hello(1, 2)), None);
        let size = objection(&hello(1, 3));
        assert!(size.contains("WORLD_SIZE is 3") && size.contains("it is 2"), "{size}");
        let mut newer = own.clone();
        newer.member = hello(1, 2).member;
        newer.program.digest = "ffff456789abcdef".to_owned();
        let program = objection(&newer);
        assert!(program.contains("1.2, digest ffff456789ab…") && program.contains("0123456789ab…"), "{program}");
    }

    #[test]
    fn a_program_knows_its_digest() {
        let facts = Facts::new("CPU").unwrap();
        assert_eq!(facts.program.digest.len(), 64);
        assert_eq!(facts.program, Facts::new("CUDA").unwrap().program);
    }
}
