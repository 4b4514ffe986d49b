//! Random commands on large collections, and how their replies are compared.

use terrace_io::random::Random;
use terrace_sim::SimWorld;

/// Most often the first ones have hashes, the next sets, then sorted sets, then lists.
pub const KEYS: [&str; 9] = ["k0", "k1", "k2", "s0", "s1", "z0", "z1", "l0", "l1"];
const FIELDS: u64 = 190;

/// The strings of a reply of an array.
pub fn strings(reply: &str) -> Vec<String> {
    let lines = reply.split("\r\n").filter(|line| !line.starts_with(['*', '$', ':']) && !line.is_empty());
    lines.map(str::to_owned).collect()
}

pub fn is_unordered(command: &[String]) -> bool {
    ["HGETALL", "HKEYS", "SMEMBERS"].contains(&command[0].as_str())
}

/// A reply in which the order of fields does not count.
pub fn unordered(command: &[String], reply: &str) -> String {
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

pub fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Draws commands.
pub struct Commands<'a> {
    pub sim: &'a SimWorld,
    pub now_ms: i64,
}

impl Commands<'_> {
    fn below(&self, n: u64) -> u64 {
        self.sim.random.below(n)
    }

    /// One of the keys from `first` on, sometimes another.
    fn one_of(&self, first: usize, count: u64) -> String {
        let at = match self.below(12) {
            0 => self.below(KEYS.len() as u64) as usize,
            _ => first + self.below(count) as usize,
        };
        KEYS[at].to_owned()
    }

    pub fn key(&self) -> String {
        self.one_of(0, 3)
    }

    fn members(&self) -> String {
        let first = self.below(40);
        let members: Vec<String> = (first..first + 150).map(|n| format!("f{n}")).collect();
        members.join(" ")
    }

    fn on_sets(&self) -> String {
        let (key, other) = (self.one_of(3, 2), self.one_of(3, 2));
        match self.below(24) {
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
            21 => format!("SORT {key} ALPHA"),
            22 => format!("ZUNIONSTORE {} 2 {key} {other}", self.one_of(5, 2)),
            _ => format!("SINTERCARD 2 {key} {other}"),
        }
    }

    pub fn field(&self) -> String {
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

    fn score(&self) -> f64 {
        self.below(60) as f64 / 2.0 - 10.0
    }

    fn scored(&self) -> String {
        let pairs: Vec<String> =
            (0..1 + self.below(4)).map(|_| format!("{} {}", self.score(), self.field())).collect();
        pairs.join(" ")
    }

    fn fill_scored(&self) -> String {
        let first = self.below(40);
        let pairs: Vec<String> = (first..first + 150).map(|n| format!("{} f{n}", self.score())).collect();
        pairs.join(" ")
    }

    fn on_sorted_sets(&self) -> String {
        let (key, other) = (self.one_of(5, 2), self.one_of(5, 2));
        match self.below(40) {
            0..5 => format!("ZADD {key} {}", self.scored()),
            5 => format!("ZADD {key} NX CH {}", self.scored()),
            6 => format!("ZADD {key} XX GT CH {}", self.scored()),
            7 => format!("ZADD {key} LT {}", self.scored()),
            8 => format!("ZADD {key} INCR {} {}", self.score(), self.field()),
            9..12 => format!("ZINCRBY {key} {} {}", self.score(), self.field()),
            12..15 => format!("ZSCORE {key} {}", self.field()),
            15 | 16 => format!("ZMSCORE {key} {}", self.fields()),
            17..20 => format!("ZREM {key} {}", self.fields()),
            20 | 21 => format!("ZCARD {key}"),
            22 => format!("ZRANK {key} {}", self.field()),
            23 => format!("ZRANGE {key} 0 -1 WITHSCORES"),
            24 => format!("ZREVRANGE {key} {} 5", self.below(3)),
            25 => format!("ZRANGEBYSCORE {key} {} 8 LIMIT 1 5", self.score()),
            26 => format!("ZCOUNT {key} {} +inf", self.score()),
            27 | 28 => format!("ZADD {key} {}", self.fill_scored()),
            29 => format!("ZPOPMIN {key} {}", self.below(4)),
            30 => format!("ZPOPMAX {key}"),
            31 => format!("ZREMRANGEBYSCORE {key} {} {}", self.score(), self.score()),
            32 => format!("ZUNIONSTORE {key} 2 {key} {other} WEIGHTS 1 2"),
            33 => format!("ZRANGESTORE {key} {other} 0 -3"),
            34 => format!("RENAME {key} {other}"),
            35 => format!("COPY {key} {other} REPLACE"),
            36 => format!("DEL {key}"),
            37 => format!("GEOADD {key} CH 13.3{} 38.1 {}", self.below(9), self.field()),
            38 => format!("GEODIST {key} {} {}", self.field(), self.field()),
            _ => format!("SORT {key} ALPHA LIMIT 0 9"),
        }
    }

    fn element(&self) -> String {
        match self.below(40) {
            0 => format!("{}{}", "wide".repeat(700), self.below(3)),
            1..8 => self.below(30).to_string(),
            _ => format!("{}{}", "e".repeat(self.below(60) as usize + 1), self.below(9)),
        }
    }

    fn elements(&self, max: u64) -> String {
        let all: Vec<String> = (0..1 + self.below(max)).map(|_| self.element()).collect();
        all.join(" ")
    }

    fn end(&self) -> &'static str {
        if self.sim.random.one_in(2) { "LEFT" } else { "RIGHT" }
    }

    /// An index, near to an end most often.
    fn index(&self) -> i64 {
        let index = self.below(if self.sim.random.one_in(4) { 200 } else { 4 }) as i64;
        if self.sim.random.one_in(2) { index } else { -1 - index }
    }

    fn on_lists(&self) -> String {
        let (key, other) = (self.one_of(7, 2), self.one_of(7, 2));
        match self.below(44) {
            0..4 => format!("LPUSH {key} {}", self.elements(5)),
            4..8 => format!("RPUSH {key} {}", self.elements(5)),
            8..11 => format!("RPUSH {key} {}", self.elements(600)),
            11 => format!("LPUSH {key} {}", self.elements(400)),
            12 => format!("LPUSHX {key} {}", self.element()),
            13..16 => format!("LPOP {key}"),
            16..19 => format!("RPOP {key}"),
            19 => format!("RPOP {key} {}", self.below(90)),
            20 => format!("LPOP {key} {}", self.below(90)),
            21 | 22 => format!("LLEN {key}"),
            23..25 => format!("LINDEX {key} {}", self.index()),
            25 => format!("LRANGE {key} 0 {}", self.below(90)),
            26 => format!("LRANGE {key} {} -1", -1 - self.below(90) as i64),
            27 => format!("LRANGE {key} {} {}", self.index(), self.index()),
            28 => format!("LRANGE {key} 0 -1"),
            29 => format!("LSET {key} {} {}", self.index(), self.element()),
            30 => format!("LINSERT {key} AFTER {} {}", self.below(30), self.element()),
            31 => format!("LINSERT {key} BEFORE {} {}", self.below(30), "i".repeat(900)),
            32 => format!("LREM {key} {} {}", self.below(3) as i64 - 1, self.below(30)),
            33 => format!("LTRIM {key} {} {}", self.below(5), -1 - self.below(5) as i64),
            34 if self.below(3) == 0 => format!("LTRIM {key} {} {}", self.index(), self.index()),
            34 => format!("LTRIM {key} 0 {}", self.below(300)),
            35 | 36 => format!("LMOVE {key} {other} {} {}", self.end(), self.end()),
            37 => format!("RPOPLPUSH {key} {key}"),
            38 => format!("LMPOP 2 {key} {other} {} COUNT {}", self.end(), 1 + self.below(9)),
            39 => format!("LPOS {key} {} RANK -1", self.below(30)),
            40 => format!("RENAME {key} {other}"),
            41 => format!("COPY {key} {other} REPLACE"),
            42 => format!("SORT {key} ALPHA LIMIT 0 5"),
            _ if self.below(3) == 0 => format!("DEL {key}"),
            _ => format!("LLEN {key}"),
        }
    }

    pub fn one(&self) -> String {
        match self.below(12) {
            0 | 1 => return self.on_sets(),
            2..5 => return self.on_sorted_sets(),
            5..8 => return self.on_lists(),
            _ => {}
        }
        let (key, other) = (self.key(), self.key());
        let now_ms = self.now_ms;
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
}
