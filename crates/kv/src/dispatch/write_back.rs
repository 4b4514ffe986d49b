//! Write-back: the log of a turn, the writes of what is dirty, the clients that are slowed. See `attached::write_back`.

use super::pauses::may_write;
use super::writes::counted;
use crate::attached::write_back::{Settling, Unissued, WriteBack};
use crate::attached::{Event, Tier};
use crate::attached::{resident, stored_form};
use crate::client::Client;
use crate::command::stored_keys::is_walker;
use crate::command::table::CommandMatch;
use crate::command::{Arg, scripting};
use crate::planted;
use crate::server::Core;
use crate::storage::journal::record::Encoder;
use crate::storage::{Durability, Get, GetDone, Key, Outcome, StorageError, Stored};
use crate::tiering::queue::{Before, FlightId, GroupId};
use crate::tiering::write_policy::{self, Admission, Bounds, Dirty, Gathering, Mode, SyncWay, admit, is_due};
use std::sync::Arc;
use std::time::Duration;

/// Time after which a write that failed is tried again.
const RETRY_MS: i64 = 100;
/// Time between two syncs of the log with `everysec`.
const SYNC_MS: i64 = 1000;
/// The log may have this many times as many bytes as may be dirty, before writers wait; a write begins at a quarter of that.
const LOG_FACTOR: u64 = 4;
/// The share of `maxmemory` that may be dirty, as a divisor.
const MEMORY_SHARE: u64 = 8;
/// Memory of a dirty key beside its name and value.
pub const KEY_BYTES: u64 = 160;

impl Core {
    pub(super) fn is_write_back(&self) -> bool {
        let back = self.server.tier.as_ref().and_then(|tier| tier.back.as_ref());
        back.is_some_and(|back| back.mode == Mode::WriteBack)
    }

    /// The policy that the settings ask for, as far as it can be had.
    fn wanted_policy(&self) -> Mode {
        let back = self.server.tier.as_ref().and_then(|tier| tier.back.as_ref());
        let goes = |back: &WriteBack| back.mode == Mode::WriteBack || back.journal.failure().is_none();
        if back.is_some_and(goes) { self.server.config.limits.write_policy } else { Mode::WriteThrough }
    }

    fn bounds(&self) -> Bounds {
        let limits = &self.server.config.limits;
        let mut bounds = limits.dirty;
        if limits.memory_bytes_max > 0 {
            bounds.dirty_bytes_max =
                bounds.dirty_bytes_max.min(limits.memory_bytes_max as u64 / MEMORY_SHARE);
        }
        bounds.write_bytes = bounds.write_bytes.min(bounds.dirty_bytes_max / 4);
        bounds.cut_bytes = bounds.cut_bytes.min(bounds.write_bytes);
        bounds
    }

    /// Lets a change of the policy take effect, if nothing waits.
    pub(super) fn change_policy(&mut self) {
        let wanted = self.wanted_policy();
        let Some(Tier { back: Some(back), queue, resume, .. }) = self.server.tier.as_deref_mut() else {
            return;
        };
        if back.mode == wanted || !queue.is_empty() || !back.promises.is_kept() {
            return;
        }
        back.mode = wanted;
        resume.append(&mut back.throttled);
    }

    /// Appends what was changed to the log.
    pub(super) fn log_changes(&mut self, durability: Durability) {
        let mut kept: Vec<GroupId> = Vec::new();
        let dbs = &self.dbs;
        let Some(Tier { back: Some(back), collections, .. }) = self.server.tier.as_deref_mut() else {
            return;
        };
        while let Some((number, emptied, keys)) = back.promises.seal() {
            let encode = |out: &mut Vec<u8>| {
                let mut record = Encoder::begin(out, number, emptied, keys.len());
                for key in keys {
                    let value =
                        resident(dbs, key).filter(|(value, _)| key.is_whole() && value.large().is_none());
                    match value {
                        Some((value, expires_ms)) => {
                            let write = |out: &mut Vec<u8>| value.append_logged(out);
                            record.row(key, Some((expires_ms, write)));
                        }
                        None => {
                            let stored = stored_form(dbs, collections, key);
                            let write = |it: Stored| {
                                (it.expires_ms, move |out: &mut Vec<u8>| out.extend_from_slice(&it.rdb))
                            };
                            record.row(key, stored.map(write));
                        }
                    }
                }
                record.end();
            };
            if back.journal.append_with(number, encode).is_err() {
                // The replies wait for storage.
                continue;
            }
            match durability {
                Durability::Durable => back.syncs.is_wanted = true,
                _ => kept.extend(back.promises.keep(number)),
            }
        }
        kept.into_iter().for_each(|group| self.release(group, None));
        self.sync_log(durability);
    }

    /// Has the log synced if replies wait for that, now or a little later.
    fn sync_log(&mut self, durability: Durability) {
        let now = self.server.world.clock.now();
        let Some(Tier { back: Some(back), .. }) = self.server.tier.as_deref_mut() else { return };
        let WriteBack { syncs, journal, .. } = back;
        if !syncs.is_wanted || syncs.began.is_some() {
            return;
        }
        let gathering = Gathering {
            waiting: syncs.waiting,
            released: syncs.released,
            sync_ns: syncs.took,
            since_ns: now.saturating_sub(syncs.ended),
        };
        match write_policy::sync(&gathering) {
            SyncWay::After(ns) => syncs.due = now + ns,
            SyncWay::Behind => {
                syncs.begin(now);
                journal.sync_soon();
            }
            SyncWay::Here => {
                syncs.begin(now);
                match journal.sync_here() {
                    Some(synced) => self.log_synced(synced, durability),
                    None => journal.sync_soon(),
                }
            }
        }
    }

    /// Begins a write of what is dirty, if it is time.
    pub(super) fn write_dirty(&mut self) {
        let (bounds, now_ms) = (self.bounds(), self.dbs.all[0].now_ms);
        let wanted = self.wanted_policy();
        let is_stopping = self.server.is_stopping;
        let dbs = &self.dbs;
        let Some(Tier { back: Some(back), queue, stalled, swaps, collections, .. }) =
            self.server.tier.as_deref_mut()
        else {
            return;
        };
        if queue.flights() > 0 || now_ms < back.retry_ms {
            return;
        }
        let Some(oldest) = queue.oldest() else { return };
        let has_failed = back.journal.failure().is_some();
        let log_is_long = back.journal.live_bytes() >= bounds.dirty_bytes_max * LOG_FACTOR / 4;
        let flush = is_stopping
            || has_failed
            || log_is_long
            || wanted != back.mode
            || !stalled.is_empty()
            || !swaps.is_empty();
        let age_ms = (now_ms - oldest.ms).max(0) as u64;
        if !is_due(back.mode, &bounds, &Dirty { bytes: queue.waiting_bytes(), age_ms, flush }) {
            return;
        }
        let bytes_max = if has_failed { u64::MAX } else { bounds.cut_bytes.max(1) };
        let Some(mut cut) = queue.cut_logged(bytes_max, |key| stored_form(dbs, collections, key)) else {
            return;
        };
        let upto = back.promises.last();
        back.journal.mark();
        let mut through = queue.oldest().map_or(upto, |oldest| oldest.record - 1);
        if planted::LOG_RELEASED_EARLY.on() {
            through = upto;
        }
        cut.write.log_position = Some(through);
        back.flight = Some((cut.id, through));
        back.unissued = Some(Unissued { id: cut.id, write: cut.write, upto, is_sync_asked: false });
        self.issue_dirty();
    }

    /// Issues the write that was cut off, if the log is durable up to what it holds.
    fn issue_dirty(&mut self) {
        let Some(tier) = self.server.tier.as_deref_mut() else { return };
        let Some(back) = &mut tier.back else { return };
        let Some(unissued) = &mut back.unissued else { return };
        let waits_for_log = back.journal.failure().is_none() && back.synced < unissued.upto;
        if waits_for_log && !planted::ROWS_BEFORE_LOG.on() {
            if !std::mem::replace(&mut unissued.is_sync_asked, true) {
                back.journal.sync_soon();
            }
            return;
        }
        let Some(Unissued { id, write, .. }) = back.unissued.take() else { return };
        let mut counted = counted(&write);
        counted.is_logged = true;
        tier.flights.insert(id, counted);
        tier.note_filter(id, &write);
        tier.counters.writes += 1;
        tier.counters.rows += write.rows.len() as u64;
        tier.counters.row_bytes += write.bytes();
        let mailbox = tier.mailbox.clone();
        let done = Box::new(move |outcome| mailbox.send(Event::Wrote { id, outcome }));
        if let Some(outcome) = tier.storage.write(write, Durability::Durable, done) {
            self.landed(id, outcome);
        }
    }

    /// The log was synced, or cannot be.
    pub(super) fn log_synced(&mut self, synced: Result<u64, StorageError>, durability: Durability) {
        let now = self.server.world.clock.now();
        let Some(Tier { back: Some(back), queue, .. }) = self.server.tier.as_deref_mut() else { return };
        back.syncs.end(now);
        let mut kept = Vec::new();
        match synced {
            Ok(upto) => {
                back.synced = back.synced.max(upto);
                if durability == Durability::Durable {
                    kept = back.promises.keep(upto);
                }
            }
            Err(error) => {
                back.journal.fail(error);
                // What was cut off is a part: without the log, all has to be one write.
                if let Some(unissued) = back.unissued.take() {
                    let before = |row: &crate::storage::Row| Before {
                        existed: row.existed,
                        expires_ms: row.expired_ms,
                    };
                    queue.put_back(unissued.id, before);
                    back.flight = None;
                }
            }
        }
        kept.into_iter().for_each(|group| self.release(group, None));
        self.issue_dirty();
    }

    /// A write of dirty keys has landed: what rests on it.
    pub(super) fn dirty_written(&mut self, id: FlightId) {
        let Some(Tier { back: Some(back), .. }) = self.server.tier.as_deref_mut() else { return };
        let Some((_, through)) = back.flight.take_if(|(flight, _)| *flight == id) else { return };
        back.failure = None;
        back.journal.release(through);
        let kept = back.promises.keep(through);
        kept.into_iter().for_each(|group| self.release(group, None));
    }

    /// Lets the commands go on that waited for room.
    pub(super) fn wake_throttled(&mut self) {
        let Some(Tier { back: Some(back), resume, .. }) = self.server.tier.as_deref_mut() else { return };
        resume.append(&mut back.throttled);
    }

    /// A write of dirty keys has failed: they are dirty still.
    pub(super) fn dirty_failed(&mut self, id: FlightId, outcome: Outcome) {
        let now_ms = self.dbs.all[0].now_ms;
        let Some(Tier { back: Some(back), queue, .. }) = self.server.tier.as_deref_mut() else { return };
        back.counters.failed_writes += 1;
        back.retry_ms = now_ms + RETRY_MS;
        match outcome {
            Outcome::Written => {}
            Outcome::NotWritten(error) => {
                back.failure = Some(error);
                back.flight = None;
                queue.put_back(id, |row| Before { existed: row.existed, expires_ms: row.expired_ms });
            }
            Outcome::Unknown(error) => {
                back.failure = Some(error);
                let again_ms = Some(now_ms);
                let found = Default::default();
                back.settling = Some(Settling { id, unread: 0, found, is_failed: false, again_ms });
                self.settle_failed();
            }
        }
    }

    /// Reads the keys of a write whose outcome is not known, if it is time.
    fn settle_failed(&mut self) {
        let now_ms = self.dbs.all[0].now_ms;
        let Some(tier) = self.server.tier.as_deref_mut() else { return };
        let Some(settling) = tier.back.as_mut().and_then(|back| back.settling.as_mut()) else { return };
        if settling.again_ms.is_none_or(|at_ms| now_ms < at_ms) {
            return;
        }
        let keys = tier.queue.keys_of_flight(settling.id);
        (settling.again_ms, settling.unread, settling.is_failed) = (None, keys.len() + 1, false);
        let (mailbox, storage) = (tier.mailbox.clone(), tier.storage.clone());
        let done: GetDone =
            Arc::new(move |key, read| mailbox.send(Event::Settled { key: key.clone(), read }));
        match storage.get_many(&keys, &done) {
            Ok(answers) => {
                for (key, answer) in keys.iter().zip(answers) {
                    match answer {
                        Get::Hit(stored) => self.settled(key, Ok(Some(stored))),
                        Get::Absent => self.settled(key, Ok(None)),
                        Get::Pending => {}
                    }
                }
            }
            Err(error) => keys.iter().for_each(|key| self.settled(key, Err(error.clone()))),
        }
        self.end_settling();
    }

    /// A key of such a write was read.
    pub(super) fn settled(&mut self, key: &Key, read: Result<Option<Stored>, StorageError>) {
        let Some(tier) = self.server.tier.as_deref_mut() else { return };
        let Some(settling) = tier.back.as_mut().and_then(|back| back.settling.as_mut()) else { return };
        match read {
            Ok(stored) => _ = settling.found.insert(key.clone(), WriteBack::before(stored.as_ref())),
            Err(_) => settling.is_failed = true,
        }
        self.end_settling();
    }

    fn end_settling(&mut self) {
        let now_ms = self.dbs.all[0].now_ms;
        let Some(tier) = self.server.tier.as_deref_mut() else { return };
        let Some(back) = &mut tier.back else { return };
        let Some(settling) = &mut back.settling else { return };
        settling.unread -= 1;
        if settling.unread > 0 {
            return;
        }
        if settling.is_failed {
            settling.again_ms = Some(now_ms + RETRY_MS);
            return;
        }
        if let Some(Settling { id, found, .. }) = back.settling.take() {
            tier.queue.put_back(id, |row| found.get(&row.key).copied().unwrap_or_default());
            back.flight = None;
            let storage = tier.storage.clone();
            tier.stored.iter_mut().for_each(|(db, stored)| *stored = storage.count(*db));
        }
    }

    /// Work of write-back that is due from time to time.
    pub fn tend_write_back(&mut self) {
        self.settle_failed();
        let is_everysec = self.server.config.text("appendfsync") == "everysec";
        let now_ms = self.dbs.all[0].now_ms;
        let Some(Tier { back: Some(back), .. }) = self.server.tier.as_deref_mut() else { return };
        let has_unsynced = back.synced < back.promises.last() && back.mode == Mode::WriteBack;
        if is_everysec && has_unsynced && now_ms - back.sync_asked_ms >= SYNC_MS {
            back.sync_asked_ms = now_ms;
            back.journal.sync_soon();
        }
    }

    fn admission(&self) -> Admission {
        let wanted = self.wanted_policy();
        let Some(Tier { back: Some(back), queue, swaps, .. }) = self.server.tier.as_deref() else {
            return Admission::Go;
        };
        if back.mode != wanted || !swaps.is_empty() {
            return Admission::Wait;
        }
        let dirty = queue.waiting_bytes() + queue.flight_bytes();
        admit(back.mode, &self.bounds(), dirty.max(back.journal.live_bytes() / LOG_FACTOR))
    }

    /// Lets a command that may write wait while too much is dirty. True if it waits.
    pub(super) fn throttles(&mut self, client: &mut Client, found: CommandMatch, args: &[Arg<'_>]) -> bool {
        let Some(Tier { back: Some(_), swaps, scans, .. }) = self.server.tier.as_deref() else {
            return false;
        };
        let begins_walk = !swaps.is_empty() && is_walker(found) && !scans.contains_key(&client.id);
        let writes = || may_write(client, found) && !scripting::only_reads(&self.server, found, args);
        if self.admission() != Admission::Wait || !(begins_walk || writes()) {
            return false;
        }
        if let Some(Tier { back: Some(back), .. }) = self.server.tier.as_deref_mut() {
            client.parked = Some(args.iter().map(|arg| arg.to_vec()).collect());
            back.throttled.push(client.id);
            back.counters.waited += 1;
        }
        true
    }

    /// Delays the next command of a client whose command may have written, by what is dirty.
    pub(super) fn slow(&mut self, client: &mut Client, found: CommandMatch) {
        let Admission::Slow { delay_us } = self.admission() else { return };
        // A transaction is gone from its client by now.
        if found.row.name != "exec" && !may_write(client, found) {
            return;
        }
        let due = self.server.world.clock.now() + delay_us * 1000;
        if let Some(Tier { back: Some(back), .. }) = self.server.tier.as_deref_mut() {
            client.is_delayed = true;
            back.delays.insert((due, client.id));
            back.counters.delayed += 1;
            back.counters.delay_us += delay_us;
        }
    }

    /// Ends the delays that are over.
    pub fn end_delays(&mut self) {
        let Some(Tier { back: Some(back), .. }) = self.server.tier.as_deref_mut() else { return };
        if back.delays.is_empty() {
            return;
        }
        let now = self.server.world.clock.now();
        while back.delays.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, id)) = back.delays.pop_first() else { return };
            if let Some(client) = self.server.clients.get_mut(id) {
                client.is_delayed = false;
                self.server.clients.touched.push(id);
            }
        }
    }

    /// How long the event loop may wait for sockets, if something is due before its next look.
    pub fn due_in(&self) -> Option<Duration> {
        let tier = self.server.tier.as_deref()?;
        let of_fetch = tier.fetches.due_ms().map(|due_ms| {
            let now_ms = self.dbs.all[0].now_ms.max(0) as u64;
            Duration::from_millis(due_ms.saturating_sub(now_ms))
        });
        let now = self.server.world.clock.now();
        let waits = |back: &&WriteBack| back.syncs.is_wanted && back.syncs.began.is_none();
        let of_sync = tier.back.as_ref().filter(waits);
        let of_sync = of_sync.map(|back| Duration::from_nanos(back.syncs.due.saturating_sub(now)));
        let first = tier.back.as_ref().and_then(|back| back.delays.first());
        let of_delay = first.map(|(due, _)| Duration::from_nanos(due.saturating_sub(now)));
        [of_fetch, of_delay, of_sync].into_iter().flatten().min()
    }
}
