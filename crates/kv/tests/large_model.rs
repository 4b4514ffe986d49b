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
#[path = "large_model/commands.rs"]
mod commands;
#[path = "large_model/late.rs"]
mod late;
#[path = "large_model/life.rs"]
mod life;

use bare::{execute, output};
use commands::{KEYS, strings, unordered, words};
use late::{Late, Rows};
use life::{CLIENTS, Executed, Life, new_life, start};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use terrace_io::random::Random;
use terrace_kv::client::ClientId;
use terrace_kv::server::Core;
use terrace_kv::storage::Part;
use terrace_kv::value::large::Head;
use terrace_sim::SimWorld;

/// A client that asks between the others.
const OBSERVER: ClientId = CLIENTS + 1;

fn state(core: &mut Core, key: &str) -> String {
    let mut get = |command: String| {
        assert!(execute(core, OBSERVER, &words(&command)));
        output(core, OBSERVER)
    };
    let kind = get(format!("TYPE {key}"));
    match kind.trim() {
        "+hash" => unordered(&words("HGETALL"), &get(format!("HGETALL {key}"))),
        "+set" => unordered(&words("SMEMBERS"), &get(format!("SMEMBERS {key}"))),
        "+zset" => get(format!("ZRANGE {key} 0 -1 WITHSCORES")),
        "+list" => get(format!("LRANGE {key} 0 -1")),
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
    for (db, key) in [1, 0].into_iter().flat_map(|db| KEYS.map(|key| (db, key.to_owned()))) {
        ask(life, &format!("SELECT {db}"));
        tell(life.model, format!("SELECT {db}"));
        match ask(life, &format!("TYPE {key}")).trim() {
            "+set" => {
                let all = strings(&ask(life, &format!("SMEMBERS {key}")));
                tell(life.model, format!("SADD {key} {}", all.join(" ")));
            }
            "+zset" => {
                let mut all = strings(&ask(life, &format!("ZRANGE {key} 0 -1 WITHSCORES")));
                all.reverse();
                tell(life.model, format!("ZADD {key} {}", all.join(" ")));
            }
            "+list" => {
                let all = strings(&ask(life, &format!("LRANGE {key} 0 -1")));
                tell(life.model, format!("RPUSH {key} {}", all.join(" ")));
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
                .iter()
                .filter(|(key, _)| key.is_whole())
                .filter_map(|(_, stored)| Head::parse(&stored.rdb).ok().flatten())
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
        assert!(is_one || expires || found.starts_with("[("), "{key} is {found}");
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
        ("HEAD_NOT_WRITTEN", &planted::HEAD_NOT_WRITTEN),
        ("ABSENT_KEPT", &planted::ABSENT_KEPT),
        ("DIRTY_EVICTED", &planted::DIRTY_EVICTED),
        ("LATE_FETCH_TAKEN", &planted::LATE_FETCH_TAKEN),
        ("UNEVEN_TAKEN_FOR_EVEN", &planted::UNEVEN_TAKEN_FOR_EVEN),
        ("SCORE_NOT_NOTED", &planted::SCORE_NOT_NOTED),
        ("GAP_NOT_MOVED", &planted::GAP_NOT_MOVED),
        ("SWAPPED_WHILE_DIRTY", &planted::SWAPPED_WHILE_DIRTY),
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
