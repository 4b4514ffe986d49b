//! The contract of every object store: run against the simulated one, a local directory and an S3 server.

#![allow(dead_code)]

pub mod replaced;
pub mod uploads;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use terrace_io::store::{Bytes, ObjectStore, Purpose, StoreError};

/// An empty directory of this test's own, removed at the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("terrace-{name}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn keys(store: &dyn ObjectStore, prefix: &str) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    store.list(Purpose::Scrub, prefix, &mut |key, size| found.push((key.to_string(), size))).unwrap();
    found
}

pub fn all(store: &dyn ObjectStore) {
    what_is_put_is_got(store);
    a_key_is_taken_once(store);
    a_put_on_condition_replaces_only_what_was_read(store);
    ranges_are_exact(store);
    absent_is_final_and_deleting_it_is_ok(store);
    listing_goes_by_text_prefix_in_order(store);
    large_objects_of_many_parts_survive(store);
    uploads::all(store);
}

fn what_is_put_is_got(store: &dyn ObjectStore) {
    let version = store
        .put_if_absent(
            Purpose::Sink,
            "got/1/a-1",
            &[Bytes::from_static(b"hello "), Bytes::from_static(b""), Bytes::from_static(b"world")],
        )
        .unwrap();
    let (body, read) = store.get(Purpose::Merge, "got/1/a-1").unwrap();
    assert_eq!(body, b"hello world");
    assert_eq!(read, version);
    store.put_if_absent(Purpose::Sink, "got/empty", &[]).unwrap();
    assert_eq!(store.get(Purpose::Merge, "got/empty").unwrap().0, b"");
}

fn a_key_is_taken_once(store: &dyn ObjectStore) {
    store.put_if_absent(Purpose::Sink, "once/a", &[Bytes::from_static(b"first")]).unwrap();
    let second = store.put_if_absent(Purpose::Sink, "once/a", &[Bytes::from_static(b"second")]);
    assert!(matches!(second, Err(StoreError::Conflict { .. })), "{second:?}");
    assert_eq!(store.get(Purpose::Merge, "once/a").unwrap().0, b"first");
}

fn a_put_on_condition_replaces_only_what_was_read(store: &dyn ObjectStore) {
    let first = store.put_if_absent(Purpose::Epoch, "match/epoch", &[Bytes::from_static(b"1")]).unwrap();
    let second = store.put_if_match(Purpose::Epoch, "match/epoch", b"22", &first).unwrap();
    assert_ne!(first, second);
    let stale = store.put_if_match(Purpose::Epoch, "match/epoch", b"33", &first);
    assert!(matches!(stale, Err(StoreError::Conflict { .. })), "{stale:?}");
    let (body, version) = store.get(Purpose::Epoch, "match/epoch").unwrap();
    assert_eq!((body.as_slice(), &version), (b"22".as_slice(), &second));
    store.delete(Purpose::Epoch, "match/epoch").unwrap();
    let gone = store.put_if_match(Purpose::Epoch, "match/epoch", b"44", &second);
    assert!(matches!(gone, Err(StoreError::Conflict { .. })), "{gone:?}");
}

fn ranges_are_exact(store: &dyn ObjectStore) {
    let body: Vec<u8> = (0..=255).collect();
    store.put_if_absent(Purpose::Sink, "range/a", &[Bytes::copy_from_slice(&body)]).unwrap();
    let mut buf = [0; 10];
    store.get_range(Purpose::PageMiss, "range/a", 100, &mut buf).unwrap();
    assert_eq!(buf, body[100..110]);
    store.get_range(Purpose::PageMiss, "range/a", 246, &mut buf).unwrap();
    assert_eq!(buf, body[246..]);
    for offset in [247, 256, 1000] {
        let past = store.get_range(Purpose::PageMiss, "range/a", offset, &mut buf);
        assert!(matches!(past, Err(StoreError::Refused { .. })), "at {offset}: {past:?}");
    }
}

fn absent_is_final_and_deleting_it_is_ok(store: &dyn ObjectStore) {
    assert!(matches!(store.get(Purpose::Merge, "absent/a"), Err(StoreError::Absent { .. })));
    let range = store.get_range(Purpose::PageMiss, "absent/a", 0, &mut [0; 4]);
    assert!(matches!(range, Err(StoreError::Absent { .. })), "{range:?}");
    store.delete(Purpose::Collect, "absent/a").unwrap();
    store.put_if_absent(Purpose::Sink, "absent/b", &[Bytes::from_static(b"x")]).unwrap();
    store.delete(Purpose::Collect, "absent/b").unwrap();
    assert!(matches!(store.get(Purpose::Merge, "absent/b"), Err(StoreError::Absent { .. })));
    store.put_if_absent(Purpose::Sink, "absent/b", &[Bytes::from_static(b"again")]).unwrap();
}

fn listing_goes_by_text_prefix_in_order(store: &dyn ObjectStore) {
    for key in ["list/b/2", "list/a/1", "list/b/10", "list/bb", "list/c", "lists"] {
        store.put_if_absent(Purpose::Sink, key, &[Bytes::copy_from_slice(key.as_bytes())]).unwrap();
    }
    let names = |prefix| keys(store, prefix).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(names("list/"), ["list/a/1", "list/b/10", "list/b/2", "list/bb", "list/c"]);
    assert_eq!(names("list/b"), ["list/b/10", "list/b/2", "list/bb"]);
    assert_eq!(names("list/b/"), ["list/b/10", "list/b/2"]);
    assert_eq!(names("none/"), Vec::<String>::new());
    assert_eq!(keys(store, "list/bb"), [("list/bb".to_string(), 7)]);
}

fn large_objects_of_many_parts_survive(store: &dyn ObjectStore) {
    let parts: Vec<Vec<u8>> = (0..129u32).map(|i| vec![i as u8; 16_000 + i as usize]).collect();
    let bodies: Vec<Bytes> = parts.iter().cloned().map(Bytes::from).collect();
    store.put_if_absent(Purpose::Sink, "large/a", &bodies).unwrap();
    let whole = parts.concat();
    assert_eq!(store.get(Purpose::Merge, "large/a").unwrap().0, whole);
    let mut buf = vec![0; 16 << 10];
    store.get_range(Purpose::PageMiss, "large/a", 1_000_000, &mut buf).unwrap();
    assert_eq!(buf, whole[1_000_000..][..16 << 10]);
}

/// If many create one key at the same moment, one wins; if many replace one version, one wins.
pub fn one_of_many_wins(store: &dyn ObjectStore) {
    let race = |put: &(dyn Fn(u8) -> bool + Sync)| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|i| scope.spawn(move || put(i))).collect();
            threads.into_iter().filter(|_| true).map(|t| usize::from(t.join().unwrap())).sum::<usize>()
        })
    };
    for round in 0..20 {
        let key = format!("race/{round}/a");
        let create = |i: u8| match store.put_if_absent(Purpose::Epoch, &key, &[Bytes::from(vec![i; 100])]) {
            Ok(_) => true,
            Err(StoreError::Conflict { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(race(&create), 1);
        let (_, version) = store.get(Purpose::Epoch, &key).unwrap();
        let replace = |i: u8| match store.put_if_match(Purpose::Epoch, &key, &[i; 50], &version) {
            Ok(_) => true,
            Err(StoreError::Conflict { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(race(&replace), 1);
    }
}
