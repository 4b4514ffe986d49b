//! A string in 12 bytes: an integer in place, or a pointer to bytes of its own.
//!
//! The length word holds the length and two flags. `INT`: the pointer word is a signed integer. `GROWN`: the string was changed in place
//! (`APPEND`, `SETRANGE`, `SETBIT`); its capacity is then [`capacity_of`] its length, so that appending byte by byte copies O(n) in total,
//! and its encoding is `raw`. Any other string has exactly as many bytes as its length.
//!
//! Invariant: unless `INT`, `(pointer, length, capacity)` came from a `Vec<u8>` and belongs to this value alone.
//!
//! This room holds the unsafe code that makes a key of 16 bytes with a value of 256 cost less than 330 bytes.

use std::mem::ManuallyDrop;

/// Longest string, `proto-max-bulk-len` at most.
pub const BYTES_MAX: usize = (1 << 30) - 1;
/// Up to this length a string counts as embedded in its key's entry.
const EMBEDDED_BYTES_MAX: usize = 44;

const INT: u32 = 1 << 31;
const GROWN: u32 = 1 << 30;
const LENGTH: u32 = GROWN - 1;

#[repr(C, packed(4))]
pub struct Str {
    /// The address of the bytes, or an integer.
    word: u64,
    length: u32,
}

/// Room that a string of `length` bytes has that is changed in place: up to a quarter more.
fn capacity_of(length: usize) -> usize {
    if length <= 64 {
        return length.next_power_of_two().max(8);
    }
    let step = (length.next_power_of_two() / 8).max(16);
    length.div_ceil(step) * step
}

impl Str {
    /// Keeps the bytes as they are.
    ///
    /// # Panics
    /// If there are more than [`BYTES_MAX`]; callers check `proto-max-bulk-len`.
    pub fn raw(bytes: &[u8]) -> Str {
        Str::own(Vec::from(bytes), 0)
    }

    /// Keeps bytes that a command made. The string is `raw`, as if it had been changed in place.
    pub fn made(bytes: Vec<u8>) -> Str {
        Str::own(bytes, GROWN)
    }

    /// Keeps an integer as one, if the bytes are its decimal form.
    pub fn encoded(bytes: &[u8]) -> Str {
        if bytes.len() <= 20
            && let Some(number) = super::integer::parse_integer(bytes)
        {
            return Str::int(number);
        }
        Str::raw(bytes)
    }

    pub fn int(number: i64) -> Str {
        Str { word: number as u64, length: INT }
    }

    fn own(mut bytes: Vec<u8>, flags: u32) -> Str {
        assert!(bytes.len() <= BYTES_MAX, "string of {} bytes", bytes.len());
        let length = bytes.len();
        let wanted = if flags & GROWN != 0 { capacity_of(length) } else { length };
        if bytes.capacity() != wanted {
            bytes.shrink_to(wanted);
            bytes.reserve_exact(wanted - length);
        }
        assert_eq!(bytes.capacity(), wanted, "capacity of a string");
        let mut bytes = ManuallyDrop::new(bytes);
        Str { word: bytes.as_mut_ptr().expose_provenance() as u64, length: length as u32 | flags }
    }

    /// The bytes as a vector; leaves an integer behind, which owns nothing.
    fn take(&mut self) -> Vec<u8> {
        if let Some(number) = self.as_int() {
            return number.to_string().into_bytes();
        }
        let length = self.length;
        let word = self.word;
        self.word = 0;
        self.length = INT;
        let len = (length & LENGTH) as usize;
        let capacity = if length & GROWN != 0 { capacity_of(len) } else { len };
        // SAFETY: by the invariant these are the parts of a vector that this value owned alone; it owns nothing any more.
        unsafe { Vec::from_raw_parts(std::ptr::with_exposed_provenance_mut(word as usize), len, capacity) }
    }

    /// The integer, if it is kept as one.
    pub fn as_int(&self) -> Option<i64> {
        (self.length & INT != 0).then_some(self.word as i64)
    }

    /// The bytes, unless an integer is kept.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        if self.length & INT != 0 {
            return None;
        }
        let len = (self.length & LENGTH) as usize;
        // SAFETY: by the invariant `word` is the address of `len` initialised bytes that live as long as this value.
        Some(unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.word as usize), len)
        })
    }

    /// Hands the bytes, an integer's as decimal text, to `read`.
    pub fn with<T>(&self, read: impl FnOnce(&[u8]) -> T) -> T {
        match self.as_bytes() {
            Some(bytes) => read(bytes),
            None => read(itoa::Buffer::new().format(self.word as i64).as_bytes()),
        }
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.with(<[u8]>::to_vec)
    }

    pub fn len(&self) -> usize {
        match self.as_int() {
            Some(_) => self.with(<[u8]>::len),
            None => (self.length & LENGTH) as usize,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes the bytes in place. The string is `raw` then.
    pub fn change<T>(&mut self, change: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut bytes = self.take();
        let result = change(&mut bytes);
        *self = Str::own(bytes, GROWN);
        result
    }

    /// As `OBJECT ENCODING` answers.
    pub fn encoding(&self) -> &'static str {
        if self.length & INT != 0 {
            "int"
        } else if self.length & GROWN == 0 && self.len() <= EMBEDDED_BYTES_MAX {
            "embstr"
        } else {
            "raw"
        }
    }

    pub fn heap_bytes(&self) -> usize {
        if self.length & INT != 0 {
            return 0;
        }
        let len = (self.length & LENGTH) as usize;
        if self.length & GROWN != 0 { capacity_of(len) } else { len }
    }
}

impl Drop for Str {
    fn drop(&mut self) {
        if self.length & INT == 0 {
            drop(self.take());
        }
    }
}

impl Clone for Str {
    fn clone(&self) -> Str {
        match self.as_int() {
            Some(number) => Str::int(number),
            None => Str::own(self.to_vec(), self.length & GROWN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_string_takes_12_bytes_and_a_value_16() {
        assert_eq!(size_of::<Str>(), 12);
        assert_eq!(size_of::<crate::value::Value>(), 16);
    }

    #[test]
    fn encodings_are_those_of_redis() {
        assert_eq!(Str::encoded(b"123").encoding(), "int");
        assert_eq!(Str::encoded(b"0123").encoding(), "embstr");
        assert_eq!(Str::encoded(&[b'x'; 45]).encoding(), "raw");
        let mut text = Str::encoded(b"a");
        text.change(|bytes| bytes.push(b'b'));
        assert_eq!(text.encoding(), "raw");
    }

    proptest! {
        #[test]
        fn changes_are_those_of_a_vector(
            start in prop::collection::vec(any::<u8>(), 0..100),
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..20),
        ) {
            let mut model = start.clone();
            let mut text = Str::encoded(&start);
            for piece in pieces {
                model.extend_from_slice(&piece);
                text.change(|bytes| bytes.extend_from_slice(&piece));
                prop_assert_eq!(text.len(), model.len());
                let copy = text.clone();
                prop_assert_eq!(copy.to_vec(), model.clone());
                if piece.len() == 7 {
                    model.truncate(3);
                    text.change(|bytes| bytes.truncate(3));
                }
            }
            prop_assert_eq!(text.to_vec(), model);
        }
    }
}
