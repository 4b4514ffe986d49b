//! What all clients share besides the data: the list of clients, the clients that wait for a key, counters.

pub mod loops;
pub mod running;
pub mod save;
pub mod signals;

use crate::client::acl::catalogue::Catalogue;
use crate::client::{Blocked, Client, ClientId, Clients};
use crate::config::{Choice, Config, NOTICE_KEYEVENT, NOTICE_KEYSPACE};
use crate::keyspace::{Change, Databases, Key};
use crate::pubsub::{Channels, Kind};
use crate::resp::Reply;
use crate::slowlog::SlowLog;
use crate::tiering::evict::{Policy, by_name};
use crate::value::limits::CollectionLimits;
use hashbrown::HashMap;
use std::collections::{BTreeMap, HashSet, VecDeque};
use terrace_io::World;

/// The version of Redis whose behaviour this is.
pub const REDIS_VERSION: &str = "7.0.15";

/// Keys that a policy of a database is made for: it remembers as many that were evicted.
const REMEMBERED: usize = 1 << 16;

/// Counters of a command.
#[derive(Clone, Copy, Default)]
pub struct CommandStats {
    pub calls: u64,
    pub nanos: u64,
    pub rejected: u64,
    pub failed: u64,
    pub durations: crate::slowlog::latency::Histogram,
}

#[derive(Default)]
pub struct Stats {
    pub connections: u64,
    pub commands: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    pub rejected_connections: u64,
    pub errors: u64,
    /// Keys that eviction has deleted, or with a storage tier taken out of memory.
    pub evicted: u64,
}

pub struct Server {
    pub world: World,
    pub clients: Clients,
    pub stats: Stats,
    pub scripts: crate::script::Scripts,
    pub functions: crate::script::functions::Functions,
    pub command_stats: Vec<CommandStats>,
    pub started_ms: i64,
    /// When collections leave their compact encodings.
    pub collection_limits: CollectionLimits,
    /// Clients that wait for a key, in the order in which they are served.
    pub waiting: HashMap<(u16, Key), VecDeque<ClientId>>,
    /// Clients that watch a key.
    pub watching: HashMap<(u16, Key), Vec<ClientId>>,
    /// Clients one of whose watched keys was changed.
    pub changed_for: HashSet<ClientId>,
    pub channels: Channels,
    pub tracking: crate::client::tracking::Tracking,
    /// Clients that are sent every command.
    pub monitors: Vec<ClientId>,
    pub pause: crate::client::pause::Pause,
    pub acl: crate::client::acl::Acl,
    /// `requirepass` as it was applied to the default user.
    password: String,
    /// The ACL file and the configuration file.
    pub files: Option<Box<dyn crate::config::files::Files>>,
    /// Errors that were replied, by code.
    pub error_stats: BTreeMap<Box<str>, u64>,
    pub config: Config,
    pub slow: SlowLog,
    pub latency: crate::slowlog::latency::Latency,
    /// The storage tier, if data is durable.
    pub tier: Option<Box<crate::attached::Tier>>,
    pub meter: crate::memory::Meter,
    /// Memory is over `maxmemory` and nothing could be evicted before the present command.
    pub is_out_of_memory: bool,
    pub saves: crate::server::save::Saves,
    /// What asks the server to end from outside, if it listens to that.
    pub signals: Option<crate::server::signals::Signals>,
    /// Whether [`Server::log`] writes.
    pub is_logging: bool,
    /// Ends the server: set by `SHUTDOWN`.
    pub is_stopping: bool,
    /// It ends without storing what is not stored yet: a script that changed data was broken off.
    pub stops_hard: bool,
    pub loops: loops::Loops,
    /// The script or function that runs.
    pub running: Option<running::Running>,
    /// The event loop that has the lock.
    pub loop_index: usize,
}

impl Server {
    pub fn new(world: World, catalogue: &'static Catalogue) -> Server {
        let started_ms = world.clock.unix_ms() as i64;
        let mut server = Server {
            world,
            clients: Clients::default(),
            stats: Stats::default(),
            scripts: crate::script::Scripts::default(),
            functions: Default::default(),
            command_stats: vec![CommandStats::default(); catalogue.len()],
            started_ms,
            collection_limits: CollectionLimits::default(),
            waiting: HashMap::new(),
            watching: HashMap::new(),
            changed_for: HashSet::new(),
            channels: Channels::default(),
            tracking: Default::default(),
            monitors: Vec::new(),
            pause: Default::default(),
            acl: crate::client::acl::Acl::new(catalogue),
            password: String::new(),
            files: None,
            error_stats: BTreeMap::new(),
            config: Config::default(),
            slow: SlowLog::default(),
            latency: crate::slowlog::latency::Latency::default(),
            tier: None,
            meter: crate::memory::Meter::default(),
            is_out_of_memory: false,
            saves: crate::server::save::Saves::new(started_ms),
            signals: None,
            is_logging: false,
            is_stopping: false,
            stops_hard: false,
            loops: loops::Loops::default(),
            running: None,
            loop_index: 0,
        };
        server.apply_config();
        server
    }

    /// A line of the log: standard error.
    pub fn log(&self, text: &str) {
        if self.is_logging {
            eprintln!("terrace kv: {text}");
        }
    }

    /// What marks the keys of a database for eviction by the settings; `None`: the seconds of the last access.
    pub fn eviction_policy(&self) -> Option<Box<dyn Policy>> {
        if self.config.limits.memory_bytes_max == 0 {
            return None;
        }
        match (self.config.limits.eviction.choice, self.tier.is_some()) {
            (Choice::Lfu, _) => by_name("lfu", REMEMBERED),
            (Choice::Lru, true) => by_name("lru", REMEMBERED),
            (_, true) => by_name("s3-fifo", REMEMBERED),
            _ => None,
        }
    }

    /// Whether commands that write are refused, as the last save failed and data is in memory alone.
    pub fn refuses_writes(&self) -> bool {
        !self.saves.is_last_good
            && self.tier.is_none()
            && !self.config.save_points.is_empty()
            && self.config.is_on("stop-writes-on-bgsave-error")
    }

    pub fn is_authenticated(&self, client: &Client) -> bool {
        client.is_authenticated || self.acl.is_open()
    }

    /// Longest bulk string of a request and longest string value.
    pub fn bulk_bytes_max(&self) -> usize {
        self.config.limits.bulk_bytes_max
    }

    /// A sparse HyperLogLog that grows beyond this becomes dense.
    pub fn hll_sparse_bytes_max(&self) -> usize {
        self.config.size("hll-sparse-max-bytes")
    }

    /// When a node of a stream is full.
    pub fn stream_node_limits(&self) -> crate::value::stream::NodeLimits {
        crate::value::stream::NodeLimits {
            bytes_max: self.config.size("stream-node-max-bytes"),
            entries_max: self.config.size("stream-node-max-entries"),
        }
    }

    /// Takes over settings that are kept elsewhere too. Call it after each change of the configuration.
    pub fn apply_config(&mut self) {
        let password = self.config.text("requirepass");
        if self.password != password {
            self.password = password.to_owned();
            self.acl.set_default_password(self.password.as_bytes());
        }
        let size = |name: &str| self.config.size(name);
        self.collection_limits = CollectionLimits {
            hash_max_listpack_entries: size("hash-max-listpack-entries"),
            hash_max_listpack_value: size("hash-max-listpack-value"),
            set_max_intset_entries: size("set-max-intset-entries"),
            set_max_listpack_entries: size("set-max-listpack-entries"),
            set_max_listpack_value: size("set-max-listpack-value"),
            zset_max_listpack_entries: size("zset-max-listpack-entries"),
            zset_max_listpack_value: size("zset-max-listpack-value"),
            list_max_listpack_size: self.config.number("list-max-listpack-size"),
        };
    }

    /// Whether anyone follows the changes of keys.
    pub fn follows_changes(&self) -> bool {
        self.tier.is_some()
            || !self.waiting.is_empty()
            || !self.watching.is_empty()
            || !self.tracking.is_empty()
            || self.config.limits.notices != 0
    }

    /// Forgets the keys that a client watches.
    pub fn unwatch(&mut self, client: &mut Client) {
        for watched in client.watched.drain(..) {
            let place = (watched.db, watched.key);
            if let Some(ids) = self.watching.get_mut(&place) {
                ids.retain(|&id| id != client.id);
                if ids.is_empty() {
                    self.watching.remove(&place);
                }
            }
        }
        self.changed_for.remove(&client.id);
    }

    /// Tells the clients that watch a key that it was changed.
    pub fn touch_watched(&mut self, db: u16, key: &Key) {
        if !self.watching.is_empty()
            && let Some(ids) = self.watching.get(&(db, key.clone()))
        {
            self.changed_for.extend(ids);
        }
    }

    /// Before all keys of a database are deleted or exchanged with those of `other`: tells the clients that watch a key which is in one of both.
    /// Memory does not tell whether a key of `other` is in storage: it counts as being there.
    pub fn touch_all_watched(&mut self, dbs: &mut Databases, db: u16, other: Option<u16>) {
        let may_be_stored = self.tier.is_some() && other.is_some();
        for ((watched_db, key), ids) in &self.watching {
            let is_there = |dbs: &mut Databases, db: u16| dbs.get(db).is_some_and(|db| db.contains(key));
            if *watched_db == db
                && (may_be_stored || is_there(dbs, db) || other.is_some_and(|other| is_there(dbs, other)))
            {
                self.changed_for.extend(ids);
            }
        }
    }

    /// Publishes the notices of a change that `notify-keyspace-events` asks for.
    pub fn publish_notice(&mut self, mut current: Option<(ClientId, &mut Reply)>, db: u16, change: &Change) {
        let wanted = self.config.limits.notices;
        if wanted & change.class as u32 == 0 || self.channels.is_empty() {
            return;
        }
        let mut send = |channel: &[u8], message: &[u8]| {
            let current = current.as_mut().map(|(id, reply)| (*id, &mut **reply));
            self.channels.publish(&mut self.clients, current, false, channel, message);
        };
        if wanted & NOTICE_KEYSPACE != 0 {
            let channel = [format!("__keyspace@{db}__:").as_bytes(), &change.key].concat();
            send(&channel, change.event.as_bytes());
        }
        if wanted & NOTICE_KEYEVENT != 0 {
            send(format!("__keyevent@{db}__:{}", change.event).as_bytes(), &change.key);
        }
    }

    /// Takes over the users of the configuration: those of the ACL file, or the `user` lines.
    pub fn take_users(&mut self) -> std::io::Result<()> {
        let invalid = |why: String| std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
        let all_channels = self.config.text("acl-pubsub-default") == "allchannels";
        let path = self.config.text("aclfile");
        let mut users = Vec::new();
        if let Some(files) = self.files.as_ref().filter(|_| !path.is_empty()) {
            if !self.config.users.is_empty() {
                return Err(invalid(
                    "users are in the configuration file and in aclfile: only one can have them".into(),
                ));
            }
            let text = files.read(path).map_err(|error| invalid(format!("aclfile {path}: {error}")))?;
            users = crate::client::acl::lines::file(path, &text, all_channels, self.acl.catalogue)
                .map_err(invalid)?;
        }
        for words in &self.config.users {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let user =
                crate::client::acl::lines::user(&words, all_channels, self.acl.catalogue).map_err(invalid)?;
            if users.iter().any(|known| known.name == user.name) {
                return Err(invalid(
                    "Duplicate user found. A user can only be defined once in config files".into(),
                ));
            }
            users.push(user);
        }
        if !users.is_empty() {
            self.acl.replace(users);
        }
        Ok(())
    }

    /// Counts an error that is replied.
    pub fn count_error(&mut self, text: &str) {
        const CODES_MAX: usize = 128;
        self.stats.errors += 1;
        let code = text.split(' ').next().unwrap_or("");
        if let Some(count) = self.error_stats.get_mut(code) {
            *count += 1;
        } else if self.error_stats.len() < CODES_MAX {
            self.error_stats.insert(code.into(), 1);
        }
    }

    /// Closes the connections of clients that have not sent anything for longer than `timeout` says.
    pub fn close_idle(&mut self, now_ms: i64) {
        let idle_ms_max = self.config.limits.idle_seconds_max.saturating_mul(1000);
        if idle_ms_max == 0 {
            return;
        }
        let is_idle = |client: &&Client| {
            let waits = client.blocked.is_some() || client.parked.is_some();
            let waits = waits || client.is_delayed || client.holds_output();
            let is_sent_to = client.subscribed_at_all() || client.is_monitor;
            !waits && !is_sent_to && now_ms - client.last_command_ms > idle_ms_max
        };
        let idle: Vec<ClientId> = self.clients.iter().filter(is_idle).map(|client| client.id).collect();
        for id in idle {
            if let Some(client) = self.clients.get_mut(id) {
                client.closes = true;
                self.clients.touched.push(id);
            }
        }
    }

    pub fn unsubscribe_all(&mut self, client: &mut Client) {
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for name in client.subscriptions[kind as usize].drain(..) {
                self.channels.remove(kind, &name, client.id);
            }
        }
    }

    /// Takes a client that waits out of the queues of its keys.
    pub fn unblock(&mut self, client: &mut Client) -> Option<Blocked> {
        let blocked = client.blocked.take()?;
        if let Some(tier) = &mut self.tier {
            tier.unpin(&blocked.pinned);
        }
        for key in &blocked.keys {
            let place = (blocked.db, key.clone());
            if let Some(queue) = self.waiting.get_mut(&place) {
                queue.retain(|&id| id != client.id);
                if queue.is_empty() {
                    self.waiting.remove(&place);
                }
            }
        }
        Some(blocked)
    }
}

/// Everything that commands work on, under one lock.
pub struct Core {
    pub dbs: Databases,
    pub server: Server,
}
