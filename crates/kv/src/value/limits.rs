//! When a collection leaves its compact encoding. The names are those of CONFIG.

/// Defaults are Redis 7.0's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectionLimits {
    pub hash_max_listpack_entries: usize,
    pub hash_max_listpack_value: usize,
    pub set_max_intset_entries: usize,
    /// Sets of strings: Redis 7.0 has no such encoding, 7.2 has it with these names.
    pub set_max_listpack_entries: usize,
    pub set_max_listpack_value: usize,
    pub zset_max_listpack_entries: usize,
    pub zset_max_listpack_value: usize,
    /// Of one node of a list. Positive: elements. -1 to -5: 4, 8, 16, 32 or 64 KiB.
    pub list_max_listpack_size: i64,
}

impl Default for CollectionLimits {
    fn default() -> Self {
        Self {
            hash_max_listpack_entries: 512,
            hash_max_listpack_value: 64,
            set_max_intset_entries: 512,
            set_max_listpack_entries: 128,
            set_max_listpack_value: 64,
            zset_max_listpack_entries: 128,
            zset_max_listpack_value: 64,
            list_max_listpack_size: -2,
        }
    }
}
