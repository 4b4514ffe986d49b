//! The checker over a store that is slow, and over one that stops answering: it reads several objects in parallel, but a
//! bounded number, does not read page by page, and terminates.

mod instance;

use instance::{Instance, commit, create, insert};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_engine::Isolation;
use terrace_engine::offline::check::{self, Options, Report, Verdict};
use terrace_engine::offline::instance::OfflineInstance;
use terrace_io::object;
use terrace_io::real::disk::RealDisk;
use terrace_io::store::{Bytes, ObjectStore, Purpose, Result, StoreError, Version};

/// Each read takes `delay`; after `answers` of them there is no answer any more.
struct Far {
    inner: Arc<dyn ObjectStore>,
    answers: u64,
    delay: Duration,
    reads: AtomicU64,
    now: AtomicU64,
    most: AtomicU64,
}

impl Far {
    fn read<T>(&self, key: &str, read: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.reads.fetch_add(1, Ordering::SeqCst) >= self.answers {
            return Err(StoreError::Unavailable { key: key.into(), cause: "silence".into() });
        }
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        std::thread::sleep(self.delay);
        let result = read();
        self.now.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

impl ObjectStore for Far {
    fn describe(&self) -> String {
        "far away".into()
    }
    fn put_if_absent(&self, _: Purpose, _: &str, _: &[Bytes]) -> Result<Version> {
        unreachable!("a check puts nothing")
    }
    fn put_if_match(&self, _: Purpose, _: &str, _: &[u8], _: &Version) -> Result<Version> {
        unreachable!("a check puts nothing")
    }
    fn delete(&self, _: Purpose, _: &str) -> Result<()> {
        unreachable!("a check deletes nothing")
    }
    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(key, || self.inner.get_range(purpose, key, offset, buf))
    }
    fn get(&self, purpose: Purpose, key: &str) -> Result<(Vec<u8>, Version)> {
        self.read(key, || self.inner.get(purpose, key))
    }
    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()> {
        self.inner.list(purpose, prefix, each)
    }
}

/// Everything in objects, many of them.
fn instance(name: &str) -> Instance {
    let instance = Instance::empty(name);
    let engine = instance.open();
    let table = create(&engine);
    for part in 0..30u64 {
        let txn = engine.begin(Isolation::RepeatableRead);
        (part * 1000..(part + 1) * 1000).for_each(|n| insert(&txn, &table, n));
        commit(txn);
    }
    engine.core().storage.checkpoint().unwrap();
    engine.core().storage.cold.clone().unwrap().sinker.sink_all().unwrap();
    engine.shutdown().unwrap();
    instance
}

fn check(instance: &Instance, answers: u64, quick: bool) -> (Report, Arc<Far>) {
    check_after(instance, answers, quick, Duration::from_millis(20))
}

fn check_after(instance: &Instance, answers: u64, quick: bool, delay: Duration) -> (Report, Arc<Far>) {
    let inner = object::open(&object::Settings::new(instance.at("objects").to_str().unwrap())).unwrap();
    let new = AtomicU64::default;
    let far = Arc::new(Far { inner, answers, delay, reads: new(), now: new(), most: new() });
    let volume = Arc::new(RealDisk::open_to_read(instance.at("volume")).unwrap());
    let look = OfflineInstance::open(volume, Some(far.clone())).unwrap();
    let report = check::check(&look, &Options { quick, flash: None }, &mut |_, _, _| {});
    (report, far)
}

#[test]
fn a_check_reads_objects_in_parallel_and_trees_not_page_by_page() {
    let instance = instance("far");
    // On a busy machine a short request may end before the next thread has begun: then longer ones.
    let mut most = 0;
    let quick = [20, 100, 500].into_iter().map(Duration::from_millis).find_map(|delay| {
        let (report, quick) = check_after(&instance, u64::MAX, true, delay);
        assert!(report.verdict() == Verdict::Sound && report.objects >= 6, "{report:?}");
        most = quick.most.load(Ordering::SeqCst);
        assert!(most <= 16, "{most} requests at a time");
        (most >= 3).then_some(quick)
    });
    let quick = quick.unwrap_or_else(|| panic!("only {most} requests at a time"));

    let (report, whole) = check(&instance, u64::MAX, false);
    assert!(report.verdict() == Verdict::Sound && report.entries == 60_000, "{report:?}");
    let more = whole.reads.load(Ordering::SeqCst) - quick.reads.load(Ordering::SeqCst);
    // Large values are chains of pages here and there.
    let large = report.overflow;
    assert!(more <= 3 * report.objects + large, "{more} reads of {} objects for the trees", report.objects);
    assert!(report.pages_object > 10 * report.objects);
    assert!(whole.most.load(Ordering::SeqCst) <= 16);
}

#[test]
fn a_store_that_stops_answering_during_a_check_is_given_up_and_reported() {
    let instance = instance("silent");
    let (_, all) = check(&instance, u64::MAX, false);
    let all = all.reads.load(Ordering::SeqCst);
    let (_, quick) = check(&instance, u64::MAX, true);
    let quick = quick.reads.load(Ordering::SeqCst);
    // Amid the objects, then amid the trees.
    for answers in [3, quick / 2, (quick + all) / 2] {
        let (report, far) = check(&instance, answers, false);
        assert_eq!(report.verdict(), Verdict::Incomplete, "after {answers} of {all}: {report:?}");
        let silent = far.reads.load(Ordering::SeqCst) - answers;
        assert!(silent < 64, "{silent} requests to a store that is silent");
        assert!(report.leaked.is_empty(), "{report:?}");
    }
}
