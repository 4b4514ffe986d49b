//! Large collections against a server that has everything in memory: random commands of several clients, with elements evicted at any moment, storage whose
//! reads come late and out of order, restarts and crashes, in both write policies. Everything is decided by the seed.
//!
//! Checked at each step
//! * Each reply is the one that the other server gives to the same commands in the same order.
//! * With write-through, storage has as many elements of a collection as its head says.
//!
//! Checked after each crash
//! * A key is in the state that the last command left that was answered, or a later one.
//! * When what is gone has been removed, storage has no element without a head.

#[path = "client/bare.rs"]
mod bare;

use bare::{execute, output, replies};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use terrace_io::disk::Disk;
use terrace_io::random::Random;
use terrace_kv::client::{Client, ClientId};
use terrace_kv::config::Config;
use terrace_kv::server::Core;
use terrace_kv::storage::{
    Durability, Element, Elements, ElementsDone, ExpiredDone, Get, GetDone, Key, Outcome, Part, Position,
    ScanDone, Storage, StorageError, Stored, View, Write, WriteDone,
};
use terrace_kv::value::large::Head;
use terrace_sim::SimWorld;

const CLIENTS: u64 = 3;
/// A client that asks between the others.
const OBSERVER: ClientId = CLIENTS + 1;
/// Most often the first ones have hashes, the last ones sets.
const KEYS: [&str; 5] = ["k0", "k1", "k2", "s0", "s1"];
const FIELDS: u64 = 190;

type LateRead = (Key, Option<Option<Stored>>, GetDone);
type LateElements = (u64, Position, usize, Option<Elements>, ElementsDone);

#[derive(Default)]
struct Rows {
    rows: BTreeMap<Key, Stored>,
    /// Collections whose elements are to be removed.
    gone: BTreeSet<u64>,
    next_generation: u64,
    log_position: u64,
    is_immediate: bool,
    checks_heads: bool,
    writes: VecDeque<(Write, WriteDone)>,
    reads: Vec<LateRead>,
    ranges: Vec<LateElements>,
}

fn head(stored: &Stored) -> Option<Head> {
    Head::parse(&stored.rdb).unwrap()
}

impl Rows {
    fn apply(&mut self, write: &Write) {
        for db in &write.emptied {
            let heads = self.rows.iter().filter(|(key, _)| key.db == *db && key.is_whole());
            let heads: Vec<u64> =
                heads.filter_map(|(_, stored)| head(stored)).map(|head| head.generation).collect();
            let alive = write.all_alive();
            let takes_all = terrace_kv::planted::EMPTIED_TAKES_LIVE_COLLECTIONS.on();
            self.gone.extend(heads.into_iter().filter(|generation| takes_all || !alive.contains(generation)));
            self.rows.retain(|key, _| key.db != *db || !key.is_whole());
        }
        for row in &write.rows {
            let is_emptied = write.emptied.contains(&row.key.db);
            let present = self.rows.get(&row.key);
            if let Part::Element(generation) | Part::Gone(generation) = row.key.part {
                self.next_generation = self.next_generation.max(generation + 1);
            }
            let is_true = match row.key.part {
                Part::Whole => row.expired_ms == present.and_then(|stored| stored.expires_ms),
                Part::Element(generation) => !self.gone.contains(&generation),
                Part::Gone(generation) => {
                    self.gone.insert(generation);
                    continue;
                }
            };
            if !is_emptied && is_true {
                assert_eq!(row.existed, present.is_some(), "the row of {:?}", row.key);
            }
            match &row.value {
                Some(value) => _ = self.rows.insert(row.key.clone(), value.clone()),
                None => _ = self.rows.remove(&row.key),
            }
        }
        self.log_position = write.log_position.unwrap_or(self.log_position);
        if self.checks_heads {
            self.check_heads();
        }
    }

    fn elements_of(&self, generation: u64) -> impl Iterator<Item = (&Key, &Stored)> {
        self.rows.iter().filter(move |(key, _)| key.part == Part::Element(generation))
    }

    fn check_heads(&self) {
        for (key, head) in self.rows.iter().filter_map(|(key, stored)| Some((key, head(stored)?))) {
            let found = self.elements_of(head.generation).count() as u64;
            assert_eq!(found, head.len, "elements of {key:?} of generation {}", head.generation);
        }
    }

    fn remove_gone(&mut self) {
        let gone = std::mem::take(&mut self.gone);
        let is_gone = |key: &Key| matches!(key.part, Part::Element(generation) if gone.contains(&generation));
        self.rows.retain(|key, _| !is_gone(key));
    }

    fn read_range(&self, generation: u64, from: Position, limit: usize) -> Elements {
        let mut found: Vec<Element> = self
            .elements_of(generation)
            .map(|(key, value)| Element {
                position: Position::of_element(&key.name),
                name: key.name.as_bytes().into(),
                value: value.clone(),
            })
            .filter(|element| element.position >= from)
            .collect();
        found.sort_by_key(|element| element.position);
        let next = found.get(limit).map(|element| element.position);
        found.truncate(limit);
        Elements { found, next }
    }
}

struct Late {
    rows: Mutex<Rows>,
    log: Arc<dyn Disk>,
    sim: SimWorld,
}

fn unavailable() -> StorageError {
    StorageError::Unavailable("not now".into())
}

impl Storage for Late {
    fn name(&self) -> &'static str {
        "late"
    }
    fn get_many(&self, keys: &[Key], done: &GetDone) -> Result<Vec<Get>, StorageError> {
        let mut rows = self.rows.lock();
        let rows = &mut *rows;
        let one = |key: &Key| {
            if rows.is_immediate {
                return rows.rows.get(key).cloned().map_or(Get::Absent, Get::Hit);
            }
            // Read now, or when the answer comes.
            let read = self.sim.random.one_in(2).then(|| rows.rows.get(key).cloned());
            rows.reads.push((key.clone(), read, done.clone()));
            Get::Pending
        };
        Ok(keys.iter().map(one).collect())
    }
    fn write(&self, write: Write, _: Durability, done: WriteDone) -> Option<Outcome> {
        let mut rows = self.rows.lock();
        if rows.is_immediate {
            rows.apply(&write);
            return Some(Outcome::Written);
        }
        rows.writes.push_back((write, done));
        None
    }
    fn writes_in_flight_max(&self) -> usize {
        1
    }
    fn scan(&self, _: u16, _: Position, _: usize, done: ScanDone) {
        done(Err(unavailable()));
    }
    fn next_generation(&self) -> Option<u64> {
        Some(self.rows.lock().next_generation.max(1))
    }
    fn elements(&self, generation: u64, from: Position, limit: usize, done: ElementsDone) {
        let mut rows = self.rows.lock();
        // Small pieces, so that much happens between them.
        let limit = limit.min(40);
        let read = self.sim.random.one_in(2).then(|| rows.read_range(generation, from, limit));
        rows.ranges.push((generation, from, limit, read, done));
    }
    fn expired(&self, _: u64, _: usize, done: ExpiredDone) {
        done(Ok(Vec::new()));
    }
    fn view(&self) -> Result<Box<dyn View>, StorageError> {
        Err(unavailable())
    }
    fn keep(&self, _: &str, _: &[u8]) -> Result<(), StorageError> {
        Err(unavailable())
    }
    fn kept(&self, _: &str) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(None)
    }
    fn count(&self, db: u16) -> u64 {
        self.rows.lock().rows.keys().filter(|key| key.db == db && key.is_whole()).count() as u64
    }
    fn log_position(&self) -> u64 {
        self.rows.lock().log_position
    }
    fn log_disk(&self) -> Option<Arc<dyn Disk>> {
        Some(self.log.clone())
    }
}

fn start(sim: &SimWorld, storage: Option<&Arc<Late>>, policy: &str) -> Core {
    let mut config = Config::default();
    if let Some(storage) = storage {
        for (name, value) in [
            ("dir", "somewhere"),
            ("tiering-write-policy", policy),
            ("tiering-dirty-max-ms", "8"),
            ("tiering-dirty-max-bytes", "30000"),
        ] {
            config.load(name, value).unwrap();
        }
        storage.rows.lock().is_immediate = true;
    }
    let tier = storage.map(|storage| storage.clone() as Arc<dyn Storage>);
    let mut core = terrace_kv::run::core(sim.world(), config, tier, None).unwrap();
    if let Some(storage) = storage {
        storage.rows.lock().is_immediate = false;
    }
    for _ in 0..=CLIENTS {
        let id = core.server.clients.next_id();
        let client = Client::new(id, 0, 0, String::new(), String::new(), 0, &core.server.acl);
        core.server.clients.add(client);
    }
    core
}

/// The strings of a reply of an array.
fn strings(reply: &str) -> Vec<String> {
    let lines = reply.split("\r\n").filter(|line| !line.starts_with(['*', '$', ':']) && !line.is_empty());
    lines.map(str::to_owned).collect()
}

fn is_unordered(command: &[String]) -> bool {
    ["HGETALL", "HKEYS", "SMEMBERS"].contains(&command[0].as_str())
}

/// A reply in which the order of fields does not count.
fn unordered(command: &[String], reply: &str) -> String {
    match command[0].as_str() {
        _ if reply.starts_with('-') => reply.to_owned(),
        "HGETALL" => {
            let mut pairs: Vec<_> =
                strings(reply).chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
            pairs.sort();
            format!("{pairs:?}")
        }
        "HKEYS" | "SMEMBERS" => {
            let mut all = strings(reply);
            all.sort();
            format!("{all:?}")
        }
        _ => reply.to_owned(),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

struct Executed {
    keys: Vec<String>,
    /// The state of each key after it, and when it may vanish.
    states: BTreeMap<String, (String, Option<i64>)>,
    is_answered: bool,
}

struct Life<'a> {
    sim: &'a SimWorld,
    core: Core,
    storage: Arc<Late>,
    model: &'a mut Core,
    to_ask: BTreeMap<ClientId, VecDeque<Vec<String>>>,
    /// The command of each client that waits and has not been executed.
    parked: BTreeMap<ClientId, Vec<String>>,
    expected: BTreeMap<ClientId, VecDeque<(Vec<String>, String, usize)>>,
    executed: Vec<Executed>,
    steps: &'a mut [usize; 7],
}

impl Life<'_> {
    fn below(&self, n: u64) -> u64 {
        self.sim.random.below(n)
    }

    fn key(&self) -> String {
        KEYS[self.below(if self.below(12) == 0 { 5 } else { 3 }) as usize].to_owned()
    }

    fn set_key(&self) -> String {
        KEYS[if self.below(12) == 0 { self.below(5) } else { 3 + self.below(2) } as usize].to_owned()
    }

    fn members(&self) -> String {
        let first = self.below(40);
        let members: Vec<String> = (first..first + 150).map(|n| format!("f{n}")).collect();
        members.join(" ")
    }

    fn one_of_sets(&self) -> String {
        let (key, other) = (self.set_key(), self.set_key());
        match self.below(22) {
            0..4 => format!("SADD {key} {}", self.fields()),
            4..7 => format!("SREM {key} {}", self.fields()),
            7..10 => format!("SISMEMBER {key} {}", self.field()),
            10..12 => format!("SMISMEMBER {key} {}", self.fields()),
            12 => format!("SCARD {key}"),
            13 => format!("SMEMBERS {key}"),
            14 | 15 => format!("SADD {key} {}", self.members()),
            16 => format!("SMOVE {key} {other} {}", self.field()),
            17 => format!("DEL {key}"),
            18 => format!("RENAME {key} {other}"),
            19 => format!("SUNIONSTORE {key} {key} {other}"),
            20 => format!("SDIFFSTORE {key} {key} {other}"),
            _ => format!("SINTERCARD 2 {key} {other}"),
        }
    }

    fn field(&self) -> String {
        // Most commands are about few fields, of which some are long.
        match self.below(8) {
            0..5 => format!("f{}", self.below(12)),
            5 if self.below(6) == 0 => format!("{}{}", "long".repeat(300), self.below(3)),
            _ => format!("f{}", self.below(FIELDS)),
        }
    }

    fn fields(&self) -> String {
        let fields: Vec<String> = (0..1 + self.below(4)).map(|_| self.field()).collect();
        fields.join(" ")
    }

    fn pairs(&self) -> String {
        let pairs: Vec<String> =
            (0..1 + self.below(4)).map(|_| format!("{} v{}", self.field(), self.below(1000))).collect();
        pairs.join(" ")
    }

    fn fill(&self) -> String {
        let first = self.below(40);
        let pairs: Vec<String> = (first..first + 150).map(|n| format!("f{n} {}", self.below(100))).collect();
        pairs.join(" ")
    }

    fn one(&self) -> String {
        if self.below(3) == 0 {
            return self.one_of_sets();
        }
        let (key, other) = (self.key(), self.key());
        let now_ms = self.core.dbs.all[0].now_ms;
        match self.below(40) {
            0..5 => format!("HSET {key} {}", self.pairs()),
            5..10 => format!("HGET {key} {}", self.field()),
            10..13 => format!("HMGET {key} {}", self.fields()),
            13..16 => format!("HDEL {key} {}", self.fields()),
            16 | 17 => format!("HEXISTS {key} {}", self.field()),
            18 | 19 => format!("HINCRBY {key} {} {}", self.field(), self.below(9)),
            20 => format!("HSTRLEN {key} {}", self.field()),
            21 => format!("HSETNX {key} {} new", self.field()),
            22 | 23 => format!("HLEN {key}"),
            24 => format!("HGETALL {key}"),
            25 => format!("HKEYS {key}"),
            26 | 27 => format!("HSET {key} {}", self.fill()),
            28 => format!("DEL {key}"),
            29 => format!("RENAME {key} {other}"),
            30 => format!("COPY {key} {other} REPLACE"),
            31 => format!("PEXPIREAT {key} {}", now_ms + self.below(40) as i64),
            32 => format!("PERSIST {key}"),
            33 => format!("TYPE {key}"),
            34 if self.below(3) == 0 => format!("SET {key} text"),
            34 => format!("GET {key}"),
            35 | 36 => {
                let field = self.field();
                format!("HPEXPIREAT {key} {} FIELDS 1 {field}", now_ms + self.below(60) as i64)
            }
            37 => format!("HPERSIST {key} FIELDS 1 {}", self.field()),
            38 => format!("HPEXPIRETIME {key} FIELDS 1 {}", self.field()),
            _ if self.below(6) == 0 => "FLUSHDB".to_owned(),
            _ => format!("EXISTS {key} {other}"),
        }
    }

    fn ask(&mut self) {
        let id = 1 + self.below(CLIENTS);
        if self.to_ask.get(&id).is_none_or(VecDeque::is_empty) {
            let commands = match self.below(12) {
                0 => {
                    let many = 1 + self.below(4);
                    let mut commands = vec![words("MULTI")];
                    commands.extend((0..many).map(|_| words(&self.one())));
                    // The order of fields in an answer is not told apart from the rest there.
                    commands.retain(|command| !is_unordered(command));
                    commands.push(words("EXEC"));
                    commands
                }
                1 => {
                    let script = "redis.call('hset',KEYS[1],ARGV[1],ARGV[2])redis.call('hdel',KEYS[1],ARGV[3])return{redis.call('hget',KEYS[1],ARGV[4]),redis.call('hlen',KEYS[1])}";
                    let fields: Vec<String> = (0..3).map(|_| self.field()).collect();
                    let text =
                        format!("EVAL {script} 1 {} {} v {} {}", self.key(), fields[0], fields[1], fields[2]);
                    vec![words(&text)]
                }
                _ => vec![words(&self.one())],
            };
            self.to_ask.insert(id, commands.into());
        }
        if self.parked.contains_key(&id) {
            return;
        }
        let Some(command) = self.to_ask.get(&id).and_then(VecDeque::front).cloned() else { return };
        if !execute(&mut self.core, id, &command) {
            return;
        }
        self.to_ask.get_mut(&id).unwrap().pop_front();
        self.was_asked(id, command);
    }

    fn is_parked(&mut self, id: ClientId) -> bool {
        self.core.server.clients.get_mut(id).unwrap().parked.is_some()
    }

    fn was_asked(&mut self, id: ClientId, command: Vec<String>) {
        if self.is_parked(id) {
            self.steps[0] += 1;
            self.parked.insert(id, command);
        } else {
            self.was_executed(id, command);
        }
    }

    /// The other server is asked the same.
    fn was_executed(&mut self, id: ClientId, command: Vec<String>) {
        self.model.dbs.set_now(self.core.dbs.all[0].now_ms);
        assert!(execute(self.model, id, &command));
        let reply = output(self.model, id);
        if std::env::var_os("TERRACE_TRACE").is_some() {
            let text = command.join(" ");
            eprintln!("{} client {id}: {:.160} -> {:.80?}", self.executed.len(), text, reply);
        }
        let named = |key: &String| command.contains(key) || command[0] == "EXEC" || command[0] == "FLUSHDB";
        let keys: Vec<String> = KEYS.map(str::to_owned).into_iter().filter(named).collect();
        let states = keys
            .iter()
            .map(|key| (key.clone(), (state(self.model, key), vanishes(self.model, key))))
            .collect();
        self.expected.entry(id).or_default().push_back((command, reply, self.executed.len()));
        self.executed.push(Executed { keys, states, is_answered: false });
    }

    /// What the event loop does in a turn.
    fn turn(&mut self) {
        let core = &mut self.core;
        core.dbs.set_now(core.server.world.clock.unix_ms() as i64);
        core.take_events();
        core.end_delays();
        core.tend_write_back();
        loop {
            self.core.server.clients.touched.clear();
            self.core.begin_reads();
            self.core.write_changes();
            let before = self.core.server.clients.touched.len();
            let resumed = self.core.resume_parked();
            let touched = self.core.server.clients.touched.clone();
            // In the order in which they went on.
            let went_on = &touched[before..];
            let is_last = |(at, id): &(usize, &ClientId)| !went_on[at + 1..].contains(id);
            for (_, id) in went_on.iter().enumerate().filter(is_last) {
                if self.parked.contains_key(id) && !self.is_parked(*id) {
                    let command = self.parked.remove(id).unwrap();
                    self.was_executed(*id, command);
                }
            }
            if !resumed && touched.is_empty() {
                break;
            }
        }
        for id in 1..=CLIENTS {
            for reply in replies(&output(&mut self.core, id)) {
                let (command, expected, number) = self.expected.get_mut(&id).unwrap().pop_front().unwrap();
                let (reply, expected) = (unordered(&command, &reply), unordered(&command, &expected));
                assert_eq!(reply, expected, "{command:?}, number {number}");
                self.executed[number].is_answered = true;
                self.steps[1] += 1;
            }
        }
    }

    /// Storage goes on with something.
    fn store(&mut self) {
        let mut rows = self.storage.rows.lock();
        match self.sim.random.below(4) {
            0 | 1 if !rows.reads.is_empty() => {
                let at = self.sim.random.below(rows.reads.len() as u64) as usize;
                let (key, read, done) = rows.reads.swap_remove(at);
                let read = read.unwrap_or_else(|| rows.rows.get(&key).cloned());
                drop(rows);
                done(&key, Ok(read));
            }
            2 if !rows.ranges.is_empty() => {
                let at = self.sim.random.below(rows.ranges.len() as u64) as usize;
                let (generation, from, limit, read, done) = rows.ranges.swap_remove(at);
                let read = read.unwrap_or_else(|| rows.read_range(generation, from, limit));
                drop(rows);
                done(Ok(read));
            }
            _ => {
                let Some((write, done)) = rows.writes.pop_front() else { return };
                rows.apply(&write);
                self.steps[2] += 1;
                drop(rows);
                done(Outcome::Written);
            }
        }
    }

    fn step(&mut self) {
        match self.below(26) {
            0..9 => self.ask(),
            9..16 => self.store(),
            16 => _ = self.sim.sched.run_some(1),
            17..19 => {
                for _ in 0..self.below(6) {
                    self.steps[3] += usize::from(self.core.evict_clean(3));
                }
            }
            19 => self.sim.clock.advance(3_000_000),
            20 if self.below(8) == 0 => self.storage.rows.lock().remove_gone(),
            _ => {
                self.sim.clock.advance(300_000);
                self.turn();
            }
        }
    }

    /// Goes on until every command was answered and everything is stored.
    fn drain(&mut self) {
        for _ in 0..100_000 {
            self.store();
            self.sim.sched.run_some(2);
            self.sim.clock.advance(1_000_000);
            self.turn();
            let waits = self.expected.values().any(|of| !of.is_empty()) || !self.parked.is_empty();
            if !waits && self.core.server.tier.as_ref().unwrap().is_drained() {
                return;
            }
        }
        panic!("{:?} are not answered", self.parked);
    }

    /// All pieces of a collection are its elements, each once if nothing changes meanwhile.
    fn scan(&mut self, key: &str) {
        self.model.dbs.set_now(self.core.dbs.all[0].now_ms);
        assert!(execute(self.model, OBSERVER, &words(&format!("TYPE {key}"))));
        let (scan, all) = match output(self.model, OBSERVER).trim() {
            "+hash" => ("HSCAN", "HGETALL"),
            "+set" => ("SSCAN", "SMEMBERS"),
            _ => return,
        };
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let command = words(&format!("{scan} {key} {cursor} COUNT {}", 1 + self.below(30)));
            assert!(execute(&mut self.core, OBSERVER, &command));
            let reply = loop {
                self.store();
                self.sim.sched.run_some(1);
                self.core.take_events();
                self.core.begin_reads();
                self.core.write_changes();
                self.core.resume_parked();
                let text = output(&mut self.core, OBSERVER);
                if !text.is_empty() {
                    break text;
                }
            };
            let mut piece = strings(&reply);
            cursor = piece.remove(0);
            found.append(&mut piece);
            if cursor == "0" {
                break;
            }
        }
        let found = format!("*{}\r\n{}\r\n", found.len(), found.join("\r\n"));
        assert!(execute(self.model, OBSERVER, &words(&format!("{all} {key}"))));
        let expected = unordered(&words(all), &output(self.model, OBSERVER));
        assert_eq!(unordered(&words(all), &found), expected, "{scan} {key}");
        self.steps[6] += 1;
    }
}

fn state(core: &mut Core, key: &str) -> String {
    let mut get = |command: String| {
        assert!(execute(core, OBSERVER, &words(&command)));
        output(core, OBSERVER)
    };
    let kind = get(format!("TYPE {key}"));
    match kind.trim() {
        "+hash" => unordered(&words("HGETALL"), &get(format!("HGETALL {key}"))),
        "+set" => unordered(&words("SMEMBERS"), &get(format!("SMEMBERS {key}"))),
        kind => kind.to_owned(),
    }
}

/// When a key expires, or all its fields may have expired.
fn vanishes(core: &mut Core, key: &str) -> Option<i64> {
    let (value, at_ms) = core.dbs.all[0].resident(key.as_bytes())?;
    let terrace_kv::value::Value::Hash(hash) = value else { return at_ms };
    let fields: Option<Vec<i64>> =
        hash.iter().map(|(field, _)| hash.expiry_of(field.bytes(&mut itoa::Buffer::new()))).collect();
    at_ms.into_iter().chain(fields.and_then(|fields| fields.into_iter().max())).min()
}

/// Makes the other server say what this one does after a crash.
fn copy_to_model(life: &mut Life<'_>) {
    let ask = |life: &mut Life<'_>, command: &str| {
        assert!(execute(&mut life.core, OBSERVER, &words(command)));
        for _ in 0..10_000 {
            life.store();
            life.sim.sched.run_some(1);
            life.core.take_events();
            life.core.begin_reads();
            life.core.write_changes();
            life.core.resume_parked();
            let text = output(&mut life.core, OBSERVER);
            if !text.is_empty() {
                return text;
            }
        }
        panic!("{command} is not answered");
    };
    let tell = |model: &mut Core, command: String| {
        assert!(execute(model, OBSERVER, &words(&command)));
        let reply = output(model, OBSERVER);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    };
    life.model.dbs.set_now(life.core.dbs.all[0].now_ms);
    tell(life.model, "FLUSHALL".into());
    for key in KEYS.map(str::to_owned) {
        match ask(life, &format!("TYPE {key}")).trim() {
            "+set" => {
                let all = strings(&ask(life, &format!("SMEMBERS {key}")));
                tell(life.model, format!("SADD {key} {}", all.join(" ")));
            }
            "+string" => tell(life.model, format!("SET {key} text")),
            "+hash" => {
                let all = strings(&ask(life, &format!("HGETALL {key}")));
                if all.is_empty() {
                    // All fields have expired.
                    continue;
                }
                tell(life.model, format!("HSET {key} {}", all.join(" ")));
                for field in all.chunks(2).map(|pair| &pair[0]) {
                    let reply = ask(life, &format!("HPEXPIRETIME {key} FIELDS 1 {field}"));
                    let at_ms = reply.split("\r\n").nth(1).unwrap().trim_start_matches(':');
                    if at_ms != "-1" {
                        tell(life.model, format!("HPEXPIREAT {key} {at_ms} FIELDS 1 {field}"));
                    }
                }
            }
            _ => continue,
        }
        let at_ms = ask(life, &format!("PEXPIRETIME {key}"));
        let at_ms = at_ms.trim().trim_start_matches(':');
        if at_ms != "-1" {
            tell(life.model, format!("PEXPIREAT {key} {at_ms}"));
        }
    }
}

fn new_life<'a>(
    sim: &'a SimWorld,
    storage: &Arc<Late>,
    model: &'a mut Core,
    policy: &str,
    steps: &'a mut [usize; 7],
) -> Life<'a> {
    let mut core = start(sim, Some(storage), policy);
    core.dbs.set_now(core.server.world.clock.unix_ms() as i64);
    Life {
        sim,
        core,
        storage: storage.clone(),
        model,
        to_ask: BTreeMap::new(),
        parked: BTreeMap::new(),
        expected: BTreeMap::new(),
        executed: Vec::new(),
        steps,
    }
}

fn lives(seed: u64) -> [usize; 7] {
    let sim = SimWorld::new(seed);
    let policy = ["write-through", "write-back"][(seed % 2) as usize];
    let rows = Mutex::new(Rows { checks_heads: policy == "write-through", ..Rows::default() });
    let storage = Arc::new(Late { rows, log: sim.disk("log"), sim: SimWorld::new(seed + 1_000_000) });
    let mut model = start(&sim, None, policy);
    let mut steps = [0; 7];
    for _ in 0..4 {
        let mut life = new_life(&sim, &storage, &mut model, policy, &mut steps);
        for _ in 0..100 + sim.random.below(700) {
            life.step();
        }
        if sim.random.one_in(2) {
            life.to_ask.retain(|id, commands| {
                // A transaction that was begun is ended.
                commands.retain(|command| command[0] == "EXEC");
                *id <= CLIENTS && !commands.is_empty()
            });
            for id in 1..=CLIENTS {
                while life.to_ask.get(&id).is_some_and(|commands| !commands.is_empty()) {
                    life.drain();
                    let command = life.to_ask.get_mut(&id).unwrap().pop_front().unwrap();
                    if life.core.server.clients.get_mut(id).unwrap().multi.is_some() {
                        assert!(execute(&mut life.core, id, &command));
                        life.was_asked(id, command);
                    }
                }
            }
            life.drain();
            KEYS.iter().for_each(|key| life.scan(key));
            life.drain();
            let mut rows = life.storage.rows.lock();
            rows.check_heads();
            rows.remove_gone();
            let heads: BTreeSet<u64> = rows
                .rows
                .values()
                .filter_map(|stored| Head::parse(&stored.rdb).ok().flatten())
                .map(|head| head.generation)
                .collect();
            for key in rows.rows.keys() {
                if let Part::Element(generation) = key.part {
                    assert!(heads.contains(&generation), "{key:?} has no head");
                }
            }
            drop(rows);
            life.steps[4] += 1;
            drop(life);
            sim.sched.drop_workers();
            model = restarted_model(model, &sim, policy);
            continue;
        }
        // A crash: what storage was asked and has not done is done or not.
        {
            let mut rows = storage.rows.lock();
            let writes = std::mem::take(&mut rows.writes);
            for (write, _) in writes {
                if sim.random.one_in(2) {
                    rows.apply(&write);
                }
            }
            rows.reads.clear();
            rows.ranges.clear();
        }
        let executed = std::mem::take(&mut life.executed);
        drop(life);
        sim.sched.drop_workers();
        model = restarted_model(model, &sim, policy);
        let mut life = new_life(&sim, &storage, &mut model, policy, &mut steps);
        life.steps[5] += 1;
        copy_to_model(&mut life);
        check_states(&mut life, &executed);
        life.drain();
        drop(life);
        sim.sched.drop_workers();
    }
    steps
}

/// The connections are new, the data stays.
fn restarted_model(mut model: Core, _: &SimWorld, _: &str) -> Core {
    for id in 1..=CLIENTS {
        let mut client = model.server.clients.take(id).unwrap();
        client.multi = None;
        model.server.clients.put_back(client);
    }
    model
}

/// Each key is as the last answered command that named it left it, or as a later one did.
fn check_states(life: &mut Life<'_>, executed: &[Executed]) {
    for key in KEYS.map(str::to_owned) {
        let of_key: Vec<&Executed> = executed.iter().filter(|one| one.keys.contains(&key)).collect();
        let Some(last) = of_key.iter().rposition(|one| one.is_answered) else { continue };
        let found = state(life.model, &key);
        let now_ms = life.core.dbs.all[0].now_ms;
        let since = &of_key[last..];
        let is_one = since.iter().any(|one| one.states[&key].0 == found);
        let has_vanished = |one: &&Executed| one.states[&key].1.is_some_and(|at_ms| at_ms <= now_ms);
        let expires = found == "+none" && since.iter().any(has_vanished);
        assert!(is_one || expires || found.starts_with('['), "{key} is {found}");
        if !is_one && !expires {
            // Fields that have expired since are missing; no field has a value that it did not have.
            let of = |text: &str| -> BTreeSet<String> { text.split("), (").map(str::to_owned).collect() };
            let known: BTreeSet<String> =
                of_key[last..].iter().flat_map(|one| of(&one.states[&key].0)).collect();
            let trim = |text: &String| text.trim_matches(['[', ']', '(', ')']).to_owned();
            let known: BTreeSet<String> = known.iter().map(trim).collect();
            assert!(of(&found).iter().map(trim).all(|pair| known.contains(&pair)), "{key} is {found}");
        }
    }
}

#[test]
fn large_collections_answer_as_those_of_a_server_in_memory_through_evictions_and_crashes() {
    let seeds = std::env::var("TERRACE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(120);
    let mut all = [0; 7];
    let first = std::env::var("TERRACE_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in first.map_or(0..seeds, |first| first..first + 1) {
        let run = std::panic::catch_unwind(|| lives(seed));
        let steps = run.unwrap_or_else(|_| panic!("seed {seed} fails"));
        all.iter_mut().zip(steps).for_each(|(all, one)| *all += one);
    }
    let [parked, answered, written, evicted, restarts, crashes, scans] = all;
    eprintln!(
        "{answered} answers, {parked} commands waited, {written} writes, {evicted} evictions, {restarts} restarts, {crashes} crashes, {scans} scans"
    );
    assert!(all.iter().all(|count| *count > 0), "{all:?}");
}

#[test]
fn a_seed_repeats_its_run() {
    assert_eq!(lives(4), lives(4));
}

/// See `terrace_kv::planted`.
#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_each_bug_of_large_collections_is_found_within_three_hundred_seeds() {
    use terrace_kv::planted;
    let bugs = [
        ("GENERATION_IGNORED", &planted::GENERATION_IGNORED),
        ("EMPTIED_TAKES_LIVE_COLLECTIONS", &planted::EMPTIED_TAKES_LIVE_COLLECTIONS),
        ("HEAD_NOT_WRITTEN", &planted::HEAD_NOT_WRITTEN),
        ("ABSENT_KEPT", &planted::ABSENT_KEPT),
        ("DIRTY_EVICTED", &planted::DIRTY_EVICTED),
        ("LATE_FETCH_TAKEN", &planted::LATE_FETCH_TAKEN),
    ];
    let mut missed = Vec::new();
    for (name, switch) in bugs {
        switch.set(true);
        let found = (0..300).find(|seed| std::panic::catch_unwind(|| lives(*seed)).is_err());
        switch.set(false);
        eprintln!("{name}: {found:?}");
        missed.extend(found.is_none().then_some(name));
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
