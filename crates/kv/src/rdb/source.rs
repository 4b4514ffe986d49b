//! Where RDB bytes come from. A source knows how many bytes it still holds, so a length read from it can be refused before it is allocated.

use super::{RdbError, Result};

pub trait Source {
    /// Bytes that are left.
    fn remaining(&self) -> u64;

    /// Fills `out`, or fails with [`RdbError::Truncated`].
    fn read_exact(&mut self, out: &mut [u8]) -> Result<()>;

    fn byte(&mut self) -> Result<u8> {
        let mut one = [0];
        self.read_exact(&mut one)?;
        Ok(one[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn bytes(&mut self, length: u64) -> Result<Vec<u8>> {
        if length > self.remaining() {
            return Err(RdbError::Truncated);
        }
        let length = usize::try_from(length).map_err(|_| RdbError::Truncated)?;
        let mut bytes = vec![0; length];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// A source in memory.
pub struct SliceSource<'a> {
    rest: &'a [u8],
}

impl<'a> SliceSource<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        SliceSource { rest: bytes }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl Source for SliceSource<'_> {
    fn remaining(&self) -> u64 {
        self.rest.len() as u64
    }

    fn read_exact(&mut self, out: &mut [u8]) -> Result<()> {
        let (head, rest) = self.rest.split_at_checked(out.len()).ok_or(RdbError::Truncated)?;
        out.copy_from_slice(head);
        self.rest = rest;
        Ok(())
    }
}
