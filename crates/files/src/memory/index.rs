//! The index behind the arena's bytes, which clients read: which blocks of which files are here, where, and how long what is known of them
//! holds. With it a client copies a file without asking the daemon anything.
//!
//! It is a table of sets of [`WAYS`] entries, in the mapping that clients have. Only the daemon writes it, under the catalogue's lock. An entry
//! is guarded by a sequence number that is odd while it is written: a reader takes the number, the entry, then the bytes, and has read one
//! block of one version if the number is the same afterwards. The daemon withdraws an entry before the bytes may be used for anything else.
//! An entry that finds its set full replaces another: a client that misses one asks the daemon, which knows all.
//!
//! Before the sets is a number, the time until which the daemon vouches for the table: it is put off several times a second. After a daemon
//! has died no entry holds once that time has passed, and its successor waits for it before it serves clients.
//!
//! An entry names its block by 128 bits of a hash of the path, seeded at each start of the daemon.
//!
//! Not here: what is published (`catalogue`), and what readers make of it (`client::shared`).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use twox_hash::XxHash3_128;

/// Numbers of one entry: sequence, key (2), offset in the arena, the file's length, until when it is fresh, block with the length of the
/// version, and the version.
const WORDS: usize = 16;
const VERSION_AT: usize = 7;
/// The longest version that an entry has room for; files with a longer one are not published.
pub const VERSION_MAX: usize = (WORDS - VERSION_AT) * 8;
/// Entries of a set.
const WAYS: u64 = 8;
/// Bytes of a set.
pub const SET_BYTES: u64 = WAYS * WORDS as u64 * 8;
/// Bytes before the sets.
pub const HEADER_BYTES: u64 = 64;
/// For how long the daemon vouches for the table each time, in nanoseconds.
pub const VOUCHED: u64 = 500_000_000;
/// Spreads the blocks of one file over the sets.
const STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// The table, in memory that whoever made it keeps mapped.
#[derive(Clone)]
pub struct Index {
    words: NonNull<AtomicU64>,
    sets: u64,
    seed: u64,
    /// Added to the catalogue's times: clients have the system's monotonic clock.
    epoch: u64,
}

// SAFETY: the memory is reached through atomics only, and belongs to no thread.
unsafe impl Send for Index {}
// SAFETY: as above.
unsafe impl Sync for Index {}

/// An entry, as it was when it was found.
#[derive(Clone, Copy)]
pub struct Entry {
    way: u64,
    sequence: u64,
    /// The block's place in the arena.
    pub offset: u64,
    /// The file's length.
    pub length: u64,
    pub block: u32,
    version: [u64; WORDS - VERSION_AT],
    version_len: usize,
}

impl Entry {
    pub fn is_same_version(&self, other: &Entry) -> bool {
        self.version == other.version && self.version_len == other.version_len
    }

    pub fn with_version<T>(&self, work: impl FnOnce(&str) -> T) -> Option<T> {
        let mut bytes = [0; VERSION_MAX];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.version) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        std::str::from_utf8(bytes.get(..self.version_len)?).ok().map(work)
    }
}

impl Index {
    /// # Safety
    /// `base` points to `HEADER_BYTES + sets * SET_BYTES` bytes, aligned to 8, that stay mapped as long as the index; to write it, they are writable.
    pub unsafe fn new(base: NonNull<u8>, sets: u64, seed: u64, epoch: u64) -> Index {
        Index { words: base.cast(), sets, seed, epoch }
    }

    pub fn sets(&self) -> u64 {
        self.sets
    }
    pub fn seed(&self) -> u64 {
        self.seed
    }

    fn word(&self, way: u64, word: usize) -> &AtomicU64 {
        assert!(way < self.sets * WAYS && word < WORDS);
        // SAFETY: within the table, by the assertion and the promise of `new`.
        unsafe { self.words.add(HEADER_BYTES as usize / 8 + way as usize * WORDS + word).as_ref() }
    }

    /// Until when the daemon vouches for the table.
    fn vouched(&self) -> &AtomicU64 {
        // SAFETY: the header is before the sets, by the promise of `new`.
        unsafe { self.words.as_ref() }
    }

    /// The daemon lives at `now` of its clock.
    pub fn vouch(&self, now: u64) {
        self.vouched().store(now + self.epoch + VOUCHED, Ordering::Relaxed);
    }

    /// From now on no entry holds.
    pub fn end(&self) {
        self.vouched().store(0, Ordering::SeqCst);
    }

    fn key(&self, path: &str, index: u32) -> (u64, u64) {
        let hash = XxHash3_128::oneshot_with_seed(self.seed, path.as_bytes());
        ((hash as u64).wrapping_add(u64::from(index).wrapping_mul(STRIDE)), (hash >> 64) as u64)
    }

    fn ways(&self, key: (u64, u64)) -> std::ops::Range<u64> {
        let set = key.0 % self.sets.max(1);
        if self.sets == 0 { 0..0 } else { set * WAYS..(set + 1) * WAYS }
    }

    fn is_of(&self, way: u64, key: (u64, u64)) -> bool {
        let of = |word| self.word(way, word).load(Ordering::Relaxed);
        (of(1), of(2)) == key
    }

    /// A block is in the arena, and what is said of its file, version and length, holds until `until`.
    pub fn publish(&self, path: &str, index: u32, offset: u64, block: u32, file: (&str, u64), until: u64) {
        let key = self.key(path, index);
        let ways = self.ways(key);
        let is_dead = |way: &u64| self.word(*way, 5).load(Ordering::Relaxed) == 0;
        let own = ways.clone().find(|way| self.is_of(*way, key));
        let Some(way) =
            own.or_else(|| ways.clone().find(is_dead)).or_else(|| ways.clone().nth(block as usize % 8))
        else {
            return;
        };
        let (version, length) = file;
        let bytes = version.as_bytes();
        let until = if bytes.len() > VERSION_MAX { 0 } else { until.saturating_add(self.epoch) };
        let mut words = [0; WORDS - 1];
        words[..6].copy_from_slice(&[
            key.0,
            key.1,
            offset,
            length,
            until,
            u64::from(block) | (bytes.len() as u64) << 32,
        ]);
        for (word, bytes) in words[VERSION_AT - 1..].iter_mut().zip(bytes.chunks(8)) {
            let mut of_word = [0; 8];
            of_word[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(of_word);
        }
        self.write(way, &words);
    }

    fn write(&self, way: u64, words: &[u64]) {
        let sequence = self.word(way, 0).load(Ordering::Relaxed);
        self.word(way, 0).store(sequence | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (at, word) in words.iter().enumerate() {
            self.word(way, at + 1).store(*word, Ordering::Relaxed);
        }
        self.word(way, 0).store((sequence | 1) + 1, Ordering::Release);
    }

    /// The block's bytes may be used for something else once this has returned.
    pub fn withdraw(&self, path: &str, index: u32) {
        let key = self.key(path, index);
        for way in self.ways(key).filter(|way| self.is_of(*way, key)) {
            self.write(way, &[0; 5]);
        }
        // What is written to the bytes from now on is seen after the entry's new number.
        fence(Ordering::Release);
    }

    /// The entry of a block, if what it says holds at `now` of the system's monotonic clock.
    pub fn find(&self, path: &str, index: u32, now: u64) -> Option<Entry> {
        if self.vouched().load(Ordering::Relaxed) <= now {
            return None;
        }
        let key = self.key(path, index);
        self.ways(key).find_map(|way| {
            let of = |word| self.word(way, word).load(Ordering::Relaxed);
            let sequence = self.word(way, 0).load(Ordering::Acquire);
            if sequence & 1 != 0 || !self.is_of(way, key) || of(5) <= now {
                return None;
            }
            let packed = of(6);
            let version = std::array::from_fn(|at| of(VERSION_AT + at));
            let (block, version_len) = (packed as u32, (packed >> 32) as usize);
            let entry = Entry { way, sequence, offset: of(3), length: of(4), block, version, version_len };
            self.still_holds(&entry).then_some(entry)
        })
    }

    /// Nothing of what was read since the entry was found has been overwritten.
    pub fn still_holds(&self, entry: &Entry) -> bool {
        fence(Ordering::Acquire);
        self.word(entry.way, 0).load(Ordering::Relaxed) == entry.sequence
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// An index over memory that is never freed.
    pub fn leaked(sets: u64) -> Index {
        let len = (HEADER_BYTES + sets * SET_BYTES) as usize / 8;
        let words: &'static mut [u64] = Box::leak(vec![0; len].into());
        // SAFETY: the memory lives for ever and has this length.
        let index = unsafe { Index::new(NonNull::new(words.as_mut_ptr().cast()).unwrap(), sets, 7, 0) };
        index.vouch(1 << 62);
        index
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_was_published_last_and_was_not_withdrawn(
            ops in prop::collection::vec((0u8..3, 0u8..40, 0u32..3, 1u64..1000), 1..300)
        ) {
            let index = leaked(4);
            let mut model = HashMap::new();
            for (what, file, block, number) in ops {
                let path = format!("f{file}");
                if what > 0 {
                    let of_file = (&*format!("v{number}"), number);
                    index.publish(&path, block, number * 64, number as u32, of_file, number);
                    model.insert((file, block), number);
                } else {
                    index.withdraw(&path, block);
                    model.remove(&(file, block));
                }
                for ((file, block), number) in &model {
                    // It may have been replaced by another of its set.
                    if let Some(entry) = index.find(&format!("f{file}"), *block, number - 1) {
                        prop_assert_eq!((entry.offset, entry.length, entry.block), (number * 64, *number, *number as u32));
                        prop_assert_eq!(entry.with_version(str::to_string), Some(format!("v{number}")));
                    }
                    prop_assert!(index.find(&format!("f{file}"), *block, *number).is_none(), "past its time");
                }
                let of_file = model.get(&(file, block)).map(|number| number - 1);
                let found = index.find(&format!("f{file}"), block, of_file.unwrap_or(0)).is_some();
                prop_assert_eq!(found, of_file.is_some(), "the one that was changed last");
            }
        }
    }

    #[test]
    fn a_version_without_room_is_not_published() {
        let index = leaked(1);
        index.publish("f", 0, 0, 1, (&"v".repeat(VERSION_MAX), 1), 9);
        assert!(index.find("f", 0, 1).is_some());
        index.publish("f", 0, 0, 1, (&"v".repeat(VERSION_MAX + 1), 1), 9);
        assert!(index.find("f", 0, 1).is_none());
    }

    #[test]
    fn nothing_is_found_when_the_daemon_no_longer_vouches_for_it() {
        let index = leaked(1);
        index.publish("f", 0, 0, 1, ("v", 1), u64::MAX);
        index.vouch(100);
        assert!(index.find("f", 0, 99 + VOUCHED).is_some());
        assert!(index.find("f", 0, 100 + VOUCHED).is_none());
        index.end();
        assert!(index.find("f", 0, 1).is_none());
    }

    #[test]
    fn a_reader_never_takes_an_entry_that_is_being_written_for_whole() {
        let index = leaked(1);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..200_000u64 {
                    let file = (&*number.to_string(), number);
                    index.publish("f", 0, number * 64, number as u32, file, u64::MAX);
                }
                stop.store(true, Ordering::SeqCst);
            });
            let mut found = 0;
            while !stop.load(Ordering::SeqCst) {
                let Some(entry) = index.find("f", 0, 1) else { continue };
                assert_eq!((entry.offset, entry.block), (entry.length * 64, entry.length as u32));
                assert_eq!(entry.with_version(|version| version.parse()), Some(Ok(entry.length)));
                found += 1;
            }
            assert!(found > 0);
        });
    }
}
