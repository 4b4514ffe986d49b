//! A daemon in the test's own process, over a directory whose requests are counted and can be made to fail.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use terrace_files::client::Client;
use terrace_files::config::Config;
use terrace_files::run::{self, Daemon};
use terrace_io::store::{
    Bytes, Listed, ObjectStore, Purpose, Result, Start, StoreError, Upload, UploadPart, Version,
};

/// Nothing takes as long but what hangs, in nanoseconds.
pub const HANG: u64 = 60_000_000_000;

pub struct Rigged {
    inner: Arc<dyn ObjectStore>,
    pub gets: AtomicU64,
    pub heads: AtomicU64,
    pub parts: AtomicU64,
    pub is_down: AtomicBool,
    /// Writes of this key fail, and reads do not.
    pub refused: std::sync::Mutex<String>,
    /// Milliseconds that a GET takes.
    pub delay_ms: AtomicU64,
}

impl Rigged {
    pub fn over(config: &Config) -> Arc<Rigged> {
        let count = AtomicU64::default;
        Arc::new(Rigged {
            inner: run::open_store(config).unwrap(),
            gets: count(),
            heads: count(),
            parts: count(),
            is_down: AtomicBool::new(false),
            delay_ms: count(),
            refused: Default::default(),
        })
    }
    fn ask(&self, key: &str, counter: &AtomicU64) -> Result<()> {
        counter.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(self.delay_ms.load(Ordering::SeqCst)));
        self.check(key)
    }
    fn may_write(&self, key: &str) -> Result<()> {
        match *self.refused.lock().unwrap() == key {
            true => Err(StoreError::Refused { key: key.into(), cause: "it is not yours".into() }),
            false => Ok(()),
        }
    }
    fn check(&self, key: &str) -> Result<()> {
        match self.is_down.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable { key: key.into(), cause: "the cable is cut".into() }),
            false => Ok(()),
        }
    }
}

impl ObjectStore for Rigged {
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn put_if_absent(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        self.check(key)?;
        self.may_write(key)?;
        self.inner.put_if_absent(purpose, key, parts)
    }
    fn put_if_match(&self, purpose: Purpose, key: &str, body: &[u8], expected: &Version) -> Result<Version> {
        self.check(key)?;
        self.inner.put_if_match(purpose, key, body, expected)
    }
    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.ask(key, &self.gets)?;
        self.inner.get_range(purpose, key, offset, buf)
    }
    fn get(&self, purpose: Purpose, key: &str) -> Result<(Vec<u8>, Version)> {
        self.ask(key, &self.gets)?;
        self.inner.get(purpose, key)
    }
    fn head(&self, purpose: Purpose, key: &str) -> Result<(u64, Version)> {
        self.ask(key, &self.heads)?;
        self.inner.head(purpose, key)
    }
    fn get_range_of(
        &self,
        purpose: Purpose,
        key: &str,
        offset: u64,
        buf: &mut [u8],
        expected: &Version,
    ) -> Result<()> {
        self.ask(key, &self.gets)?;
        self.inner.get_range_of(purpose, key, offset, buf, expected)
    }
    fn get_start(&self, purpose: Purpose, key: &str, max: usize) -> Result<Start> {
        self.ask(key, &self.gets)?;
        self.inner.get_start(purpose, key, max)
    }
    fn replace(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        self.check(key)?;
        self.may_write(key)?;
        self.inner.replace(purpose, key, parts)
    }
    fn begin_upload(&self, purpose: Purpose, key: &str) -> Result<Upload> {
        self.check(key)?;
        self.inner.begin_upload(purpose, key)
    }
    fn put_part(
        &self,
        purpose: Purpose,
        upload: &Upload,
        number: u32,
        offset: u64,
        body: &Bytes,
    ) -> Result<UploadPart> {
        self.ask(&upload.key, &self.parts)?;
        self.inner.put_part(purpose, upload, number, offset, body)
    }
    fn complete_upload(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        self.may_write(&upload.key)?;
        self.inner.complete_upload(purpose, upload, parts)
    }
    fn complete_replacing(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        self.check(&upload.key)?;
        self.may_write(&upload.key)?;
        self.inner.complete_replacing(purpose, upload, parts)
    }
    fn abort_upload(&self, purpose: Purpose, upload: &Upload) -> Result<()> {
        self.inner.abort_upload(purpose, upload)
    }
    fn parallel_max(&self) -> usize {
        self.inner.parallel_max()
    }
    fn delete(&self, purpose: Purpose, key: &str) -> Result<()> {
        self.check(key)?;
        self.inner.delete(purpose, key)
    }
    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()> {
        self.check(prefix)?;
        self.inner.list(purpose, prefix, each)
    }
    fn list_folder(&self, purpose: Purpose, folder: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        self.check(folder)?;
        self.inner.list_folder(purpose, folder, each)
    }
}

pub struct Rig {
    pub store: Arc<Rigged>,
    pub config: Config,
    pub scratch: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    running: Option<JoinHandle<std::result::Result<(), String>>>,
}

impl Rig {
    pub fn start(change: impl FnOnce(&mut Config, &Path)) -> Rig {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("store");
        let mut config = Config::new(directory.to_str().unwrap(), 256 << 20);
        config.socket = scratch.path().join("socket");
        config.requests = 24;
        // Tests count requests: on a busy machine the store is not to be asked as flash is late.
        config.flash_timeout = HANG;
        change(&mut config, scratch.path());
        let store = Rigged::over(&config);
        let mut rig = Rig { store, config, scratch, stop: Arc::default(), running: None };
        rig.run();
        rig
    }

    fn run(&mut self) {
        self.stop = Arc::default();
        let daemon = Daemon::start(terrace_io::real::world(), &self.config, self.store.clone()).unwrap();
        let stop = self.stop.clone();
        self.running = Some(std::thread::spawn(move || daemon.run(&stop)));
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(running) = self.running.take() {
            running.join().unwrap().unwrap();
        }
    }

    pub fn restart(&mut self) {
        self.end();
        self.run();
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.config.socket, "").unwrap()
    }

    /// Writes a file behind the daemon's back, whole and at once.
    pub fn put(&self, path: &str, body: &[u8]) {
        let file: PathBuf = self.scratch.path().join("store").join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let staged = self.scratch.path().join("staged");
        std::fs::write(&staged, body).unwrap();
        std::fs::rename(staged, file).unwrap();
    }

    pub fn gets(&self) -> u64 {
        self.store.gets.load(Ordering::SeqCst)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// Bytes that differ from file to file and from place to place.
pub fn body(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| ((i ^ (i >> 8)).wrapping_mul(31).wrapping_add(seed.wrapping_mul(7919))) as u8)
        .collect()
}

/// A number of the daemon's status.
pub fn figure(client: &Client, name: &str) -> u64 {
    let status = client.status().unwrap();
    let (_, rest) =
        status.split_once(&format!("\"{name}\": ")).unwrap_or_else(|| panic!("no {name} in {status}"));
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}
