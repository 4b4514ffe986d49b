//! A directory store acknowledges only what survives power loss, and a volume's directory is durable when it is opened.
//!
//! This program's own `fsync` and `fdatasync` note what they make durable: a file's bytes, or the names in a directory.
//! Power loss leaves only what can be reached from the root through noted names.

mod store_contract;

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;
use std::sync::Mutex;
use store_contract::Scratch;
use terrace_io::disk::{Class, Disk};
use terrace_io::object::{Settings, open};
use terrace_io::real::disk::RealDisk;
use terrace_io::store::{Bytes, ObjectStore, Purpose, StoreError};

#[derive(Default)]
struct Durable {
    files: HashMap<u64, Vec<u8>>,
    /// Names in directories, and what they name.
    names: HashMap<u64, HashMap<OsString, u64>>,
}

thread_local! {
    /// The next sync of a directory fails.
    static FAILS_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// By the number of the inode: all is in one file system.
static DURABLE: Mutex<Option<Durable>> = Mutex::new(None);

fn note(fd: c_int) -> std::io::Result<()> {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}"))?;
    let meta = std::fs::metadata(&path)?;
    let mut durable = DURABLE.lock().unwrap();
    let durable = durable.get_or_insert_default();
    if meta.is_dir() {
        let names =
            std::fs::read_dir(&path)?.map(|entry| entry.map(|entry| (entry.file_name(), entry.ino())));
        durable.names.insert(meta.ino(), names.collect::<std::io::Result<_>>()?);
    } else {
        durable.files.insert(meta.ino(), std::fs::read(&path)?);
    }
    Ok(())
}

/// Replaces the C library's function in this whole program. It syncs nothing and only records the calls.
#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    let is_dir = std::fs::metadata(format!("/proc/self/fd/{fd}")).is_ok_and(|meta| meta.is_dir());
    if is_dir && FAILS_ONCE.with(|fails| fails.replace(false)) {
        // SAFETY: this thread's own.
        unsafe { *libc::__errno_location() = libc::EIO };
        return -1;
    }
    if note(fd).is_ok() { 0 } else { -1 }
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    fsync(fd)
}

/// A removed directory's inode number may be reused: recorded names of the old directory don't count for the new one.
#[unsafe(no_mangle)]
extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: a path of the caller's, ended by a zero, as the C library asks for.
    let name = Path::new(std::ffi::OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    let number = std::fs::metadata(name).map(|meta| meta.ino());
    // SAFETY: as above.
    let result = unsafe { libc::unlinkat(libc::AT_FDCWD, path, libc::AT_REMOVEDIR) };
    if let (0, Ok(number)) = (result, number)
        && let Some(durable) = DURABLE.lock().unwrap().as_mut()
    {
        durable.names.remove(&number);
        durable.names.values_mut().for_each(|names| names.retain(|_, named| *named != number));
    }
    result
}

/// What a loss of power leaves of the file of this path below `top`.
fn left(top: &Path, key: &str) -> Option<Vec<u8>> {
    let durable = DURABLE.lock().unwrap();
    let durable = durable.as_ref()?;
    let mut at = std::fs::metadata(top).unwrap().ino();
    for name in Path::new(key) {
        at = *durable.names.get(&at)?.get(name)?;
    }
    durable.files.get(&at).cloned()
}

fn put(store: &dyn ObjectStore, key: &str, body: &'static [u8]) -> Result<(), StoreError> {
    store.put_if_absent(Purpose::Sink, key, &[Bytes::from_static(body)]).map(|_| ())
}

#[test]
fn acknowledged_puts_to_a_directory_survive_power_loss() {
    let scratch = Scratch::new("synced");
    let store = open(&Settings::new(scratch.0.join("new/top").to_str().unwrap())).unwrap();
    let left = |key: &str| left(&scratch.0, &format!("new/top/{key}"));

    for (key, body) in [("a/1/x", b"one"), ("a/1/y", b"two"), ("a/2/x", b"six"), ("top", b"ten")] {
        put(&*store, key, body).unwrap();
        assert_eq!(left(key).as_deref(), Some(&body[..]), "{key}");
    }

    // Power loss leaves nothing of a multipart upload before its completion, and all of it after.
    let upload = store.begin_upload(Purpose::Sink, "c/1/parts").unwrap();
    let send = |number: u32, body: &'static [u8]| {
        let body = Bytes::from_static(body);
        store.put_part(Purpose::Sink, &upload, number, u64::from(number) * 3, &body).unwrap()
    };
    let (last, first) = (send(1, b"two"), send(0, b"one"));
    assert_eq!(left("c/1/parts"), None);
    store.complete_upload(Purpose::Sink, &upload, &[first, last]).unwrap();
    assert_eq!(left("c/1/parts").as_deref(), Some(&b"onetwo"[..]));

    // Of one that another process put and did not sync, or died before it did.
    let other = scratch.0.join("new/top/b/1");
    std::fs::create_dir_all(&other).unwrap();
    std::fs::write(other.join("z"), b"theirs").unwrap();
    assert_eq!(left("b/1/z"), None);
    assert!(matches!(put(&*store, "b/1/z", b"mine"), Err(StoreError::Conflict { .. })));
    assert_eq!(left("b/1/z").as_deref(), Some(&b"theirs"[..]));

    let version = store.put_if_absent(Purpose::Epoch, "epoch", &[Bytes::from_static(b"1")]).unwrap();
    store.put_if_match(Purpose::Epoch, "epoch", b"2", &version).unwrap();
    assert_eq!(left("epoch").as_deref(), Some(&b"2"[..]));

    // A deletion stays one; a directory that is made again is synced again.
    store.delete(Purpose::Collect, "a/1/x").unwrap();
    assert_eq!((left("a/1/x"), left("a/1/y").as_deref()), (None, Some(&b"two"[..])));
    store.delete(Purpose::Collect, "a/1/y").unwrap();
    assert!(!scratch.0.join("new/top/a/1").exists());
    put(&*store, "a/1/w", b"new").unwrap();
    assert_eq!(left("a/1/w").as_deref(), Some(&b"new"[..]));
}

/// A volume's directory is created with its missing parents, and all of them are synced.
#[test]
fn a_volumes_directory_survives_power_loss() {
    let scratch = Scratch::new("volume");
    let volume = RealDisk::open(scratch.0.join("new/volume")).unwrap();
    volume.create("file").unwrap().sync(Class::LogWrite).unwrap();
    volume.sync_dir().unwrap();
    assert!(left(&scratch.0, "new/volume/file").is_some());
}

/// A second sync returns success, and reads come from the page cache: a put that was not synced was taken for whole when it
/// was looked for.
#[test]
fn after_a_failed_sync_nothing_is_acknowledged_until_the_directory_is_reopened() {
    for is_there in [false, true] {
        let scratch = Scratch::new(if is_there { "sync-failed-there" } else { "sync-failed" });
        let place = scratch.0.join("top");
        let store = open(&Settings::new(place.to_str().unwrap())).unwrap();
        put(&*store, "a/1/x", b"one").unwrap();
        if is_there {
            std::fs::write(place.join("a/1/y"), b"two").unwrap();
        }
        FAILS_ONCE.with(|fails| fails.set(true));
        for _ in 0..3 {
            let error = put(&*store, "a/1/y", b"two").unwrap_err();
            assert!(
                matches!(&error, StoreError::Unavailable { cause, .. } if cause.contains("a sync failed")),
                "{error}"
            );
        }
        assert!(put(&*store, "b/1/z", b"six").is_err());
        // What is there can be read all the same.
        let mut read = [0; 3];
        store.get_range(Purpose::PageMiss, "a/1/x", 0, &mut read).unwrap();
        drop(store);
        let store = open(&Settings::new(place.to_str().unwrap())).unwrap();
        put(&*store, "b/1/z", b"six").unwrap();
        assert_eq!(left(&scratch.0, "top/b/1/z").as_deref(), Some(&b"six"[..]));
    }
}
