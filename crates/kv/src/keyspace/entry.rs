//! A key with its value: 48 bytes, which is a size class of jemalloc, with keys up to 22 bytes in place.

use crate::value::Value;

/// The name of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Key {
    Inline(u8, [u8; Key::INLINE_BYTES_MAX]),
    Heap(Box<[u8]>),
}

impl Key {
    const INLINE_BYTES_MAX: usize = 22;

    pub fn new(name: &[u8]) -> Key {
        if name.len() <= Key::INLINE_BYTES_MAX {
            let mut bytes = [0; Key::INLINE_BYTES_MAX];
            bytes[..name.len()].copy_from_slice(name);
            Key::Inline(name.len() as u8, bytes)
        } else {
            Key::Heap(name.into())
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Key::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Key::Heap(bytes) => bytes,
        }
    }

    pub fn heap_bytes(&self) -> usize {
        match self {
            Key::Inline(..) => 0,
            Key::Heap(bytes) => bytes.len(),
        }
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// As that of its bytes, by which a table of keys may be asked.
impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl std::borrow::Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

pub struct Entry {
    pub key: Key,
    pub value: Value,
    /// What the eviction policy knows of the key: seconds of its last access (LRU), or a counter with its minute (LFU).
    pub access: u32,
    /// One more than the index in the list of expiry times; 0 if the key does not expire.
    pub expiry: u32,
}

const _: () = assert!(size_of::<Key>() == 24 && size_of::<Entry>() == 48);

impl Entry {
    /// Memory of the key and its value.
    pub fn bytes(&self) -> usize {
        size_of::<Entry>() + self.key.heap_bytes() + self.value.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::Key;
    use std::collections::HashSet;

    #[test]
    fn a_table_of_keys_is_asked_by_bytes() {
        let long = [b'x'; 100];
        let keys: HashSet<Key> = [&b"short"[..], &long].map(Key::new).into_iter().collect();
        assert!(keys.contains(&b"short"[..]) && keys.contains(&long[..]) && !keys.contains(&b"other"[..]));
    }
}
