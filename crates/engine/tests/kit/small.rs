//! An engine with little memory in a directory of its own, which is removed with it.

use std::path::PathBuf;
use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::Parts;
use terrace_engine::config::{Bytes, Config};
use terrace_io::real::{disk::RealDisk, world};

pub struct Rig(PathBuf);

impl Rig {
    pub fn new(name: &str) -> Rig {
        let directory = std::env::temp_dir().join(format!("terrace-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        Rig(directory)
    }
    pub fn open(&self) -> Arc<Engine> {
        let config = Config {
            memory: Bytes(8 << 20),
            log: Bytes(32 << 20),
            object_buffer: Bytes(256 << 20),
            ..Config::default()
        };
        let volume = Arc::new(RealDisk::open(&self.0).unwrap());
        Engine::open(config, Parts { world: world(), volume, flash: None, store: None }).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
