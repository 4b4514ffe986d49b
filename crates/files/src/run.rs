//! Starting the daemon, and stopping it.

use crate::catalogue::{Catalogue, Settings};
use crate::config::{self, Config, cache_bytes, pending_bytes};
use crate::flash::{Flash, Packing};
use crate::groups::Groups;
use crate::memory::arena::Arena;
use crate::objects::spill::ObjectBytes;
use crate::objects::{self, Objects};
use crate::peers::{Node, Peers};
use crate::pins::{self, Pins};
use crate::read::Files;
use crate::read::split::BlockSplit;
use crate::session::EventLoop;
use crate::stores::{self, Store};
pub use crate::unix::stop_on_signals;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::disk::Disk;
use terrace_io::object::passage::{self, Passage};
use terrace_io::sched::WorkerHandle;
use terrace_io::store::ObjectStore;

/// At the end, blocks in memory are copied to flash for at most this long, in nanoseconds.
const SAVE_TIME: Nanos = 10_000_000_000;

/// A daemon that listens and is not running yet.
pub struct Daemon {
    pub files: Arc<Files>,
    event_loop: EventLoop,
    workers: Vec<Box<dyn WorkerHandle>>,
    pub socket: PathBuf,
}

/// Opens the store that the configuration names.
pub fn open_store(config: &Config) -> Result<Arc<dyn ObjectStore>, String> {
    terrace_io::object::open(&settings(config)).map_err(|error| error.to_string())
}

/// Opens the way on which requests of the S3 protocol go to the store.
pub fn open_passage(config: &Config) -> Result<Passage, String> {
    if !config.store.starts_with("s3://") {
        return Err(format!("{}: the S3 endpoint needs a bucket of S3, s3://NAME", config.store));
    }
    passage::open(&settings(config)).map_err(|error| error.to_string())
}

fn settings(config: &Config) -> terrace_io::object::Settings {
    let mut settings = terrace_io::object::Settings::new(&config.store);
    settings.endpoint = config.endpoint.clone();
    stores::patience(&mut settings, config.requests);
    settings
}

/// Files that wait for their commit are of one store, and must not be committed to another.
fn place_of(store: &str) -> u64 {
    twox_hash::XxHash3_64::oneshot(store.as_bytes())
}

impl Daemon {
    /// Takes the socket, the memory and the flash, and starts the workers. Asks the store nothing.
    pub fn start(world: World, config: &Config, store: Arc<dyn ObjectStore>) -> Result<Daemon, String> {
        Daemon::start_on(world, config, store, None)
    }

    /// As `start`, with a disk for the cache on flash in place of the directory's: measurements emulate it.
    pub fn start_on(
        world: World,
        config: &Config,
        store: Arc<dyn ObjectStore>,
        disk: Option<&dyn Disk>,
    ) -> Result<Daemon, String> {
        let shares = config.shares()?;
        let arena = Arena::new(shares.arena, shares.index)
            .map_err(|error| format!("{} bytes of memory: {error}", shares.arena))?;
        let store = Arc::new(Store::new(store, world.clone(), config.requests_per_second)?);
        let flash = match &config.flash {
            Some((directory, bytes)) => {
                let packing = shares.packing.map(|packing| Packing { shares: packing, arena: shares.arena });
                let bytes = cache_bytes(*bytes);
                let (memory, name) = (config.memory, store.name());
                Some(match disk {
                    Some(disk) => Flash::open_on(disk, &world, bytes, memory, &name, packing)?,
                    None => Flash::open(&world, directory, bytes, memory, &name, packing)?,
                })
            }
            None => None,
        };
        let groups = match &config.flash {
            Some((directory, bytes)) => {
                let directory = directory.join(format!("pending-{:016x}", place_of(&store.name())));
                Groups::open(&directory, pending_bytes(*bytes), config.orphan_time, world.clock.now())
            }
            None => Groups::none(),
        };
        let directory = config.flash.as_ref().map(|(directory, _)| directory.join("objects"));
        let object_bytes = ObjectBytes::open(shares.objects, directory.as_deref())?;
        let flash_bytes = config.flash.as_ref().map_or(0, |(_, bytes)| config::object_bytes(*bytes));
        let objects = Objects::new(objects::Settings {
            memory_bytes: shares.objects,
            flash_bytes: if object_bytes.has_flash() { flash_bytes } else { 0 },
        });
        let objects = (objects, object_bytes);
        let limits = pins::Limits { bytes: shares.arena / 2, files: shares.files / 2 };
        let place = config
            .flash
            .as_ref()
            .map(|(directory, _)| directory.join(format!("pins-{:016x}", place_of(&store.name()))));
        let pins = Pins::open(place.as_deref(), limits)?;
        let mut catalogue = Catalogue::new(Settings {
            freshness: config.freshness,
            arena_bytes: shares.arena,
            files_max: shares.files,
            waiting_max: shares.files,
            read_bytes_max: (shares.arena / 4).max(crate::catalogue::BLOCK_BYTES),
            saves: flash.is_some(),
        });
        let arena = Arc::new(arena);
        let seed = world.random.next_u64();
        let epoch = crate::unix::monotonic().saturating_sub(world.clock.now());
        // Both who have the index are parts of `Files`, as the arena is, and end with it.
        let index = arena.index(seed, epoch);
        catalogue.publish_in(index.clone());
        let split = BlockSplit::new(config.store_weight, config.flash_timeout);
        let files = Files::new(
            world.clone(),
            store.clone(),
            flash,
            arena,
            catalogue,
            shares.bodies,
            index,
            groups,
            objects,
            pins,
            split,
            config.freshness,
        );
        let files = Arc::new(files);
        let peers = config.peers.clone().map(|settings| {
            let peers = Peers::new(world, settings, &store.name(), shares.arena, shares.peers);
            let peers = Arc::new(peers);
            files.join(peers.clone());
            peers
        });
        let event_loop = EventLoop::new(files.clone(), &config.socket, config.clients)
            .map_err(|error| format!("{}: {error}", config.socket.display()))?;
        let workers =
            files.spawn(config.requests.max(1)).map_err(|error| format!("no thread can be had: {error}"))?;
        if let Some(peers) = peers {
            let node: Arc<dyn Node> = files.clone();
            peers.start(Arc::downgrade(&node))?;
        }
        Ok(Daemon { files, event_loop, workers, socket: config.socket.clone() })
    }

    /// Serves clients until `stop` is set, then keeps what is in memory on flash.
    pub fn run(self, stop: &AtomicBool) -> Result<(), String> {
        let Daemon { files, event_loop, workers, .. } = self;
        let result = event_loop.run(stop);
        files.stop();
        if let Some(peers) = files.peers() {
            peers.stop();
        }
        workers.iter().for_each(|worker| worker.ask_to_stop());
        drop(workers);
        let released = files.pins.release_all();
        files.tell(|catalogue, _| released.into_iter().for_each(|block| catalogue.release(block)));
        save(&files);
        result.map_err(|error| error.to_string())
    }
}

/// Copies blocks to flash, which admits them as it does when they are evicted.
fn save(files: &Files) {
    let Some(flash) = &files.flash else { return };
    let until = files.world.clock.now() + SAVE_TIME;
    let victims = files.tell(|catalogue, _| catalogue.all_idle());
    let _ = victims.iter().all(|victim| files.save(flash, victim, until));
    flash.pack_all(until);
}
