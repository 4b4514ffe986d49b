//! `maxmemory`: what it evicts and refuses without a storage tier, as Redis does, and that with one it bounds the process and loses nothing.

mod client;

use client::durable::{Process, serve_if_asked};
use client::{Client, Reply, bulk, error, int, nil, ok, simple};

#[global_allocator]
static ALLOCATOR: terrace_kv::memory::Allocator = terrace_kv::memory::Allocator;

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

#[test]
fn serves_in_a_process_of_its_own() {
    serve_if_asked();
}

fn info(client: &mut Client, name: &str) -> u64 {
    let Reply::Bulk(text) = client.ask("INFO all") else { panic!("a text") };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap()
}

/// Sets the limit to what is used and some more.
fn limit(client: &mut Client, policy: &str, more: u64) -> u64 {
    let limit = info(client, "used_memory") + more;
    assert_eq!(client.ask(&format!("CONFIG SET maxmemory {limit} maxmemory-policy {policy}")), ok());
    limit
}

/// Sets keys of 1 KB until one is refused; returns how many were not.
fn fill(client: &mut Client, prefix: &str, count: usize, options: &str) -> usize {
    let value = "v".repeat(1000);
    let mut done = 0;
    for number in 0..count {
        match client.ask(&format!("SET {prefix}:{number} {value}{options}")) {
            reply if reply == ok() => done += 1,
            reply => {
                assert_eq!(reply, error(OOM));
                break;
            }
        }
    }
    done
}

#[test]
fn noeviction_refuses_commands_that_need_memory_and_no_others() {
    let server = Process::start_with(None, &[]);
    let mut one = server.connect();
    limit(&mut one, "noeviction", 2 << 20);
    let done = fill(&mut one, "key", 10_000, "");
    assert!((1000..4000).contains(&done), "{done} of 1 KB in 2 MB");
    assert_eq!(one.ask("LPUSH list 1"), error(OOM));
    assert!(matches!(one.ask("GET key:1"), Reply::Bulk(_)));
    assert_eq!(one.ask("MULTI"), ok());
    assert_eq!(one.ask("GET key:1"), error(OOM), "as in Redis, nothing is queued");
    assert!(matches!(one.ask("EXEC"), Reply::Error(text) if text.starts_with("EXECABORT")));
    let script: [&[u8]; 4] = [b"EVAL", b"return redis.call('set', KEYS[1], 1)", b"1", b"new"];
    assert!(matches!(one.ask_args(&script), Reply::Error(text) if text.contains(OOM)));
    for number in 0..done / 2 {
        assert_eq!(one.ask(&format!("DEL key:{number}")), int(1));
    }
    assert_eq!(one.ask("LPUSH list 1"), int(1));
    assert_eq!(one.ask("DBSIZE"), int((done - done / 2 + 1) as i64));
    assert_eq!(info(&mut one, "evicted_keys"), 0);
    server.stop();
}

#[test]
fn allkeys_policies_evict_until_memory_is_within_the_limit() {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let server = Process::start_with(None, &[]);
        let mut one = server.connect();
        assert_eq!(one.ask("SELECT 3"), ok());
        let limit = limit(&mut one, policy, 2 << 20);
        assert_eq!(fill(&mut one, "key", 10_000, ""), 10_000, "{policy}");
        let used = info(&mut one, "used_memory");
        assert!(used < limit + (256 << 10), "{policy}: {used} bytes used of {limit}");
        let evicted = info(&mut one, "evicted_keys");
        assert!(evicted > 5000, "{policy}: {evicted}");
        let Reply::Int(keys) = one.ask("DBSIZE") else { panic!("a number") };
        // A question evicts a few more.
        let evicted = (10_000 - info(&mut one, "evicted_keys") as i64)..=(10_000 - evicted as i64);
        assert!(evicted.contains(&keys), "{policy}: {keys} of {evicted:?}");
        server.stop();
    }
}

#[test]
fn lfu_keeps_what_is_used_often_and_counts_it() {
    let server = Process::start_with(None, &[]);
    let mut one = server.connect();
    limit(&mut one, "allkeys-lfu", 2 << 20);
    for number in 0..50 {
        assert_eq!(one.ask(&format!("SET hot:{number} 1")), ok());
    }
    for round in 0..100 {
        (0..50).for_each(|number| one.send(&format!("GET hot:{number}")));
        (0..50).for_each(|_| assert_eq!(one.reply(), bulk("1")));
        fill(&mut one, &format!("cold:{round}"), 100, "");
    }
    let kept = (0..50).filter(|number| one.ask(&format!("EXISTS hot:{number}")) == int(1)).count();
    assert!(kept >= 45, "{kept} of 50");
    let Reply::Int(frequency) = one.ask("OBJECT FREQ hot:1") else { panic!("a number") };
    assert!(frequency > 5, "{frequency}");
    assert!(matches!(one.ask("OBJECT IDLETIME hot:1"), Reply::Error(_)));
    server.stop();
}

#[test]
fn volatile_policies_evict_keys_that_expire_alone() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        let server = Process::start_with(None, &[]);
        let mut one = server.connect();
        assert_eq!(fill(&mut one, "lasting", 500, ""), 500);
        limit(&mut one, policy, 2 << 20);
        assert_eq!(fill(&mut one, "late", 500, " EX 10000"), 500);
        assert_eq!(fill(&mut one, "soon", 5000, " EX 100"), 5000, "{policy}");
        let count = |one: &mut Client, prefix: &str, of: usize| {
            (0..of).filter(|number| one.ask(&format!("EXISTS {prefix}:{number}")) == int(1)).count()
        };
        assert_eq!(count(&mut one, "lasting", 500), 500, "{policy}");
        let late = count(&mut one, "late", 500);
        assert!(policy != "volatile-ttl" || late >= 450, "{late} of 500: those that expire first go first");
        // Without keys that expire, nothing can be evicted.
        let done = fill(&mut one, "more", 10_000, "");
        assert!(done < 10_000, "{policy}");
        server.stop();
    }
}

#[test]
fn an_evicted_key_is_a_change_to_those_who_watch_it() {
    let server = Process::start_with(None, &[]);
    let (mut one, mut two) = (server.connect(), server.connect());
    assert_eq!(one.ask("SET watched 1"), ok());
    assert_eq!(one.ask("WATCH watched"), ok());
    limit(&mut two, "allkeys-random", 1 << 20);
    while two.ask("EXISTS watched") == int(1) {
        fill(&mut two, "key", 2000, "");
    }
    assert_eq!((one.ask("MULTI"), one.ask("PING"), one.ask("EXEC")), (ok(), simple("QUEUED"), nil()));
    server.stop();
}

const LIMIT: usize = 64 << 20;

/// Bytes that no compression shortens, and that the number says.
fn value(number: usize) -> Vec<u8> {
    let mut state = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    // From 32 bytes to 64 KB, each power of two as often; one of 500 has a megabyte.
    let len = if number % 500 == 7 { 1 << 20 } else { 32usize << (next() % 12) };
    let words = std::iter::repeat_with(|| next().to_le_bytes());
    words.take(len / 8).flatten().collect()
}

fn peak_kb(server: &Process) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

#[test]
fn five_times_the_limit_is_loaded_and_all_of_it_can_be_read_within_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let limit = LIMIT.to_string();
    let server = Process::start_with(Some(dir.path()), &[("maxmemory", &limit), ("appendfsync", "no")]);
    let mut one = server.connect();
    let (mut loaded, mut count) = (0, 0);
    while loaded < 5 * LIMIT {
        let from = count;
        while count < from + 20 {
            let value = value(count);
            loaded += value.len();
            one.send_args(&[b"SET", format!("key:{count}").as_bytes(), &value]);
            count += 1;
        }
        (from..count).for_each(|_| assert_eq!(one.reply(), ok()));
    }
    let after_load = peak_kb(&server);
    assert_eq!(one.ask("DBSIZE"), int(count as i64));
    assert!(info(&mut one, "evicted_keys") > 0);
    assert_eq!(one.ask("OBJECT TIER key:none"), nil());
    for from in (0..count).step_by(20) {
        let numbers = from..count.min(from + 20);
        numbers.clone().for_each(|number| one.send(&format!("GET key:{number}")));
        numbers.for_each(|number| assert!(one.reply() == Reply::Bulk(value(number)), "key:{number}"));
    }
    assert_eq!(one.ask(&format!("OBJECT TIER key:{}", count - 1)), bulk("memory"));
    assert_eq!(one.ask("OBJECT TIER key:0"), bulk("storage"));
    assert_eq!(one.ask("OBJECT TIER key:0"), bulk("storage"), "asking moves nothing");
    let peak = peak_kb(&server);
    eprintln!(
        "{count} values of {} MB; resident at most {after_load} KB while they were loaded, {peak} KB in all; limit {} KB",
        loaded >> 20,
        LIMIT >> 10
    );
    assert!(peak <= LIMIT / 1024 * 11 / 10, "{peak} KB");
    server.stop();
}
