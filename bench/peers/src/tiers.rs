//! The engine on emulated tiers (profile `cloud`), and with everything on the emulated volume.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_engine::Parts;
use terrace_engine::config::{Bytes, Config};
use terrace_io::disk::Disk;
use terrace_io::emulate::{self, CLOUD};
use terrace_io::object;
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;
use terrace_workload::Terrace;

/// A directory in memory for the objects, where there is such a place: a real store's syncs don't hold up the volume's.
pub fn objects_in_memory() -> Option<PathBuf> {
    let memory = Path::new("/dev/shm");
    memory.is_dir().then(|| memory.join(format!("terrace-bench-{}", std::process::id())))
}

/// Where the objects of the tiered instance in `directory` lie.
fn objects(directory: &Path, percent: u64) -> PathBuf {
    objects_in_memory().unwrap_or_else(|| directory.to_owned()).join(format!("objects-{percent}"))
}

/// Bytes of all its objects, with those that wait to be deleted.
pub fn stored(directory: &Path, percent: u64) -> u64 {
    fn size(path: &Path) -> u64 {
        let Ok(entries) = std::fs::read_dir(path) else { return 0 };
        let of = |entry: std::fs::DirEntry| match entry.metadata() {
            Ok(data) if data.is_dir() => size(&entry.path()),
            Ok(data) => data.len(),
            Err(_) => 0, // deleted meanwhile
        };
        entries.flatten().map(of).sum()
    }
    size(&objects(directory, percent))
}

/// Removes the objects in memory in the end, whatever comes before it.
pub struct Objects;

impl Drop for Objects {
    fn drop(&mut self) {
        let _ = objects_in_memory().map(std::fs::remove_dir_all);
    }
}

/// Sizes of an instance, in bytes.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub data: u64,
    pub memory: u64,
    /// For the tiered instance; an instance without tiers gets three times the data.
    pub object_buffer: u64,
}

/// `flash_percent`: flash in percent of the data; `None`: everything on the volume.
pub fn open(directory: &Path, sizes: Sizes, flash_percent: Option<u64>) -> Terrace {
    let Sizes { data, memory, object_buffer } = sizes;
    let disk = |name: &str, device| {
        let path = directory.join(name);
        std::fs::create_dir_all(&path).expect("the directory is made");
        let real: Arc<dyn Disk> = Arc::new(RealDisk::open(&path).expect("the directory opens"));
        emulate::disk(world(), real, device)
    };
    let volume = disk("volume", CLOUD.volume);
    let config = Config { memory: Bytes(memory), log: Bytes(256 << 20), ..Config::default() };
    let Some(percent) = flash_percent else {
        let config = Config { object_buffer: Bytes(3 * data), ..config };
        let parts = Parts { world: world(), volume, flash: None, store: None };
        return Terrace::on(config, parts).expect("the engine opens");
    };
    let objects = objects(directory, percent).display().to_string();
    let real = object::open(&object::Settings::new(&objects));
    let store = emulate::store(world(), real.expect("the object directory opens"), CLOUD.store);
    let config = Config { object_buffer: Bytes(object_buffer), flash: Bytes(data * percent / 100), ..config };
    let parts = Parts { world: world(), volume, flash: Some(disk("flash", CLOUD.flash)), store: Some(store) };
    Terrace::on(config, parts).expect("the engine opens")
}

pub fn status(store: &Terrace) -> HashMap<String, u64> {
    store.engine.status().into_iter().collect()
}

/// Until what the load must sink has sunk, so that the runs don't pay for it: no block for a second.
pub fn settle(store: &Terrace) {
    let until = Instant::now() + Duration::from_secs(120);
    let (mut sunk, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_secs(1) && Instant::now() < until {
        let now = status(store)["sink_blocks"];
        if now != sunk {
            (sunk, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
