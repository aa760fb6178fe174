//! Packed little-endian numbers. Reading never panics: any bytes give numbers or an error.

use bytes::{BufMut, Bytes, BytesMut};

use crate::messages::Message;

/// Numbers that are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackedError {
    /// Bytes left over.
    #[error("expected a multiple of {item_bytes} bytes, found {n_bytes}")]
    Ragged {
        /// Bytes there are.
        n_bytes: usize,
        /// Bytes of a number.
        item_bytes: usize,
    },
    /// An id of a graph that is not this one.
    #[error("expected node ids of 4 bytes, found {node}")]
    TooWide {
        /// The id.
        node: u64,
    },
    /// Not the number of bits that was asked for.
    #[error("expected {n_bits} bits padded with 0, found {n_bytes} other bytes")]
    Bits {
        /// Bytes there are.
        n_bytes: usize,
        /// Bits expected.
        n_bits: usize,
    },
}

/// Bytes of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdWidth {
    /// 4.
    Narrow,
    /// 8.
    Wide,
}

impl IdWidth {
    /// Bytes of an id.
    pub fn bytes(self) -> usize {
        match self {
            IdWidth::Narrow => 4,
            IdWidth::Wide => 8,
        }
    }

    /// Width of `n_bytes` bytes, if there is one.
    pub fn of_bytes(n_bytes: u32) -> Option<IdWidth> {
        match n_bytes {
            4 => Some(IdWidth::Narrow),
            8 => Some(IdWidth::Wide),
            _ => None,
        }
    }
}

/// Packs ids.
pub fn pack_ids(ids: impl ExactSizeIterator<Item = u64>, width: IdWidth) -> Result<Bytes, PackedError> {
    let mut out = BytesMut::with_capacity(ids.len() * width.bytes());
    match width {
        IdWidth::Wide => ids.for_each(|node| out.put_u64_le(node)),
        IdWidth::Narrow => {
            // One test at the end: a test per id would keep them from being packed side by side.
            let mut all = 0;
            let narrow: Vec<u32> = ids
                .map(|node| {
                    all |= node;
                    node as u32
                })
                .collect();
            if all > u64::from(u32::MAX) {
                return Err(PackedError::TooWide { node: all });
            }
            narrow.into_iter().for_each(|node| out.put_u32_le(node));
        }
    }
    Ok(out.freeze())
}

/// Appends packed ids.
pub fn unpack_ids(packed: &Message, width: IdWidth, ids: &mut Vec<u64>) -> Result<(), PackedError> {
    match width {
        IdWidth::Narrow => unpack(packed, |bytes| u32::from_le_bytes(bytes).into(), ids),
        IdWidth::Wide => unpack(packed, u64::from_le_bytes, ids),
    }
}

/// Appends packed numbers of `N` bytes.
pub fn unpack<const N: usize, T>(
    packed: &Message,
    number: impl Fn([u8; N]) -> T,
    out: &mut Vec<T>,
) -> Result<(), PackedError> {
    let n_bytes = bytes::Buf::remaining(packed);
    if !n_bytes.is_multiple_of(N) {
        return Err(PackedError::Ragged { n_bytes, item_bytes: N });
    }
    out.reserve(n_bytes / N);
    // A number that stands in two pieces or more.
    let (mut cut, mut n_cut) = ([0; N], 0);
    for mut piece in packed.pieces() {
        if n_cut > 0 {
            let n_missing = (N - n_cut).min(piece.len());
            cut[n_cut..][..n_missing].copy_from_slice(&piece[..n_missing]);
            (piece, n_cut) = (&piece[n_missing..], n_cut + n_missing);
            if n_cut < N {
                continue;
            }
            out.push(number(cut));
        }
        let (whole, rest) = piece.as_chunks::<N>();
        out.extend(whole.iter().map(|bytes| number(*bytes)));
        cut[..rest.len()].copy_from_slice(rest);
        n_cut = rest.len();
    }
    Ok(())
}

/// Packs yes and no, eight to a byte.
pub fn pack_bits(bits: &[bool]) -> Bytes {
    let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    bits.chunks(8).map(byte).collect::<Vec<u8>>().into()
}

/// Unpacks `out.len()` bits. The input must have exactly the bytes for them, and its spare bits must be 0.
pub fn unpack_bits(packed: &Message, out: &mut [bool]) -> Result<(), PackedError> {
    let (n_bytes, n_bits) = (bytes::Buf::remaining(packed), out.len());
    if n_bytes != n_bits.div_ceil(8) {
        return Err(PackedError::Bits { n_bytes, n_bits });
    }
    let mut out = out.chunks_mut(8);
    for (byte, bits) in packed.pieces().flatten().zip(&mut out) {
        bits.iter_mut().enumerate().for_each(|(place, bit)| *bit = byte >> place & 1 == 1);
        if u32::from(*byte) >> bits.len() != 0 {
            return Err(PackedError::Bits { n_bytes, n_bits });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same bytes in pieces of `n_bytes`.
    fn in_pieces(bytes: &Bytes, n_bytes: usize) -> Message {
        let mut message = Message::default();
        bytes.chunks(n_bytes).for_each(|piece| message.push(Bytes::copy_from_slice(piece)));
        message
    }

    proptest! {
        #[test]
        fn reading_inverts_writing(ids in prop::collection::vec(any::<u32>(), 0..50), cut in 1usize..20) {
            let ids: Vec<u64> = ids.into_iter().map(u64::from).collect();
            for width in [IdWidth::Narrow, IdWidth::Wide] {
                let packed = pack_ids(ids.iter().copied(), width).unwrap();
                prop_assert_eq!(packed.len(), ids.len() * width.bytes());
                let mut read = Vec::new();
                unpack_ids(&in_pieces(&packed, cut), width, &mut read).unwrap();
                prop_assert_eq!(&read, &ids);
            }
        }

        #[test]
        fn bits_come_back(bits in prop::collection::vec(any::<bool>(), 0..40), cut in 1usize..4) {
            let mut read = vec![true; bits.len()];
            unpack_bits(&in_pieces(&pack_bits(&bits), cut), &mut read).unwrap();
            prop_assert_eq!(read, bits);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let error = pack_ids([1, 1 << 32].into_iter(), IdWidth::Narrow).unwrap_err();
        assert!(matches!(error, PackedError::TooWide { .. }));
        let ragged = Message::from(Bytes::from_static(&[0; 7]));
        assert_eq!(
            unpack_ids(&ragged, IdWidth::Narrow, &mut Vec::new()),
            Err(PackedError::Ragged { n_bytes: 7, item_bytes: 4 })
        );
        let spare = Message::from(Bytes::from_static(&[0b1000]));
        assert!(unpack_bits(&spare, &mut [false; 3]).is_err());
        assert!(unpack_bits(&spare, &mut [false; 4]).is_ok());
        assert!(unpack_bits(&spare, &mut [false; 9]).is_err());
    }
}
