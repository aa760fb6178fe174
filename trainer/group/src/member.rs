//! A rank as all others know it, and the properties that must agree before it may join.

use serde::{Deserialize, Serialize};

/// A rank, as all others know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

impl Member {
    /// As in: rank 1 on host-b.
    pub fn name(&self) -> String {
        format!("rank {} on {}", self.rank, self.host)
    }
}

/// Program of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its version.
    pub version: String,
    /// SHA-256 of the file.
    pub digest: String,
}

impl Program {
    fn short(&self) -> String {
        format!("{}, digest {}…", self.version, self.digest.get(..12).unwrap_or(&self.digest))
    }
}

/// Introduction of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Ranks of the group that it wants to join.
    pub n_ranks: usize,
    /// Its program.
    pub program: Program,
    /// The rank.
    pub member: Member,
}

impl Hello {
    /// Reason why another rank cannot join this one's process group, in a sentence.
    pub fn objection(&self, other: &Hello) -> Option<String> {
        let (own_name, name) = (self.member.name(), other.member.name());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(rank: usize, n_ranks: usize) -> Hello {
        let program = Program { version: "1.2".to_owned(), digest: "0123456789abcdef".to_owned() };
        let host = ["host-a", "host-b"][rank.min(1)].to_owned();
        Hello { n_ranks, program, member: Member { rank, host, ..Member::default() } }
    }

    #[test]
    fn what_keeps_a_rank_out_is_named() {
        let own = hello(0, 2);
        let objection = |other: &Hello| own.objection(other).unwrap_or_default();
        assert_eq!(own.objection(&hello(1, 2)), None);
        let size = objection(&hello(1, 3));
        assert!(size.contains("WORLD_SIZE is 3") && size.contains("it is 2"), "{size}");
        assert_eq!(objection(&hello(2, 2)), "rank 2 on host-b is refused: ranks count from 0 to 1");
        let mut newer = hello(1, 2);
        newer.program.digest = "ffff456789abcdef".to_owned();
        let program = objection(&newer);
        assert!(program.contains("1.2, digest ffff456789ab…") && program.contains("0123456789ab…"), "{program}");
    }
}
