//! Groups of changes, their writes, and the replies that wait for them.

use super::large::{collection, element_value};
use super::reads::{error_text, value_of};
use super::write_back::KEY_BYTES;
use crate::attached::{Counted, Event, Noted, stored_form};
use crate::client::Client;
use crate::keyspace::changes::Expired;
use crate::planted;
use crate::server::Core;
use crate::storage::{Durability, Key, Outcome, Part, Stored, Write};
use crate::tiering::queue::{Before, FlightId, GroupId, Since};
use crate::value::Value;
use std::collections::BTreeMap;

/// Places for changed keys that are kept for the next group.
const CHANGED_KEPT: usize = 256;

impl Core {
    /// Notes a change of the present group. An expired key was in storage until now, with its time.
    pub fn note_changed(&mut self, db: u16, key: &[u8]) {
        if let Some(tier) = &mut self.server.tier {
            tier.changed.push(Key::new(db, key));
        }
    }

    /// Notes keys that have expired: what storage has of them, unless the group noted it before.
    pub fn note_expired(&mut self, db: u16, expired: Vec<Expired>) {
        let Some(tier) = &mut self.server.tier else { return };
        for Expired { key, at_ms, generation } in expired {
            let before = Before { existed: true, expires_ms: Some(at_ms.max(0) as u64) };
            let key = Key { db, part: Part::Whole, name: key };
            if !tier.touched.contains(&key) {
                tier.touched.add(key, Noted { before, generation });
            }
        }
    }

    /// All keys of a database were deleted.
    pub fn note_emptied(&mut self, db: u16) {
        if let Some(tier) = &mut self.server.tier
            && !tier.emptied.contains(&db)
        {
            tier.emptied.push(db);
        }
    }

    /// Ends the present group. The output of `current` from `start` on is the reply of its command.
    pub fn finish(&mut self, current: Option<&mut Client>, start: usize) {
        let is_write_back = self.is_write_back();
        let Some(tier) = &mut self.server.tier else { return };
        let mut touched = std::mem::take(&mut tier.touched);
        let mut changed = std::mem::take(&mut tier.changed);
        let emptied = std::mem::take(&mut tier.emptied);
        let served = std::mem::take(&mut tier.served);
        let group = if changed.is_empty() && emptied.is_empty() {
            match &tier.back {
                Some(back) if is_write_back => back.promises.gate(touched.keys()),
                _ => tier.queue.gate(touched.keys()),
            }
        } else {
            changed.sort_unstable();
            changed.dedup();
            for &db in &emptied {
                tier.resume.extend(tier.fetches.supersede_database(db));
                tier.resume.extend(tier.collections.forget_database(db));
            }
            let mut changes = tier.changes_of(&mut self.dbs, &mut changed, &touched);
            if tier.fetches.wanted() > 0 {
                for change in &changes {
                    tier.resume.extend(tier.fetches.supersede(&change.key));
                }
            }
            tier.counters.groups += 1;
            tier.counters.changes += changes.len() as u64;
            let ms = self.dbs.all[0].now_ms;
            match &mut tier.back {
                Some(back) if is_write_back => {
                    changes.iter_mut().for_each(|change| change.bytes += KEY_BYTES);
                    let queue = &mut tier.queue;
                    let keys = changes.iter().map(|change| &change.key);
                    let group = back.promises.change(keys, &emptied, || queue.number());
                    queue.add_logged(Since { record: back.promises.next(), ms }, changes, emptied);
                    (!planted::REPLY_BEFORE_LOGGED.on()).then_some(group)
                }
                _ => {
                    tier.dirty_since_ms.get_or_insert(ms);
                    Some(tier.queue.add(touched.keys().cloned().collect(), changes.into_vec(), emptied))
                }
            }
        };
        touched.clear();
        changed.clear();
        changed.shrink_to(CHANGED_KEPT);
        (tier.touched, tier.changed) = (touched, changed);
        let Some(group) = group else { return };
        let mut holders = Vec::new();
        if let Some(client) = current
            && client.hold(start, group)
        {
            holders.push(client.id);
        }
        for (id, start) in served {
            if let Some(client) = self.server.clients.get_mut(id)
                && client.hold(start, group)
            {
                holders.push(id);
            }
        }
        if let Some(tier) = &mut self.server.tier
            && !holders.is_empty()
        {
            // With write-back, the commands of a turn have one group.
            if is_write_back && let Some(back) = &mut tier.back {
                back.syncs.waiting += holders.len();
            }
            let all = tier.holders.entry(group).or_default();
            holders.into_iter().for_each(|id| {
                if all.last() != Some(&id) {
                    all.push(id);
                }
            });
        }
    }

    /// What a reply waits for.
    pub(super) fn durability(&self) -> Durability {
        self.server.config.limits.durability
    }

    /// Issues the writes that can be issued.
    pub fn write_changes(&mut self) {
        self.issue_writes();
        self.wake_swaps();
    }

    fn issue_writes(&mut self) {
        // Half of a script must not be stored, nor what would be stored with it. No client has been told of any of it.
        if self.server.stops_hard {
            return;
        }
        let durability = self.durability();
        self.change_policy();
        if self.is_write_back() {
            self.log_changes(durability);
            return self.write_dirty();
        }
        loop {
            let Some(tier) = &mut self.server.tier else { return };
            if tier.wants_counts || tier.queue.flights() >= tier.storage.writes_in_flight_max() {
                return;
            }
            let dbs = &self.dbs;
            let collections = &tier.collections;
            let Some(cut) = tier.queue.cut(|key| stored_form(dbs, collections, key)) else { return };
            tier.flights.insert(cut.id, counted(&cut.write));
            if !tier.queue.has_waiting() {
                tier.dirty_since_ms = None;
            }
            tier.note_filter(cut.id, &cut.write);
            let outcome = if cut.write.is_empty() {
                Some(Outcome::Written)
            } else {
                tier.counters.writes += 1;
                tier.counters.rows += cut.write.rows.len() as u64;
                tier.counters.row_bytes += cut.write.bytes();
                let (mailbox, id) = (tier.mailbox.clone(), cut.id);
                let done = Box::new(move |outcome| mailbox.send(Event::Wrote { id, outcome }));
                tier.storage.write(cut.write, durability, done)
            };
            if let Some(outcome) = outcome {
                self.landed(cut.id, outcome);
            }
        }
    }

    /// A write has ended.
    pub(super) fn landed(&mut self, id: FlightId, outcome: Outcome) {
        let Some(tier) = &mut self.server.tier else { return };
        let Some(counted) = tier.flights.remove(&id) else { return };
        tier.end_emptied(id, outcome == Outcome::Written);
        let is_logged = counted.is_logged;
        if is_logged && outcome != Outcome::Written {
            return self.dirty_failed(id, outcome);
        }
        if outcome == Outcome::Written {
            for db in counted.emptied {
                tier.stored.insert(db, 0);
            }
            for (db, added) in counted.added {
                let stored = tier.stored.entry(db).or_default();
                *stored = stored.saturating_add_signed(added);
            }
        }
        let landed = tier.queue.land(id, outcome);
        if tier.queue.flights() == 0 {
            tier.take_counts();
        }
        if is_logged {
            self.dirty_written(id);
        }
        self.wake_throttled();
        let Some(tier) = &mut self.server.tier else { return };
        self.server.clients.touched.append(&mut tier.stalled);
        if landed.is_unknown {
            let storage = tier.storage.clone();
            tier.stored.iter_mut().for_each(|(db, stored)| *stored = storage.count(*db));
        }
        tier.losses += (landed.lost.len() + landed.restored.len()) as u64;
        tier.counters.failed_groups += landed.failed.len() as u64;
        for group in landed.written {
            self.release(group, None);
        }
        if !landed.failed.is_empty() {
            let text = landed.error.as_ref().map_or_else(|| "ERR storage failed".to_owned(), error_text);
            for group in landed.failed {
                self.release(group, Some(&text));
            }
        }
        if let Some(tier) = &self.server.tier
            && !tier.collections.is_empty()
        {
            landed.clean.iter().for_each(|key| tier.element_is_clean(&mut self.dbs, key));
        }
        let lost = landed.lost.into_iter().map(|key| (key, None));
        for (key, value) in lost.chain(landed.restored) {
            self.replace(&key, value);
        }
    }

    /// Makes memory say of a key what storage will have.
    fn replace(&mut self, key: &Key, stored: Option<Stored>) {
        if let Some(tier) = &mut self.server.tier {
            tier.resume.extend(tier.fetches.supersede(key));
        }
        if let Part::Element(generation) = key.part {
            // It went with its head, or another write has both.
            if let (Some(tier), Some(stored)) = (&self.server.tier, stored)
                && let Some(value) = collection(&mut self.dbs, &tier.collections, generation)
            {
                // What was serialised here can be read here.
                let admitted = value.admit(&key.name, &element_value(&stored));
                debug_assert!(admitted.is_ok(), "{key:?} cannot be read");
            }
            return;
        }
        if !key.is_whole() {
            return;
        }
        self.server.touch_watched(key.db, &crate::keyspace::Key::new(&key.name));
        // What was serialised here can be read here.
        let value =
            stored.and_then(|stored| Some((value_of(&self.server, &stored).ok()?, stored.expires_ms)));
        let Some(db) = self.dbs.get(key.db) else { return };
        let large = |value: &Value| value.large().map(|large| large.generation);
        let old = db.resident(&key.name).and_then(|(value, _)| large(value));
        db.forget(&key.name);
        let new = value.as_ref().and_then(|(value, _)| large(value));
        if let Some((value, expires_ms)) = value {
            let at_ms = expires_ms.map(|at_ms| i64::try_from(at_ms).unwrap_or(i64::MAX));
            db.load(&key.name, value, at_ms);
        }
        if let Some(tier) = &mut self.server.tier {
            let waiters = old.map(|old| tier.collections.forget(old));
            tier.resume.extend(waiters.unwrap_or_default());
            new.into_iter().for_each(|new| tier.collections.note(new, key));
        }
    }

    /// Lets the replies of a group go, or replaces them by an error.
    pub(super) fn release(&mut self, group: GroupId, error: Option<&str>) {
        let Some(tier) = &mut self.server.tier else { return };
        for id in tier.holders.remove(&group).unwrap_or_default() {
            if let Some(client) = self.server.clients.get_mut(id) {
                client.release(group, error);
                self.server.clients.touched.push(id);
            }
        }
    }
}

pub(super) fn counted(write: &Write) -> Counted {
    let mut added: BTreeMap<u16, i64> = BTreeMap::new();
    for row in write.rows.iter().filter(|row| row.key.is_whole()) {
        *added.entry(row.key.db).or_default() += i64::from(row.value.is_some()) - i64::from(row.existed);
    }
    Counted { emptied: write.emptied.clone(), added, is_logged: false }
}
