//! A local directory and a real S3 server keep the same contract; errors name their cause.

mod s3_server;
mod store_contract;

use s3_server::{KEY, SECRET, Server};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use store_contract::Scratch;
use terrace_io::object::{Settings, open};
use terrace_io::store::{Bytes, Purpose, StoreError};

/// The environment is the process's: tests that need credentials take turns.
static ENVIRONMENT: Mutex<()> = Mutex::new(());

fn with_keys<T>(secret: &str, run: impl FnOnce() -> T) -> T {
    let _turn = ENVIRONMENT.lock().unwrap_or_else(|e| e.into_inner());
    // SAFETY: all access to the environment in this process happens under the lock above.
    unsafe {
        std::env::set_var("AWS_ACCESS_KEY_ID", KEY);
        std::env::set_var("AWS_SECRET_ACCESS_KEY", secret);
    }
    run()
}

fn s3(endpoint: &str, url: &str) -> Settings {
    Settings { endpoint: Some(endpoint.to_string()), ..Settings::new(url) }
}

#[test]
fn a_local_directory_keeps_the_contract() {
    let scratch = Scratch::new("local");
    let store = open(&Settings::new(&format!("file://{}/made/here", scratch.0.display()))).unwrap();
    store_contract::all(&*store);
    store_contract::uploads::a_part_that_the_store_never_got_makes_no_object(&*store);
    store_contract::replaced::all(&*store);
    store_contract::one_of_many_wins(&*store);
    let stats = store.stats().unwrap();
    assert!(stats.of(Purpose::Sink).bytes > 2_000_000 && stats.of(Purpose::PageMiss).requests >= 4);
    let plain = open(&Settings::new(scratch.0.join("made/here").to_str().unwrap())).unwrap();
    assert_eq!(plain.get(Purpose::Merge, "once/a").unwrap().0, b"first");
}

/// Two places in a bucket: the server copies between them, and nothing else is taken for that.
#[test]
fn an_s3_server_copies_objects_between_two_places_of_a_bucket() {
    let scratch = Scratch::new("s3-copies");
    for bucket in ["bucket", "other"] {
        std::fs::create_dir(scratch.0.join(bucket)).unwrap();
    }
    let server = Server::start(&scratch.0, 0);
    with_keys(SECRET, || {
        let place = |url: &str| open(&s3(&server.endpoint, url)).unwrap();
        let (live, backups) = (place("s3://bucket/live"), place("s3://bucket/deep/backups"));
        let body = Bytes::from((0..300_000_u32).map(|n| n as u8).collect::<Vec<u8>>());
        live.put_if_absent(Purpose::Sink, "00/a-1", std::slice::from_ref(&body)).unwrap();
        let origin = live.origin().unwrap();
        assert_eq!(origin.service, backups.origin().unwrap().service);
        for _ in 0..2 {
            backups.copy_within(Purpose::Merge, &origin, "00/a-1", "objects/00/a-1").unwrap();
            assert_eq!(backups.get(Purpose::Merge, "objects/00/a-1").unwrap().0, body);
        }
        // A copy replaces an object that exists, and outlives its source.
        backups.put_if_absent(Purpose::Sink, "objects/b", &[Bytes::from_static(b"old")]).unwrap();
        backups.copy_within(Purpose::Merge, &origin, "00/a-1", "objects/b").unwrap();
        live.delete(Purpose::Collect, "00/a-1").unwrap();
        assert_eq!(backups.get(Purpose::Merge, "objects/b").unwrap().0, body);
        let gone = backups.copy_within(Purpose::Merge, &origin, "00/a-1", "objects/c");
        assert!(matches!(gone, Err(StoreError::Absent { .. })), "{gone:?}");
        assert!(matches!(backups.head(Purpose::Merge, "objects/c"), Err(StoreError::Absent { .. })));
        let elsewhere = place("s3://other/live");
        assert_ne!(elsewhere.origin().unwrap().service, origin.service);
        let refused = elsewhere.copy_within(Purpose::Merge, &origin, "00/a-1", "objects/c");
        assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
        let look =
            open(&Settings { read_only: true, ..s3(&server.endpoint, "s3://bucket/deep/backups") }).unwrap();
        let refused = look.copy_within(Purpose::Merge, &origin, "00/a-1", "objects/c");
        assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
    });
    let local = open(&Settings::new(scratch.0.join("local").to_str().unwrap())).unwrap();
    assert_eq!(local.origin(), None);
}

/// As when a file system is unmounted: objects put below the mount point would be hidden when it is mounted again.
#[test]
fn a_local_directory_that_was_moved_away_answers_nothing() {
    let dir = Scratch::new("moved");
    let (root, away) = (dir.0.join("store"), dir.0.join("away"));
    let store = open(&Settings::new(root.to_str().unwrap())).unwrap();
    store.put_if_absent(Purpose::Sink, "a/b", &[Bytes::from_static(b"one")]).unwrap();
    std::fs::rename(&root, &away).unwrap();
    let unavailable = |result: Result<(), StoreError>| {
        assert!(matches!(result, Err(StoreError::Unavailable { .. })), "{result:?}");
    };
    unavailable(store.get(Purpose::Scrub, "a/b").map(|_| ()));
    std::fs::create_dir(&root).unwrap();
    unavailable(store.get(Purpose::Scrub, "a/b").map(|_| ()));
    unavailable(store.put_if_absent(Purpose::Sink, "a/c", &[Bytes::from_static(b"two")]).map(|_| ()));
    unavailable(store.delete(Purpose::Collect, "a/b"));
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    std::fs::remove_dir(&root).unwrap();
    std::fs::rename(&away, &root).unwrap();
    assert_eq!(store.get(Purpose::Scrub, "a/b").unwrap().0, b"one");
}

#[test]
fn a_local_directory_leaves_no_empty_folders_and_shows_no_staged_files() {
    let scratch = Scratch::new("tidy");
    let store = open(&Settings::new(scratch.0.to_str().unwrap())).unwrap();
    store.put_if_absent(Purpose::Sink, "a/b/c-1", &[Bytes::from_static(b"1")]).unwrap();
    store.put_if_absent(Purpose::Sink, "a/d/c-2", &[Bytes::from_static(b"2")]).unwrap();
    std::fs::write(scratch.0.join("a/b/c-9#1"), b"left by a process that died").unwrap();
    let mut found = Vec::new();
    store.list(Purpose::Scrub, "", &mut |key, _| found.push(key.to_string())).unwrap();
    assert_eq!(found, ["a/b/c-1", "a/d/c-2"]);
    store.delete(Purpose::Collect, "a/d/c-2").unwrap();
    assert!(!scratch.0.join("a/d").exists() && scratch.0.join("a/b").exists());
    store.put_if_absent(Purpose::Sink, "a/d/c-3", &[Bytes::from_static(b"3")]).unwrap();
    assert_eq!(store.get(Purpose::Merge, "a/d/c-3").unwrap().0, b"3");
}

/// A kill amid a put leaves `<key>#<number>`. Only what is said to be dead goes: another instance may have a place
/// below this one, and this one's own puts go on.
#[test]
fn a_local_directory_removes_temporary_files_of_dead_puts_and_nothing_else() {
    let scratch = Scratch::new("staged");
    let root = scratch.0.to_str().unwrap();
    let outer = open(&Settings::new(root)).unwrap();
    let inner = open(&Settings::new(&format!("{root}/in"))).unwrap();
    outer.put_if_absent(Purpose::Sink, "me/1/2-9", &[Bytes::from_static(b"1")]).unwrap();
    inner.put_if_absent(Purpose::Sink, "you/1/2-9", &[Bytes::from_static(b"1")]).unwrap();
    let dead = ["me/1/2-7#1", "me/1/2-9#12", "me/9/1/1-1#1"];
    let stay = ["me/1/3-1#1", "me/1/2-8#x", "me/1/2-8#", "you/1/2-1#1", "in/you/1/2-1#1", "in/me/1/2-1#1"];
    for file in dead.iter().chain(&stay) {
        std::fs::create_dir_all(scratch.0.join(file).parent().unwrap()).unwrap();
        std::fs::write(scratch.0.join(file), b"cut off").unwrap();
    }
    let is_dead = |key: &str| !key.contains("/3-");
    assert_eq!(outer.remove_staged(Purpose::Scrub, "me/", &is_dead).unwrap(), 3);
    assert!(dead.iter().all(|file| !scratch.0.join(file).exists()));
    assert!(stay.iter().all(|file| scratch.0.join(file).exists()));
    assert!(!scratch.0.join("me/9").exists(), "an empty directory is left");
    assert_eq!(outer.get(Purpose::Merge, "me/1/2-9").unwrap().0, b"1");
    assert_eq!(outer.remove_staged(Purpose::Scrub, "nobody/", &is_dead).unwrap(), 0);
    let looking = open(&Settings { read_only: true, ..Settings::new(root) }).unwrap();
    assert!(looking.remove_staged(Purpose::Scrub, "me/", &is_dead).is_err());
}

/// The epoch object is put under a lock: the holder knows that temporary files of other processes are stale.
#[test]
fn a_put_of_the_epoch_object_removes_temporary_files_of_dead_puts() {
    let scratch = Scratch::new("epochs");
    let store = open(&Settings::new(scratch.0.to_str().unwrap())).unwrap();
    let left = ["epoch#1", "epoch#27"].map(|name| scratch.0.join(name));
    let leave = || left.iter().for_each(|file| std::fs::write(file, b"cut off").unwrap());
    std::fs::write(scratch.0.join("epochs#1"), b"another's").unwrap();
    leave();
    let version = store.put_if_absent(Purpose::Epoch, "epoch", &[Bytes::from_static(b"1")]).unwrap();
    assert!(left.iter().all(|file| !file.exists()));
    leave();
    store.put_if_match(Purpose::Epoch, "epoch", b"2", &version).unwrap();
    assert!(left.iter().all(|file| !file.exists()) && scratch.0.join("epochs#1").exists());
    assert_eq!(store.get(Purpose::Epoch, "epoch").unwrap().0, b"2");
}

#[test]
fn an_s3_server_keeps_the_contract_under_a_prefix_and_without() {
    let scratch = Scratch::new("s3");
    std::fs::create_dir(scratch.0.join("bucket")).unwrap();
    let server = Server::start(&scratch.0, 0);
    with_keys(SECRET, || {
        let store = open(&s3(&server.endpoint, "s3://bucket/some/prefix")).unwrap();
        assert_eq!(store.describe(), "s3://bucket/some/prefix");
        store_contract::all(&*store);
        let whole = open(&s3(&server.endpoint, "s3://bucket")).unwrap();
        assert_eq!(whole.get(Purpose::Merge, "some/prefix/once/a").unwrap().0, b"first");
        let stats = store.stats().unwrap();
        assert_eq!(stats.total().retries, 0, "a healthy server needs none: {stats:?}");
        assert!(stats.of(Purpose::Sink).bytes > 2_000_000 && stats.of(Purpose::Sink).nanos > 0);
        store_contract::uploads::a_part_that_the_store_never_got_makes_no_object(&*store);
        store_contract::replaced::all(&*store);
    });
}

#[test]
fn many_threads_share_a_store() {
    let scratch = Scratch::new("s3-threads");
    std::fs::create_dir(scratch.0.join("bucket")).unwrap();
    let server = Server::start(&scratch.0, 0);
    with_keys(SECRET, || {
        let settings = Settings { in_flight_max: 4, ..s3(&server.endpoint, "s3://bucket/p") };
        let store = open(&settings).unwrap();
        std::thread::scope(|scope| {
            for i in 0..8u8 {
                let store = &store;
                scope.spawn(move || {
                    for j in 0..5u8 {
                        let key = format!("{i}/{j}");
                        store.put_if_absent(Purpose::Sink, &key, &[Bytes::from(vec![i; 20_000])]).unwrap();
                        let mut buf = [0; 1000];
                        store.get_range(Purpose::PageMiss, &key, 500, &mut buf).unwrap();
                        assert_eq!(buf, [i; 1000]);
                    }
                });
            }
        });
    });
}

#[test]
fn a_wrong_bucket_wrong_keys_and_nonsense_are_refused_by_name() {
    let scratch = Scratch::new("s3-wrong");
    std::fs::create_dir(scratch.0.join("bucket")).unwrap();
    let server = Server::start(&scratch.0, 0);
    with_keys(SECRET, || {
        let wrong = open(&s3(&server.endpoint, "s3://elsewhere")).unwrap();
        // Never “absent”, which would be final. (This server makes a bucket for a put by itself.)
        let refused = wrong.list(Purpose::Scrub, "", &mut |_, _| {}).unwrap_err();
        assert!(
            matches!(&refused, StoreError::Refused { cause, .. } if cause.contains("bucket")),
            "{refused}"
        );
    });
    with_keys("another-secret", || {
        let store = open(&s3(&server.endpoint, "s3://bucket")).unwrap();
        let refused = store.get(Purpose::Merge, "a").unwrap_err();
        assert!(
            matches!(&refused, StoreError::Refused { cause, .. } if cause.contains("denied")),
            "{refused}"
        );
        assert!(!refused.to_string().contains("another-secret"));
    });
    for url in ["ftp://x/y", "s3://", "file://host/dir", "s3:///key"] {
        assert!(matches!(open(&Settings::new(url)), Err(StoreError::Refused { .. })), "{url}");
    }
    let plain = open(&s3("http://192.0.2.1:9", "s3://bucket")).err().expect("plain HTTP to another host");
    assert!(plain.to_string().contains("plain HTTP"), "{plain}");
    let shown = open(&s3("http://192.0.2.1:9", "s3://user:hush@bucket/p?sig=hush")).err().unwrap();
    assert!(!shown.to_string().contains("hush"), "{shown}");
}

#[test]
fn a_dead_server_is_reported_unavailable_in_time() {
    with_keys(SECRET, || {
        // Bound and closed again: no process listens there.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = Settings { attempts_max: 3, ..s3(&format!("http://127.0.0.1:{port}"), "s3://bucket") };
        let store = open(&settings).unwrap();
        let started = Instant::now();
        let put = store.put_if_absent(Purpose::Sink, "a", &[Bytes::from_static(b"1")]);
        assert!(matches!(put, Err(StoreError::Unavailable { .. })), "{put:?}");
        assert!(matches!(store.get(Purpose::Merge, "a"), Err(StoreError::Unavailable { .. })));
        // Two calls of three attempts that each are refused at once: far less than one call's patience of a minute.
        assert!(started.elapsed() < Duration::from_secs(40));
        let stats = store.stats().unwrap();
        assert_eq!((stats.of(Purpose::Sink).retries, stats.of(Purpose::Merge).retries), (2, 2));
        assert_eq!((stats.total().requests, stats.total().errors), (2, 2));
    });
}
