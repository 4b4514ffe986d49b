//! Identifiers of stream entries: milliseconds and a sequence number.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId {
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    pub fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// The next larger identifier.
    pub fn successor(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { ms: self.ms, seq }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The next smaller identifier.
    pub fn predecessor(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { ms: self.ms, seq }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Parses `ms` or `ms-seq`; a missing sequence number is `missing_seq`.
    pub fn parse(text: &[u8], missing_seq: u64) -> Option<StreamId> {
        match memchr::memchr(b'-', text) {
            Some(dash) => {
                Some(StreamId { ms: parse_number(&text[..dash])?, seq: parse_number(&text[dash + 1..])? })
            }
            None => Some(StreamId { ms: parse_number(text)?, seq: missing_seq }),
        }
    }

    /// As in RDB: both numbers big-endian, so that byte order is the order of identifiers.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    pub fn from_bytes(bytes: [u8; 16]) -> StreamId {
        let both = u128::from_be_bytes(bytes);
        StreamId { ms: (both >> 64) as u64, seq: both as u64 }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.ms, self.seq)
    }
}

/// A decimal number without sign or leading zeros that fits 64 bits.
pub fn parse_number(text: &[u8]) -> Option<u64> {
    match text {
        [b'0'] => Some(0),
        [b'1'..=b'9', ..] if text.len() <= 20 => text.iter().try_fold(0u64, |value, byte| {
            let digit = byte.wrapping_sub(b'0');
            (digit < 10).then_some(())?;
            value.checked_mul(10)?.checked_add(u64::from(digit))
        }),
        _ => None,
    }
}
