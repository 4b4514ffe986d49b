//! Figures, not claims about any machine: packed against unpacked small files where flash serves, and memory objects against temporary files. Part of
//! `make bench NAME=files`, which prints them beside the bars.

mod rig;

use rig::body;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_files::catalogue::Freshness;
use terrace_files::client::Client;
use terrace_files::config::Config;
use terrace_files::run::{self, Daemon};
use terrace_io::disk::{Class, Disk, DiskLock, File, Op, Result};
use terrace_io::emulate;
use terrace_io::real::disk::RealDisk;

const CLIENTS: usize = 200;
const DIRECTORIES: usize = 200;
const FILES: usize = 100;

/// The time during which a device has a request in flight, as `iostat` counts it.
#[derive(Default)]
struct Busy {
    state: std::sync::Mutex<(u32, Option<Instant>, Duration)>,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Busy {
    fn during<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        {
            let mut state = self.state.lock().unwrap();
            state.0 += 1;
            state.1.get_or_insert_with(Instant::now);
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let result = work();
        let mut state = self.state.lock().unwrap();
        state.0 -= 1;
        if state.0 == 0 {
            let since = state.1.take().unwrap();
            state.2 += since.elapsed();
        }
        result
    }

    fn seconds(&self) -> f64 {
        self.state.lock().unwrap().2.as_secs_f64()
    }
}

struct Metered(Arc<dyn Disk>, Arc<Busy>);
struct MeteredFile(Arc<dyn File>, Arc<Busy>);

impl File for MeteredFile {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn grow(&self, len: u64, zero: bool) -> Result<()> {
        self.0.grow(len, zero)
    }
    fn shrink(&self, len: u64) -> Result<()> {
        self.0.shrink(len)
    }
    fn read(&self, class: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.1.during(buf.len(), || self.0.read(class, offset, buf))
    }
    fn write(&self, class: Class, offset: u64, buf: &[u8]) -> Result<()> {
        self.1.during(buf.len(), || self.0.write(class, offset, buf))
    }
    fn batch(&self, class: Class, ops: &mut [Op<'_>]) -> Vec<Result<()>> {
        self.1.during(ops.iter().map(|op| op.len()).sum(), || self.0.batch(class, ops))
    }
    fn sync(&self, class: Class) -> Result<()> {
        self.0.sync(class)
    }
}

impl Disk for Metered {
    fn describe(&self) -> String {
        self.0.describe()
    }
    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(Arc::new(MeteredFile(self.0.open(name)?, self.1.clone())))
    }
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(Arc::new(MeteredFile(self.0.create(name)?, self.1.clone())))
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.0.exists(name)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(from, to)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.0.list()
    }
    fn sync_dir(&self) -> Result<()> {
        self.0.sync_dir()
    }
    fn lock(&self) -> Result<Box<dyn DiskLock>> {
        self.0.lock()
    }
    fn free_bytes(&self) -> Result<u64> {
        self.0.free_bytes()
    }
}

fn path(directory: usize, file: usize) -> String {
    format!("table-{directory:03}/part-{file:03}")
}
fn len(directory: usize, file: usize) -> usize {
    512 + (directory * 7919 + file * 104_729) % 15_800
}

/// Files a second, the share of the time that flash was busy, its requests and its bytes for each file.
fn small_files(scratch: &std::path::Path, packing: bool) -> (f64, f64, f64, f64) {
    let place = scratch.join(if packing { "packed" } else { "unpacked" });
    std::fs::create_dir_all(place.join("flash")).unwrap();
    let mut config = Config::new(scratch.join("store").to_str().unwrap(), 192 << 20);
    config.flash = Some((place.join("flash"), 1 << 30));
    // Memory that objects have, files do not: so flash serves.
    config.objects = Some(64 << 20);
    config.socket = place.join("socket");
    config.freshness = Freshness::Immutable;
    config.packing = packing;
    let world = terrace_io::real::world();
    let busy = Arc::new(Busy::default());
    let real: Arc<dyn Disk> = Arc::new(RealDisk::open(place.join("flash")).unwrap());
    let disk = Metered(emulate::disk(world.clone(), real, emulate::CLOUD.flash), busy.clone());
    let store = run::open_store(&config).unwrap();
    let daemon = Daemon::start_on(world, &config, store.clone(), Some(&disk)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let running = {
        let stop = stop.clone();
        std::thread::spawn(move || daemon.run(&stop))
    };
    let client = Client::connect(&config.socket, "").unwrap();
    let all: Vec<String> =
        (0..DIRECTORIES).flat_map(|directory| (0..FILES).map(move |file| path(directory, file))).collect();
    let paths: Vec<&str> = all.iter().map(String::as_str).collect();
    // Twice: what flash has no room for at once is written when it leaves memory after its second use.
    for _ in 0..2 {
        client.read_many(&paths, |_, view| drop(view.unwrap())).unwrap();
    }
    let figure = |name| rig::figure(&client, name);
    while figure("unsaved") > 0 || packing && figure("staged_files") > 0 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let requests = |client: &Client| rig::figure(client, "store_requests");
    let before = requests(&client);
    let (seconds, of_busy) = (5.0, busy.seconds());
    let (of_requests, of_bytes) = (busy.requests.load(Ordering::Relaxed), busy.bytes.load(Ordering::Relaxed));
    let began = Instant::now();
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (config, count) = (&config, &count);
            scope.spawn(move || {
                let client = Client::connect(&config.socket, "").unwrap();
                let mut buf = vec![0; 16 << 10];
                let mut chance = number as u64;
                let mut directory = number;
                // A table after the other, each from its first file to its last.
                while began.elapsed().as_secs_f64() < seconds {
                    for file in 0..FILES {
                        let (got, _) = client.read_into(&path(directory, file), 0, &mut buf, "").unwrap();
                        assert_eq!(got, len(directory, file));
                        count.fetch_add(1, Ordering::Relaxed);
                        if began.elapsed().as_secs_f64() >= seconds {
                            break;
                        }
                    }
                    chance = chance
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    directory = (chance >> 33) as usize % DIRECTORIES;
                }
            });
        }
    });
    let took = began.elapsed().as_secs_f64();
    let count = count.load(Ordering::Relaxed) as f64;
    let from_store = requests(&client) - before;
    println!(
        "packing {packing}: {from_store} requests to the store while flash served; {}",
        client.status().unwrap()
    );
    drop(client);
    stop.store(true, Ordering::SeqCst);
    running.join().unwrap().unwrap();
    let requests = (busy.requests.load(Ordering::Relaxed) - of_requests) as f64;
    let bytes = (busy.bytes.load(Ordering::Relaxed) - of_bytes) as f64;
    (count / took, (busy.seconds() - of_busy) / took, requests / count, bytes / count)
}

#[test]
#[ignore = "measures"]
fn packed_against_unpacked_where_flash_serves() {
    let scratch = tempfile::tempdir().unwrap();
    for directory in 0..DIRECTORIES {
        std::fs::create_dir_all(scratch.path().join("store").join(path(directory, 0)).parent().unwrap())
            .unwrap();
        for file in 0..FILES {
            let file_path = scratch.path().join("store").join(path(directory, file));
            std::fs::write(file_path, body(file as u64, len(directory, file))).unwrap();
        }
    }
    let mut ratios = Vec::new();
    for round in 1..=3 {
        for place in ["packed", "unpacked"] {
            let _ = std::fs::remove_dir_all(scratch.path().join(place));
        }
        let (packed, unpacked) = (small_files(scratch.path(), true), small_files(scratch.path(), false));
        for (name, (rate, busy, requests, bytes)) in [("packed", packed), ("unpacked", unpacked)] {
            println!(
                "round {round} {name:9} {rate:9.0} files/s, flash busy {:3.0} %, {requests:.3} requests and {bytes:.0} bytes a file",
                busy * 100.0
            );
        }
        ratios.push((packed.0 / unpacked.0, packed.1 / unpacked.1));
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!(
        "packed to unpacked, median of 3: {:.2} times the files (bar 2.5), {:.2} of the utilisation (bar 0.40)",
        ratios[1].0, ratios[1].1
    );
}

fn sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks_exact(8)
        .fold(0, |sum, word| sum ^ u64::from_le_bytes(word.try_into().unwrap()).rotate_left(1))
}

/// Milliseconds for one operator to write `bytes` to a file and another to read them: it begins when the file is whole.
fn by_file(file: &std::path::Path, bytes: usize, source: &[u8]) -> f64 {
    let began = Instant::now();
    let mut out = std::fs::File::create(file).unwrap();
    (0..bytes / source.len()).for_each(|_| std::io::Write::write_all(&mut out, source).unwrap());
    drop(out);
    let mut found = std::fs::File::open(file).unwrap();
    let mut buf = vec![0; source.len()];
    for _ in 0..bytes / source.len() {
        std::io::Read::read_exact(&mut found, &mut buf).unwrap();
        assert_eq!(sum(&buf), sum(source));
    }
    std::fs::remove_file(file).unwrap();
    began.elapsed().as_secs_f64() * 1000.0
}

/// The same through objects: the reader gets each as soon as it is sealed. Gives the connections back.
fn by_objects(clients: (Client, Client), bytes: usize, source: &[u8]) -> (f64, (Client, Client)) {
    let (writer, reader) = clients;
    let count = bytes / source.len();
    let expected = sum(source);
    let began = Instant::now();
    let clients = std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for number in 0..count {
                let mut object = loop {
                    match writer.create_object(&format!("{number}"), source.len(), true) {
                        Ok(object) => break object,
                        // The reader is behind.
                        Err(_) => std::thread::yield_now(),
                    }
                };
                object.bytes_mut().copy_from_slice(source);
                object.seal().unwrap();
            }
            writer
        });
        for number in 0..count {
            let name = format!("{number}");
            let object = reader.get_object(&name, 60_000).unwrap().unwrap();
            assert_eq!(sum(&object), expected);
            drop(object);
            reader.delete_object(&name).unwrap();
        }
        (writer.join().unwrap(), reader)
    });
    (began.elapsed().as_secs_f64() * 1000.0, clients)
}

#[test]
#[ignore = "measures"]
fn memory_objects_against_temporary_files() {
    let rig = rig::Rig::start(|config, _| {
        config.memory = 640 << 20;
        config.objects = Some(128 << 20);
    });
    let file = rig.scratch.path().join("temporary");
    let mut clients = (rig.client(), rig.client());
    // Table 4: bytes in all, and of an object. Its last row, 8 GiB, is more than a small machine's page cache has room for.
    let rows =
        [(32, 512), (32, 1024), (32, 2048), (32, 4096), (32, 8192), (128, 8192), (512, 8192), (2048, 8192)];
    for (mib, piece_kib) in rows {
        let (bytes, source) = (mib << 20, vec![7u8; piece_kib << 10]);
        let mut pairs = Vec::new();
        for _ in 0..if mib > 512 { 3 } else { 7 } {
            let of_file = by_file(&file, bytes, &source);
            let (of_objects, back) = by_objects(clients, bytes, &source);
            clients = back;
            pairs.push((of_file, of_objects));
        }
        pairs.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        let (files, objects) = pairs[pairs.len() / 2];
        let less = 100.0 - objects / files * 100.0;
        println!(
            "{mib:5} MiB in {piece_kib:5} KiB: files {files:8.1} ms, objects {objects:8.1} ms, {less:5.1} % less (bar 60)"
        );
    }
}
