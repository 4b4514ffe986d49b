//! Packing and the catalogue as they are wired into the daemon, in the simulation: its workers, its flash cache and its memory, over a store whose files
//! change and a disk that loses power at any step. Everything is decided by the seed.
//!
//! Checked at each read
//! * The bytes are one version of the file, whole: the current one, or, with a time to live, one that was current within that time, unless the file was
//!   written through the daemon since.
//! * The index of packed files is in order, and the limits hold.
//!
//! After a crash the same holds, and what was on flash before saves requests to the store.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_files::catalogue::{Catalogue, Done, Freshness, Read, Settings, Wants};
use terrace_files::flash::{Flash, Packing};
use terrace_files::groups::Groups;
use terrace_files::memory::arena::Arena;
use terrace_files::memory::index::{HEADER_BYTES, SET_BYTES};
use terrace_files::objects::spill::ObjectBytes;
use terrace_files::objects::{self, Objects};
use terrace_files::packing::Shares;
use terrace_files::pins::{self, Pins};
use terrace_files::planted::{self, Switch};
use terrace_files::read::Files;
use terrace_files::read::split::BlockSplit;
use terrace_files::stores::Store;
use terrace_io::World;
use terrace_io::clock::{Clock, Nanos};
use terrace_io::emulate::{self, Device, EVEN};
use terrace_io::random::Random;
use terrace_io::sched::{Event, Sched, WorkerHandle};
use terrace_io::store::{Bytes, ObjectStore, Purpose, Version};
use terrace_io::traffic::Urgency;
use terrace_sim::{SimDisk, SimStore, SimWorld};

const ARENA: u64 = 256 << 10;
/// As the store is named in the keys of flash.
const STORE: &str = "store";
const FLASH: u64 = 32 << 20;
const MEMORY: u64 = 8 << 20;
const DIRECTORIES: u64 = 5;
const FILES: u64 = 40;
const TTL: Nanos = 1_000_000_000;

/// A file as it is in the store, and older versions that may still be served.
struct Model {
    number: u64,
    version: Version,
    /// With the time when each was superseded.
    older: Vec<(u64, Nanos)>,
}

struct Node {
    sim: SimWorld,
    disk: Arc<SimDisk>,
    store: Arc<SimStore>,
    freshness: Freshness,
    /// Flash hangs at times.
    hangs: bool,
    /// What part of the hits that fill flash the store gets.
    store_weight: f64,
    purpose: Purpose,
    files: Option<Arc<Files>>,
    workers: Vec<Box<dyn WorkerHandle>>,
    answered: Arc<Event>,
    model: BTreeMap<String, Model>,
    next: u64,
    /// Reads that were answered, and those answered from flash.
    seen: Seen,
}

#[derive(Default, Clone, Copy, Debug)]
struct Seen {
    reads: u64,
    packed: u64,
    brought: u64,
    compacted: u64,
    restored: u64,
    /// Reads of flash that were left behind.
    left: u64,
    /// Found on flash after a crash.
    warm: u64,
    crashes: u64,
}

/// Of one length in all its versions: the length tells no version from another.
fn body(path: &str, number: u64) -> Vec<u8> {
    let hash = |begin: u64| {
        path.bytes().fold(begin, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
    };
    let (len, seed) = (300 + (hash(7) >> 20) % 5000, hash(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((0..len).map(|at| (seed.rotate_left(at as u32 % 61) ^ at) as u8));
    bytes
}

/// What runs in the daemon, without its workers.
fn daemon(
    world: World,
    store: Arc<SimStore>,
    flash: Flash,
    arena_bytes: u64,
    freshness: Freshness,
    store_weight: f64,
) -> Files {
    let arena = Arc::new(Arena::new(arena_bytes, HEADER_BYTES + 64 * SET_BYTES).unwrap());
    let mut catalogue = Catalogue::new(Settings {
        freshness,
        arena_bytes,
        files_max: 150,
        waiting_max: 1000,
        read_bytes_max: 8 << 20,
        saves: true,
    });
    let index = arena.index(7, 0);
    index.vouch(1 << 62);
    catalogue.publish_in(index.clone());
    let objects = (
        Objects::new(objects::Settings { memory_bytes: 4096, flash_bytes: 0 }),
        ObjectBytes::open(4096, None).unwrap(),
    );
    let store = Arc::new(Store::new(store, world.clone(), 0).unwrap());
    Files::new(
        world,
        store,
        Some(flash),
        arena,
        catalogue,
        256 << 20,
        index,
        Groups::none(),
        objects,
        Pins::open(None, pins::Limits { bytes: 4096, files: 1 }).unwrap(),
        BlockSplit::new(store_weight, terrace_files::config::FLASH_TIMEOUT),
        freshness,
    )
}

impl Node {
    fn new(seed: u64) -> Node {
        let sim = SimWorld::new(seed);
        let freshness = if seed.is_multiple_of(2) { Freshness::Always } else { Freshness::Ttl(TTL) };
        let mut node = Node {
            disk: sim.disk("flash"),
            store: sim.store("store"),
            freshness,
            hangs: seed % 4 == 2,
            store_weight: if seed.is_multiple_of(4) { 1.0 } else { 0.0 },
            purpose: Purpose::register("file_sim", Urgency::Foreground).unwrap(),
            files: None,
            workers: Vec::new(),
            answered: Arc::default(),
            model: BTreeMap::new(),
            next: 0,
            seen: Seen::default(),
            sim,
        };
        for directory in 0..DIRECTORIES {
            for file in 0..FILES {
                let path = format!("d{directory}/{file:02}");
                let body = Bytes::from(body(&path, 1));
                let version = node.store.put_if_absent(node.purpose, &path, &[body]).unwrap();
                node.model.insert(path, Model { number: 1, version, older: Vec::new() });
            }
        }
        node.start();
        node
    }

    fn start(&mut self) {
        let world = self.sim.world();
        let packing = Packing { shares: Shares::of(MEMORY).unwrap(), arena: ARENA };
        let flash = Flash::open_on(&*self.disk, &world, FLASH, 128 << 20, STORE, Some(packing)).unwrap();
        let files = daemon(world, self.store.clone(), flash, ARENA, self.freshness, self.store_weight);
        let files = Arc::new(files);
        let answered = self.answered.clone();
        files.on_answer(Box::new(move || answered.notify()));
        self.workers = files.spawn(4).unwrap();
        self.files = Some(files);
    }

    fn files(&self) -> &Arc<Files> {
        self.files.as_ref().expect("it runs")
    }

    /// Ends the daemon as a crash does, and starts it on what is left.
    fn crash(&mut self, loses_power: bool) {
        self.note();
        // Nothing is written any more, not at the end either.
        self.sim.crash_at(self.sim.steps().max(1));
        self.sim.sched.drop_workers();
        self.workers.clear();
        self.files = None;
        self.sim.power_on();
        self.disk.faults().hang(false);
        if loses_power {
            self.disk.crash();
        }
        self.seen.crashes += 1;
        self.start();
    }

    /// Adds what the daemon has counted.
    fn note(&mut self) {
        let Some(files) = &self.files else { return };
        if let Some(packs) = files.flash.as_ref().and_then(|flash| flash.packs.as_ref()) {
            let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
            let packed = get(&packs.counters.read_hits) + get(&packs.counters.recent_hits);
            self.seen.packed += packed;
            self.seen.warm += if self.seen.crashes > 0 { packed } else { 0 };
            self.seen.left += files.split.status().devices[0].overdue;
            self.seen.compacted += get(&packs.counters.compacted);
            self.seen.restored += get(&packs.counters.restored);
        }
        self.seen.brought += files.tell(|catalogue, _| catalogue.counts.brought);
    }

    fn check_invariants(&self) {
        self.files().tell(|catalogue, _| catalogue.check_invariants());
        self.files().flash.as_ref().unwrap().packs.as_ref().unwrap().check_invariants();
    }

    /// Reads all of these at once; checks each answer, and ends its leases.
    fn read(&mut self, paths: &[String], wants: Wants) {
        let files = self.files().clone();
        let asked = self.sim.clock.now();
        let reads: Vec<Read> = paths
            .iter()
            .map(|path| {
                self.next += 1;
                read_of(path, self.next, wants)
            })
            .collect();
        let by_request: BTreeMap<u64, String> =
            reads.iter().map(|read| (read.request, read.path.to_string())).collect();
        let mut done = files.begin(reads);
        while done.len() < paths.len() {
            let seen = self.answered.ticket();
            let more = files.take_answers().done;
            if more.is_empty() {
                self.sim.sched.wait(&self.answered, seen, None);
            }
            self.check(&files, asked, wants, &by_request, &more);
            done.extend(more.into_iter().map(|done| Done { answer: Err(gone()), ..done }));
        }
        let now: Vec<Done> = done.into_iter().filter(|done| done.answer.is_ok()).collect();
        self.check(&files, asked, wants, &by_request, &now);
    }

    fn check(
        &mut self,
        files: &Files,
        asked: Nanos,
        wants: Wants,
        paths: &BTreeMap<u64, String>,
        done: &[Done],
    ) {
        for one in done {
            // After the crash all requests fail.
            let Ok((meta, parts)) = &one.answer else {
                assert!(self.sim.crashed(), "a read failed: {:?}", one.answer);
                continue;
            };
            let path = &paths[&one.request];
            let model = &self.model[path];
            let of = |number: u64| body(path, number);
            if wants == Wants::Bytes {
                let found: Vec<u8> =
                    parts.iter().flat_map(|part| files.arena.bytes(part.extent).to_vec()).collect();
                let is_current = found == of(model.number);
                let was_current =
                    model.older.iter().any(|(number, until)| until + TTL > asked && found == of(*number));
                let number = found.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
                assert!(
                    is_current || was_current,
                    "{path} is served as {number:?} with {} bytes, version {}; it is {} now",
                    found.len(),
                    meta.version,
                    model.number
                );
            }
            self.seen.reads += 1;
            files.tell(|catalogue, _| parts.iter().for_each(|part| catalogue.release(part.block)));
        }
    }

    /// The file changes in the store; the daemon is told if it was written through it.
    fn change(&mut self, path: &str, tells: bool) {
        let now = self.sim.clock.now();
        let model = self.model.get_mut(path).unwrap();
        let number = model.number + 1;
        let Ok(version) = self.store.put_if_match(self.purpose, path, &body(path, number), &model.version)
        else {
            assert!(self.sim.crashed());
            return;
        };
        model.older.push((model.number, now));
        (model.number, model.version) = (number, version);
        if tells || self.freshness == Freshness::Always {
            model.older.clear();
        }
        if tells {
            self.files().changed(&path.into());
        }
    }

    fn evict(&mut self, prefix: &str) {
        let files = self.files().clone();
        let forgotten = files.tell(|catalogue, _| catalogue.forget(prefix));
        let flash = files.flash.as_ref().unwrap();
        forgotten.iter().for_each(|(path, length)| flash.forget_all(path, *length));
    }

    fn pass(&mut self, nanos: Nanos) {
        let never = Event::new();
        self.sim.sched.wait(&never, never.ticket(), Some(nanos));
    }
}

fn read_of(path: &str, request: u64, wants: Wants) -> Read {
    let path = path.into();
    Read { client: 1, request, item: 0, wants, path, offset: 0, length: u64::MAX, expected: None, since: 0 }
}

fn gone() -> terrace_files::catalogue::Fault {
    terrace_files::catalogue::Fault::Absent
}

/// Work of clients, until it ends or the world does.
fn work(node: &mut Node, rounds: u64) {
    let random = node.sim.random.clone();
    for _ in 0..rounds {
        if node.sim.crashed() {
            return;
        }
        let directory = random.below(DIRECTORIES);
        let path = |file: u64| format!("d{directory}/{:02}", file % FILES);
        let first = random.below(FILES);
        match random.below(20) {
            0..8 => {
                let count = 1 + random.below(20);
                node.read(&(first..first + count).map(path).collect::<Vec<_>>(), Wants::Bytes);
            }
            8..10 => (0..FILES).for_each(|file| {
                if !node.sim.crashed() {
                    node.read(&[path(file)], Wants::Bytes);
                }
            }),
            10 => node.read(&[path(first), path(first + 1)], Wants::Stat),
            11 => node.read(&(0..FILES).map(path).collect::<Vec<_>>(), Wants::Warm),
            12..14 => node.change(&path(first), false),
            14 => node.change(&path(first), true),
            15 => node.evict(&path(first)),
            16 => node.evict(&format!("d{directory}/1")),
            17 => node.pass(random.below(300_000_000)),
            18 => {
                if node.hangs {
                    node.disk.faults().hang(random.one_in(2));
                }
                node.pass(random.below(5_000_000_000));
            }
            _ => {
                let at = random.below(FLASH);
                _ = node.disk.flip("blocks", at, 3);
            }
        }
        if !node.sim.crashed() {
            node.check_invariants();
        }
    }
}

/// One life, with a crash at a step of the disk or the store, and what is found afterwards. Returns the steps of the first part.
fn run(seed: u64, crash_at: Option<u64>, seen: &mut Seen) -> u64 {
    let mut node = Node::new(seed);
    let before = node.sim.steps();
    if let Some(step) = crash_at {
        node.sim.crash_at(before + step);
    }
    work(&mut node, 80);
    let steps = node.sim.steps() - before;
    node.crash(seed.is_multiple_of(3));
    node.pass(100_000_000);
    // What is on flash is not in memory now.
    node.disk.faults().hang(node.hangs);
    work(&mut node, 30);
    node.note();
    node.sim.sched.drop_workers();
    let of = node.seen;
    seen.reads += of.reads;
    seen.packed += of.packed;
    seen.brought += of.brought;
    seen.left += of.left;
    seen.compacted += of.compacted;
    seen.restored += of.restored;
    seen.warm += of.warm;
    seen.crashes += of.crashes;
    steps
}

fn seeds() -> u64 {
    std::env::var("TERRACE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

fn all_seeds() -> Seen {
    let mut seen = Seen::default();
    for seed in 1..=seeds() {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let steps = run(seed, None, &mut seen);
            // Over all seeds, steps of every kind.
            for share in 0..4 {
                run(seed, Some(1 + (steps * share / 4 + seed * 31) % steps.max(1)), &mut seen);
            }
        }));
        if let Err(error) = result {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(error);
        }
    }
    seen
}

#[test]
fn what_is_served_is_current_and_whole_whatever_the_daemon_packs_and_wherever_it_crashes() {
    let seen = all_seeds();
    println!("{seen:?}");
    assert!(seen.crashes >= 5 * seeds());
    assert!(seen.packed > 0 && seen.brought > 0 && seen.restored > 0 && seen.warm > 0, "{seen:?}");
    assert!(seen.left > 0, "{seen:?}");
}

#[test]
fn what_a_slow_flash_has_no_room_for_is_copied_to_it_later() {
    const FILES: u64 = 24;
    const BYTES: usize = 1 << 20;
    let sim = SimWorld::new(1);
    let (disk, store) = (sim.disk("flash"), sim.store("store"));
    let purpose = Purpose::register("file_sim", Urgency::Foreground).unwrap();
    let paths: Vec<String> = (0..FILES).map(|file| format!("large/{file}")).collect();
    for path in &paths {
        store.put_if_absent(purpose, path, &[Bytes::from(vec![7; BYTES])]).unwrap();
    }
    // More than the queue takes, and a write takes longer than the saver waits for room.
    let slow = Device { read: 1_000_000, write: 200_000_000, bandwidth: 10_000_000, rate: 100, spread: EVEN };
    let slow = emulate::disk(sim.world(), disk, slow);
    let flash = Flash::open_on(&*slow, &sim.world(), 256 << 20, 128 << 20, STORE, None).unwrap();
    let files = Arc::new(daemon(sim.world(), store, flash, 32 << 20, Freshness::Immutable, 0.0));
    let answered = Arc::new(Event::new());
    let on_answer = answered.clone();
    files.on_answer(Box::new(move || on_answer.notify()));
    let workers = files.spawn(4).unwrap();
    let reads: Vec<Read> =
        paths.iter().zip(1..).map(|(path, request)| read_of(path, request, Wants::Warm)).collect();
    let mut done = files.begin(reads).len();
    while done < paths.len() {
        let seen = answered.ticket();
        let more = files.take_answers().done.len();
        done += more;
        if more == 0 {
            sim.sched.wait(&answered, seen, None);
        }
    }
    let fills = || files.flash.as_ref().unwrap().counts().1;
    let mut rounds = 0;
    while fills() < FILES {
        rounds += 1;
        assert!(rounds < 1000, "{} of {FILES} files are on flash", fills());
        let never = Event::new();
        sim.sched.wait(&never, never.ticket(), Some(100_000_000));
    }
    assert_eq!(files.tell(|catalogue, _| catalogue.unsaved()), 0);
    sim.sched.drop_workers();
    drop(workers);
}

#[test]
fn files_on_flash_that_hangs_come_from_the_store_until_it_answers_again() {
    let mut node = Node::new(2);
    let all: Vec<String> = node.model.keys().cloned().collect();
    let of_directory = |directory: usize| all[directory * FILES as usize..][..FILES as usize].to_vec();
    for _ in 0..3 {
        (0..DIRECTORIES as usize).for_each(|directory| node.read(&of_directory(directory), Wants::Bytes));
        node.pass(2_000_000_000);
    }
    let flash = |node: &Node| node.files().split.status().devices[0].clone();
    assert!(flash(&node).reads > 0);
    // So that nothing of it is in memory.
    node.crash(false);
    node.pass(1_000_000_000);
    let before = flash(&node);
    assert!(before.overdue == 0 && !before.is_suspect, "{before:?}");

    node.disk.faults().hang(true);
    for _ in 0..4 {
        (0..DIRECTORIES as usize).for_each(|directory| node.read(&of_directory(directory), Wants::Bytes));
        node.pass(1_000_000_000);
    }
    let hung = flash(&node);
    assert!(hung.overdue > 0 && hung.is_suspect && hung.in_flight > 0, "{hung:?}");
    assert!(hung.overdue <= 4, "each worker can meet it once: {hung:?}");
    assert_eq!(
        node.files().flash.as_ref().unwrap().errors(),
        0,
        "a read that was left behind is no error of the device"
    );

    node.disk.faults().hang(false);
    assert_eq!(flash(&node).in_flight, 0, "what was left behind has been answered");
    let mut rounds = 0;
    while flash(&node).is_suspect {
        rounds += 1;
        assert!(rounds < 50, "probes do not bring it back: {:?}", flash(&node));
        node.read(&of_directory(rounds % DIRECTORIES as usize), Wants::Bytes);
        node.pass(100_000_000);
    }
    let back = flash(&node).reads;
    (0..DIRECTORIES as usize).for_each(|directory| node.read(&of_directory(directory), Wants::Bytes));
    assert!(flash(&node).reads > back);
    node.sim.sched.drop_workers();
}

/// One of the seeds finds the bug.
fn found(bug: &Switch) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock();
    bug.set(true);
    let result = std::panic::catch_unwind(all_seeds);
    bug.set(false);
    assert!(result.is_err(), "the planted bug was not found");
}

#[test]
#[ignore = "a planted bug"]
fn planted_packed_version_ignored_is_found() {
    found(&planted::PACKED_VERSION_IGNORED);
}

#[test]
#[ignore = "a planted bug"]
fn planted_brought_version_ignored_is_found() {
    found(&planted::BROUGHT_VERSION_IGNORED);
}

#[test]
#[ignore = "a planted bug"]
fn planted_known_after_write_is_found() {
    found(&planted::KNOWN_AFTER_WRITE);
}
