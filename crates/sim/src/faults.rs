//! Faults of a simulated disk that a test switches on.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::disk::Class;
use terrace_io::disk::hedge::{self, LateRead};

/// The unit that a disk writes whole or not at all, in bytes.
pub(crate) const SECTOR: usize = 512;

#[derive(Default)]
pub struct Faults {
    /// Every write and sync fails.
    pub write_errors: AtomicBool,
    pub read_errors: AtomicBool,
    /// Reads that may be left behind are not answered.
    hangs: AtomicBool,
    late: Mutex<Vec<LateRead>>,
    /// The disk is full: files do not grow.
    pub full: AtomicBool,
    /// Bytes that all files together may hold; 0 is no limit.
    pub capacity: AtomicU64,
    /// Syncs report success and do nothing: the control experiment that must lose data.
    pub lying_sync: AtomicBool,
    /// Once in this many reads, only a part of the buffer is filled and the read fails; 0 is never.
    pub short_reads: AtomicU64,
    /// Reads, writes and syncs until the one that fails; 0: no fault.
    countdown: AtomicU64,
    classes: Mutex<HashSet<Class>>,
    /// Sectors that cannot be read until they are written again.
    latent: Mutex<HashSet<(String, u64)>>,
}

impl Faults {
    /// The `n`th read, write or sync from now fails, once. 1 is the next one.
    pub fn fail_nth(&self, n: u64) {
        self.countdown.store(n, Ordering::SeqCst);
    }
    /// Every read, write and sync of the class fails, or no longer does.
    pub fn fail_class(&self, class: Class, fails: bool) {
        let mut classes = self.classes.lock();
        if fails {
            classes.insert(class);
        } else {
            classes.remove(&class);
        }
    }
    /// From now on a read that its reader may leave behind is not answered; other reads are. Or no longer: those that were left behind are answered.
    pub fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::SeqCst);
        if !hangs {
            let late = std::mem::take(&mut *self.late.lock());
            late.into_iter().for_each(|late| late.answered(1, true));
        }
    }
    /// Whether a read that begins now is left behind.
    pub(crate) fn leaves_behind(&self) -> bool {
        let leaves = self.hangs.load(Ordering::SeqCst) && hedge::bound().is_some();
        if leaves {
            self.late.lock().push(hedge::leave());
        }
        leaves
    }
    /// The 512-byte sector at the offset in bytes cannot be read until it is written again.
    pub fn spoil(&self, file: &str, offset: u64) {
        self.latent.lock().insert((file.to_string(), offset / SECTOR as u64));
    }

    /// True if this request is one that fails.
    pub(crate) fn strikes(&self, class: Class) -> bool {
        let counted = self.countdown.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        counted == Ok(1) || self.classes.lock().contains(&class)
    }
    pub(crate) fn is_spoiled(&self, file: &str, offset: u64, len: u64) -> bool {
        let latent = self.latent.lock();
        !latent.is_empty() && sectors(offset, len).any(|s| latent.contains(&(file.to_string(), s)))
    }
    pub(crate) fn written(&self, file: &str, offset: u64, len: u64) {
        let mut latent = self.latent.lock();
        if !latent.is_empty() {
            sectors(offset, len).for_each(|s| {
                latent.remove(&(file.to_string(), s));
            });
        }
    }
}

fn sectors(offset: u64, len: u64) -> std::ops::Range<u64> {
    let size = SECTOR as u64;
    offset / size..(offset + len).div_ceil(size)
}
