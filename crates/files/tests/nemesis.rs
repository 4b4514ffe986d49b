//! The daemon over a store that is slow, loses replies, refuses for a while, throttles and fails, while clients read, write, and die in the middle of either.
//!
//! Each file has one writer, which knows what it may be: what it wrote last, or what a write without an answer may have left. A read gives one of these,
//! whole, or an error. When the store is well again everything is as written, and nothing of the dead is left. SEED repeats a run.

mod rig;

use rig::{body, figure};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terrace_files::catalogue::{Fault, Freshness};
use terrace_files::client::{Client, Error};
use terrace_files::config::Config;
use terrace_files::run::{self, Daemon};
use terrace_io::store::{
    Bytes, Listed, ObjectStore, Purpose, Result, Start, StoreError, Upload, UploadPart, Version,
};

const FILES: u64 = 24;
const SECONDS: u64 = 6;

struct Nemesis {
    inner: Arc<dyn ObjectStore>,
    state: AtomicU64,
    is_on: AtomicBool,
    faults: AtomicU64,
}

impl Nemesis {
    fn chance(&self) -> u64 {
        // splitmix64: each request takes the next number.
        let mut z = self.state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Makes the request, or not, and passes its answer on, or not.
    fn with<T>(&self, key: &str, request: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.is_on.load(Ordering::SeqCst) {
            return request();
        }
        let chance = self.chance();
        std::thread::sleep(Duration::from_micros(chance >> 20 & 0x1FFF));
        let (key, cause) = (key.to_string(), "the nemesis".to_string());
        let error = match chance % 100 {
            0..8 => StoreError::Unavailable { key, cause },
            8..12 => StoreError::Throttled { key, retry_after_ms: 1 },
            12..14 => StoreError::Refused { key, cause },
            14..22 => {
                // It has taken effect, and the daemon is not told.
                let _ = request();
                StoreError::Unknown { key, cause }
            }
            22..24 => {
                std::thread::sleep(Duration::from_millis(200));
                return request();
            }
            _ => return request(),
        };
        self.faults.fetch_add(1, Ordering::SeqCst);
        Err(error)
    }
}

impl ObjectStore for Nemesis {
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn put_if_absent(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        self.with(key, || self.inner.put_if_absent(purpose, key, parts))
    }
    fn put_if_match(&self, purpose: Purpose, key: &str, body: &[u8], expected: &Version) -> Result<Version> {
        self.with(key, || self.inner.put_if_match(purpose, key, body, expected))
    }
    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.with(key, || self.inner.get_range(purpose, key, offset, buf))
    }
    fn get(&self, purpose: Purpose, key: &str) -> Result<(Vec<u8>, Version)> {
        self.with(key, || self.inner.get(purpose, key))
    }
    fn head(&self, purpose: Purpose, key: &str) -> Result<(u64, Version)> {
        self.with(key, || self.inner.head(purpose, key))
    }
    fn get_range_of(
        &self,
        purpose: Purpose,
        key: &str,
        offset: u64,
        buf: &mut [u8],
        expected: &Version,
    ) -> Result<()> {
        self.with(key, || self.inner.get_range_of(purpose, key, offset, buf, expected))
    }
    fn get_start(&self, purpose: Purpose, key: &str, max: usize) -> Result<Start> {
        self.with(key, || self.inner.get_start(purpose, key, max))
    }
    fn replace(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        self.with(key, || self.inner.replace(purpose, key, parts))
    }
    fn begin_upload(&self, purpose: Purpose, key: &str) -> Result<Upload> {
        self.with(key, || self.inner.begin_upload(purpose, key))
    }
    fn put_part(
        &self,
        purpose: Purpose,
        upload: &Upload,
        number: u32,
        offset: u64,
        body: &Bytes,
    ) -> Result<UploadPart> {
        self.with(&upload.key, || self.inner.put_part(purpose, upload, number, offset, body))
    }
    fn complete_upload(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        self.with(&upload.key, || self.inner.complete_upload(purpose, upload, parts))
    }
    fn complete_replacing(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        self.with(&upload.key, || self.inner.complete_replacing(purpose, upload, parts))
    }
    fn abort_upload(&self, purpose: Purpose, upload: &Upload) -> Result<()> {
        self.inner.abort_upload(purpose, upload)
    }
    fn parallel_max(&self) -> usize {
        self.inner.parallel_max()
    }
    fn delete(&self, purpose: Purpose, key: &str) -> Result<()> {
        self.with(key, || self.inner.delete(purpose, key))
    }
    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()> {
        self.with(prefix, || self.inner.list(purpose, prefix, each))
    }
    fn list_folder(&self, purpose: Purpose, folder: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        self.with(folder, || self.inner.list_folder(purpose, folder, each))
    }
}

fn path(file: u64) -> String {
    format!("n/{file}")
}

/// A version of a file: its number is in its first bytes, and decides all others.
fn content(file: u64, version: u64) -> Vec<u8> {
    let len = if file == 0 { 9 << 20 } else { (version * 7919 + file * 104_729) % 400_000 } as usize;
    let mut bytes = format!("{file} {version}\n").into_bytes();
    bytes.extend(body(file * 1_000_003 + version, len));
    bytes
}

fn version_of(bytes: &[u8], file: u64) -> Option<u64> {
    let head = std::str::from_utf8(bytes.get(..bytes.iter().position(|byte| *byte == b'\n')?)?).ok()?;
    let (name, version) = head.split_once(' ')?;
    let version = version.parse().ok().filter(|_| name == file.to_string())?;
    (content(file, version) == bytes).then_some(version)
}

/// What a file may be, by its number: the last version that was acknowledged, and those after it that may have taken effect.
type Model = Mutex<HashMap<u64, (u64, Vec<u64>)>>;

/// Writes versions of its files until the end; now and then it dies in the middle.
fn write(socket: &std::path::Path, mine: u64, model: &Model, until: Instant, chance: &Nemesis) {
    let mut client = Client::connect(socket, "").unwrap();
    let mut version = 0;
    while Instant::now() < until {
        version += 1;
        let file = chance.chance() % (FILES / 3) * 3 + mine;
        let bytes = content(file, version);
        model.lock().unwrap().entry(file).or_default().1.push(version);
        let written = (|| {
            let handle = client.open_write(&path(file), false)?;
            client.write_part(handle, &bytes[..bytes.len() / 2])?;
            if chance.chance().is_multiple_of(10) {
                return Ok(false);
            }
            client.write_part(handle, &bytes[bytes.len() / 2..])?;
            client.commit(handle).map(|_| true)
        })();
        match written {
            Ok(true) => {
                model.lock().unwrap().insert(file, (version, Vec::new()));
            }
            Ok(false) => {
                // As killed: its connection ends, and what it had begun with it. Nothing of this version is ever visible.
                client = Client::connect(socket, "").unwrap();
                model.lock().unwrap().entry(file).or_default().1.retain(|other| *other != version);
            }
            Err(Error::Fault(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// One read. Whether the client is to die now; its lease is not released then.
fn read_one(client: &Client, file: u64, chance: &Nemesis, reads: &AtomicU64, failures: &AtomicU64) -> bool {
    let view = match client.read(&path(file), 0, u64::MAX, "") {
        Ok(view) => view,
        Err(Error::Fault(Fault::Absent)) => return false,
        Err(Error::Fault(_)) => {
            failures.fetch_add(1, Ordering::SeqCst);
            return false;
        }
        Err(error) => panic!("{error}"),
    };
    // Longer than an answer's share is answered in part.
    if view.info.length == view.pieces().map(<[u8]>::len).sum::<usize>() as u64 {
        let bytes = view.to_vec();
        let version = version_of(&bytes, file);
        assert!(version.is_some(), "{file}: no version of the file has these {} bytes", bytes.len());
    }
    reads.fetch_add(1, Ordering::SeqCst);
    let dies = chance.chance().is_multiple_of(50);
    if dies {
        std::mem::forget(view);
    }
    dies
}

fn read(socket: &std::path::Path, until: Instant, chance: &Nemesis, reads: &AtomicU64, failures: &AtomicU64) {
    let mut client = Client::connect(socket, "").unwrap();
    while Instant::now() < until {
        if read_one(&client, chance.chance() % FILES, chance, reads, failures) {
            client = Client::connect(socket, "").unwrap();
        }
    }
}

#[test]
fn under_a_failing_store_and_dying_clients_reads_are_whole_versions_and_acknowledged_writes_last() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| terrace_io::real::world().random.next_u64());
    println!("SEED={seed}");
    let scratch = tempfile::tempdir().unwrap();
    let mut config = Config::new(scratch.path().join("store").to_str().unwrap(), 192 << 20);
    config.socket = scratch.path().join("socket");
    config.flash = Some((scratch.path().join("flash"), 256 << 20));
    config.requests = 16;
    config.freshness = Freshness::Ttl(20_000_000);
    let inner = run::open_store(&config).unwrap();
    let (state, is_on, faults) = (AtomicU64::new(seed), AtomicBool::new(true), AtomicU64::new(0));
    let nemesis = Arc::new(Nemesis { inner, state, is_on, faults });
    let daemon = Daemon::start(terrace_io::real::world(), &config, nemesis.clone()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stops = stop.clone();
    let running = std::thread::spawn(move || daemon.run(&stops));

    let (model, reads, failures) = (Model::default(), AtomicU64::new(0), AtomicU64::new(0));
    let until = Instant::now() + Duration::from_secs(SECONDS);
    std::thread::scope(|scope| {
        for mine in 0..3 {
            let (socket, model, nemesis) = (&config.socket, &model, &*nemesis);
            scope.spawn(move || write(socket, mine, model, until, nemesis));
        }
        for _ in 0..4 {
            let (socket, nemesis, reads, failures) = (&config.socket, &*nemesis, &reads, &failures);
            scope.spawn(move || read(socket, until, nemesis, reads, failures));
        }
    });
    nemesis.is_on.store(false, Ordering::SeqCst);
    let faults = nemesis.faults.load(Ordering::SeqCst);
    assert!(
        reads.load(Ordering::SeqCst) > 100 && faults > 20,
        "{} reads, {faults} faults",
        reads.load(Ordering::SeqCst)
    );

    let client = Client::connect(&config.socket, "").unwrap();
    // The store is found to be well again.
    while !matches!(client.read(&path(0), 0, 1, ""), Ok(_) | Err(Error::Fault(Fault::Absent))) {}
    // What the dead and the failed have begun ends.
    while figure(&client, "body_bytes") > 0
        || figure(&client, "blocks_not_evictable") > 1
        || figure(&client, "reads_waiting") > 0
    {}
    for (file, (acknowledged, perhaps)) in &*model.lock().unwrap() {
        client.evict(&path(*file)).unwrap();
        let mut bytes = vec![0; 10 << 20];
        let found = match client.read_into(&path(*file), 0, &mut bytes, "") {
            Ok((len, _)) => version_of(&bytes[..len], *file)
                .unwrap_or_else(|| panic!("{file}: {len} bytes of no version")),
            Err(Error::Fault(Fault::Absent)) => 0,
            Err(error) => panic!("{file}: {error}"),
        };
        assert!(
            found == *acknowledged || perhaps.contains(&found),
            "{file} is of version {found}; {acknowledged} was acknowledged, and {perhaps:?} may have been written"
        );
    }
    let leftovers: Vec<_> = std::fs::read_dir(scratch.path().join("store/n"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    println!(
        "{} reads, {} failed, {faults} faults, {} names",
        reads.load(Ordering::SeqCst),
        failures.load(Ordering::SeqCst),
        leftovers.len()
    );
    drop(client);
    stop.store(true, Ordering::SeqCst);
    running.join().unwrap().unwrap();
}
