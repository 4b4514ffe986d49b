use super::*;
use crate::AlignedBuf;
use crate::clock::Clock;
use crate::disk::{Class, Disk, File, FileWrite, Op};
use crate::sched::{Sched, Ticket, Woken, WorkerHandle};
use crate::store::{Bytes, ObjectStore, Purpose, Result, StoreError, Version};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that moves only when a thread waits.
#[derive(Default)]
struct Still(AtomicU64);

impl Clock for Still {
    fn now(&self) -> Nanos {
        self.0.load(Ordering::SeqCst)
    }
    fn unix_ms(&self) -> u64 {
        0
    }
}

impl Sched for Still {
    fn wait(&self, _: &Event, _: Ticket, timeout: Option<Nanos>) -> Woken {
        self.0.fetch_add(timeout.unwrap(), Ordering::SeqCst);
        Woken::TimedOut
    }
    fn spawn(&self, _: Box<dyn crate::sched::Worker>) -> Box<dyn WorkerHandle> {
        unreachable!("nobody works here")
    }
}

fn still() -> (World, Arc<Still>) {
    let clock = Arc::new(Still(AtomicU64::new(1_000_000_000)));
    (World { clock: clock.clone(), random: Arc::new(crate::real::RealRandom), sched: clock.clone() }, clock)
}

fn took(clock: &Still, work: impl FnOnce()) -> Nanos {
    let before = clock.now();
    work();
    clock.now() - before
}

#[test]
fn a_batch_is_one_latency_and_all_share_the_bandwidth() {
    let (world, clock) = still();
    let dir = std::env::temp_dir().join(format!("terrace-emulate-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let device = Device {
        read: 100 * MICRO,
        write: 200 * MICRO,
        bandwidth: 1_000_000_000,
        rate: 1_000_000,
        spread: EVEN,
    };
    let inner = crate::real::disk::RealDisk::open(dir.to_str().unwrap()).unwrap();
    let disk = disk(world, Arc::new(inner), device);
    let file = disk.create("f").unwrap();
    file.grow(64 << 20, false).unwrap();
    let mut buf = AlignedBuf::zeroed(4096);
    assert_eq!(took(&clock, || file.write(Class::LogWrite, 0, &buf).unwrap()), 200 * MICRO);
    assert_eq!(took(&clock, || file.read(Class::PageRead, 0, &mut buf).unwrap()), 100 * MICRO);
    let mut bufs: Vec<AlignedBuf> = (0..8).map(|_| AlignedBuf::zeroed(4096)).collect();
    let mut ops: Vec<Op<'_>> =
        bufs.iter_mut().enumerate().map(|(i, buf)| Op::Read { offset: 4096 * i as u64, buf }).collect();
    let batch = took(&clock, || file.batch(Class::PageRead, &mut ops).into_iter().for_each(|r| r.unwrap()));
    assert_eq!(batch, 100 * MICRO, "eight reads of a batch are one latency");
    // 64 MiB at 1 GB/s take 67 ms, whatever the latency, less the burst.
    let mut large = AlignedBuf::zeroed(64 << 20);
    let long = took(&clock, || file.read(Class::PageRead, 0, &mut large).unwrap());
    assert!((60 * MILLI..70 * MILLI).contains(&long), "{long}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn files_written_together_are_one_latency_and_all_their_bytes() {
    let (world, clock) = still();
    let dir = std::env::temp_dir().join(format!("terrace-emulate-together-{}", std::process::id()));
    let device = Device {
        read: 100 * MICRO,
        write: 200 * MICRO,
        bandwidth: 1_000_000_000,
        rate: 1_000_000,
        spread: EVEN,
    };
    let inner: Arc<dyn Disk> = Arc::new(crate::real::disk::RealDisk::open(&dir).unwrap());
    let disk = disk(world, inner.clone(), device);
    let files: Vec<Arc<dyn File>> = (0..4).map(|i| disk.create(&format!("f{i}")).unwrap()).collect();
    let bufs: Vec<AlignedBuf> = (1..5u8).map(|i| AlignedBuf::from_slice(&[i; 4096])).collect();
    let wrong = 1; // its write is refused
    let place = |i: usize, file: usize| if i == file { 7 } else { 0 };
    let mut writes: Vec<FileWrite<'_>> = (0..4)
        .map(|i| FileWrite {
            file: &*files[i],
            ops: vec![Op::Write { offset: place(i, wrong), buf: &bufs[i] }],
        })
        .collect();
    let mut results = Vec::new();
    let small = took(&clock, || results = disk.write_synced(Class::LogWrite, &mut writes));
    assert_eq!(small, 200 * MICRO, "four files are one latency");
    assert!(matches!(results[..], [Ok(()), Err(_), Ok(()), Ok(())]), "{results:?}");
    assert!(writes.iter().all(|w| w.ops.len() == 1), "the caller's requests are his still");
    let stats = disk.stats().unwrap();
    assert_eq!(stats.syncs_of(Class::LogWrite).requests, 3);
    let writes_of = stats.of(Class::LogWrite);
    assert_eq!((writes_of.requests, writes_of.errors, writes_of.bytes), (4, 1, 3 * 4096));
    assert_eq!(writes_of.mean(), 200 * MICRO, "the emulated device's time is counted, not the real one's");
    let mut back = AlignedBuf::zeroed(4096);
    inner.open("f3").unwrap().read(Class::LogRead, 0, &mut back).unwrap();
    assert_eq!(back[0], 4);

    let large = AlignedBuf::zeroed(16 << 20);
    let write = |file| FileWrite { file, ops: vec![Op::Write { offset: 0, buf: &large }] };
    let mut writes: Vec<FileWrite<'_>> = files.iter().map(|file| write(&**file)).collect();
    let long =
        took(&clock, || assert!(disk.write_synced(Class::LogWrite, &mut writes).iter().all(|r| r.is_ok())));
    assert!((60 * MILLI..70 * MILLI).contains(&long), "64 MiB at 1 GB/s, less the burst: {long}");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Answers at once.
struct Instant;

impl ObjectStore for Instant {
    fn describe(&self) -> String {
        "instant".into()
    }
    fn put_if_absent(&self, _: Purpose, _: &str, _: &[Bytes]) -> Result<Version> {
        Ok(Version("1".into()))
    }
    fn put_if_match(&self, _: Purpose, _: &str, _: &[u8], _: &Version) -> Result<Version> {
        Ok(Version("1".into()))
    }
    fn get_range(&self, _: Purpose, _: &str, _: u64, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn get(&self, _: Purpose, key: &str) -> Result<(Vec<u8>, Version)> {
        Err(StoreError::Absent { key: key.into() })
    }
    fn delete(&self, _: Purpose, _: &str) -> Result<()> {
        Ok(())
    }
    fn list(&self, _: Purpose, _: &str, _: &mut dyn FnMut(&str, u64)) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_store_takes_its_latency_and_its_streams_time() {
    let (world, clock) = still();
    let store = store(world, Arc::new(Instant), Remote { spread: EVEN, ..CLOUD.store });
    let page = took(&clock, || store.get_range(Purpose::PageMiss, "k", 0, &mut [0; 16384]).unwrap());
    assert_eq!(page, 30 * MILLI + 163_840, "16 KiB at 100 MB/s");
    let block = vec![0; 2_000_000];
    let put = took(&clock, || {
        _ = store.put_if_absent(Purpose::Sink, "k", &[Bytes::copy_from_slice(&block)]).unwrap()
    });
    assert_eq!(put, 80 * MILLI);
    let absent = took(&clock, || assert!(store.get(Purpose::Epoch, "k").is_err()));
    assert_eq!(absent, 30 * MILLI, "a refusal takes its time too");
    let stats = store.stats().unwrap();
    assert_eq!((stats.of(Purpose::Sink).bytes, stats.of(Purpose::Sink).nanos), (2_000_000, 80 * MILLI));
    assert_eq!(
        (stats.of(Purpose::Epoch).requests, stats.of(Purpose::Epoch).errors),
        (1, 0),
        "an answer is no error"
    );
}

#[test]
fn a_share_serves_a_burst_and_then_one_after_the_other() {
    let share = Share::new();
    let now = 100 * MILLI;
    let ends: Vec<Nanos> = (0..10).map(|_| share.serve(now, MILLI)).collect();
    assert_eq!(ends[..5], [now; 5]);
    assert_eq!(ends[9], now + 5 * MILLI);
}

#[test]
fn profiles_are_found_by_name_and_described() {
    assert_eq!(Profile::named("cloud"), Some(&CLOUD));
    assert_eq!(Profile::named("moon"), None);
    let text = CLOUD.describe();
    assert!(text.contains("volume read 250 µs") && text.contains("GET 30 ms"), "{text}");
}

#[test]
fn a_spread_keeps_the_mean_and_has_its_tail() {
    for spread in [EVEN, TAIL] {
        let steps = 1_000_000;
        let mean = (0..steps).map(|i| spread.at((i as f64 + 0.5) / steps as f64)).sum::<f64>() / steps as f64;
        assert!((mean - 1.0).abs() < 1e-6, "{spread:?}: {mean}");
    }
    let draws = |seed| {
        let draw = super::spread::Draw::new(TAIL, seed);
        (0..200_000).map(|_| draw.next(MILLI)).collect::<Vec<Nanos>>()
    };
    let mut drawn = draws(7);
    assert_eq!(drawn, draws(7), "one seed, one run");
    assert_ne!(drawn, draws(8));
    let mean = drawn.iter().sum::<Nanos>() / drawn.len() as Nanos;
    assert!((990_000..1_010_000).contains(&mean), "{mean}");
    drawn.sort_unstable();
    let near = |quantile: f64, expected: f64| {
        let share = drawn[(drawn.len() as f64 * quantile) as usize] as f64 / MILLI as f64;
        assert!((share / expected - 1.0).abs() < 0.1, "p{quantile}: {share}, expected {expected}");
    };
    near(0.5, 0.9);
    near(0.99, 2.0);
    near(0.999, 5.0);
    assert!(drawn[0] >= 737_000 && drawn[drawn.len() - 1] <= 10 * MILLI);
}

#[test]
fn a_batch_waits_for_its_slowest_request() {
    let (world, clock) = still();
    let dir = std::env::temp_dir().join(format!("terrace-emulate-slowest-{}", std::process::id()));
    let device = Device { bandwidth: u64::MAX, rate: 1_000_000_000, ..CLOUD.volume };
    let disk = disk(world, Arc::new(crate::real::disk::RealDisk::open(&dir).unwrap()), device);
    let file = disk.create("f").unwrap();
    file.grow(4096, false).unwrap();
    let mean_of = |length: usize, rounds: u64| {
        let mut bufs: Vec<AlignedBuf> = (0..length).map(|_| AlignedBuf::zeroed(4096)).collect();
        let all = took(&clock, || {
            for _ in 0..rounds {
                let mut ops: Vec<Op<'_>> = bufs.iter_mut().map(|buf| Op::Read { offset: 0, buf }).collect();
                assert!(file.batch(Class::PageRead, &mut ops).iter().all(|r| r.is_ok()));
            }
        });
        all / rounds
    };
    let (one, many) = (mean_of(1, 400), mean_of(32, 100));
    assert!((225 * MICRO..275 * MICRO).contains(&one), "{one}");
    // Of 32 draws the largest is on the mean near the quantile 32/33.
    assert!((400 * MICRO..600 * MICRO).contains(&many), "{many}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_background_batch_pauses_for_others_and_a_readers_does_not() {
    let (world, clock) = still();
    let dir = std::env::temp_dir().join(format!("terrace-emulate-pauses-{}", std::process::id()));
    let device =
        Device { read: MICRO, write: 200 * MICRO, bandwidth: u64::MAX, rate: 1_000_000_000, spread: EVEN };
    let disk = disk(world, Arc::new(crate::real::disk::RealDisk::open(&dir).unwrap()), device);
    let file = disk.create("f").unwrap();
    let buf = AlignedBuf::zeroed(4096);
    let batch = |class| {
        let mut ops: Vec<Op<'_>> = (0..64).map(|i| Op::Write { offset: 4096 * i, buf: &buf }).collect();
        let results = file.batch(class, &mut ops);
        assert!(results.len() == 64 && results.iter().all(|r| r.is_ok()));
    };
    assert_eq!(took(&clock, || batch(Class::PageFlush)), 800 * MICRO, "four pieces");
    assert_eq!(took(&clock, || batch(Class::LogWrite)), 200 * MICRO, "one");
    assert_eq!(disk.stats().unwrap().of(Class::PageFlush).requests, 64);
    std::fs::remove_dir_all(&dir).unwrap();
}
