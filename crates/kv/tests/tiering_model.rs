//! The tiering state machines against a map: random commands of many clients, evictions, a storage that is slow, reorders, refuses, fails and says "timeout"
//! of what it has written, and crashes at any step. Everything is decided by the seed.
//!
//! Checked at each step
//! * A command sees what the commands before it left, or, after a failed write, what storage has.
//! * The count of keys is exact.
//!
//! Checked at each crash, after which only storage is left
//! * What a client was told, of its own write or as an answer to a read, is there (write-through).
//! * The changes of a transaction are there all or none.

use std::collections::{BTreeMap, BTreeSet};
use terrace_io::random::Random;
use terrace_kv::storage::{Key, Outcome, Position, StorageError, Stored, Write};
use terrace_kv::tiering::fetch::{FetchId, Fetched, Fetches, Limits, Urgency};
use terrace_kv::tiering::filter::{Filter, Says};
use terrace_kv::tiering::queue::{Before, Changed, FlightId, GroupId, Queue};
use terrace_kv::tiering::write_policy::{Bounds, Dirty, Mode, is_due};
use terrace_sim::SimWorld;

/// The number of the write that made a state; values are such numbers.
type Stamp = u64;
type State = (Option<Stamp>, Stamp);

#[derive(Clone, Debug)]
enum Op {
    Get(Key),
    Set(Key),
    /// Reads and writes.
    Increment(Key),
    Delete(Key),
    /// Writes several keys.
    Exec(Vec<Key>),
    Flush(u16),
}

/// What storage has; survives crashes.
#[derive(Default)]
struct Disk {
    rows: BTreeMap<Key, State>,
    /// The newest flush of a database: the state of keys without a row.
    flushed: BTreeMap<u16, Stamp>,
}

impl Disk {
    fn state(&self, key: &Key) -> State {
        let flushed = (None, self.flushed.get(&key.db).copied().unwrap_or_default());
        self.rows.get(key).copied().unwrap_or(flushed)
    }
    fn apply(&mut self, flight: &Issued) {
        for (db, stamp) in &flight.flushes {
            self.rows.retain(|key, _| key.db != *db);
            self.flushed.insert(*db, *stamp);
        }
        for row in &flight.write.rows {
            let value = row.value.as_ref().map(value_of);
            self.rows.insert(row.key.clone(), (value, flight.stamps[&row.key]));
        }
    }
    fn count(&self, db: u16) -> u64 {
        self.rows.iter().filter(|(key, (value, _))| key.db == db && value.is_some()).count() as u64
    }
}

fn value_of(stored: &Stored) -> Stamp {
    Stamp::from_be_bytes(stored.rdb[..8].try_into().expect("a value is a stamp"))
}

fn stored(value: Stamp) -> Stored {
    Stored { expires_ms: None, rdb: value.to_be_bytes().to_vec() }
}

/// A write on its way.
struct Issued {
    id: FlightId,
    write: Write,
    stamps: BTreeMap<Key, Stamp>,
    flushes: Vec<(u16, Stamp)>,
    outcome: Outcome,
    applies: bool,
    is_applied: bool,
}

struct Read {
    id: FetchId,
    key: Key,
    value: Option<State>,
}

/// What a group did, for the checks.
struct Did {
    stamp: Stamp,
    changed: BTreeSet<Key>,
    /// What goes back to what storage has if the group fails: all that it changed.
    reverts: BTreeSet<Key>,
    read: Vec<(Key, Stamp)>,
}

struct Life<'d> {
    sim: SimWorld,
    mode: Mode,
    disk: &'d mut Disk,
    /// What storage has of the writes that have landed.
    landed: Disk,
    memory: BTreeMap<Key, Stamp>,
    queue: Queue,
    fetches: Fetches,
    filter: Filter,
    scans: Vec<(usize, Vec<Key>)>,
    issued: Vec<Issued>,
    reads: Vec<Read>,
    parked: BTreeMap<u64, Op>,
    next_command: u64,
    stamp: &'d mut Stamp,
    /// The truth: what each key is after the commands so far.
    truth: BTreeMap<Key, State>,
    flushed: BTreeMap<u16, Stamp>,
    /// The state of each key that was serialised last.
    cut_at: BTreeMap<Key, Stamp>,
    did: BTreeMap<GroupId, Did>,
    done: Vec<(Did, bool)>,
    told: BTreeMap<Key, Stamp>,
    keys: Vec<Key>,
    now_ms: u64,
    steps: [usize; 6],
}

const DATABASES: u16 = 2;

impl<'d> Life<'d> {
    fn new(sim: SimWorld, mode: Mode, disk: &'d mut Disk, stamp: &'d mut Stamp) -> Life<'d> {
        let mut keys: Vec<Key> =
            (0..8).map(|n| Key::new(n % DATABASES, format!("key:{n}").as_bytes())).collect();
        keys.push(Key::new(0, b"refused"));
        let landed = Disk { rows: disk.rows.clone(), flushed: disk.flushed.clone() };
        let truth = keys.iter().map(|key| (key.clone(), disk.state(key))).collect();
        let limits = Limits { in_flight: 3, together: 2, defer_ms: 5 };
        Life {
            sim,
            mode,
            flushed: disk.flushed.clone(),
            disk,
            landed,
            memory: BTreeMap::new(),
            queue: Queue::new(),
            fetches: Fetches::new(limits),
            filter: Filter::new(1 << 20),
            scans: Vec::new(),
            issued: Vec::new(),
            reads: Vec::new(),
            parked: BTreeMap::new(),
            next_command: 0,
            stamp,
            truth,
            cut_at: BTreeMap::new(),
            did: BTreeMap::new(),
            done: Vec::new(),
            told: BTreeMap::new(),
            keys,
            now_ms: 0,
            steps: [0; 6],
        }
    }

    fn below(&self, n: usize) -> usize {
        self.sim.random.below(n as u64) as usize
    }
    fn one_in(&self, n: usize) -> bool {
        self.below(n) == 0
    }
    fn any_key(&self) -> Key {
        self.keys[self.below(self.keys.len())].clone()
    }

    fn command(&mut self) {
        let key = self.any_key();
        let op = match self.below(20) {
            0..6 => Op::Get(key),
            6..10 => Op::Set(key),
            10..13 => Op::Increment(key),
            13..15 => Op::Delete(key),
            15..19 => Op::Exec((0..2 + self.below(2)).map(|_| self.any_key()).collect()),
            _ if self.one_in(6) => Op::Flush(key.db),
            _ => Op::Get(key),
        };
        let id = self.next_command;
        self.next_command += 1;
        self.execute(id, op);
    }

    /// As the server does: keys first, then the command, then what it changed.
    fn execute(&mut self, id: u64, op: Op) {
        let keys = match &op {
            Op::Get(key) | Op::Set(key) | Op::Increment(key) | Op::Delete(key) => vec![key.clone()],
            Op::Exec(keys) => keys.clone(),
            Op::Flush(_) => Vec::new(),
        };
        let mut waits = false;
        for key in &keys {
            if self.memory.contains_key(key) || self.queue.holds(key) {
                continue;
            }
            if self.filter.says(key.db, Position::of(&key.name)) == Says::Absent {
                self.steps[0] += 1;
                continue;
            }
            let is_update = self.mode == Mode::WriteBack && !matches!(op, Op::Get(_));
            let urgency = if is_update { Urgency::Deferred } else { Urgency::Now };
            // Fetched before, and storage has nothing: the answer is only good if it is used at once, in `fetched`.
            self.fetches.want(key, id, urgency, self.now_ms);
            waits = true;
        }
        if waits {
            self.parked.insert(id, op);
            return;
        }
        self.run(&op, &keys);
    }

    fn run(&mut self, op: &Op, keys: &[Key]) {
        let mut did = Did { stamp: 0, changed: BTreeSet::new(), reverts: BTreeSet::new(), read: Vec::new() };
        for key in keys {
            let truth = self.truth[key];
            let seen = self.memory.get(key).copied();
            assert_eq!(seen, truth.0, "{op:?} sees something else of {key:?}");
            // That a key is absent which nothing on its way changes is what storage says.
            if seen.is_some() || self.queue.holds(key) {
                did.read.push((key.clone(), truth.1));
            }
        }
        if let Op::Get(_) = op {
            match self.queue.gate(keys) {
                Some(group) => _ = self.did.insert(group, did),
                None => self.tell(&did),
            }
            return;
        }
        *self.stamp += 1;
        did.stamp = *self.stamp;
        let stamp = *self.stamp;
        let mut emptied = Vec::new();
        let before: BTreeMap<Key, Before> = keys
            .iter()
            .map(|key| (key.clone(), Before { existed: self.memory.contains_key(key), expires_ms: None }))
            .collect();
        match op {
            Op::Set(_) | Op::Increment(_) | Op::Exec(_) => {
                for key in keys {
                    self.memory.insert(key.clone(), stamp);
                    did.changed.insert(key.clone());
                }
            }
            Op::Delete(key) => {
                if self.memory.remove(key).is_none() {
                    self.tell_or_gate(keys, did);
                    return;
                }
                did.changed.insert(key.clone());
            }
            Op::Flush(db) => {
                emptied.push(*db);
                self.memory.retain(|key, _| key.db != *db);
                let waiters = self.fetches.supersede_database(*db);
                for key in self.keys.iter().filter(|key| key.db == *db) {
                    self.truth.insert(key.clone(), (None, stamp));
                    did.changed.insert(key.clone());
                }
                self.flushed.insert(*db, stamp);
                let group = self.queue.add(Vec::new(), Vec::new(), emptied);
                self.wrote(group, did);
                return self.resume(waiters);
            }
            Op::Get(_) => {}
        }
        let mut changes = Vec::new();
        let mut waiters = Vec::new();
        for key in &did.changed {
            let value = self.memory.get(key).copied();
            self.truth.insert(key.clone(), (value, stamp));
            waiters.extend(self.fetches.supersede(key));
            if value.is_some() {
                self.filter.insert(key.db, Position::of(&key.name));
            } else {
                self.filter.deleted(Position::of(&key.name));
            }
            let exists = value.is_some();
            changes.push(Changed { key: key.clone(), before: before[key], exists, bytes: 100 });
        }
        let group = self.queue.add(keys.to_vec(), changes, emptied);
        self.wrote(group, did);
        self.resume(waiters);
    }

    fn tell_or_gate(&mut self, keys: &[Key], did: Did) {
        match self.queue.gate(keys) {
            Some(group) => _ = self.did.insert(group, did),
            None => self.tell(&did),
        }
    }

    fn wrote(&mut self, group: GroupId, mut did: Did) {
        did.reverts = did.changed.clone();
        self.did.insert(group, did);
    }

    /// A client has its answer: what it was told must not be lost.
    fn tell(&mut self, did: &Did) {
        let changed = did.changed.iter().map(|key| (key.clone(), did.stamp));
        for (key, stamp) in did.read.iter().cloned().chain(changed) {
            let told = self.told.entry(key).or_default();
            *told = stamp.max(*told);
        }
    }

    fn resume(&mut self, waiters: Vec<u64>) {
        for waiter in waiters {
            if let Some(op) = self.parked.remove(&waiter) {
                self.execute(waiter, op);
            }
        }
    }

    fn issue(&mut self) {
        let dirty = Dirty { bytes: self.queue.waiting_bytes(), age_ms: 0, flush: self.one_in(30) };
        let bounds = Bounds { write_bytes: 500, ..Bounds::default() };
        if self.issued.len() >= 3 || !is_due(self.mode, &bounds, &dirty) {
            return;
        }
        // What is issued again after a refusal is not serialised again.
        let (memory, truth, cut_at) = (&self.memory, &self.truth, &mut self.cut_at);
        let mut unwritten = BTreeSet::new();
        let cut = self.queue.cut(|key| {
            cut_at.insert(key.clone(), truth[key].1);
            unwritten.insert(key.clone());
            memory.get(key).copied().map(stored)
        });
        let Some(cut) = cut else { return };
        let stamps = cut.write.rows.iter().map(|row| (row.key.clone(), self.cut_at[&row.key])).collect();
        // A key that came and went has no row: it stays as absent as it was, and there is nothing to be lost.
        unwritten.retain(|key| cut.write.rows.iter().all(|row| row.key != *key));
        for key in unwritten {
            self.truth.insert(key.clone(), (None, 0));
            for did in self.did.values_mut() {
                did.changed.remove(&key);
                if !cut.write.emptied.contains(&key.db) {
                    did.reverts.remove(&key);
                }
                did.read.retain(|(read, _)| *read != key);
            }
        }
        let flushes = cut.write.emptied.iter().map(|db| (*db, self.flushed[db])).collect();
        let is_refused = cut.write.rows.iter().any(|row| &row.key.name[..] == b"refused");
        let refused = Outcome::NotWritten(StorageError::Invalid("refused".into()));
        let timeout = Outcome::Unknown(StorageError::Unavailable("timeout".into()));
        let (outcome, applies) = match self.below(20) {
            _ if is_refused => (refused, false),
            0 => (refused, false),
            1 => (timeout, true),
            2 => (timeout, false),
            _ => (Outcome::Written, true),
        };
        let (id, write) = (cut.id, cut.write);
        self.issued.push(Issued { id, write, stamps, flushes, outcome, applies, is_applied: false });
        self.steps[1] += 1;
    }

    /// Some write reaches the medium, in any order.
    fn reach(&mut self) {
        if self.issued.is_empty() {
            return;
        }
        let at = self.below(self.issued.len());
        let issued = &mut self.issued[at];
        if issued.applies && !issued.is_applied {
            issued.is_applied = true;
            self.disk.apply(issued);
        }
    }

    fn land(&mut self) {
        if self.issued.is_empty() {
            return;
        }
        let mut issued = self.issued.remove(self.below(self.issued.len()));
        if issued.applies && !issued.is_applied {
            issued.is_applied = true;
            self.disk.apply(&issued);
        }
        if issued.applies {
            self.landed.apply(&issued);
        }
        if self.mode == Mode::WriteBack && issued.outcome != Outcome::Written {
            let landed = &self.landed;
            // A key that is never accepted would be tried for ever: a server refuses it before it is dirty.
            let before = |key: &Key| Before { existed: landed.state(key).0.is_some(), expires_ms: None };
            self.queue.put_back(issued.id, |row| before(&row.key));
            return;
        }
        let landed = self.queue.land(issued.id, issued.outcome);
        for group in &landed.written {
            if let Some(did) = self.did.remove(group) {
                self.tell(&did);
                self.done.push((did, true));
            }
        }
        for key in &landed.lost {
            self.memory.remove(key);
        }
        for (key, value) in &landed.restored {
            match value {
                Some(value) => _ = self.memory.insert(key.clone(), value_of(value)),
                None => _ = self.memory.remove(key),
            }
        }
        let mut waiters = Vec::new();
        for group in &landed.failed {
            self.steps[2] += 1;
            let Some(did) = self.did.remove(group) else { continue };
            for key in &did.reverts {
                // For a write that failed, storage has the last word, or the write that is still on its way to storage.
                let state = match landed.restored.iter().find(|(restored, _)| restored == key) {
                    Some((_, value)) => (value.as_ref().map(value_of), self.cut_at[key]),
                    None => {
                        let mut flushes = self.issued.iter().flat_map(|issued| &issued.flushes);
                        let emptied = flushes.find(|(db, _)| *db == key.db);
                        emptied.map_or_else(|| self.landed.state(key), |(_, stamp)| (None, *stamp))
                    }
                };
                self.truth.insert(key.clone(), state);
                waiters.extend(self.fetches.supersede(key));
            }
            self.done.push((did, false));
        }
        self.resume(waiters);
    }

    fn begin_reads(&mut self) {
        for (id, key) in self.fetches.begin(self.now_ms) {
            // Read now, or when the answer comes.
            let value = self.one_in(2).then(|| self.disk.state(&key));
            self.reads.push(Read { id, key, value });
        }
    }

    fn fetched(&mut self) {
        if self.reads.is_empty() {
            return;
        }
        let read = self.reads.remove(self.below(self.reads.len()));
        let (value, _) = read.value.unwrap_or_else(|| self.disk.state(&read.key));
        let Fetched::Current(waiters) = self.fetches.end(read.id, &read.key) else {
            self.steps[3] += 1;
            return;
        };
        match value {
            Some(value) => _ = self.memory.insert(read.key.clone(), value),
            // Only as long as these commands run: another may write the key.
            None => {
                for waiter in waiters {
                    if let Some(op) = self.parked.remove(&waiter) {
                        self.execute_absent(waiter, op, &read.key);
                    }
                }
                return;
            }
        }
        self.resume(waiters);
    }

    /// Executes a command of which one key is known to be absent, unless a client has written it meanwhile.
    fn execute_absent(&mut self, id: u64, op: Op, absent: &Key) {
        match &op {
            Op::Exec(keys) if keys.iter().any(|key| key != absent) => {
                let others: Vec<Key> = keys.iter().filter(|key| *key != absent).cloned().collect();
                let is_known = |key: &Key| {
                    self.memory.contains_key(key)
                        || self.queue.holds(key)
                        || self.filter.says(key.db, Position::of(&key.name)) == Says::Absent
                };
                match others.iter().all(is_known) {
                    true => self.run(&op, &keys.clone()),
                    false => self.execute(id, op),
                }
            }
            Op::Exec(keys) => self.run(&op, &keys.clone()),
            Op::Get(key) | Op::Set(key) | Op::Increment(key) | Op::Delete(key) => {
                let key = key.clone();
                self.run(&op, &[key]);
            }
            Op::Flush(_) => self.run(&op, &[]),
        }
    }

    fn evict(&mut self) {
        let resident: Vec<Key> = self.memory.keys().cloned().collect();
        if let Some(key) = resident.get(self.below(resident.len().max(1)))
            && self.queue.may_evict(key)
        {
            self.memory.remove(key);
            self.steps[4] += 1;
        }
    }

    fn rebuild_filter(&mut self) {
        if !self.scans.is_empty() && self.one_in(2) {
            let (part, found) = self.scans.remove(self.below(self.scans.len()));
            found.iter().for_each(|key| self.filter.scanned(key.db, Position::of(&key.name)));
            self.filter.end_rebuild(part, !self.one_in(10));
            return;
        }
        while let Some(part) = self.filter.begin_rebuild(self.disk.rows.len() as u64) {
            let (first, last) = Filter::range(part);
            self.queue.held().for_each(|key| self.filter.scanned(key.db, Position::of(&key.name)));
            let has = |key: &&Key| (first..=last).contains(&Position::of(&key.name));
            let found: Vec<Key> = self.disk.rows.keys().filter(has).cloned().collect();
            if self.keys.iter().any(|key| has(&key)) {
                self.scans.push((part, found));
                return;
            }
            self.filter.end_rebuild(part, true);
        }
    }

    fn step(&mut self) {
        self.now_ms += 1;
        match self.below(24) {
            0..8 => self.command(),
            8..11 => self.issue(),
            11..13 => self.reach(),
            13..16 => self.land(),
            16..18 => self.begin_reads(),
            18..21 => self.fetched(),
            21..23 => self.evict(),
            _ => self.rebuild_filter(),
        }
        for db in 0..DATABASES {
            let exact = self.truth.iter().filter(|(key, (value, _))| key.db == db && value.is_some()).count();
            assert_eq!(self.queue.count(db, self.landed.count(db)), exact as u64, "the count of keys");
        }
    }

    /// Power is lost.
    fn crash(mut self) -> [usize; 6] {
        let disk = &*self.disk;
        if self.mode == Mode::WriteThrough {
            for (key, told) in &self.told {
                assert!(disk.state(key).1 >= *told, "a client was told of {key:?} what is lost");
            }
        }
        self.done.extend(std::mem::take(&mut self.did).into_values().map(|did| (did, true)));
        for (did, counts) in &self.done {
            if *counts && did.changed.len() > 1 {
                let has = |key: &&Key| disk.state(key).1 >= did.stamp;
                let there = did.changed.iter().filter(has).count();
                assert!(there == 0 || there == did.changed.len(), "half of a transaction is stored");
            }
        }
        self.steps[5] += 1;
        self.steps
    }
}

fn lives(seed: u64, mode: Mode) -> [usize; 6] {
    let (mut disk, mut stamp, mut all) = (Disk::default(), 0, [0; 6]);
    for life in 0..4 {
        let sim = SimWorld::new(seed * 4 + life);
        let steps = 50 + sim.random.below(400);
        let mut life = Life::new(sim, mode, &mut disk, &mut stamp);
        (0..steps).for_each(|_| life.step());
        all.iter_mut().zip(life.crash()).for_each(|(all, one)| *all += one);
    }
    all
}

fn many(mode: Mode) {
    let seeds = std::env::var("TERRACE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300);
    let mut all = [0; 6];
    for seed in 0..seeds {
        let run = std::panic::catch_unwind(|| lives(seed, mode));
        let steps = run.unwrap_or_else(|_| panic!("seed {seed} fails in {mode:?}"));
        all.iter_mut().zip(steps).for_each(|(all, one)| *all += one);
    }
    let [absent, written, failed, superseded, evicted, crashes] = all;
    eprintln!(
        "{absent} keys known to be absent, {written} writes, {failed} groups failed, {superseded} fetches superseded, \
         {evicted} evictions, {crashes} crashes"
    );
    assert!(absent > 0 && written > 0 && superseded > 0 && evicted > 0 && crashes > 0, "{all:?}");
    assert!(failed > 0 || mode == Mode::WriteBack);
}

#[test]
fn what_clients_were_told_survives_crashes_and_failing_storage_in_write_through() {
    many(Mode::WriteThrough);
}

#[test]
fn transactions_are_whole_after_crashes_in_write_back() {
    many(Mode::WriteBack);
}

#[test]
fn a_seed_repeats_its_run() {
    assert_eq!(lives(7, Mode::WriteThrough), lives(7, Mode::WriteThrough));
}

/// See `terrace_kv::planted`.
#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_each_bug_of_tiering_is_found_within_a_hundred_seeds() {
    use terrace_kv::planted;
    let bugs = [
        ("LATE_FETCH_TAKEN", &planted::LATE_FETCH_TAKEN),
        ("QUEUE_REORDERS", &planted::QUEUE_REORDERS),
        ("DIRTY_EVICTED", &planted::DIRTY_EVICTED),
        ("COALESCED_ACROSS_EXEC", &planted::COALESCED_ACROSS_EXEC),
        ("FAILED_ENTRY_KEPT", &planted::FAILED_ENTRY_KEPT),
        ("READ_BEFORE_WRITTEN", &planted::READ_BEFORE_WRITTEN),
        ("FILTER_TRUSTED_EARLY", &planted::FILTER_TRUSTED_EARLY),
    ];
    let mut missed = Vec::new();
    for (name, switch) in bugs {
        switch.set(true);
        let breaks = |seed| std::panic::catch_unwind(|| lives(seed, Mode::WriteThrough)).is_err();
        let found = (0..100).find(|seed| breaks(*seed));
        switch.set(false);
        eprintln!("{name}: {found:?}");
        missed.extend(found.is_none().then_some(name));
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
