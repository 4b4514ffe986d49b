//! Starting a server.

use crate::attached::write_back::WriteBack;
use crate::attached::{Event, Tier};
use crate::config::Config;
use crate::config::files::Files;
use crate::keyspace::Databases;
use crate::net::event_loop::EventLoop;
use crate::net::{sockets, tls};
use crate::server::signals::Signals;
use crate::server::{Core, Server};
use crate::storage::journal::{self, Journal};
use crate::storage::{Storage, StorageError};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use terrace_io::World;

/// A server that listens and is not running yet.
pub struct Listening {
    pub core: Arc<Mutex<Core>>,
    event_loop: EventLoop,
}

/// What is listened on: `addresses`, and with `tls-port` their hosts at that port. With `tls-port` and `port 0` TLS alone is spoken.
fn listeners(
    config: &Config,
    addresses: &[SocketAddr],
    files: Option<&dyn Files>,
) -> std::io::Result<Vec<sockets::Listening>> {
    let plain = |address: &SocketAddr| sockets::Listening { address: *address, tls: None };
    let port = config.number("tls-port") as u16;
    if port == 0 {
        return Ok(addresses.iter().map(plain).collect());
    }
    let no_files = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "tls-port needs files");
    let tls = tls::server_config(config, files.ok_or_else(no_files)?)?;
    let encrypted = addresses.iter().map(|address| sockets::Listening {
        address: SocketAddr::new(address.ip(), port),
        tls: Some(tls.clone()),
    });
    Ok(addresses.iter().filter(|address| address.port() != 0).map(plain).chain(encrypted).collect())
}

/// Opens the listeners of a server whose data is in memory alone, or with a storage tier is durable.
pub fn listen(
    world: World,
    config: Config,
    addresses: &[SocketAddr],
    storage: Option<Arc<dyn Storage>>,
    files: Option<Box<dyn Files>>,
) -> std::io::Result<Listening> {
    let listeners = listeners(&config, addresses, files.as_deref())?;
    let core = Arc::new(Mutex::new(core(world.clone(), config, storage, files)?));
    core.lock().server.saves.attach(&core);
    let event_loop = EventLoop::new(world, core.clone(), listeners)?;
    Ok(Listening { core, event_loop })
}

/// A server without sockets. What the write-back log has and storage has not is in storage when this returns.
pub fn core(
    world: World,
    config: Config,
    storage: Option<Arc<dyn Storage>>,
    files: Option<Box<dyn Files>>,
) -> std::io::Result<Core> {
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
        server.tier = Some(Box::new(attach(&world, storage, dbs.all.len() as u16)?));
        crate::command::functions::take_stored(&mut server)
            .map_err(|why| std::io::Error::new(std::io::ErrorKind::InvalidData, why))?;
    }
    dbs.set_policies(|| server.eviction_policy());
    dbs.record_changes(server.follows_changes());
    if server.tier.is_none() {
        load_snapshot(&mut dbs, &mut server)?;
    }
    Ok(Core { dbs, server })
}

/// Replays the write-back log, if there is a place for one, and attaches storage.
fn attach(world: &World, storage: Arc<dyn Storage>, databases: u16) -> std::io::Result<Tier> {
    let failed = |error: StorageError| std::io::Error::other(error.to_string());
    let last = journal::replay::catch_up(&*storage).map_err(failed)?;
    let mut tier = Tier::new(storage, databases);
    if let Some((disk, last)) = last {
        let mailbox = tier.mailbox.clone();
        let done = Box::new(move |synced| mailbox.send(Event::Synced(synced)));
        let journal = Journal::begin(world, disk, last, done);
        tier.back = Some(WriteBack::new(journal.map_err(|error| failed(error.into()))?, last));
    }
    Ok(tier)
}

/// Loads the snapshot file, if there is one.
fn load_snapshot(dbs: &mut Databases, server: &mut Server) -> std::io::Result<()> {
    let path = crate::server::save::path(server);
    let opened = server.files.as_ref().map(|files| files.open(&path)).transpose()?.flatten();
    let Some((file, length)) = opened else { return Ok(()) };
    let loaded = crate::server::save::load::load(dbs, server, file, length).map_err(|why| {
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
