//! The catalogue against a model: a store whose files change, flights that end in any order and may fail, clients that release leases late.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const ARENA: u64 = 64 << 20;

fn catalogue(freshness: Freshness) -> Catalogue {
    let mut catalogue = Catalogue::new(Settings {
        freshness,
        arena_bytes: ARENA,
        files_max: 6,
        waiting_max: 40,
        read_bytes_max: 24 << 20,
        saves: true,
    });
    catalogue.publish_in(crate::memory::index::tests::leaked(2));
    catalogue
}

/// What the arena holds: whose bytes an extent has.
type Bytes = BTreeMap<u64, (Extent, Arc<str>, Arc<str>, u32)>;

struct World {
    catalogue: Catalogue,
    /// Version and length of each file in the store.
    store: BTreeMap<String, (u64, u64)>,
    flights: Vec<Task>,
    /// What a check saw when it was made, as the store answers at some moment of the flight.
    bytes: Bytes,
    leased: Vec<Leased>,
    asked: BTreeMap<u64, Read>,
    /// The least version that the answer may have, with `Always`.
    least: BTreeMap<u64, u64>,
    now: Nanos,
    next: u64,
}

fn version(number: u64) -> Arc<str> {
    format!("v{number}").into()
}

impl World {
    fn new(freshness: Freshness) -> World {
        World {
            catalogue: catalogue(freshness),
            store: BTreeMap::new(),
            flights: Vec::new(),
            bytes: Bytes::new(),
            leased: Vec::new(),
            asked: BTreeMap::new(),
            least: BTreeMap::new(),
            now: 1,
            next: 0,
        }
    }

    fn settle(&mut self) {
        self.flights.append(&mut self.catalogue.tasks);
        for done in std::mem::take(&mut self.catalogue.done) {
            let read = self.asked.remove(&done.request).expect("a read is answered once");
            let Ok((meta, parts)) = done.answer else { continue };
            let least = self.least[&done.request];
            let number: u64 = meta.version[1..].parse().unwrap();
            if self.catalogue.settings.freshness == Freshness::Always {
                assert!(number >= least, "a version older than the file's when it was asked for");
            }
            let mut from = read.offset;
            for part in &parts {
                let (extent, path, found, index) = self
                    .bytes
                    .values()
                    .find(|(extent, ..)| {
                        (extent.offset..extent.offset + extent.len.max(1)).contains(&part.extent.offset)
                    })
                    .expect("leased bytes are loaded bytes");
                assert_eq!((path, found), (&read.path, &meta.version), "bytes of another file or version");
                assert!(part.extent.offset + part.extent.len <= extent.offset + extent.len);
                let at = u64::from(*index) * BLOCK_BYTES + part.extent.offset - extent.offset;
                assert_eq!(at, from, "a part is not where the one before it ended");
                from += part.extent.len;
            }
            if read.wants == Wants::Bytes {
                let end = meta.length.min(read.offset.saturating_add(read.length.min(24 << 20)));
                assert_eq!(from.max(read.offset), end.max(read.offset), "the answer is not the whole range");
                self.leased.extend(parts);
            }
        }
        self.catalogue.check_invariants();
        self.check_index();
        let extents: Vec<Extent> = self.leased.iter().map(|part| part.extent).collect();
        for free in [self.catalogue.extents.allocate(1)].into_iter().flatten() {
            assert!(
                extents.iter().all(|extent| {
                    free.offset + free.taken() <= extent.offset
                        || free.offset >= extent.offset + extent.len.max(1)
                }),
                "bytes under lease are given out again"
            );
            self.catalogue.extents.free(free);
        }
    }

    /// A client that reads by the index reads what it would be given if it asked.
    fn check_index(&self) {
        let Some(index) = &self.catalogue.index else { return };
        for (path, number) in (0..8).flat_map(|file| (0..4).map(move |number| (format!("f{file}"), number))) {
            let Some(entry) = index.find(&path, number, self.now) else { continue };
            let file = &self.catalogue.files[&*path];
            let known = file.known.as_ref().expect("what is published is known");
            assert!(self.catalogue.settings.freshness.holds(known.checked, self.now), "it is past its time");
            assert_eq!(entry.with_version(str::to_string).as_deref(), Some(&*known.meta.version));
            assert_eq!(entry.length, known.meta.length);
            let Some(Slot::Here(id)) = file.slot(number) else {
                panic!("a block that is not here is published")
            };
            let block = self.catalogue.blocks[*id as usize].as_ref().expect("a slot has a block");
            assert_eq!((entry.offset, entry.block), (block.extent.offset, *id));
        }
    }

    /// None: all is under lease.
    fn allocate(&mut self, len: u64) -> Option<Extent> {
        loop {
            match self.catalogue.allocate(len) {
                Room::Found(extent) => {
                    for part in &self.leased {
                        let apart = extent.offset + extent.taken() <= part.extent.offset
                            || extent.offset >= part.extent.offset + part.extent.len;
                        assert!(apart || part.extent.len == 0, "bytes under lease are given out again");
                    }
                    self.bytes.retain(|_, (old, ..)| {
                        old.offset + old.taken() <= extent.offset
                            || old.offset >= extent.offset + extent.taken()
                    });
                    return Some(extent);
                }
                Room::Evicted(victims) => {
                    victims.into_iter().for_each(|v| self.catalogue.give_back(v.extent))
                }
                Room::Full => return None,
            }
        }
    }

    fn load(&mut self, path: &Arc<str>, version: &Arc<str>, index: u32, len: u64) -> Result<Extent, Fault> {
        let extent = self.allocate(len).ok_or(Fault::Busy("full".into()))?;
        self.bytes.insert(extent.offset, (extent, path.clone(), version.clone(), index));
        Ok(extent)
    }

    fn end(&mut self, task: Task, fails: bool) {
        let down = Fault::Unavailable("down".into());
        let of = |store: &BTreeMap<String, (u64, u64)>, path: &str| {
            store
                .get(path)
                .map(|(number, length)| Meta { version: version(*number), length: *length })
                .ok_or(Fault::Absent)
        };
        let now = self.now;
        match task {
            Task::Head { path, epoch } => {
                let result = if fails { Err(down) } else { of(&self.store, &path).map(|meta| (meta, None)) };
                self.catalogue.checked(&path, epoch, result, now);
            }
            Task::Start { path, epoch, first } => {
                let meta = if fails { Err(down) } else { of(&self.store, &path) };
                let result = meta.and_then(|meta| {
                    let len = block_len(meta.length, 0);
                    if len == 0 || !first && meta.length > BLOCK_BYTES {
                        return Ok((meta, None));
                    }
                    let extent = self.load(&path, &meta.version.clone(), 0, len)?;
                    Ok((meta, Some(extent)))
                });
                self.catalogue.checked(&path, epoch, result, now);
            }
            Task::Block { path, version, index, len, flight } => {
                let result = match of(&self.store, &path) {
                    _ if fails => Err(down),
                    Err(fault) => Err(fault),
                    Ok(meta) if meta.version != version => Err(Fault::Changed),
                    Ok(_) => self.load(&path, &version, index, len),
                };
                self.catalogue.loaded(&path, flight, result, now);
            }
        }
        self.settle();
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put { file: u8, length: u64, tells: bool },
    Delete { file: u8, tells: bool },
    Ask { file: u8, offset: u64, length: u64, wants: u8 },
    End { which: usize, fails: bool },
    Release { which: usize },
    Forget { file: u8 },
    Save { touches: u32, is_refused: bool },
    Pass { nanos: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let length = prop_oneof![Just(0), 1u64..100, Just(BLOCK_BYTES), 1u64..30 << 20];
    prop_oneof![
        2 => (0u8..8, length.clone(), any::<bool>()).prop_map(|(file, length, tells)| Op::Put { file, length, tells }),
        1 => (0u8..8, any::<bool>()).prop_map(|(file, tells)| Op::Delete { file, tells }),
        8 => (0u8..8, 0u64..20 << 20, prop_oneof![Just(u64::MAX), 0u64..20 << 20], 0u8..6)
            .prop_map(|(file, offset, length, wants)| Op::Ask { file, offset: if wants % 2 == 0 { 0 } else { offset }, length, wants }),
        10 => (any::<usize>(), prop::bool::weighted(0.1)).prop_map(|(which, fails)| Op::End { which, fails }),
        6 => any::<usize>().prop_map(|which| Op::Release { which }),
        1 => (0u8..8).prop_map(|file| Op::Forget { file }),
        2 => (0u32..20, any::<bool>()).prop_map(|(touches, is_refused)| Op::Save { touches, is_refused }),
        1 => (0u64..200).prop_map(|nanos| Op::Pass { nanos }),
    ]
}

fn run(freshness: Freshness, ops: Vec<Op>) {
    let mut world = World::new(freshness);
    let mut number = 0;
    let path = |file: u8| -> Arc<str> { format!("f{file}").into() };
    for op in ops {
        world.now += 1;
        let now = world.now;
        match op {
            Op::Put { file, length, tells } => {
                number += 1;
                world.store.insert(path(file).to_string(), (number, length));
                if tells {
                    world.catalogue.written(&path(file), now);
                }
            }
            Op::Delete { file, tells } => {
                world.store.remove(&*path(file));
                if tells {
                    world.catalogue.written(&path(file), now);
                }
            }
            Op::Ask { file, offset, length, wants } => {
                world.next += 1;
                let wants =
                    [Wants::Bytes, Wants::Bytes, Wants::Bytes, Wants::Bytes, Wants::Warm, Wants::Stat]
                        [wants as usize];
                let read = Read {
                    client: 1,
                    request: world.next,
                    item: 0,
                    wants,
                    path: path(file),
                    offset,
                    length,
                    expected: None,
                    since: 0,
                };
                world.asked.insert(world.next, read.clone());
                let least = world.store.get(&*path(file)).map_or(0, |(number, _)| *number);
                world.least.insert(world.next, least);
                world.catalogue.begin(read, now);
            }
            Op::End { which, fails } if !world.flights.is_empty() => {
                let at = which % world.flights.len();
                let task = world.flights.swap_remove(at);
                world.end(task, fails);
            }
            Op::Release { which } if !world.leased.is_empty() => {
                let at = which % world.leased.len();
                let lease = world.leased.swap_remove(at);
                world.catalogue.release(lease.block);
            }
            Op::Forget { file } => drop(world.catalogue.forget(&path(file))),
            Op::Save { touches, is_refused } => {
                world.catalogue.touched(0..touches, touches.into());
                let taken = world.catalogue.take_unsaved(8 << 20);
                for (_, victim) in &taken {
                    let (_, path, version, index) = &world.bytes[&victim.extent.offset];
                    assert_eq!((path, version, *index), (&victim.path, &victim.version, victim.index));
                }
                let of = &world.catalogue.blocks;
                let is_attached =
                    |id: &BlockId| of[*id as usize].as_ref().is_some_and(|block| block.attached);
                let attached: Vec<BlockId> = taken.iter().map(|(id, _)| *id).filter(is_attached).collect();
                let blocks = taken.iter().map(|(id, _)| *id);
                if is_refused {
                    world.catalogue.put_back_unsaved(blocks);
                    let next = world.catalogue.unsaved.iter().take(attached.len());
                    assert!(next.eq(&attached), "the next ones are those that were put back");
                } else {
                    blocks.for_each(|id| world.catalogue.release(id));
                }
            }
            Op::Pass { nanos } => world.now += nanos,
            _ => {}
        }
        world.settle();
    }
    for lease in std::mem::take(&mut world.leased) {
        world.catalogue.release(lease.block);
    }
    let mut flights = 0;
    while let Some(task) = world.flights.pop() {
        flights += 1;
        assert!(flights < 10_000, "flights beget flights without end");
        world.end(task, false);
        for lease in std::mem::take(&mut world.leased) {
            world.catalogue.release(lease.block);
        }
        world.settle();
    }
    assert!(
        world.asked.is_empty() && world.catalogue.waiting.is_empty(),
        "reads without an answer: {:?}",
        world.asked
    );
    world.catalogue.forget("");
    assert_eq!(world.catalogue.extents.free_bytes(), ARENA, "bytes that nothing holds are not free");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn every_read_is_answered_once_with_one_version_and_no_leased_byte_is_reused(
        mode in 0u8..3,
        ops in prop::collection::vec(op(), 0..250),
    ) {
        run([Freshness::Immutable, Freshness::Ttl(100), Freshness::Always][mode as usize], ops);
    }
}

fn read(request: u64, path: &str) -> Read {
    let (client, item, wants, offset, length) = (1, 0, Wants::Bytes, 0, u64::MAX);
    Read { client, request, item, wants, path: path.into(), offset, length, expected: None, since: 0 }
}

fn answers(catalogue: &mut Catalogue) -> Vec<u64> {
    let done = std::mem::take(&mut catalogue.done);
    done.into_iter().map(|done| done.request).collect()
}

fn start(catalogue: &mut Catalogue, path: &str, epoch: u64, number: u64, length: u64) {
    let Room::Found(extent) = catalogue.allocate(length) else { panic!("no room") };
    catalogue.checked(&path.into(), epoch, Ok((Meta { version: version(number), length }, Some(extent))), 5);
}

#[test]
fn readers_of_a_cold_file_share_one_flight() {
    let mut catalogue = catalogue(Freshness::Immutable);
    (0..16).for_each(|request| catalogue.begin(read(request, "a"), 1));
    assert_eq!(catalogue.tasks, [Task::Start { path: "a".into(), epoch: 0, first: true }]);
    start(&mut catalogue, "a", 0, 1, 1000);
    assert_eq!(answers(&mut catalogue), (0..16).collect::<Vec<_>>());
    catalogue.begin(read(99, "a"), 6);
    assert_eq!((answers(&mut catalogue), catalogue.tasks.len(), catalogue.counts.hits), (vec![99], 1, 17));
}

#[test]
fn with_always_readers_that_come_during_a_check_share_the_next_one() {
    let mut catalogue = catalogue(Freshness::Always);
    (0..3).for_each(|request| catalogue.begin(read(request, "a"), 1 + request));
    start(&mut catalogue, "a", 0, 1, 1000);
    assert_eq!(
        answers(&mut catalogue),
        [0],
        "the flight may have begun before a change that the others know of"
    );
    assert_eq!(catalogue.tasks[1..], [Task::Head { path: "a".into(), epoch: 0 }]);
    catalogue.checked(&"a".into(), 0, Ok((Meta { version: version(1), length: 1000 }, None)), 9);
    assert_eq!((answers(&mut catalogue), catalogue.tasks.len()), (vec![1, 2], 2));
}

#[test]
fn a_flight_that_began_before_a_write_is_made_again() {
    let mut catalogue = catalogue(Freshness::Immutable);
    catalogue.begin(read(1, "a"), 1);
    catalogue.written(&"a".into(), 2);
    start(&mut catalogue, "a", 0, 1, 1000);
    assert_eq!(answers(&mut catalogue), [0u64; 0]);
    assert_eq!(catalogue.tasks[1..], [Task::Start { path: "a".into(), epoch: 1, first: true }]);
    start(&mut catalogue, "a", 1, 2, 1000);
    assert_eq!(answers(&mut catalogue), [1]);
}

#[test]
fn in_an_outage_a_file_past_its_time_is_served_and_checked_again_a_second_later() {
    const TTL: Nanos = 10_000_000_000;
    let mut catalogue = catalogue(Freshness::Ttl(TTL));
    catalogue.begin(read(1, "a"), 1);
    start(&mut catalogue, "a", 0, 1, 1000);
    catalogue.begin(read(2, "a"), 1 + TTL);
    let down = || Err(Fault::Unavailable("down".into()));
    catalogue.checked(&"a".into(), 0, down(), 2 + TTL);
    assert_eq!((answers(&mut catalogue), catalogue.counts.served_in_outage), (vec![1, 2], 1));
    catalogue.begin(read(3, "a"), 3 + TTL);
    assert_eq!((answers(&mut catalogue), catalogue.tasks.len()), (vec![3], 2));
    catalogue.begin(read(4, "a"), 2 + TTL + 1_000_000_000);
    assert_eq!((answers(&mut catalogue), catalogue.tasks.len()), (Vec::<u64>::new(), 3));
}

/// Runs a claim with the bug planted; it has to fail.
fn found_with(bug: &crate::planted::Switch, claim: fn()) {
    static ONE_AT_A_TIME: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock();
    bug.set(true);
    let result = std::panic::catch_unwind(claim);
    bug.set(false);
    assert!(result.is_err(), "the planted bug was not found");
}

#[test]
fn a_write_here_ends_what_is_known_of_the_file() {
    let mut catalogue = catalogue(Freshness::Immutable);
    catalogue.begin(read(1, "a"), 1);
    start(&mut catalogue, "a", 0, 1, 1000);
    let index = catalogue.index.clone().unwrap();
    assert!(index.find("a", 0, 6).is_some());
    catalogue.written(&"a".into(), 7);
    assert!(index.find("a", 0, 8).is_none(), "clients read the old version without a question");
    catalogue.begin(read(2, "a"), 8);
    assert_eq!(answers(&mut catalogue), [1], "the old version is served after the change");
}

#[test]
fn a_file_that_is_brought_beside_another_is_taken_in_the_known_version_alone() {
    let mut catalogue = catalogue(Freshness::Immutable);
    catalogue.begin(Read { wants: Wants::Stat, ..read(1, "a") }, 1);
    catalogue.checked(&"a".into(), 0, Ok((Meta { version: version(2), length: 1000 }, None)), 5);
    let offer = |number: u64, len| Offer { path: "a".into(), version: number_of(&version(number)), len };
    let offers = [offer(1, 1000), offer(2, 999), Offer { path: "unknown".into(), ..offer(2, 1000) }];
    assert!(catalogue.room_beside(&offers, &[0, 1, 2], true).found.is_empty());
    let right = [offer(2, 1000)];
    let found = catalogue.room_beside(&right, &[0], true).found;
    assert_eq!(found.len(), 1);
    catalogue.brought(&right[0], found[0].1);
    catalogue.check_invariants();
    catalogue.begin(read(2, "a"), 6);
    assert_eq!((answers(&mut catalogue), catalogue.tasks.len(), catalogue.counts.hits), (vec![1, 2], 1, 1));
    assert!(catalogue.room_beside(&right, &[0], true).found.is_empty(), "it is here");
}

#[test]
fn brought_files_make_way_for_others_and_whether_they_were_used_is_counted() {
    let mut catalogue = catalogue(Freshness::Immutable);
    let len = ARENA / 4;
    for (n, path) in ["a", "b", "c"].into_iter().enumerate() {
        catalogue.begin(Read { wants: Wants::Stat, ..read(n as u64, path) }, 1);
        let meta = Meta { version: version(1), length: len };
        catalogue.checked(&path.into(), 0, Ok((meta, None)), 5);
    }
    let number = number_of("v1");
    let offers: Vec<Offer> =
        ["a", "b", "c"].into_iter().map(|path| Offer { path: path.into(), version: number, len }).collect();
    for (place, extent) in catalogue.room_beside(&offers, &[0, 1], true).found {
        catalogue.brought(&offers[place], extent);
    }
    let ids: Vec<BlockId> = catalogue
        .blocks
        .iter()
        .enumerate()
        .filter(|(_, b)| b.as_ref().is_some_and(|b| &*b.path == "a"))
        .map(|(id, _)| id as u32)
        .collect();
    catalogue.touched(ids.clone(), 1);
    assert_eq!(
        catalogue.take_news_of_brought(),
        (1, 0),
        "a use counts when it comes, not when the file is evicted"
    );
    catalogue.touched(ids, 1);
    let Room::Found(_taken) = catalogue.allocate(ARENA / 2) else { panic!("half is free") };
    let wanted = catalogue.room_beside(&offers, &[2], true);
    assert_eq!((wanted.found.len(), wanted.waiting, wanted.victims.len()), (0, vec![2], 1));
    assert_eq!(&*wanted.victims[0].path, "b", "it was not used for longest");
    assert_eq!(catalogue.take_news_of_brought(), (0, 1));
    catalogue.give_back(wanted.victims[0].extent);
    let found = catalogue.room_beside(&offers, &[2], false).found;
    catalogue.brought(&offers[2], found[0].1);
    assert!(matches!(catalogue.allocate(ARENA / 4), Room::Evicted(victims) if &*victims[0].path == "a"));
    assert_eq!((catalogue.take_news_of_brought(), catalogue.counts.brought), ((0, 0), 3));
    catalogue.check_invariants();
}

#[test]
#[ignore = "a planted bug"]
fn planted_old_flight_believed_is_found() {
    found_with(&crate::planted::OLD_FLIGHT_BELIEVED, a_flight_that_began_before_a_write_is_made_again);
}

#[test]
#[ignore = "a planted bug"]
fn planted_known_after_write_is_found() {
    found_with(&crate::planted::KNOWN_AFTER_WRITE, a_write_here_ends_what_is_known_of_the_file);
}

#[test]
#[ignore = "a planted bug"]
fn planted_brought_version_ignored_is_found() {
    found_with(
        &crate::planted::BROUGHT_VERSION_IGNORED,
        a_file_that_is_brought_beside_another_is_taken_in_the_known_version_alone,
    );
}

#[test]
#[ignore = "a planted bug"]
fn planted_not_withdrawn_is_found() {
    found_with(&crate::planted::NOT_WITHDRAWN, a_write_here_ends_what_is_known_of_the_file);
}

/// Another node's read that wants nothing older than `since`.
fn of_peer(request: u64, path: &str, since: Nanos) -> Read {
    Read { client: PEER, since, ..read(request, path) }
}

#[test]
fn what_is_forgotten_written_or_known_bounds_the_age_of_what_another_node_may_say() {
    let mut catalogue = catalogue(Freshness::Ttl(1000));
    assert_eq!(catalogue.since("a"), 0);
    catalogue.begin(read(1, "a"), 10);
    let meta = Meta { version: version(1), length: 100 };
    catalogue.checked_at(&"a".into(), 0, Ok((meta.clone(), None)), Some(7), 12);
    assert_eq!(catalogue.since("a"), 7, "as old as the other node said");
    assert!(!catalogue.learn(&"a".into(), &Meta { version: version(2), length: 100 }, 9, 13), "it is known");
    catalogue.written(&"a".into(), 20);
    assert_eq!(catalogue.since("a"), 20);
    assert!(!catalogue.learn(&"b".into(), &meta, 5, 2000), "it is too old");
    assert!(catalogue.learn(&"b".into(), &meta, 1500, 2000));
    catalogue.forget("b");
    assert_eq!(catalogue.since("b"), 1500);
    assert!(
        !catalogue.learn(&"b".into(), &meta, 1499, 2000) && catalogue.learn(&"b".into(), &meta, 1500, 2000)
    );
    catalogue.check_invariants();
}

#[test]
fn another_node_is_told_nothing_older_than_it_asks_for_and_nothing_of_an_outage() {
    const TTL: Nanos = 1_000_000_000;
    let mut catalogue = catalogue(Freshness::Ttl(TTL));
    let meta = |number| Meta { version: version(number), length: 100 };
    catalogue.begin(Read { wants: Wants::Stat, ..of_peer(1, "a", 0) }, 10);
    catalogue.checked(&"a".into(), 0, Ok((meta(1), None)), 11);
    let done = catalogue.done.pop().unwrap();
    assert_eq!((done.client, done.checked), (PEER, 10));
    // It is fresh enough for this node, and for one that asks for no more.
    catalogue.tasks.clear();
    catalogue.begin(Read { wants: Wants::Stat, ..of_peer(2, "a", 10) }, 50);
    assert!(catalogue.tasks.is_empty() && catalogue.done.pop().is_some());
    catalogue.begin(Read { wants: Wants::Stat, ..of_peer(3, "a", 40) }, 50);
    assert!(catalogue.done.is_empty() && catalogue.tasks.len() == 1, "the store is asked");
    // One that wants still more does not join a check that began before.
    catalogue.begin(Read { wants: Wants::Stat, ..of_peer(4, "a", 60) }, 61);
    catalogue.checked(&"a".into(), 0, Ok((meta(2), None)), 70);
    assert_eq!(catalogue.done.pop().map(|done| (done.request, done.checked)), Some((3, 50)));
    assert!(catalogue.done.is_empty());
    let down = || Err(Fault::Unavailable("down".into()));
    catalogue.begin(Read { wants: Wants::Stat, ..read(5, "a") }, 71);
    catalogue.checked(&"a".into(), 0, down(), 72);
    let mut done = std::mem::take(&mut catalogue.done);
    done.sort_by_key(|done| done.request);
    assert!(done[0].answer.is_err() && done[1].answer.is_ok(), "served here, and not to another node");
    catalogue.tasks.clear();
    catalogue.begin(Read { wants: Wants::Stat, ..of_peer(6, "a", 0) }, 73);
    assert!(catalogue.done.is_empty() && catalogue.tasks.len() == 1, "nor afterwards");
}
