//! A key with its value: 48 bytes, which is a size class of jemalloc, with keys up to 22 bytes in place.

use crate::value::Value;

pub use crate::value::name::Name as Key;

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
