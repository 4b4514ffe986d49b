use super::*;
use crate::Engine;
use crate::Parts;
use crate::config::{Bytes, Config};
use crate::offline::instance::OfflineInstance;
use terrace_sim::{SimDisk, SimWorld};

fn one() -> Superblock {
    Superblock {
        version: VERSION,
        instance: 1 << 100,
        lineage: 2,
        generation: 1,
        epoch: 3,
        clean: true,
        has_store: false,
        archiving: 2,
        checkpoint: 4,
        attested: 5,
        transactions: 6,
        sequences: 7,
        spaces: 8,
        slots: 9,
        log_blocks: 512,
        starts: vec![1, 2, 3],
        history: vec![(2, 10), (3, 20)],
        takers: vec![Taker { epoch: 1, nonce: 0, mark: 0 }, Taker { epoch: 3, nonce: 1 << 60, mark: 7 }],
        map_newest: 3,
        map_digest: NonZeroU32::new(1 << 31),
    }
}

fn disk(superblock: &Superblock) -> std::sync::Arc<SimDisk> {
    let disk = SimWorld::new(1).disk("volume");
    superblock.create_as(&*disk, FILE).unwrap();
    disk.sync_dir().unwrap();
    disk
}

#[test]
fn a_superblock_reads_back_as_written() {
    let mut superblock = one();
    let disk = disk(&superblock);
    assert_eq!(Superblock::read(&*disk).unwrap(), superblock);
    for _ in 0..5 {
        superblock.generation += 1;
        superblock.checkpoint += 10;
        superblock.write(&*disk.open(FILE).unwrap()).unwrap();
        assert_eq!(Superblock::read(&*disk).unwrap(), superblock);
    }
}

#[test]
fn a_torn_write_leaves_the_copy_before() {
    for seed in 0..50 {
        let sim = SimWorld::new(seed);
        let disk = sim.disk("volume");
        let old = one();
        old.create_as(&*disk, FILE).unwrap();
        disk.sync_dir().unwrap();
        let new = Superblock { generation: 2, checkpoint: 99, ..old.clone() };
        sim.crash_at(sim.steps() + 3); // open, write, and the sync fails
        assert!(new.write(&*disk.open(FILE).unwrap()).is_err());
        disk.crash();
        sim.power_on();
        let found = Superblock::read(&*disk).unwrap();
        assert!(found == old || found == new, "seed {seed}");
    }
}

#[test]
fn garbage_in_both_copies_is_corrupt_and_another_version_is_named() {
    let disk_of_two = disk(&one());
    Superblock { generation: 2, ..one() }.write(&*disk_of_two.open(FILE).unwrap()).unwrap();
    assert!(disk_of_two.flip(FILE, 100, 3));
    assert_eq!(Superblock::read(&*disk_of_two).unwrap().generation, 1);
    assert!(disk_of_two.flip(FILE, 4096 + 700, 3));
    assert!(matches!(Superblock::read(&*disk_of_two), Err(Error::Corrupt(_))));

    for (version, instead) in
        [(4, "dump its tables with the build that made it"), (19, "a later build made it")]
    {
        let disk = disk(&one());
        let mut other = one().encode();
        other[16] = version;
        let crc = crc32c::crc32c(&other[4..]);
        other[..4].copy_from_slice(&crc.to_le_bytes());
        disk.open(FILE).unwrap().write(Class::Superblock, 0, &other).unwrap();
        let Err(Error::Invalid(message)) = Superblock::read(&*disk) else { panic!("read") };
        assert!(message.contains(instead), "{message}");
        let named = format!("version {version} with pages of 16384 bytes; this build reads versions 5 to 18");
        assert!(message.contains(&named), "{message}");
    }
}

#[test]
fn a_superblock_that_is_too_short_is_corrupt_and_names_the_volume() {
    let disk = SimWorld::new(1).disk("volume");
    disk.create(FILE).unwrap().grow(COPY as u64, true).unwrap();
    let Err(Error::Corrupt(message)) = Superblock::read(&*disk) else { panic!("read") };
    assert!(message.contains(&disk.describe()) && message.contains("4096 bytes of 8192"), "{message}");
}

#[test]
fn each_epoch_owns_the_log_up_to_the_next_ones_start() {
    let mut s = Superblock { checkpoint: 100, epoch: 0, history: vec![], ..one() };
    s.begin_epoch(100).unwrap();
    s.begin_epoch(150).unwrap();
    s.begin_epoch(150).unwrap(); // the one before appended nothing that counts
    s.begin_epoch(170).unwrap();
    assert_eq!((s.epoch, &s.history[..]), (4, &[(1, 100), (3, 150), (4, 170)][..]));
    assert_eq!([1, 2, 3, 4].map(|e| recovery::cut_of(&s.history, e)), [150, 150, 170, Glsn::MAX]);
    s.checkpoint = 160;
    s.prune_history(Glsn::MAX);
    assert_eq!(s.history, [(3, 150), (4, 170)]);
    assert_eq!(s.attested, 170);
}

#[test]
fn too_many_starts_without_a_checkpoint_are_an_error() {
    let mut s = Superblock { checkpoint: 100, history: vec![], ..one() };
    let error = (0..).find_map(|n| s.begin_epoch(200 + n).err()).unwrap();
    assert!(matches!(error, Error::Full(_)));
    assert_eq!(s.history.len(), HISTORY_MAX);
}

/// A volume of a format that kept no takers: from the first start on it keeps up to where they may have come.
#[test]
fn a_volume_that_took_its_store_before_takers_were_kept_keeps_its_epoch_as_one() {
    let old = Superblock { version: 6, has_store: true, takers: vec![], ..one() };
    let disk = disk(&old);
    let mut s = Superblock::read(&*disk).unwrap();
    assert_eq!(s, old);
    for end in [30, 40] {
        s.begin_epoch(end).unwrap();
        assert_eq!(s.takers, [Taker { epoch: 3, nonce: 0, mark: 0 }]);
    }
    assert_eq!((s.epoch, s.version, old.encode()[16], s.encode()[16]), (5, VERSION, 6, VERSION as u8));
    let mut never = Superblock { version: 5, has_store: false, takers: vec![], ..one() };
    never.begin_epoch(30).unwrap();
    assert_eq!((&never.takers[..], never.version), (&[][..], VERSION));
    // One with patch objects stays one.
    let mut patched = Superblock { version: VERSION_OF_PATCHES, ..one() };
    patched.begin_epoch(30).unwrap();
    assert_eq!((patched.version, patched.encode()[16]), (VERSION_OF_PATCHES, 18));
    for (former, now) in (9..17).map(|former| (former, [VERSION_OF_PATCHES, VERSION][former as usize % 2])) {
        let mut old = Superblock { version: former, ..one() };
        let has_patches = now == VERSION_OF_PATCHES;
        assert_eq!(old.has_patches(), has_patches);
        old.begin_epoch(30).unwrap();
        assert_eq!((old.version, old.has_patches()), (now, has_patches));
    }
}

/// A build before bits made the same superblock except for the version.
#[test]
fn a_volume_with_free_page_chains_is_refused_and_unchanged() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("volume");
    let open = || {
        let config = Config { memory: Bytes(10 << 20), log: Bytes(8 << 20), ..Config::default() };
        let parts = Parts { world: sim.world(), volume: disk.clone(), flash: None, store: None };
        Engine::open(config, parts)
    };
    open().unwrap().shutdown().unwrap();
    let now = disk.contents(FILE).unwrap();
    let mut old = AlignedBuf::zeroed(2 * COPY);
    old.copy_from_slice(&now);
    for copy in old.chunks_exact_mut(COPY).filter(|copy| copy[8..16] == MAGIC) {
        copy[16] = 1;
        let crc = crc32c::crc32c(&copy[4..]);
        copy[..4].copy_from_slice(&crc.to_le_bytes());
    }
    disk.open(FILE).unwrap().write(Class::Superblock, 0, &old).unwrap();
    let files =
        || disk.list().unwrap().into_iter().map(|name| (disk.contents(&name), name)).collect::<Vec<_>>();
    let before = files();
    let refused = "format version 1 with pages of 16384 bytes; this build reads versions 5 to 18 with 16384; it is older than that: dump";
    for _ in 0..2 {
        let Err(Error::Invalid(message)) = open() else { panic!("it was opened") };
        assert!(message.contains(refused), "{message}");
        let Err(Error::Invalid(message)) = OfflineInstance::open(disk.clone(), None) else {
            panic!("it was looked at")
        };
        assert!(message.contains(refused), "{message}");
    }
    assert!(files() == before);
}
