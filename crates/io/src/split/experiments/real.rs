//! The same on real devices: files in two directories, or a file in a directory and a block server over TCP with a shaped link.
//!
//! Threads read random blocks through a [`Blocks`] cache, one request in flight each; every block that is read is checked. The oracle of a
//! cell is the best of the static ratios that were tried on the same devices in the same run.

use crate::AlignedBuf;
use crate::clock::Nanos;
use crate::disk::{Class, Disk, File};
use crate::real;
use crate::split::reader::{Blocks, Local, Source};
use crate::split::remote::{Remote, Server, Shape};
use crate::split::router::{Device, DeviceStatus, Router, Settings};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Where the bytes are, besides the cache's directory.
pub enum Backend {
    /// Another directory.
    Directory(std::path::PathBuf),
    /// A server in this process: bytes a second, and nanoseconds of latency.
    Server { bandwidth: u64, latency: Nanos },
}

/// Devices with the same blocks, made for one run.
pub struct DevicePair {
    cache: Arc<dyn File>,
    backend: Arc<dyn File>,
    server: Option<Server>,
    block: u32,
    blocks: u64,
}

const FILE: &str = "split.blocks";

fn file(directory: &Path, bytes: u64) -> Result<Arc<dyn File>, String> {
    let text = |error: crate::disk::DiskError| error.to_string();
    let disk = real::disk::RealDisk::open(directory).map_err(text)?;
    let file = disk.create(FILE).map_err(text)?;
    file.grow(bytes, true).map_err(text)?;
    Ok(file)
}

impl DevicePair {
    /// `blocks` blocks of `block` bytes of zeros on both devices. The directories are empty, and stay the caller's.
    pub fn new(cache: &Path, backend: &Backend, block: u32, blocks: u64) -> Result<DevicePair, String> {
        let bytes = blocks * u64::from(block);
        let near = file(cache, bytes)?;
        let (far, server) = match backend {
            Backend::Directory(directory) => (file(directory, bytes)?, None),
            Backend::Server { bandwidth, latency } => {
                let disk = real::disk::RealDisk::open(cache).map_err(|error| error.to_string())?;
                let far = disk.create("split.remote").map_err(|error| error.to_string())?;
                far.grow(bytes, true).map_err(|error| error.to_string())?;
                let shape = Arc::new(Shape::default());
                shape.bandwidth.store(*bandwidth, Relaxed);
                shape.latency.store(*latency, Relaxed);
                let server = Server::start(far.clone(), shape).map_err(|error| error.to_string())?;
                (far, Some(server))
            }
        };
        let place = DevicePair { cache: near, backend: far, server, block, blocks };
        place.fill()?;
        Ok(place)
    }

    /// The server's shape, if there is a server.
    pub fn shape(&self) -> Option<&Shape> {
        self.server.as_ref().map(Server::shape)
    }

    /// Writes a number into each block, so that a wrong block is noticed.
    fn fill(&self) -> Result<(), String> {
        let mut bytes = AlignedBuf::zeroed(self.block as usize);
        for block in 0..self.blocks {
            bytes[..8].copy_from_slice(&block.to_le_bytes());
            for file in [&self.cache, &self.backend] {
                file.write(Class::PageFlush, block * u64::from(self.block), &bytes)
                    .map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    /// Reads random blocks with `threads` threads for `length`.
    pub fn run(&self, settings: Settings, threads: u32, length: Duration) -> Result<Ran, String> {
        let far: Arc<dyn Source> = match &self.server {
            Some(server) => {
                let remote = Remote::connect(server.address(), self.backend.clone());
                Arc::new(remote.map_err(|error| error.to_string())?)
            }
            None => Arc::new(Local(self.backend.clone())),
        };
        let sources: Vec<Arc<dyn Source>> = vec![Arc::new(Local(self.cache.clone())), far];
        let router =
            Router::new(vec![Device::new("cache"), Device::new("backend")], Settings { threads, ..settings });
        // Any tag is taken: the number in the block is what is compared.
        let clock = Arc::new(real::RealClock::new());
        let blocks = Blocks::new(router, sources, self.blocks, self.block, |_| 0, clock);
        let (stop, done, wrong) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let started = Instant::now();
        let mut warm = (0, started.elapsed());
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (blocks, stop, done, wrong) = (&blocks, &stop, &done, &wrong);
                scope.spawn(move || {
                    let mut buf = AlignedBuf::zeroed(self.block as usize);
                    let mut at = u64::from(thread) * 7919;
                    while !stop.load(Relaxed) {
                        at = (at * 25_214_903_917 + 11) % self.blocks;
                        let is_right = blocks.read(thread as usize, at, &mut buf).is_ok()
                            && buf[..8] == at.to_le_bytes();
                        done.fetch_add(1, Relaxed);
                        wrong.fetch_add(u64::from(!is_right), Relaxed);
                    }
                });
            }
            // The first third is for the policy to settle.
            std::thread::sleep(length / 3);
            warm = (done.load(Relaxed), started.elapsed());
            std::thread::sleep(length - length / 3);
            stop.store(true, Relaxed);
        });
        let (all, elapsed) = (done.load(Relaxed), started.elapsed());
        if wrong.load(Relaxed) > 0 {
            return Err(format!("{} of {all} reads failed or gave another block", wrong.load(Relaxed)));
        }
        let rate = (all - warm.0) as f64 / (elapsed - warm.1).as_secs_f64();
        Ok(Ran { rate, devices: blocks.router().status().devices })
    }
}

pub struct Ran {
    /// Requests a second, of the last two thirds.
    pub rate: f64,
    pub devices: Vec<DeviceStatus>,
}
