//! What a flash cache knows of the values it holds: how a key is hashed, and when bytes from the device may be served.
//!
//! Admission, the ghost list and the index know a key by its hash alone, so they serve any key: a page's name, a block of a file. A
//! hash does not identify a key; the value itself says which key and which version it is, and [`Validity`] reads that. All of it is
//! resolved at compile time: each cache is compiled for its own keys.

/// Identifies a value. Small and copied freely.
pub trait Key: Copy + Eq + Send + Sync + 'static {
    /// The key as 64 well-mixed bits: each depends on the whole key.
    fn spread(self) -> u64;
}

/// The key's fingerprint: how the index and the sketch know it.
#[inline]
pub fn mark<K: Key>(key: K) -> u32 {
    (key.spread() >> 32) as u32
}

/// What a look at the bytes of a slot found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Intact, of this key, and the expected version.
    Current,
    /// Intact, of another key, with this fingerprint.
    OtherKey {
        mark: u32,
    },
    /// Intact, of this key, and another version.
    OtherVersion,
    Corrupt,
}

/// How a kind of value proves itself. A checksum alone would not do: an old value validates itself perfectly.
pub trait Validity: 'static {
    type Key: Key;
    /// Names one version of a key's value; the reader knows which is current.
    type Version: Copy;
    /// Checks bytes that came from the device or the queue. Total: it never panics, whatever the bytes are. Without `expected` any
    /// version is current, which only planted bugs ask for.
    fn check(bytes: &[u8], key: Self::Key, expected: Option<Self::Version>) -> Verdict;
}
