//! The key of an object: `<lineage>/<space>/<block>/<writer epoch>-<sequence>`, ids only.
//!
//! A sequence is never reused, so a key names one content for ever; metadata decides which is current.

use crate::page::{BlockId, SpaceId};
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ObjectKey {
    pub lineage: u128,
    pub space: SpaceId,
    pub block: u32,
    pub epoch: u32,
    /// Above 0.
    pub sequence: u64,
}

impl ObjectKey {
    pub fn block_id(&self) -> BlockId {
        BlockId { space: self.space, block: self.block }
    }

    /// Reads back what `Display` wrote. None if it is not a key.
    pub fn parse(text: &str) -> Option<ObjectKey> {
        let mut parts = text.split('/');
        let lineage = u128::from_str_radix(parts.next()?, 16).ok()?;
        let space = SpaceId(u32::from_str_radix(parts.next()?, 16).ok()?);
        let block = u32::from_str_radix(parts.next()?, 16).ok()?;
        let (epoch, sequence) = parts.next()?.split_once('-')?;
        let epoch = u32::from_str_radix(epoch, 16).ok()?;
        let sequence = u64::from_str_radix(sequence, 16).ok()?;
        let key = ObjectKey { lineage, space, block, epoch, sequence };
        (parts.next().is_none() && sequence > 0 && key.to_string() == text).then_some(key)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectKey { lineage, space, block, epoch, sequence } = self;
        write!(f, "{lineage:032x}/{:08x}/{block:08x}/{epoch:08x}-{sequence:016x}", space.0)
    }
}
