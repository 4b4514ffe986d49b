//! A life of a server: clients ask, storage goes on, elements are evicted, and each reply is compared with the one of a server in memory.

use crate::bare::{execute, output, replies};
use crate::commands::{Commands, KEYS, is_unordered, strings, unordered, words};
use crate::late::Late;
use crate::{OBSERVER, state, vanishes};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use terrace_io::random::Random;
use terrace_kv::client::{Client, ClientId};
use terrace_kv::config::Config;
use terrace_kv::server::Core;
use terrace_kv::storage::{Outcome, Storage};
use terrace_sim::SimWorld;

pub const CLIENTS: u64 = 3;

pub fn start(sim: &SimWorld, storage: Option<&Arc<Late>>, policy: &str) -> Core {
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

pub struct Executed {
    pub keys: Vec<String>,
    /// The state of each key after it, and when it may vanish.
    pub states: BTreeMap<String, (String, Option<i64>)>,
    pub is_answered: bool,
}

pub struct Life<'a> {
    pub sim: &'a SimWorld,
    pub core: Core,
    pub storage: Arc<Late>,
    pub model: &'a mut Core,
    pub to_ask: BTreeMap<ClientId, VecDeque<Vec<String>>>,
    /// The command of each client that waits and has not been executed.
    pub parked: BTreeMap<ClientId, Vec<String>>,
    /// The words of the commands that a client has queued.
    pub queued: BTreeMap<ClientId, Vec<String>>,
    pub expected: BTreeMap<ClientId, VecDeque<(Vec<String>, String, usize)>>,
    pub executed: Vec<Executed>,
    pub steps: &'a mut [usize; 7],
}

impl Life<'_> {
    fn below(&self, n: u64) -> u64 {
        self.sim.random.below(n)
    }

    fn commands(&self) -> Commands<'_> {
        Commands { sim: self.sim, now_ms: self.core.dbs.all[0].now_ms }
    }

    fn ask(&mut self) {
        let id = 1 + self.below(CLIENTS);
        if self.to_ask.get(&id).is_none_or(VecDeque::is_empty) {
            let commands = match self.below(12) {
                0 => {
                    let many = 1 + self.below(4);
                    let mut commands = vec![words("MULTI")];
                    commands.extend((0..many).map(|_| words(&self.commands().one())));
                    // The order of fields in an answer is not told apart from the rest there.
                    commands.retain(|command| !is_unordered(command));
                    commands.push(words("EXEC"));
                    commands
                }
                1 => {
                    let script = "redis.call('hset',KEYS[1],ARGV[1],ARGV[2])redis.call('hdel',KEYS[1],ARGV[3])return{redis.call('hget',KEYS[1],ARGV[4]),redis.call('hlen',KEYS[1])}";
                    let fields: Vec<String> = (0..3).map(|_| self.commands().field()).collect();
                    let text = format!(
                        "EVAL {script} 1 {} {} v {} {}",
                        self.commands().key(),
                        fields[0],
                        fields[1],
                        fields[2]
                    );
                    vec![words(&text)]
                }
                _ if self.below(25) == 0 => vec![words("SWAPDB 0 1")],
                _ => vec![words(&self.commands().one())],
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

    pub fn was_asked(&mut self, id: ClientId, command: Vec<String>) {
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
        // A command that is queued tells nothing of its keys; the transaction does.
        let words = match (command[0].as_str(), reply.as_str()) {
            ("EXEC", _) => self.queued.remove(&id).unwrap_or_default(),
            (_, "+QUEUED\r\n") => {
                self.queued.entry(id).or_default().extend(command.iter().cloned());
                Vec::new()
            }
            _ => command.clone(),
        };
        let named = |key: &String| {
            words.contains(key) || words.iter().any(|word| ["FLUSHDB", "SWAPDB"].contains(&&**word))
        };
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
    pub fn store(&mut self) {
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

    pub fn step(&mut self) {
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
    pub fn drain(&mut self) {
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
    pub fn scan(&mut self, key: &str) {
        self.model.dbs.set_now(self.core.dbs.all[0].now_ms);
        assert!(execute(self.model, OBSERVER, &words(&format!("TYPE {key}"))));
        let (scan, all) = match output(self.model, OBSERVER).trim() {
            "+hash" => ("HSCAN", "HGETALL"),
            "+set" => ("SSCAN", "SMEMBERS"),
            "+zset" => ("ZSCAN", "ZRANGE"),
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
        let (asked, compared) = match all {
            "ZRANGE" => (format!("ZRANGE {key} 0 -1 WITHSCORES"), "HGETALL"),
            _ => (format!("{all} {key}"), all),
        };
        assert!(execute(self.model, OBSERVER, &words(&asked)));
        let expected = unordered(&words(compared), &output(self.model, OBSERVER));
        assert_eq!(unordered(&words(compared), &found), expected, "{scan} {key}");
        self.steps[6] += 1;
    }
}

pub fn new_life<'a>(
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
        queued: BTreeMap::new(),
        expected: BTreeMap::new(),
        executed: Vec::new(),
        steps,
    }
}
