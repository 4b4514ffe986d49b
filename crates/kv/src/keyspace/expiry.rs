//! When keys expire: an unordered list of times, each with the hash of its key; the key's entry knows its index.
//!
//! Keys that no client reads any more are found by sampling, as in Redis: a sweep looks at some and goes on while a quarter of them had expired.
//! 16 bytes a key that expires.

#[derive(Clone, Copy)]
pub struct Expiry {
    /// Unix time in milliseconds.
    pub at_ms: i64,
    pub hash: u64,
}

/// Keys that one round of a sweep looks at.
pub const ROUND: usize = 20;

#[derive(Default)]
pub struct Expiries {
    list: Vec<Expiry>,
    next: usize,
}

impl Expiries {
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns what the entry keeps: one more than the index.
    pub fn push(&mut self, expiry: Expiry) -> u32 {
        self.list.push(expiry);
        self.list.len() as u32
    }

    pub fn at_ms(&self, number: u32) -> Option<i64> {
        self.list.get((number as usize).checked_sub(1)?).map(|expiry| expiry.at_ms)
    }

    pub fn set(&mut self, number: u32, at_ms: i64) {
        if let Some(expiry) = (number as usize).checked_sub(1).and_then(|index| self.list.get_mut(index)) {
            expiry.at_ms = at_ms;
        }
    }

    /// Removes a time. The last of the list takes its place: returned with its old number, for its entry to be told.
    pub fn remove(&mut self, number: u32) -> Option<(Expiry, u32)> {
        let index = (number as usize).checked_sub(1)?;
        let last = self.list.len() as u32;
        self.list.swap_remove(index);
        if self.list.len() * 4 < self.list.capacity() {
            self.list.shrink_to(self.list.len() * 2);
        }
        self.list.get(index).map(|&moved| (moved, last))
    }

    /// The next one of the sweep, with its number.
    pub fn sample(&mut self) -> Option<(Expiry, u32)> {
        if self.next >= self.list.len() {
            self.next = 0;
        }
        let expiry = *self.list.get(self.next)?;
        self.next += 1;
        Some((expiry, self.next as u32))
    }

    /// One chosen by a random number, with its number.
    pub fn at_random(&self, random: u64) -> Option<(Expiry, u32)> {
        let index = random.checked_rem(self.list.len() as u64)?;
        Some((self.list[index as usize], index as u32 + 1))
    }

    /// The expired one that was sampled last was removed: another one is in its place.
    pub fn sample_again(&mut self) {
        self.next = self.next.saturating_sub(1);
    }

    pub fn heap_bytes(&self) -> usize {
        self.list.capacity() * size_of::<Expiry>()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Expiry> {
        self.list.iter()
    }
}
