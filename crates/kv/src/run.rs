//! Starting a server.

use crate::attached::Tier;
use crate::config::Config;
use crate::config::files::Files;
use crate::keyspace::Databases;
use crate::net::event_loop::EventLoop;
use crate::server::{Core, Server};
use crate::storage::Storage;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use terrace_io::World;

/// A server that listens and is not running yet.
pub struct Listening {
    pub core: Arc<Mutex<Core>>,
    event_loop: EventLoop,
}

/// Opens the listeners of a server whose data is in memory alone, or with a storage tier is durable.
pub fn listen(
    world: World,
    config: Config,
    addresses: &[SocketAddr],
    storage: Option<Arc<dyn Storage>>,
    files: Option<Box<dyn Files>>,
) -> std::io::Result<Listening> {
    let seed = (world.random.next_u64(), world.random.next_u64());
    let mut dbs = Databases::new(config.number("databases") as u16, seed);
    dbs.set_now(world.clock.unix_ms() as i64);
    let mut server = Server::new(world.clone(), crate::command::rights::catalogue());
    server.config = config;
    server.files = files;
    server.take_users()?;
    server.apply_config();
    if let Some(storage) = storage {
        dbs.all.iter_mut().for_each(|db| db.has_storage = true);
        server.tier = Some(Box::new(Tier::new(storage, dbs.all.len() as u16)));
    }
    dbs.set_policies(|| server.eviction_policy());
    dbs.record_changes(server.follows_changes());
    let core = Arc::new(Mutex::new(Core { dbs, server }));
    let event_loop = EventLoop::new(world, core.clone(), addresses)?;
    Ok(Listening { core, event_loop })
}

impl Listening {
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.event_loop.addresses()
    }

    /// Serves clients until the server is told to stop.
    pub fn run(mut self) -> std::io::Result<()> {
        self.event_loop.run()
    }
}
