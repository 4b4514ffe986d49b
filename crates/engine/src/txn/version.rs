//! Which version of a value a reader sees.
//!
//! From the value in the tree back through undo, to the first version whose transaction the reader
//! sees. Undo that a view needs is not purged while the view is open; but what was copied from a leaf
//! may have been rolled back since, and its undo record's place used anew. So a record counts only
//! if it is the change of this key by this transaction; if not, the value is stale and read again.

use crate::error::{Error, Result};
use crate::row::{Head, TxnId};
use crate::txn::shared::Core;
use crate::undo::record::Body;

/// The reader of a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reader {
    /// None: reads what is newest, committed or not.
    pub view: Option<u64>,
    /// The reader's own transaction; 0 if it has changed nothing.
    pub me: TxnId,
}

impl Reader {
    /// Whether it sees what the transaction `txn` wrote.
    #[inline]
    pub(crate) fn sees(self, core: &Core, txn: TxnId) -> bool {
        txn == self.me && txn != 0 || self.view.is_none_or(|view| core.ids.sees(view, txn))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VisibleVersion {
    /// The value as it is in the tree.
    Current,
    /// An older one.
    Past(Vec<u8>),
    Nothing,
    /// The value was copied from the tree too long ago: read it again.
    Stale,
}

pub fn head_of(value: &[u8]) -> Result<Head> {
    Head::decode(value).map(|(head, _)| head).ok_or_else(|| Error::Corrupt("a value without a head".into()))
}

/// What `reader` sees of the value that the tree has at `key`.
pub fn seen(
    core: &Core,
    reader: Reader,
    table: u32,
    index: u16,
    key: &[u8],
    value: &[u8],
) -> Result<VisibleVersion> {
    let mut head = head_of(value)?;
    let mut past: Option<Vec<u8>> = None;
    loop {
        if reader.sees(core, head.txn) {
            return Ok(match past {
                _ if head.deleted() => VisibleVersion::Nothing,
                None => VisibleVersion::Current,
                Some(value) => VisibleVersion::Past(value),
            });
        }
        if head.roll.is_fresh() || head.roll.is_none() {
            return Ok(VisibleVersion::Nothing);
        }
        let older = core.streams.read(head.roll, |record| match record.body {
            Body::Change(change)
                if record.txn == head.txn
                    && (change.table, change.index, change.key) == (table, index, key) =>
            {
                change.before(past.as_deref().unwrap_or(value))
            }
            _ => None,
        })?;
        match older.flatten() {
            Some(old) => {
                head = head_of(&old)?;
                past = Some(old);
            }
            None => return Ok(VisibleVersion::Stale),
        }
    }
}
