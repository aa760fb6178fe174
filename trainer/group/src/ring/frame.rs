//! Frames of the ring: pieces of a collective, each behind a header that names its call, and checked on arrival.

use crc32fast::Hasher;

/// Bytes before each piece.
pub const HEAD_BYTES: usize = 32;

/// Part of a collective that a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A sum of floats, in any order.
    AllReduce = 1,
    /// Rows of floats of all ranks.
    AllGather = 2,
    /// Lengths of what is shared next.
    ShareLengths = 3,
    /// Bytes of all ranks.
    Share = 4,
    /// Length of what is broadcast next.
    BroadcastLength = 5,
    /// Rank 0's bytes.
    Broadcast = 6,
    /// Nothing: all wait for all.
    Barrier = 7,
    /// A sum of floats, in the order of ranks.
    Fold = 8,
    /// Lengths of the messages sent next.
    AllToAllLengths = 9,
    /// A message from each rank to each other.
    AllToAll = 10,
}

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::AllReduce,
        Kind::AllGather,
        Kind::ShareLengths,
        Kind::Share,
        Kind::BroadcastLength,
        Kind::Broadcast,
        Kind::Barrier,
        Kind::Fold,
        Kind::AllToAllLengths,
        Kind::AllToAll,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::AllReduce => "an all-reduce",
            Kind::AllGather => "an all-gather",
            Kind::ShareLengths | Kind::Share => "a share",
            Kind::BroadcastLength | Kind::Broadcast => "a broadcast",
            Kind::Barrier => "a barrier",
            Kind::Fold => "a fold",
            Kind::AllToAllLengths | Kind::AllToAll => "an all-to-all",
        }
    }
}

/// One call of a collective: what all ranks must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Collectives since the world began, this one included.
    pub number: u64,
    /// Its kind.
    pub kind: Kind,
    /// Bytes that the call is about.
    pub n_bytes: u64,
}

impl Call {
    /// As in: rank 1 is in …
    pub fn describe(&self) -> String {
        let Call { number, kind, n_bytes } = self;
        match kind {
            Kind::AllReduce | Kind::AllGather | Kind::Fold => {
                format!("collective {number}, {} of {} numbers", kind.name(), n_bytes / 4)
            }
            _ => format!("collective {number}, {}", kind.name()),
        }
    }
}

/// Header of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The call that the piece belongs to.
    pub call: Call,
    /// Bytes of the piece.
    pub piece_bytes: u32,
    /// Of the piece.
    pub checksum: u32,
}

impl Head {
    /// As bytes.
    pub fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&self.call.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.call.n_bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.piece_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[24] = self.call.kind as u8;
        let own = checksum(&bytes[..28]);
        bytes[28..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// `None` where the bytes are no head.
    pub fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let four = |at: usize| u32::from_le_bytes(std::array::from_fn(|k| bytes[at + k]));
        let eight = |at: usize| u64::from_le_bytes(std::array::from_fn(|k| bytes[at + k]));
        if four(28) != checksum(&bytes[..28]) {
            return None;
        }
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == bytes[24])?;
        let call = Call { number: eight(0), kind, n_bytes: eight(8) };
        Some(Head { call, piece_bytes: four(16), checksum: four(20) })
    }
}

/// CRC-32 of some bytes.
pub fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back_and_every_flipped_bit_is_seen() {
        for kind in Kind::ALL {
            let call = Call { number: 7 << 40, kind, n_bytes: 1 << 33 };
            let head = Head { call, piece_bytes: 65_536, checksum: 0xdead_beef };
            let bytes = head.to_bytes();
            assert_eq!(Head::from_bytes(&bytes), Some(head));
            for bit in 0..HEAD_BYTES * 8 {
                let mut flipped = bytes;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Head::from_bytes(&flipped), None, "bit {bit}");
            }
        }
    }
}
