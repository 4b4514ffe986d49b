//! Whether what is known of a file still holds, and the flights that find out.

use super::{
    BLOCK_BYTES, Catalogue, Check, Fault, Freshness, Known, Meta, PEER, Read, Slot, Task, Waiting, Wants,
    block_len,
};
use crate::memory::extents::Extent;
use crate::planted;
use std::sync::Arc;
use terrace_io::clock::Nanos;

/// After the store failed to answer a check, the file is served without one for at most this long.
const RECHECK: Nanos = 1_000_000_000;

impl Freshness {
    pub(super) fn holds(self, checked: Nanos, now: Nanos) -> bool {
        match self {
            Freshness::Immutable => true,
            Freshness::Ttl(ttl) => now.saturating_sub(checked) < ttl,
            Freshness::Always => false,
        }
    }

    /// Until when what was found at `checked` may be used by clients that do not ask. None: never.
    pub(super) fn until(self, checked: Nanos) -> Option<Nanos> {
        match self {
            Freshness::Immutable => Some(Nanos::MAX),
            Freshness::Ttl(ttl) => Some(checked.saturating_add(ttl)),
            Freshness::Always => None,
        }
    }
}

impl Catalogue {
    /// The read waits for a check, which is begun unless one is in flight.
    pub(super) fn check(&mut self, read: Read, restarts: u8, now: Nanos) {
        if self.waiting.len() >= self.settings.waiting_max {
            return self.fail(&read, Fault::Busy("too many reads wait for the store".into()));
        }
        let id = self.id();
        let Some(file) = self.files.get_mut(&read.path) else { return self.fail(&read, Fault::Absent) };
        // A flight that begins at this moment, or later, sees every change that the reader may know of.
        let joins = |check: &Check| {
            check.began >= read.since && (self.settings.freshness != Freshness::Always || check.began >= now)
        };
        match &mut file.check {
            Some(check) if joins(check) => check.now.push(id),
            Some(check) => check.next.push(id),
            None => {
                file.check = Some(Check { epoch: file.epoch, began: now, now: vec![id], next: Vec::new() });
                let (path, epoch) = (read.path.clone(), file.epoch);
                let heads = file.known.is_some() || read.wants == Wants::Stat;
                let first = read.offset < BLOCK_BYTES;
                self.tasks.push(match heads {
                    true => Task::Head { path, epoch },
                    false => Task::Start { path, epoch, first },
                });
            }
        }
        let waiting = Waiting { read, restarts, meta: None, first: 0, got: Vec::new(), missing: 0 };
        self.waiting.insert(id, waiting);
    }

    /// A check has ended. With the bytes, if it brought them: the whole file, which is one block.
    pub fn checked(
        &mut self,
        path: &Arc<str>,
        epoch: u64,
        result: Result<(Meta, Option<Extent>), Fault>,
        now: Nanos,
    ) {
        self.checked_at(path, epoch, result, None, now);
    }

    /// As `checked`, with the time at which another node knew that; None: the flight asked the store.
    pub fn checked_at(
        &mut self,
        path: &Arc<str>,
        epoch: u64,
        result: Result<(Meta, Option<Extent>), Fault>,
        at: Option<Nanos>,
        now: Nanos,
    ) {
        let Some(file) = self.files.get_mut(path) else {
            return if let Ok((_, Some(extent))) = result {
                self.give_back(extent)
            };
        };
        let Some(check) = file.check.take() else {
            return if let Ok((_, Some(extent))) = result {
                self.give_back(extent)
            };
        };
        let is_old = check.epoch != epoch || file.epoch != epoch;
        if is_old && !planted::OLD_FLIGHT_BELIEVED.on() {
            // The file was written meanwhile.
            if let Ok((_, Some(extent))) = result {
                self.give_back(extent);
            }
            return check.now.into_iter().chain(check.next).for_each(|id| self.restart_check(id, now));
        }
        match result {
            Ok((meta, extent)) => {
                self.known(path, meta, at.unwrap_or(check.began), extent, now);
                check.now.into_iter().for_each(|id| self.look_waiting(id));
                check.next.into_iter().for_each(|id| self.restart_check(id, now));
            }
            Err(fault @ Fault::Unavailable(_)) => self.no_answer(path, check, &fault, now),
            Err(fault) => {
                if matches!(fault, Fault::Absent) {
                    self.void(path).into_iter().for_each(|id| self.restart(id, now));
                }
                check.now.into_iter().for_each(|id| self.fail_waiting(id, &fault));
                check.next.into_iter().for_each(|id| self.restart_check(id, now));
            }
        }
    }

    fn known(&mut self, path: &Arc<str>, meta: Meta, checked: Nanos, extent: Option<Extent>, now: Nanos) {
        let before = self.files.get(path).and_then(|file| file.known.as_ref());
        let has_changed = before.is_some_and(|known| known.meta != meta);
        let orphans = if has_changed { self.void(path) } else { Vec::new() };
        self.counts.changed += u64::from(has_changed);
        if let Some(file) = self.files.get_mut(path) {
            file.known = Some(Known { meta: meta.clone(), checked, is_doubted: false });
            self.publish(path);
        }
        if let Some(extent) = extent
            && let Some(file) = self.files.get(path)
        {
            let is_free = !file.slots.iter().any(|(index, _)| *index == 0);
            let fits = extent.len == block_len(meta.length, 0);
            match is_free && fits && self.attach(path, &meta.version, 0, extent, false).is_some() {
                true => {}
                false => self.give_back(extent),
            }
        }
        orphans.into_iter().for_each(|id| self.restart(id, now));
    }

    /// The store did not answer. A known file of `Freshness::Ttl` is served as it is; other reads fail.
    fn no_answer(&mut self, path: &Arc<str>, check: Check, fault: &Fault, now: Nanos) {
        let is_of_peer = |id: &u64| self.waiting.get(id).is_some_and(|waiting| waiting.read.client == PEER);
        // Another node decides by itself what it serves then.
        let (of_peers, all): (Vec<u64>, Vec<u64>) =
            check.now.into_iter().chain(check.next).partition(is_of_peer);
        of_peers.into_iter().for_each(|id| self.fail_waiting(id, fault));
        let known = self.files.get_mut(path).and_then(|file| file.known.as_mut());
        match (self.settings.freshness, known) {
            (Freshness::Ttl(ttl), Some(known)) => {
                known.checked = now.saturating_sub(ttl.saturating_sub(ttl.min(RECHECK)));
                known.is_doubted = true;
                self.publish(path);
                for id in all {
                    self.counts.served_in_outage += 1;
                    self.look_waiting(id);
                }
            }
            _ => all.into_iter().for_each(|id| self.fail_waiting(id, fault)),
        }
    }

    fn look_waiting(&mut self, id: u64) {
        if let Some(waiting) = self.waiting.remove(&id) {
            self.look(waiting.read, waiting.restarts);
        }
    }

    /// For reads that hold nothing yet.
    fn restart_check(&mut self, id: u64, now: Nanos) {
        if let Some(waiting) = self.waiting.remove(&id) {
            self.check(waiting.read, waiting.restarts, now);
        }
    }

    /// For tests: panics if a rule of the catalogue is broken.
    pub fn check_invariants(&self) {
        let held: u64 = self.blocks.iter().flatten().map(|block| block.extent.taken()).sum();
        assert!(held + self.extents.free_bytes() <= self.settings.arena_bytes);
        for (id, block) in
            self.blocks.iter().enumerate().filter_map(|(id, block)| Some((id, block.as_ref()?)))
        {
            let slot = self.files.get(&block.path).and_then(|file| file.slot(block.index));
            let is_here = matches!(slot, Some(Slot::Here(here)) if *here as usize == id);
            assert_eq!(is_here, block.attached, "block {id}");
            if block.attached {
                let known = self.files.get(&block.path).and_then(|file| file.known.as_ref());
                assert!(
                    known.is_some_and(|known| known.meta.version == block.version),
                    "block {id} is of another version"
                );
            }
            assert!(block.attached || block.leases > 0, "block {id} is of no use");
        }
        let unleased = self.blocks.iter().flatten().filter(|block| block.leases == 0).count();
        assert_eq!(unleased, self.lru.len());
        assert!(self.files.len() <= self.settings.files_max);
    }
}
