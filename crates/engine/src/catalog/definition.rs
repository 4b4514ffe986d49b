//! Definitions longer than an entry of the catalog's tree.
//!
//! The entry of the table's id (4 bytes, big-endian) then holds `FFFF u16 · generation u32 · parts u16` in place of the
//! definition, which lies in entries with the keys `id · generation · part number u16`, all big-endian. A generation is
//! a number of the counter of table ids: a changed definition is put beside the old one, and one put of the table's own
//! entry changes from one to the other. Parts that no table names are leftovers of a crash.

use hashbrown::HashMap;

/// What one entry holds at most.
pub const ENTRY_MAX: usize = crate::btree::MAX_INLINE_VALUE;

/// No definition starts so: a name is not that long.
const MARK: [u8; 2] = [0xff; 2];
const PART_KEY: usize = 4 + 4 + 2;

/// Where a long definition stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    pub generation: u32,
    pub count: usize,
}

impl Parts {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MARK.to_vec();
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&(self.count as u16).to_le_bytes());
        out
    }

    pub fn keys(&self, id: u32) -> impl Iterator<Item = Vec<u8>> + use<> {
        let generation = self.generation;
        (0..self.count as u16).map(move |part| {
            let mut key = id.to_be_bytes().to_vec();
            key.extend_from_slice(&generation.to_be_bytes());
            key.extend_from_slice(&part.to_be_bytes());
            key
        })
    }
}

/// The parts that a table's own entry names; None if it holds the definition itself.
pub fn parts_of(value: Option<&[u8]>) -> Option<Parts> {
    let rest = value?.strip_prefix(&MARK)?;
    let (generation, count) = rest.split_first_chunk::<4>()?;
    let count = u16::from_le_bytes(count.try_into().ok()?);
    Some(Parts { generation: u32::from_le_bytes(*generation), count: usize::from(count) })
}

/// The catalog's entries, as a walk through its tree meets them.
#[derive(Default)]
pub struct Entries {
    tables: Vec<(u32, Option<Vec<u8>>)>,
    parts: HashMap<Vec<u8>, Vec<u8>>,
}

impl Entries {
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        if let Ok(id) = key.try_into() {
            self.tables.push((u32::from_be_bytes(id), Some(value.to_vec())));
        } else if key.len() == PART_KEY {
            self.parts.insert(key.to_vec(), value.to_vec());
        } else {
            self.tables.push((0, None)); // nobody writes such a key
        }
    }

    /// The definition of each table, None if it or a part of it cannot be read, and the keys of parts that no table names.
    pub fn put_together(mut self) -> (Vec<(u32, Option<Vec<u8>>)>, Vec<Vec<u8>>) {
        let mut whole = Vec::new();
        for (id, value) in self.tables {
            let Some(parts) = parts_of(value.as_deref()) else {
                whole.push((id, value));
                continue;
            };
            let found: Option<Vec<Vec<u8>>> = parts.keys(id).map(|key| self.parts.remove(&key)).collect();
            whole.push((id, found.map(|parts| parts.concat())));
        }
        let mut left: Vec<_> = self.parts.into_keys().collect();
        left.sort_unstable();
        (whole, left)
    }
}

#[cfg(test)]
mod tests;
