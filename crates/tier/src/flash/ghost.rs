//! The ghost list: identifiers of pages, or of other keys, that left memory lately. CloudJump III §4.1.1.
//!
//! A FIFO of 32-bit fingerprints, four bytes each and nothing else. It is cut into buckets of one
//! cache line, each a FIFO of sixteen by itself: an identifier always falls into the same bucket, so
//! remembering, finding and forgetting touch one line. The price is that the age at which an
//! identifier drops out varies from bucket to bucket (by a quarter, as loads are Poisson); for
//! evidence of reuse that is as good as an exact FIFO at a third of its memory.
//!
//! The bucket is chosen by other bits of the hash than the fingerprint, so with a million buckets an
//! identifier is mistaken for another about once in 10⁸ looks. A mistake admits a page; it can do no harm.
//!
//! Not here: when a page is admitted (`admission`). Nothing of it survives a restart.

use super::key::Key;
use crate::page::PageId;
use std::marker::PhantomData;

/// Identifiers of one bucket: a cache line.
const BUCKET: usize = 16;

pub struct Ghost<K = PageId> {
    /// Newest first; 0 is an empty place.
    buckets: Vec<[u32; BUCKET]>,
    keys: PhantomData<fn(K)>,
}

impl<K: Key> Ghost<K> {
    /// A list of at most `capacity` identifiers; below one bucket's worth it remembers nothing.
    pub fn new(capacity: usize) -> Ghost<K> {
        Ghost { buckets: vec![[0; BUCKET]; capacity / BUCKET], keys: PhantomData }
    }

    pub fn capacity(&self) -> usize {
        self.buckets.len() * BUCKET
    }

    fn bucket(&mut self, id: K) -> Option<(&mut [u32; BUCKET], u32)> {
        let hash = id.spread();
        let at = (u64::from(hash as u32) * self.buckets.len() as u64) >> 32;
        Some((self.buckets.get_mut(at as usize)?, ((hash >> 32) as u32).max(1)))
    }

    /// Puts the identifier in front; the bucket's oldest drops out.
    pub fn remember(&mut self, id: K) {
        if let Some((bucket, mark)) = self.bucket(id) {
            let end = bucket.iter().position(|m| *m == mark || *m == 0).unwrap_or(BUCKET - 1);
            bucket.copy_within(..end, 1);
            bucket[0] = mark;
        }
    }

    /// Forgets the identifier. True if it was remembered.
    pub fn take(&mut self, id: K) -> bool {
        let Some((bucket, mark)) = self.bucket(id) else { return false };
        let Some(at) = bucket.iter().position(|m| *m == mark) else { return false };
        if crate::planted::GHOST_HIT_KEPT.on() {
            return true;
        }
        bucket.copy_within(at + 1.., at);
        bucket[BUCKET - 1] = 0;
        true
    }
}

#[cfg(test)]
mod tests;
