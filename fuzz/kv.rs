//! Fuzz targets of the key-value server: what comes from a client gets any bytes.
//!
//! `resp`: bytes of a connection are the same commands however they arrive, and where the oracle (the crate `redis-protocol`) reads an array of strings, the
//! same array. `restore`: a payload of `RESTORE` is an error or a value that `DUMP` and `RESTORE` keep. `commands`: a connection's bytes are executed; the values that
//! they leave are kept by `DUMP` and `RESTORE`.
//!
//! Called by `crates/kv/tests/fuzz.rs`, and by libFuzzer (`target.rs`).

use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;
use smallvec::SmallVec;
use std::sync::LazyLock;
use terrace_kv::client::{Client, ClientId};
use terrace_kv::config::Config;
use terrace_kv::rdb::payload;
use terrace_kv::resp::parse::Requests;
use terrace_kv::server::Core;
use terrace_tier::fuzz::mutate::Dice;
use terrace_tier::fuzz::{Sample, Target};

pub static TARGETS: [Target; 3] = [
    Target { name: "resp", run: resp, samples: connections, rounds: 20_000 },
    Target { name: "restore", run: restore, samples: payloads, rounds: 4_000 },
    Target { name: "commands", run: commands, samples: connections, rounds: 1_500 },
];

/// Longer inputs may be a line that is too long in one piece and none in two.
const BYTES_MAX: usize = 60_000;
/// What a command may be asked to repeat or to make long.
const NUMBER_MAX: i64 = 100_000;

type Command = Vec<Vec<u8>>;

fn next(requests: &mut Requests) -> Option<Command> {
    let mut args = SmallVec::new();
    requests.next(&mut args).then(|| args.iter().map(|arg| arg.to_vec()).collect())
}

/// The commands in `bytes`, which arrive in pieces, and the error behind them.
fn parsed(bytes: &[u8], mut piece: impl FnMut() -> usize) -> (Vec<Command>, Option<String>) {
    let (mut requests, mut commands, mut rest) = (Requests::default(), Vec::new(), bytes);
    loop {
        let error = requests.parse().err();
        while let Some(command) = next(&mut requests) {
            commands.push(command);
        }
        if error.is_some() {
            return (commands, error.map(|error| error.0));
        }
        if rest.is_empty() {
            return (commands, None);
        }
        let space = requests.space();
        let count = piece().clamp(1, rest.len()).min(space.len());
        space[..count].copy_from_slice(&rest[..count]);
        requests.filled(count);
        rest = &rest[count..];
        assert!(requests.heap_bytes() < 64 * BYTES_MAX, "a short input takes much memory");
    }
}

fn resp(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(BYTES_MAX)];
    let whole = parsed(bytes, || usize::MAX);
    assert_eq!(whole, parsed(bytes, || 1), "byte by byte");
    let mut dice = Dice::new(bytes.len() as u64);
    assert_eq!(whole, parsed(bytes, || 1 + dice.below(40)), "in pieces");
    let mut rest = bytes;
    for command in &whole.0 {
        let Ok(Some((OwnedFrame::Array(frames), length))) = decode(rest) else { break };
        let strings: Option<Command> = frames
            .into_iter()
            .map(|frame| match frame {
                OwnedFrame::BulkString(bytes) => Some(bytes),
                _ => None,
            })
            .collect();
        let Some(strings) = strings else { break };
        assert_eq!(*command, strings, "the oracle reads another command");
        rest = &rest[length..];
    }
}

fn core() -> (Core, ClientId) {
    let mut config = Config::default();
    for (name, value) in [("maxmemory", "64mb"), ("proto-max-bulk-len", "1mb")] {
        config.load(name, value).expect("a setting");
    }
    let world = terrace_io::real::world();
    let mut core = terrace_kv::run::core(world, config, None, None).expect("a server without storage");
    let id = add_client(&mut core);
    (core, id)
}

fn add_client(core: &mut Core) -> ClientId {
    let id = core.server.clients.next_id();
    let client = Client::new(id, 0, 0, String::new(), String::new(), 0, &core.server.acl);
    core.server.clients.add(client);
    id
}

/// The reply of a command, unless the client waits.
fn execute(core: &mut Core, id: ClientId, args: &[&[u8]]) -> Option<Vec<u8>> {
    let mut client = core.server.clients.take(id).expect("the client");
    let is_free = client.parked.is_none() && client.blocked.is_none() && !client.is_delayed;
    if is_free {
        core.execute(&mut client, args);
    }
    client.settle();
    let reply = std::mem::take(&mut client.reply.buffer);
    core.server.clients.put_back(client);
    is_free.then_some(reply)
}

/// The bytes of a reply that is one string.
fn string(reply: &[u8]) -> Option<&[u8]> {
    let rest = reply.strip_prefix(b"$")?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let length: usize = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    rest.get(end + 2..end + 2 + length)
}

/// The strings of a reply that is an array of strings.
fn strings(reply: &[u8]) -> Vec<Vec<u8>> {
    let Some(mut at) = reply.windows(2).position(|pair| pair == b"\r\n").map(|end| end + 2) else {
        return Vec::new();
    };
    let mut strings = Vec::new();
    while let Some(found) = reply.get(at..).and_then(string) {
        at += found.len() + found.len().to_string().len() + 5;
        strings.push(found.to_vec());
    }
    strings
}

/// What a reader sees of a key's value, in an order of its own.
fn content(core: &mut Core, id: ClientId, key: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut ask = |args: &[&[u8]]| execute(core, id, args).expect("nothing to wait for");
    let kind = ask(&[b"TYPE", key]);
    let mut elements = match &kind[..] {
        b"+string\r\n" => vec![ask(&[b"GET", key])],
        b"+list\r\n" => vec![ask(&[b"LRANGE", key, b"0", b"-1"])],
        b"+zset\r\n" => vec![ask(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"])],
        b"+stream\r\n" => vec![ask(&[b"XRANGE", key, b"-", b"+"])],
        b"+set\r\n" => strings(&ask(&[b"SMEMBERS", key])),
        _ => {
            let reply = ask(&[b"HGETALL", key]);
            strings(&reply).chunks(2).map(|pair| pair.join(&b'='.to_owned())).collect()
        }
    };
    elements.sort();
    (kind, elements)
}

/// What is restored from a key's payload is what the key has.
fn is_kept(core: &mut Core, id: ClientId, key: &[u8]) {
    let name = String::from_utf8_lossy(key).into_owned();
    let before = content(core, id, key);
    let reply = execute(core, id, &[b"DUMP", key]).expect("nothing to wait for");
    let Some(payload) = string(&reply) else { return };
    let restored = execute(core, id, &[b"RESTORE", b"restored", b"0", payload, b"REPLACE"]);
    let restored = restored.expect("nothing to wait for");
    if restored.starts_with(b"-OOM") {
        return;
    }
    assert_eq!(restored, b"+OK\r\n", "{:?} of {name:?}", String::from_utf8_lossy(&restored));
    if content(core, id, key) == before {
        assert_eq!(content(core, id, b"restored"), before, "the value of {name:?}");
    } // else it has expired, or fields of it
    execute(core, id, &[b"OBJECT", b"ENCODING", b"restored"]);
}

fn restore(bytes: &[u8]) {
    let payload = payload::seal(bytes.to_vec());
    let (mut core, id) = core();
    let reply = execute(&mut core, id, &[b"RESTORE", b"key", b"0", &payload]).expect("nothing to wait for");
    if reply != b"+OK\r\n" {
        assert!(reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
        return;
    }
    is_kept(&mut core, id, b"key");
    let readers: [&[&[u8]]; 12] = [
        &[b"OBJECT", b"ENCODING", b"key"],
        &[b"GETRANGE", b"key", b"0", b"-1"],
        &[b"LRANGE", b"key", b"0", b"-1"],
        &[b"LPOS", b"key", b"x", b"RANK", b"-1"],
        &[b"SMEMBERS", b"key"],
        &[b"ZRANGE", b"key", b"0", b"-1", b"WITHSCORES"],
        &[b"ZRANGEBYSCORE", b"key", b"-inf", b"+inf"],
        &[b"HGETALL", b"key"],
        &[b"XRANGE", b"key", b"-", b"+"],
        &[b"XINFO", b"STREAM", b"key", b"FULL"],
        &[b"PFCOUNT", b"key"],
        &[b"MEMORY", b"USAGE", b"key"],
    ];
    let writers: [&[&[u8]]; 9] = [
        &[b"APPEND", b"key", b"x"],
        &[b"LPUSH", b"key", b"x"],
        &[b"RPOP", b"key"],
        &[b"SADD", b"key", b"x"],
        &[b"ZADD", b"key", b"1", b"x"],
        &[b"HSET", b"key", b"x", b"1"],
        &[b"XADD", b"key", b"*", b"x", b"1"],
        &[b"XTRIM", b"key", b"MAXLEN", b"1"],
        &[b"PFADD", b"key", b"x"],
    ];
    for command in readers.iter().chain(&writers).chain(&readers) {
        execute(&mut core, id, command);
    }
    is_kept(&mut core, id, b"key");
}

/// Commands that end the process, write files, run programs of their own, or are told to sleep or to fill memory.
fn is_left_out(args: &[&[u8]]) -> bool {
    let name = args[0].to_ascii_uppercase();
    let left_out: [&[u8]; 18] = [
        b"SHUTDOWN",
        b"SAVE",
        b"BGSAVE",
        b"BGREWRITEAOF",
        b"DEBUG",
        b"EVAL",
        b"EVAL_RO",
        b"EVALSHA",
        b"EVALSHA_RO",
        b"FCALL",
        b"FCALL_RO",
        b"FUNCTION",
        b"SCRIPT",
        b"CONFIG",
        b"ACL",
        b"MIGRATE",
        b"REPLICAOF",
        b"MONITOR",
    ];
    let is_long = |arg: &&[u8]| {
        let number = std::str::from_utf8(arg).ok().and_then(|text| text.parse::<i64>().ok());
        number.is_some_and(|number| !(-NUMBER_MAX..=NUMBER_MAX).contains(&number))
    };
    let repeats: [&[u8]; 8] = [
        b"SRANDMEMBER",
        b"HRANDFIELD",
        b"ZRANDMEMBER",
        b"SETRANGE",
        b"SETBIT",
        b"BITFIELD",
        b"LPOP",
        b"CLIENT",
    ];
    left_out.contains(&&name[..]) || repeats.contains(&&name[..]) && args.iter().any(is_long)
}

fn commands(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(BYTES_MAX)];
    let (mut core, id) = core();
    for command in parsed(bytes, || usize::MAX).0 {
        let args: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        if args.is_empty() || is_left_out(&args) {
            continue;
        }
        if execute(&mut core, id, &args).is_none() {
            break;
        }
        if core.server.clients.get_mut(id).is_none_or(|client| client.closes) {
            return;
        }
    }
    let other = add_client(&mut core);
    let keys = execute(&mut core, other, &[b"KEYS", b"*"]).expect("nothing to wait for");
    strings(&keys).iter().take(50).for_each(|key| is_kept(&mut core, other, key));
}

fn request(out: &mut Vec<u8>, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    words.iter().for_each(|word| out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes()));
}

/// Commands of each family.
const FAMILIES: [&str; 12] = [
    "SET s 12;GET s;APPEND s x;SETRANGE s 5 hello;GETRANGE s 0 -1;INCR n;INCRBYFLOAT n 1.5;SET s v EX 100 GET;MSETNX a 1 b 2;LCS a b IDX;GETEX s PERSIST",
    "SETBIT b 70 1;BITCOUNT b 0 -1 BIT;BITPOS b 1;BITOP NOT c b;BITFIELD b SET u8 #1 200 INCRBY i5 10 3 OVERFLOW FAIL GET u4 0",
    "HSET h a 1 b 2 c 3;HINCRBY h a 5;HGETALL h;HSCAN h 0 MATCH * COUNT 5;HRANDFIELD h -3 WITHVALUES;HEXPIRE h 100 FIELDS 2 a b;HTTL h FIELDS 1 a;HDEL h b",
    "RPUSH l a b c d;LPUSH l z;LINSERT l BEFORE b x;LRANGE l 0 -1;LPOS l b COUNT 0 MAXLEN 10;LMOVE l m LEFT RIGHT;LTRIM l 1 2;LMPOP 2 l m LEFT COUNT 2;LSET m 0 q;LREM m -1 q",
    "SADD s 1 2 3;SADD t 3 4 x;SINTERCARD 2 s t LIMIT 1;SUNIONSTORE u s t;SPOP u 1;SMOVE s t 1;SSCAN t 0;SRANDMEMBER t -4;SDIFF t s",
    "ZADD z 1 a 2 b 3 c;ZADD z GT CH 5 a;ZINCRBY z 2 b;ZRANGE z 0 -1 REV WITHSCORES;ZRANGEBYLEX z [a (c;ZUNIONSTORE w 2 z z WEIGHTS 1 2 AGGREGATE MAX;ZRANGESTORE v z 0 1;ZPOPMIN z;ZRANK z c;ZMPOP 1 w MAX COUNT 2",
    "GEOADD g 13.36 38.11 p 15.08 37.5 q;GEODIST g p q km;GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHCOORD;GEOHASH g p;GEOSEARCHSTORE h g FROMMEMBER p BYBOX 400 400 km",
    "PFADD y a b c;PFADD x d;PFCOUNT x y;PFMERGE w x y;GETRANGE w 0 20",
    "XADD e 1-1 f v;XADD e 2-* f w g h;XRANGE e - + COUNT 2;XGROUP CREATE e k 0;XREADGROUP GROUP k c COUNT 1 STREAMS e >;XPENDING e k - + 5;XCLAIM e k d 0 1-1;XACK e k 1-1;XTRIM e MAXLEN ~ 1;XINFO STREAM e FULL;XAUTOCLAIM e k d 0 0;XDEL e 2-0",
    "MULTI;SET a 1;INCR a;LPUSH a x;EXEC;WATCH a;MULTI;GET a;DISCARD;UNWATCH;SUBSCRIBE c;UNSUBSCRIBE;PING",
    "SET k v PX 100000;PEXPIREAT k 99999999999999;EXPIRE k 10 NX;TTL k;COPY k j REPLACE;RENAME j i;OBJECT ENCODING i;SORT l BY nosort GET # LIMIT 0 3 ALPHA;SCAN 0 COUNT 3 TYPE string;MOVE i 2;SELECT 2;TYPE i;SWAPDB 0 2;DBSIZE;RANDOMKEY",
    "HELLO 3;CLIENT SETNAME me;CLIENT TRACKING on BCAST PREFIX k;GET k;CLIENT LIST;INFO;COMMAND DOCS get;SLOWLOG GET 3;LATENCY RESET;MEMORY USAGE k;SET k v IFEQ v;CAS k v w;DIGEST k",
];

fn connections() -> Vec<Sample> {
    let mut samples: Vec<Sample> = FAMILIES
        .iter()
        .map(|family| {
            let mut bytes = Vec::new();
            family.split(';').for_each(|line| request(&mut bytes, line));
            Sample { bytes, headers: (0, 0) }
        })
        .collect();
    let inline = b"SET \"a b\" 'c\\'d'\r\nGET \"a b\"\nset k \"\\x41\\n\"\r\n\r\nPING\r\n*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n";
    samples.push(Sample { bytes: inline.to_vec(), headers: (0, 0) });
    samples
}

fn payloads() -> Vec<Sample> {
    static ALL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
        let (mut core, id) = core();
        for line in
            FAMILIES.iter().flat_map(|family| family.split(';')).filter(|line| !line.starts_with("HELLO"))
        {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            if !["MULTI", "WATCH", "SUBSCRIBE", "CLIENT", "SWAPDB", "SELECT"]
                .iter()
                .any(|name| line.starts_with(name))
            {
                execute(&mut core, id, &args);
            }
        }
        // Encodings that are not compact.
        for at in 0..300 {
            for line in [
                format!("HSET table field{at} {at}"),
                format!("SADD members m{at}"),
                format!("SADD numbers {at}"),
                format!("ZADD scores {at}.5 m{at}"),
                format!("RPUSH list {}", "x".repeat(at)),
                format!("XADD stream {at}-1 a {at}"),
            ] {
                let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
                execute(&mut core, id, &args);
            }
        }
        let keys = execute(&mut core, id, &[b"KEYS", b"*"]).expect("nothing to wait for");
        let keys = strings(&keys);
        assert!(keys.len() > 20, "{keys:?}");
        keys.iter()
            .filter_map(|key| {
                let reply = execute(&mut core, id, &[b"DUMP", key])?;
                payload::open(string(&reply)?).map(<[u8]>::to_vec)
            })
            .collect()
    });
    ALL.iter().map(|bytes| Sample { bytes: bytes.clone(), headers: (0, 0) }).collect()
}
