//! Settings by Redis's names: `CONFIG GET` and `SET`, and the lines of a configuration file.
//!
//! A value is kept as `CONFIG GET` shows it. What is read for every command is kept parsed in [`Limits`].
//!
//! Some settings of Redis promise durability, which needs a directory (`dir`), or a place of its own ([`Config::broken_promises`]). `CONFIG SET`
//! refuses such a value; a configuration file that has one is taken, so that the file of an existing server works, and [`Config::broken_promises`] names it.

pub mod files;
mod values;

use crate::resp::parse::{parse_i64, split_words};
use crate::storage::Durability;
use crate::tiering::write_policy::{Bounds, Mode};
use crate::value::glob;
pub use values::{NOTICE_KEYEVENT, NOTICE_KEYSPACE, parse_bytes};
use values::{parse_notices, parse_save_points, quoted, show_notices, show_save_points};

#[derive(Clone, Copy)]
enum Kind {
    Bool,
    Int(i64, i64),
    /// A size, with units (`1gb`).
    Bytes,
    Text,
    OneOf(&'static [&'static str]),
    /// The letters of keyspace notices.
    Notices,
    /// Pairs of seconds and changes.
    SavePoints,
    FileName,
}

struct Parameter {
    name: &'static str,
    kind: Kind,
    default: &'static str,
    /// Only at the start.
    fixed: bool,
}

const fn free(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter { name, kind, default, fixed: false }
}

const fn fixed(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter { name, kind, default, fixed: true }
}

/// `allkeys-s3-fifo` is not of Redis; it needs a storage tier.
const POLICIES: &[&str] = &[
    "allkeys-s3-fifo",
    "volatile-lru",
    "allkeys-lru",
    "volatile-lfu",
    "allkeys-lfu",
    "volatile-random",
    "allkeys-random",
    "volatile-ttl",
    "noeviction",
];

const PARAMETERS: &[Parameter] = &[
    fixed("bind", Kind::Text, "127.0.0.1"),
    fixed("port", Kind::Int(0, 65535), "6380"),
    fixed("dir", Kind::Text, ""),
    fixed("object", Kind::Text, ""),
    fixed("storage", Kind::Text, ""),
    fixed("storage-timeout", Kind::Int(1, 3_600_000), "5000"),
    fixed("databases", Kind::Int(1, 1024), "16"),
    free("maxmemory", Kind::Bytes, "0"),
    free("maxmemory-policy", Kind::OneOf(POLICIES), "noeviction"),
    free("maxmemory-samples", Kind::Int(1, 64), "5"),
    free("maxclients", Kind::Int(1, u32::MAX as i64), "10000"),
    free("timeout", Kind::Int(0, i32::MAX as i64), "0"),
    fixed("tls-port", Kind::Int(0, 65535), "0"),
    fixed("tls-cert-file", Kind::Text, ""),
    fixed("tls-key-file", Kind::Text, ""),
    fixed("tls-ca-cert-file", Kind::Text, ""),
    fixed("tls-auth-clients", Kind::OneOf(&["yes", "no", "optional"]), "yes"),
    fixed("tls-protocols", Kind::Text, ""),
    free("io-threads", Kind::Int(1, 128), "1"),
    free("io-threads-min", Kind::Int(1, 128), "1"),
    free("requirepass", Kind::Text, ""),
    fixed("aclfile", Kind::Text, ""),
    free("acl-pubsub-default", Kind::OneOf(&["resetchannels", "allchannels"]), "resetchannels"),
    free("acllog-max-len", Kind::Int(0, 1 << 20), "128"),
    free("tracking-table-max-keys", Kind::Int(0, i64::MAX), "1000000"),
    free("protected-mode", Kind::Bool, "yes"),
    free("appendonly", Kind::Bool, "no"),
    free("appendfsync", Kind::OneOf(&["always", "everysec", "no"]), "everysec"),
    free("save", Kind::SavePoints, ""),
    fixed("dbfilename", Kind::FileName, "dump.rdb"),
    free("stop-writes-on-bgsave-error", Kind::Bool, "yes"),
    free("tiering-write-policy", Kind::OneOf(&["write-through", "write-back"]), "write-back"),
    free("tiering-dirty-max-bytes", Kind::Bytes, "67108864"),
    free("tiering-dirty-max-ms", Kind::Int(1, 3_600_000), "1000"),
    free("proto-max-bulk-len", Kind::Bytes, "536870912"),
    free("client-query-buffer-limit", Kind::Bytes, "1073741824"),
    free("notify-keyspace-events", Kind::Notices, ""),
    free("slowlog-log-slower-than", Kind::Int(-1, i64::MAX), "10000"),
    free("slowlog-max-len", Kind::Int(0, 1 << 20), "128"),
    free("latency-monitor-threshold", Kind::Int(0, i64::MAX), "0"),
    free("hash-max-listpack-entries", Kind::Int(0, i64::MAX), "512"),
    free("hash-max-ziplist-entries", Kind::Int(0, i64::MAX), "512"),
    free("hash-max-listpack-value", Kind::Bytes, "64"),
    free("hash-max-ziplist-value", Kind::Bytes, "64"),
    free("list-max-listpack-size", Kind::Int(-5, i32::MAX as i64), "-2"),
    free("list-max-ziplist-size", Kind::Int(-5, i32::MAX as i64), "-2"),
    free("list-compress-depth", Kind::Int(0, i32::MAX as i64), "0"),
    free("set-max-intset-entries", Kind::Int(0, i64::MAX), "512"),
    free("set-max-listpack-entries", Kind::Int(0, i64::MAX), "128"),
    free("set-max-listpack-value", Kind::Bytes, "64"),
    free("hll-sparse-max-bytes", Kind::Bytes, "3000"),
    free("zset-max-listpack-entries", Kind::Int(0, i64::MAX), "128"),
    free("zset-max-ziplist-entries", Kind::Int(0, i64::MAX), "128"),
    free("zset-max-listpack-value", Kind::Bytes, "64"),
    free("zset-max-ziplist-value", Kind::Bytes, "64"),
    free("stream-node-max-bytes", Kind::Bytes, "4096"),
    free("stream-node-max-entries", Kind::Int(0, i64::MAX), "100"),
    free("lua-time-limit", Kind::Int(0, i64::MAX), "5000"),
    free("busy-reply-threshold", Kind::Int(0, i64::MAX), "5000"),
    free("lazyfree-lazy-user-del", Kind::Bool, "no"),
    free("lazyfree-lazy-user-flush", Kind::Bool, "no"),
];

/// Settings that have an older name too.
const ALIASES: &[(&str, &str)] = &[
    ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
    ("hash-max-ziplist-value", "hash-max-listpack-value"),
    ("list-max-ziplist-size", "list-max-listpack-size"),
    ("zset-max-ziplist-entries", "zset-max-listpack-entries"),
    ("zset-max-ziplist-value", "zset-max-listpack-value"),
    ("lua-time-limit", "busy-reply-threshold"),
];

const NO_DIR: &str = "data is kept in memory alone without `dir`";

/// With `storage`.
const ELSEWHERE: &str = "data is kept in `storage`";
const NO_LOG: &str = "what is durable, the server of `storage` decides without `dir`";
const NO_VIEW: &str = "snapshots are taken from the server of `storage`";
const NO_WRITE_BACK: &str = "its log needs `dir`";

/// Which keys are evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    #[default]
    None,
    Lru,
    Lfu,
    S3Fifo,
    Random,
    /// The one that expires first.
    Ttl,
}

/// `maxmemory-policy` and `maxmemory-samples`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Eviction {
    pub choice: Choice,
    /// Only keys that expire.
    pub expiring_only: bool,
    pub samples: usize,
}

impl Eviction {
    fn parse(policy: &str, samples: usize) -> Eviction {
        let (of, kind) = policy.split_once('-').unwrap_or((policy, ""));
        let choice = match kind {
            "lru" => Choice::Lru,
            "lfu" => Choice::Lfu,
            "s3-fifo" => Choice::S3Fifo,
            "random" => Choice::Random,
            "ttl" => Choice::Ttl,
            _ => Choice::None,
        };
        Eviction { choice, expiring_only: of == "volatile", samples: samples.max(1) }
    }
}

/// Settings that are read for every command or connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    pub bulk_bytes_max: usize,
    pub query_buffer_bytes_max: usize,
    pub clients_max: usize,
    pub idle_seconds_max: i64,
    /// Bits of [`crate::keyspace::Class`], and the bits of `K` and `E`.
    pub notices: u32,
    /// Microseconds; negative: nothing is logged.
    pub slow_micros: i64,
    /// A command that takes this long is a slow moment for `LATENCY`; 0: none is.
    pub latency_millis: u64,
    /// `maxmemory`; 0: memory is not bounded.
    pub memory_bytes_max: usize,
    pub eviction: Eviction,
    /// Keys that are remembered for clients that cache; 0: any number.
    pub tracked_keys_max: usize,
    pub write_policy: Mode,
    /// `appendfsync`: what a reply waits for. With `no`, as with `everysec`, an acknowledged change survives the end of the process, as in Redis.
    pub durability: Durability,
    /// What may be dirty.
    pub dirty: Bounds,
    /// Event loops that run without load, and at most.
    pub loops_min: usize,
    pub loops_max: usize,
    /// How long a script runs before other clients are answered `BUSY`; 0: for ever.
    pub busy_millis: u64,
}

pub struct Config {
    values: Vec<String>,
    /// The file that was loaded, for `CONFIG REWRITE`.
    pub file: Option<String>,
    /// The words after `user` of each such line of a configuration file.
    pub users: Vec<Vec<Vec<u8>>>,
    /// `save`: seconds and changes.
    pub save_points: Vec<(i64, u64)>,
    pub limits: Limits,
}

/// Begins what a rewritten file has gained.
const REWRITTEN: &str = "# Generated by CONFIG REWRITE";

fn index(name: &str) -> Option<usize> {
    PARAMETERS.iter().position(|parameter| parameter.name.eq_ignore_ascii_case(name))
}

/// The value as it is shown, or why it is refused.
fn canonical(parameter: &Parameter, value: &str) -> Result<String, String> {
    match parameter.kind {
        Kind::Bool if value.eq_ignore_ascii_case("yes") || value.eq_ignore_ascii_case("no") => {
            Ok(value.to_ascii_lowercase())
        }
        Kind::Bool => Err("argument must be 'yes' or 'no'".into()),
        Kind::Int(min, max) => match parse_i64(value.as_bytes()) {
            Some(number) if (min..=max).contains(&number) => Ok(number.to_string()),
            Some(_) => Err(format!("argument must be between {min} and {max} inclusive")),
            None => Err("argument couldn't be parsed into an integer".into()),
        },
        Kind::Bytes => {
            parse_bytes(value).map(|bytes| bytes.to_string()).ok_or("argument must be a memory value".into())
        }
        Kind::Text => Ok(value.to_owned()),
        Kind::OneOf(all) => match all.iter().find(|known| known.eq_ignore_ascii_case(value)) {
            Some(known) => Ok((*known).to_owned()),
            None => Err(format!("argument(s) must be one of the following: {}", all.join(", "))),
        },
        Kind::Notices => parse_notices(value)
            .map(show_notices)
            .ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into()),
        Kind::SavePoints => parse_save_points(value)
            .map(|points| show_save_points(&points))
            .ok_or("Invalid save parameters".into()),
        Kind::FileName if value.contains('/') => Err("dbfilename can't be a path, just a filename".into()),
        Kind::FileName => Ok(value.to_owned()),
    }
}

/// Why a setting is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigError {
    Unknown(String),
    Fixed(String),
    Twice(String),
    Invalid(String, String),
}

impl Default for Config {
    fn default() -> Config {
        let values = PARAMETERS.iter().map(|parameter| parameter.default.to_owned()).collect();
        let mut config = Config {
            values,
            file: None,
            users: Vec::new(),
            save_points: Vec::new(),
            limits: Limits::default(),
        };
        config.refresh();
        config
    }
}

impl Config {
    /// The value of a known setting.
    pub fn text(&self, name: &str) -> &str {
        index(name).map_or("", |at| &self.values[at])
    }

    /// The value of a known setting that is a number or a size.
    pub fn number(&self, name: &str) -> i64 {
        parse_i64(self.text(name).as_bytes()).unwrap_or(0)
    }

    /// As [`Config::number`], of one that is never negative.
    pub fn size(&self, name: &str) -> usize {
        usize::try_from(self.number(name)).unwrap_or(0)
    }

    pub fn is_on(&self, name: &str) -> bool {
        self.text(name) == "yes"
    }

    /// Settings whose names match a pattern, with their values.
    pub fn matching<'a>(&'a self, pattern: &'a [u8]) -> impl Iterator<Item = (&'static str, &'a str)> {
        let all = PARAMETERS.iter().zip(&self.values);
        all.filter(|(parameter, _)| glob::matches_ignoring_case(pattern, parameter.name.as_bytes()))
            .map(|(parameter, value)| (parameter.name, value.as_str()))
    }

    /// Changes settings of a running server, all or none.
    pub fn set(&mut self, pairs: &[(String, String)]) -> Result<(), ConfigError> {
        let mut changes: Vec<(usize, String)> = Vec::new();
        for (name, value) in pairs {
            let at = index(name).ok_or_else(|| ConfigError::Unknown(name.clone()))?;
            let parameter = &PARAMETERS[at];
            if parameter.fixed {
                return Err(ConfigError::Fixed(name.clone()));
            }
            if changes.iter().any(|(other, _)| *other == at) {
                return Err(ConfigError::Twice(name.clone()));
            }
            let value = canonical(parameter, value).map_err(|why| ConfigError::Invalid(name.clone(), why))?;
            changes.push((at, value));
        }
        for (at, value) in &changes {
            let name = PARAMETERS[*at].name;
            if *value != self.values[*at]
                && let Some(missing) = self.broken_promise(name, value)
            {
                return Err(ConfigError::Invalid(name.to_owned(), format!("not supported yet: {missing}")));
            }
        }
        for (at, value) in changes {
            self.put(at, value);
        }
        self.refresh();
        Ok(())
    }

    fn put(&mut self, at: usize, value: String) {
        let name = PARAMETERS[at].name;
        for (one, other) in ALIASES {
            let alias = if *one == name { other } else { one };
            if (*one == name || *other == name)
                && let Some(at) = index(alias)
            {
                self.values[at].clone_from(&value);
            }
        }
        self.values[at] = value;
    }

    /// Sets a value at the start. An unknown name is not an error: it is returned, for a warning.
    pub fn load(&mut self, name: &str, value: &str) -> Result<bool, ConfigError> {
        let Some(at) = index(name) else { return Ok(false) };
        let mut value =
            canonical(&PARAMETERS[at], value).map_err(|why| ConfigError::Invalid(name.to_owned(), why))?;
        // Each line adds points; an empty one takes them away.
        if matches!(PARAMETERS[at].kind, Kind::SavePoints) && !value.is_empty() && !self.values[at].is_empty()
        {
            value = format!("{} {value}", self.values[at]);
        }
        self.put(at, value);
        self.refresh();
        Ok(true)
    }

    /// What is missing for a value of a setting to mean what it says: with the places that data has, only some values keep their promise.
    fn broken_promise(&self, name: &str, value: &str) -> Option<&'static str> {
        let has = |place: &str| !self.text(place).is_empty();
        let without_dir = if has("storage") { NO_LOG } else { NO_DIR };
        let (kept, missing): (&[&str], _) = match name {
            "object" if has("storage") => (&[""], ELSEWHERE),
            "object" if !has("dir") => (&[""], NO_DIR),
            "appendonly" if !has("dir") => (&["no"], without_dir),
            "appendfsync" if !has("dir") => (&["everysec", "no"], without_dir),
            "save" if has("storage") => (&[""], NO_VIEW),
            "tiering-write-policy" if has("storage") && !has("dir") => (&["write-through"], NO_WRITE_BACK),
            _ => return None,
        };
        (!kept.contains(&value)).then_some(missing)
    }

    /// Settings whose values promise what the server does not do, each with what is missing, for a warning at the start.
    pub fn broken_promises(&self) -> Vec<String> {
        let all = PARAMETERS.iter().zip(&self.values);
        let is_set = |(parameter, value): &(&Parameter, &String)| *value != parameter.default;
        all.filter(is_set)
            .filter_map(|(parameter, value)| {
                let missing = self.broken_promise(parameter.name, value)?;
                Some(format!("{} {value:?} has no effect yet: {missing}", parameter.name))
            })
            .collect()
    }

    /// Takes the lines of a configuration file of Redis; returns the directives that mean nothing here, each once.
    pub fn load_file(&mut self, text: &str) -> Result<Vec<String>, ConfigError> {
        let mut ignored = Vec::new();
        for line in text.lines() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let words = split_words(line.as_bytes()).ok_or_else(|| {
                ConfigError::Invalid(line.to_owned(), "unbalanced quotes in configuration line".into())
            })?;
            if words.first().is_some_and(|word| word == b"user") {
                self.users.push(words[1..].to_vec());
                continue;
            }
            let words: Vec<String> =
                words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            let Some((name, values)) = words.split_first() else { continue };
            if !self.load(name, &values.join(" "))? && !ignored.contains(name) {
                ignored.push(name.clone());
            }
        }
        Ok(ignored)
    }

    /// A configuration file with the present settings: lines of known settings are changed where they stand, others are kept, and settings
    /// that differ from their defaults are added at the end. `users` are the lines of users.
    pub fn rewrite(&self, text: &str, users: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        let (mut written, mut is_headed) = (vec![false; PARAMETERS.len()], false);
        let directive = |at: usize| format!("{} {}", PARAMETERS[at].name, quoted(&self.values[at]));
        for line in text.lines() {
            let name = line.split_ascii_whitespace().next().unwrap_or("");
            if name == "user" {
                continue;
            }
            is_headed |= line == REWRITTEN;
            match index(name) {
                Some(at) if written[at] => {}
                Some(at) => {
                    written[at] = true;
                    out.extend_from_slice(directive(at).as_bytes());
                    out.push(b'\n');
                }
                None => {
                    out.extend_from_slice(line.as_bytes());
                    out.push(b'\n');
                }
            }
        }
        let is_alias = |at: usize| ALIASES.iter().any(|(old, _)| *old == PARAMETERS[at].name);
        let added: Vec<String> = (0..PARAMETERS.len())
            .filter(|&at| !written[at] && !is_alias(at) && self.values[at] != PARAMETERS[at].default)
            .map(directive)
            .collect();
        if !is_headed && (!added.is_empty() || !users.is_empty()) {
            out.extend_from_slice(REWRITTEN.as_bytes());
            out.push(b'\n');
        }
        for line in added.iter().map(String::as_bytes).chain(users.iter().map(Vec::as_slice)) {
            out.extend_from_slice(line);
            out.push(b'\n');
        }
        out
    }

    fn refresh(&mut self) {
        self.save_points = parse_save_points(self.text("save")).unwrap_or_default();
        let size = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        self.limits = Limits {
            bulk_bytes_max: size(self.number("proto-max-bulk-len")),
            query_buffer_bytes_max: size(self.number("client-query-buffer-limit")),
            clients_max: size(self.number("maxclients")),
            idle_seconds_max: self.number("timeout"),
            notices: parse_notices(self.text("notify-keyspace-events")).unwrap_or(0),
            slow_micros: self.number("slowlog-log-slower-than"),
            latency_millis: u64::try_from(self.number("latency-monitor-threshold")).unwrap_or(0),
            memory_bytes_max: self.size("maxmemory"),
            eviction: Eviction::parse(self.text("maxmemory-policy"), self.size("maxmemory-samples")),
            tracked_keys_max: usize::try_from(self.number("tracking-table-max-keys")).unwrap_or(usize::MAX),
            write_policy: match self.text("tiering-write-policy") {
                "write-through" => Mode::WriteThrough,
                _ => Mode::WriteBack,
            },
            durability: match self.text("appendfsync") {
                "always" => Durability::Durable,
                _ => Durability::Written,
            },
            dirty: Bounds {
                write_bytes: Bounds::default().write_bytes,
                cut_bytes: Bounds::default().cut_bytes,
                age_ms: self.size("tiering-dirty-max-ms") as u64,
                dirty_bytes_max: self.size("tiering-dirty-max-bytes") as u64,
            },
            loops_min: self.size("io-threads-min"),
            loops_max: self.size("io-threads"),
            busy_millis: u64::try_from(self.number("busy-reply-threshold")).unwrap_or(0),
        };
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigError::Unknown(name) => {
                write!(out, "Unknown option or number of arguments for CONFIG SET - '{name}'")
            }
            ConfigError::Fixed(name) => {
                write!(
                    out,
                    "CONFIG SET failed (possibly related to argument '{name}') - can't set immutable config"
                )
            }
            ConfigError::Twice(name) => {
                write!(out, "CONFIG SET failed (possibly related to argument '{name}') - duplicate parameter")
            }
            ConfigError::Invalid(name, why) => {
                write!(out, "CONFIG SET failed (possibly related to argument '{name}') - {why}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_redis_is_taken_and_ignored_directives_are_named_once() {
        let mut config = Config::default();
        let file = "# comment\nmaxmemory 100mb\nsave 3600 1\nrdbcompression yes\nrdbcompression no\nrequirepass \"a b\"\n";
        assert_eq!(config.load_file(file), Ok(vec!["rdbcompression".to_owned()]));
        assert_eq!(config.number("maxmemory"), 100 << 20);
        assert_eq!(config.text("requirepass"), "a b");
    }

    #[test]
    fn a_change_of_several_settings_is_all_or_none() {
        let mut config = Config::default();
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect::<Vec<_>>()
        };
        assert!(config.set(&pairs(&[("timeout", "5"), ("maxclients", "x")])).is_err());
        assert_eq!(config.number("timeout"), 0);
        assert!(config.set(&pairs(&[("port", "5")])).is_err());
        config.set(&pairs(&[("hash-max-ziplist-entries", "7")])).unwrap();
        assert_eq!(config.number("hash-max-listpack-entries"), 7);
    }

    #[test]
    fn a_setting_that_promises_what_is_missing_is_refused_or_named() {
        let mut config = Config::default();
        assert_eq!(config.broken_promises(), Vec::<String>::new());
        let mut set = |name: &str, value: &str| config.set(&[(name.to_owned(), value.to_owned())]);
        for (name, value) in [("appendonly", "yes"), ("appendfsync", "always")] {
            let refused = set(name, value).unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains("not supported yet"), "{refused}");
        }
        for (name, value) in [("appendonly", "no"), ("save", ""), ("maxmemory", "1gb"), ("timeout", "5")] {
            set(name, value).unwrap();
        }
        config.load_file("appendonly yes\nsave 60 1\nsave 300 1\n").unwrap();
        let named = config.broken_promises();
        assert_eq!(named.len(), 1, "{named:?}");
        assert!(named[0].starts_with("appendonly"), "{named:?}");
        // With a directory, what promises durability is kept.
        config.load_file("dir /srv/kv\n").unwrap();
        assert_eq!(config.broken_promises().len(), 0, "{:?}", config.broken_promises());
        config.set(&[("appendfsync".to_owned(), "always".to_owned())]).unwrap();
        // What is set already may be set again: clients restore what they have read.
        config.set(&[("appendonly".to_owned(), "yes".to_owned())]).unwrap();
    }

    #[test]
    fn lines_of_save_points_add_up_and_an_empty_one_takes_them_away() {
        let mut config = Config::default();
        config.load_file("save 3600 1\nsave 300 100 60 10000\n").unwrap();
        assert_eq!(config.text("save"), "3600 1 300 100 60 10000");
        assert_eq!(config.save_points, [(3600, 1), (300, 100), (60, 10000)]);
        config.load_file("save \"\"\n").unwrap();
        assert_eq!((config.text("save"), config.save_points.len()), ("", 0));
        config.set(&[("save".to_owned(), "60  5".to_owned())]).unwrap();
        config.set(&[("save".to_owned(), "10 5".to_owned())]).unwrap();
        assert_eq!(config.text("save"), "10 5");
        for wrong in ["60", "0 1", "60 -1", "x 1"] {
            assert!(config.set(&[("save".to_owned(), wrong.to_owned())]).is_err(), "{wrong}");
        }
        assert!(config.load("dbfilename", "a/b").is_err());
    }

    #[test]
    fn a_rewritten_file_keeps_its_lines_and_reads_back_the_same() {
        let file = "# mine\nmaxclients 5\nrdbcompression yes\nuser old on\nmaxclients 6\n";
        let mut config = Config::default();
        config.load_file(file).unwrap();
        config
            .set(&[("requirepass".to_owned(), "a \"b".to_owned()), ("maxclients".to_owned(), "7".to_owned())])
            .unwrap();
        let text = String::from_utf8(config.rewrite(file, &[b"user new on nopass".to_vec()])).unwrap();
        assert!(text.starts_with("# mine\nmaxclients 7\nrdbcompression yes\n# Generated"), "{text}");
        let mut again = Config::default();
        again.load_file(&text).unwrap();
        assert_eq!((again.text("requirepass"), again.number("maxclients")), ("a \"b", 7));
        assert_eq!(again.users, [vec![b"new".to_vec(), b"on".to_vec(), b"nopass".to_vec()]]);
        assert_eq!(again.rewrite(&text, &[b"user new on nopass".to_vec()]), text.as_bytes());
    }

    #[test]
    fn notices_are_shown_in_the_order_of_redis() {
        let mut config = Config::default();
        config.set(&[("notify-keyspace-events".to_owned(), "KEA".to_owned())]).unwrap();
        assert_eq!(config.text("notify-keyspace-events"), "AKE");
        config.set(&[("notify-keyspace-events".to_owned(), "Kl$".to_owned())]).unwrap();
        assert_eq!(config.text("notify-keyspace-events"), "$lK");
    }
}
