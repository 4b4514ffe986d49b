//! What all clients share besides the data: clients, who waits for which key, counters.

use crate::client::{ClientId, Clients};
use crate::command::table::table;
use crate::keyspace::{Databases, Key};
use crate::value::limits::CollectionLimits;
use std::collections::{HashMap, VecDeque};
use terrace_io::World;

/// Counters of a command.
#[derive(Clone, Copy, Default)]
pub struct CommandStats {
    pub calls: u64,
    pub nanos: u64,
    pub rejected: u64,
    pub failed: u64,
}

#[derive(Default)]
pub struct Stats {
    pub connections: u64,
    pub commands: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    pub rejected_connections: u64,
    pub errors: u64,
}

pub struct Server {
    pub world: World,
    pub clients: Clients,
    pub stats: Stats,
    pub command_stats: Vec<CommandStats>,
    pub started_ms: i64,
    /// When collections leave their compact encodings.
    pub collection_limits: CollectionLimits,
    /// Clients that wait for a key, in the order in which they are served.
    pub waiting: HashMap<(u16, Key), VecDeque<ClientId>>,
    /// Ends the server: set by `SHUTDOWN` and by signals.
    pub is_stopping: bool,
}

impl Server {
    pub fn new(world: World) -> Server {
        let started_ms = world.clock.unix_ms() as i64;
        Server {
            world,
            clients: Clients::default(),
            stats: Stats::default(),
            command_stats: vec![CommandStats::default(); table().all.len()],
            started_ms,
            collection_limits: CollectionLimits::default(),
            waiting: HashMap::new(),
            is_stopping: false,
        }
    }

    /// Longest bulk string of a request and longest string value.
    pub fn bulk_bytes_max(&self) -> usize {
        512 << 20
    }

    /// A sparse HyperLogLog that grows beyond this becomes dense.
    pub fn hll_sparse_bytes_max(&self) -> usize {
        3000
    }

    /// When a node of a stream is full.
    pub fn stream_node_limits(&self) -> crate::value::stream::NodeLimits {
        crate::value::stream::NodeLimits { bytes_max: 4096, entries_max: 100 }
    }

    /// Whether anyone follows the changes of keys.
    pub fn follows_changes(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// Everything that commands work on, under one lock.
pub struct Core {
    pub dbs: Databases,
    pub server: Server,
}
