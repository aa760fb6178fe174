//! Ids of a request: kept packed as received, and unpacked a chunk at a time.

use bytes::{Buf, Bytes};
use kith_proto::{IdWidth, Message, PackedError, unpack_ids};

/// Ids unpacked at once: 256 KiB of them.
pub(crate) const WINDOW_IDS: usize = 32 << 10;

/// Packed ids of a request. Some of them may still be on their way.
#[derive(Clone, Debug)]
pub struct PackedIds {
    packed: Message,
    /// Bytes that have not arrived.
    n_missing: usize,
    width: IdWidth,
    /// The next ids, unpacked.
    window: Vec<u64>,
    /// Ids of the window that were used.
    n_used: usize,
}

impl PackedIds {
    /// Ids of which `packed` has arrived and `n_missing` bytes have not. Their bytes must divide into ids.
    pub(crate) fn new(packed: Message, n_missing: usize, width: IdWidth) -> Result<PackedIds, PackedError> {
        let n_bytes = packed.remaining() + n_missing;
        if !n_bytes.is_multiple_of(width.bytes()) {
            return Err(PackedError::Ragged { n_bytes, item_bytes: width.bytes() });
        }
        Ok(PackedIds { packed, n_missing, width, window: Vec::new(), n_used: 0 })
    }

    /// Number of ids that were not used, those on their way included.
    pub fn len(&self) -> usize {
        self.window.len() - self.n_used + (self.packed.remaining() + self.n_missing) / self.width.bytes()
    }

    /// True when all ids were used.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that must arrive before the next window can be unpacked.
    pub(crate) fn n_wanted_bytes(&self) -> usize {
        if self.n_missing == 0 || self.n_used < self.window.len() {
            return 0;
        }
        let n_next = (WINDOW_IDS * self.width.bytes()).min(self.packed.remaining() + self.n_missing);
        n_next.saturating_sub(self.packed.remaining())
    }

    /// Bytes that have not arrived.
    pub(crate) fn n_missing_bytes(&self) -> usize {
        self.n_missing
    }

    /// Appends bytes that arrived: at most [`PackedIds::n_missing_bytes`].
    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.n_missing -= bytes.len();
        self.packed.push(bytes);
    }

    /// The next ids: some, unless all were used.
    pub(crate) fn peek(&mut self) -> Result<&[u64], PackedError> {
        if self.n_used == self.window.len() {
            let n_bytes = (WINDOW_IDS * self.width.bytes()).min(self.packed.remaining());
            let packed = self.packed.split_to(n_bytes - n_bytes % self.width.bytes());
            (self.n_used, self.window) = (0, std::mem::take(&mut self.window));
            self.window.clear();
            unpack_ids(&packed, self.width, &mut self.window)?;
        }
        Ok(&self.window[self.n_used..])
    }

    /// Marks ids that [`PackedIds::peek`] gave as used.
    pub(crate) fn advance(&mut self, n_ids: usize) {
        self.n_used += n_ids;
        assert!(self.n_used <= self.window.len(), "only ids that were seen are used");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_out_in_order_whatever_arrives_when() {
        let n_ids = 2 * WINDOW_IDS + 5;
        let bytes: Bytes = (0..n_ids as u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>().into();
        let mut ids = PackedIds::new(Message::default(), bytes.len(), IdWidth::Narrow).unwrap();
        let (mut n_sent, mut read) = (0, Vec::new());
        while !ids.is_empty() {
            while ids.n_wanted_bytes() > 0 {
                let n_bytes = 4099.min(ids.n_missing_bytes());
                ids.push(bytes.slice(n_sent..n_sent + n_bytes));
                n_sent += n_bytes;
            }
            assert_eq!(ids.len(), n_ids - read.len());
            let some = ids.peek().unwrap();
            let n_some = some.len().min(7000);
            read.extend_from_slice(&some[..n_some]);
            ids.advance(n_some);
        }
        assert!(read.into_iter().eq(0..n_ids as u64));
        assert!(PackedIds::new(Message::default(), 7, IdWidth::Narrow).is_err());
    }
}
