//! Starting a server.

use crate::attached::Tier;
use crate::config::Config;
use crate::config::files::Files;
use crate::keyspace::Databases;
use crate::net::event_loop::EventLoop;
use crate::server::{Core, Server};
use crate::signals::Signals;
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
        crate::command::functions::take_stored(&mut server)
            .map_err(|why| std::io::Error::new(std::io::ErrorKind::InvalidData, why))?;
    }
    dbs.set_policies(|| server.eviction_policy());
    dbs.record_changes(server.follows_changes());
    if server.tier.is_none() {
        load_snapshot(&mut dbs, &mut server)?;
    }
    let core = Arc::new(Mutex::new(Core { dbs, server }));
    core.lock().server.saves.attach(&core);
    let event_loop = EventLoop::new(world, core.clone(), addresses)?;
    Ok(Listening { core, event_loop })
}

/// Loads the snapshot file, if there is one.
fn load_snapshot(dbs: &mut Databases, server: &mut Server) -> std::io::Result<()> {
    let path = crate::save::path(server);
    let opened = server.files.as_ref().map(|files| files.open(&path)).transpose()?.flatten();
    let Some((file, length)) = opened else { return Ok(()) };
    let loaded = crate::save::load::load(dbs, server, file, length).map_err(|why| {
        std::io::Error::new(std::io::ErrorKind::InvalidData, format!("{path} cannot be loaded: {why}"))
    })?;
    server.saves.loaded = loaded;
    Ok(())
}

impl Listening {
    /// Lets signals end the server in order, and writes a log on standard error.
    pub fn obey(&self, signals: Signals) {
        let mut core = self.core.lock();
        core.server.signals = Some(signals);
        core.server.is_logging = true;
        let loaded = core.server.saves.loaded;
        if loaded != Default::default() {
            core.server
                .log(&format!("loaded {} keys of a snapshot; {} had expired", loaded.keys, loaded.expired));
        }
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.event_loop.addresses()
    }

    /// Serves clients until the server is told to stop.
    pub fn run(mut self) -> std::io::Result<()> {
        self.event_loop.run()
    }
}
