//! The contract for a front whose objects users replace at any time.

use super::uploads::{body, put};

use terrace_io::store::{Bytes, Listed, ObjectStore, Purpose, StoreError};

const READ: Purpose = Purpose::BlockRead;
const WRITE: Purpose = Purpose::Sink;

pub fn all(store: &dyn ObjectStore) {
    the_start_of_an_object_tells_length_and_version_of_the_whole(store);
    an_object_is_replaced_whatever_it_was(store);
    an_upload_replaces_an_object(store);
    a_folder_lists_what_lies_directly_in_it(store);
}

fn replace(store: &dyn ObjectStore, key: &str, bytes: &[u8]) {
    store.replace(WRITE, key, &[Bytes::copy_from_slice(bytes)]).unwrap();
}

fn the_start_of_an_object_tells_length_and_version_of_the_whole(store: &dyn ObjectStore) {
    let whole = body(100_000);
    for (length, max) in [(100_000, 1000), (1000, 1000), (10, 1000), (1, 1000), (0, 1000)] {
        let key = format!("start/{length}");
        replace(store, &key, &whole[..length]);
        let start = store.get_start(READ, &key, max).unwrap();
        assert_eq!(start.length, length as u64);
        assert_eq!(start.bytes, whole[..length.min(max)], "{length} bytes, the first {max} of them");
        assert_eq!((start.length, start.version), store.head(READ, &key).unwrap());
    }
    let absent = store.get_start(READ, "start/none", 10);
    assert!(matches!(absent, Err(StoreError::Absent { .. })), "{absent:?}");
}

fn an_object_is_replaced_whatever_it_was(store: &dyn ObjectStore) {
    replace(store, "replaced", b"one");
    let (_, one) = store.head(READ, "replaced").unwrap();
    replace(store, "replaced", b"another");
    let (bytes, two) = store.get(READ, "replaced").unwrap();
    assert_eq!(bytes, b"another");
    assert_ne!(one, two);
    let mut buf = [0; 3];
    let old = store.get_range_of(READ, "replaced", 0, &mut buf, &one);
    assert!(matches!(old, Err(StoreError::Conflict { .. })), "{old:?}");
}

fn an_upload_replaces_an_object(store: &dyn ObjectStore) {
    put(store, "uploaded-over", b"before").unwrap();
    let after = Bytes::from(body(6 << 20));
    let upload = store.begin_upload(WRITE, "uploaded-over").unwrap();
    let parts = [(0, 0, 5 << 20), (1, 5 << 20, 6 << 20)].map(|(number, from, to)| {
        store.put_part(WRITE, &upload, number, from as u64, &after.slice(from..to)).unwrap()
    });
    assert_eq!(store.get(READ, "uploaded-over").unwrap().0, b"before");
    let version = store.complete_replacing(WRITE, &upload, &parts).unwrap();
    let (found, now) = store.get(READ, "uploaded-over").unwrap();
    assert!(found == after, "the object is not the upload's");
    assert_eq!(now, version);
}

fn a_folder_lists_what_lies_directly_in_it(store: &dyn ObjectStore) {
    for key in ["tree/b", "tree/a/x/1", "tree/a/y", "tree/c/z", "treetop"] {
        replace(store, key, key.as_bytes());
    }
    let list = |folder: &str| {
        let mut found = Vec::new();
        store
            .list_folder(READ, folder, &mut |listed| {
                found.push(match listed {
                    Listed::Folder(name) => format!("{name}/"),
                    Listed::Object { key, length, .. } => format!("{key} {length}"),
                });
            })
            .unwrap();
        found
    };
    assert_eq!(list("tree"), ["tree/a/", "tree/b 6", "tree/c/"]);
    assert_eq!(list("tree/a"), ["tree/a/x/", "tree/a/y 8"]);
    assert_eq!(list("nothing"), [""; 0]);
    assert!(list("").contains(&"tree/".to_string()));
}
