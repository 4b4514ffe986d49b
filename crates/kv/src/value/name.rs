//! The name of a key, as memory and storage have it: up to 22 bytes lie in place, so that a copy needs no allocation.

/// The name of a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Name {
    Inline(u8, [u8; Name::INLINE_BYTES_MAX]),
    Heap(Box<[u8]>),
}

impl Name {
    const INLINE_BYTES_MAX: usize = 22;

    pub fn new(name: &[u8]) -> Name {
        if name.len() <= Name::INLINE_BYTES_MAX {
            let mut bytes = [0; Name::INLINE_BYTES_MAX];
            bytes[..name.len()].copy_from_slice(name);
            Name::Inline(name.len() as u8, bytes)
        } else {
            Name::Heap(name.into())
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Name::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Name::Heap(bytes) => bytes,
        }
    }

    pub fn heap_bytes(&self) -> usize {
        match self {
            Name::Inline(..) => 0,
            Name::Heap(bytes) => bytes.len(),
        }
    }
}

impl std::ops::Deref for Name {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// As that of its bytes, by which a table of keys may be asked.
impl std::hash::Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// That of its bytes.
impl Ord for Name {
    fn cmp(&self, other: &Name) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl From<&[u8]> for Name {
    fn from(name: &[u8]) -> Name {
        Name::new(name)
    }
}

impl std::borrow::Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::Name;
    use std::collections::HashSet;

    #[test]
    fn a_table_of_keys_is_asked_by_bytes() {
        let long = [b'x'; 100];
        let keys: HashSet<Name> = [&b"short"[..], &long].map(Name::new).into_iter().collect();
        assert!(keys.contains(&b"short"[..]) && keys.contains(&long[..]) && !keys.contains(&b"other"[..]));
    }
}
