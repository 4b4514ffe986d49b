//! The contract of multipart uploads and of streams.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_io::store::{
    Bytes, MultipartPlan, ObjectStore, Purpose, Result, StoreError, StreamPlan, UploadPart,
};

/// The least that S3 allows for a part that is not the last.
pub const PART: usize = 5 << 20;

pub fn all(store: &dyn ObjectStore) {
    an_upload_is_invisible_until_it_is_complete_and_then_whole(store);
    an_upload_whose_key_is_taken_meanwhile_is_a_conflict(store);
    an_aborted_upload_leaves_nothing(store);
    a_part_that_is_missing_is_refused(store);
    an_object_put_in_parts_is_streamed_back_in_order(store);
    a_source_that_fits_into_a_part_is_put_by_one_request(store);
    a_source_that_fails_leaves_no_object(store);
    a_stream_ends_when_the_object_is_replaced(store);
}

/// Bytes that differ between any two positions a part's length apart.
pub fn body(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn is_absent(store: &dyn ObjectStore, key: &str) -> bool {
    matches!(store.head(Purpose::Scrub, key), Err(StoreError::Absent { .. }))
}

fn part(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// Puts `body` in parts of [`PART`] bytes, from a source whose pieces have another length.
pub fn put(store: &dyn ObjectStore, key: &str, body: &[u8]) -> Result<()> {
    let mut pieces = body.chunks(700_001);
    let plan = MultipartPlan { part_bytes: PART, in_flight_max: 3 };
    let mut next = || Ok(pieces.next().map(Bytes::copy_from_slice));
    store.put_multipart(Purpose::Sink, key, &plan, &mut next).map(|_| ())
}

/// The object as a stream gives it, in chunks of `chunk_bytes`, `ahead` of them at a time.
pub fn stream(store: &dyn ObjectStore, key: &str, chunk_bytes: usize, ahead: usize) -> Result<Vec<u8>> {
    let mut read = Vec::new();
    let (length, _) =
        store.get_stream(Purpose::Merge, key, &StreamPlan { chunk_bytes, ahead }, &mut |chunk| {
            assert!(chunk.len() <= chunk_bytes);
            read.extend_from_slice(&chunk);
            ControlFlow::Continue(())
        })?;
    assert_eq!(length, read.len() as u64);
    Ok(read)
}

fn an_upload_is_invisible_until_it_is_complete_and_then_whole(store: &dyn ObjectStore) {
    let (key, body) = ("upload/whole", body(2 * PART + 1234));
    let upload = store.begin_upload(Purpose::Sink, key).unwrap();
    let send = |number: usize| {
        let offset = number * PART;
        let bytes = part(&body[offset..body.len().min(offset + PART)]);
        store.put_part(Purpose::Sink, &upload, number as u32, offset as u64, &bytes).unwrap()
    };
    // In any order, and one of them twice.
    let (last, first, middle) = (send(2), send(0), send(1));
    let again = send(1);
    assert_eq!((middle.offset, middle.bytes), (again.offset, again.bytes));
    assert!(is_absent(store, key), "seen before its completion");
    let mut listed = 0;
    store.list(Purpose::Scrub, "upload/", &mut |_, _| listed += 1).unwrap();
    assert_eq!(listed, 0);
    let version = store.complete_upload(Purpose::Sink, &upload, &[first, again, last]).unwrap();
    let (read, current) = store.get(Purpose::Merge, key).unwrap();
    assert!(read == body, "the object differs from what was uploaded");
    assert_eq!(current, version);
    assert_eq!(store.head(Purpose::Scrub, key).unwrap(), (body.len() as u64, version));
}

fn an_upload_whose_key_is_taken_meanwhile_is_a_conflict(store: &dyn ObjectStore) {
    let key = "upload/taken";
    let upload = store.begin_upload(Purpose::Sink, key).unwrap();
    let sent = store.put_part(Purpose::Sink, &upload, 0, 0, &part(b"mine")).unwrap();
    store.put_if_absent(Purpose::Sink, key, &[part(b"theirs")]).unwrap();
    let done = store.complete_upload(Purpose::Sink, &upload, &[sent]);
    assert!(matches!(done, Err(StoreError::Conflict { .. })), "{done:?}");
    store.abort_upload(Purpose::Sink, &upload).unwrap();
    assert_eq!(store.get(Purpose::Merge, key).unwrap().0, b"theirs");
    let again = put(store, key, &body(PART + 1));
    assert!(matches!(again, Err(StoreError::Conflict { .. })), "{again:?}");
}

fn an_aborted_upload_leaves_nothing(store: &dyn ObjectStore) {
    let key = "upload/aborted";
    let upload = store.begin_upload(Purpose::Sink, key).unwrap();
    let sent = store.put_part(Purpose::Sink, &upload, 0, 0, &part(b"dropped")).unwrap();
    store.abort_upload(Purpose::Sink, &upload).unwrap();
    store.abort_upload(Purpose::Sink, &upload).unwrap_or_else(|error| {
        // An upload that is gone may be unknown to the server, which answers in its own words.
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    });
    let done = store.complete_upload(Purpose::Sink, &upload, &[sent]);
    assert!(matches!(done, Err(StoreError::Refused { .. })), "{done:?}");
    assert!(is_absent(store, key));
}

fn a_part_that_is_missing_is_refused(store: &dyn ObjectStore) {
    let (key, body) = ("upload/missing", body(2 * PART + 10));
    let upload = store.begin_upload(Purpose::Sink, key).unwrap();
    let send = |number: usize| {
        let offset = number * PART;
        let bytes = part(&body[offset..body.len().min(offset + PART)]);
        store.put_part(Purpose::Sink, &upload, number as u32, offset as u64, &bytes).unwrap()
    };
    let (first, last) = (send(0), send(2));
    for parts in [vec![first, last.clone()], vec![last], vec![]] {
        let done = store.complete_upload(Purpose::Sink, &upload, &parts);
        assert!(matches!(done, Err(StoreError::Refused { .. })), "{parts:?}: {done:?}");
    }
    assert!(is_absent(store, key));
    let _ = store.abort_upload(Purpose::Sink, &upload);
}

/// What a server answers to a part that it never got is its own affair (it may be a server error, which is tried again), but it makes
/// no object.
pub fn a_part_that_the_store_never_got_makes_no_object(store: &dyn ObjectStore) {
    let key = "upload/forged";
    let upload = store.begin_upload(Purpose::Sink, key).unwrap();
    let send = |number: u32, bytes: usize| {
        let offset = u64::from(number) * PART as u64;
        store.put_part(Purpose::Sink, &upload, number, offset, &Bytes::from(vec![3; bytes])).unwrap()
    };
    let (first, last) = (send(0, PART), send(2, 10));
    let forged = UploadPart { number: 1, offset: PART as u64, bytes: PART as u64, tag: first.tag.clone() };
    assert!(store.complete_upload(Purpose::Sink, &upload, &[first, forged, last]).is_err());
    assert!(is_absent(store, key));
    let _ = store.abort_upload(Purpose::Sink, &upload);
}

fn an_object_put_in_parts_is_streamed_back_in_order(store: &dyn ObjectStore) {
    let (key, body) = ("upload/streamed", body(3 * PART + 77));
    put(store, key, &body).unwrap();
    for (chunk_bytes, ahead) in [(1 << 20, 4), (PART + 1, 1), (body.len(), 3), (body.len() + 1, 0)] {
        let read = stream(store, key, chunk_bytes, ahead).unwrap();
        assert!(read == body, "chunks of {chunk_bytes}, {ahead} ahead: the stream differs from the object");
    }
    let mut chunks = 0;
    let plan = StreamPlan { chunk_bytes: 1 << 20, ahead: 2 };
    let broken_off = store.get_stream(Purpose::Merge, key, &plan, &mut |_| {
        chunks += 1;
        if chunks == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((broken_off.unwrap().0, chunks), (body.len() as u64, 2));
    let absent = stream(store, "upload/absent", 10, 2);
    assert!(matches!(absent, Err(StoreError::Absent { .. })), "{absent:?}");
}

fn a_source_that_fits_into_a_part_is_put_by_one_request(store: &dyn ObjectStore) {
    for (key, len) in [("upload/none", 0), ("upload/little", 9), ("upload/exact", PART)] {
        let body = body(len);
        put(store, key, &body).unwrap();
        assert!(stream(store, key, 1 << 20, 2).unwrap() == body, "{key}");
    }
}

fn a_source_that_fails_leaves_no_object(store: &dyn ObjectStore) {
    let key = "upload/failed";
    let given = AtomicUsize::new(0);
    let plan = MultipartPlan { part_bytes: PART, in_flight_max: 2 };
    let failed =
        store.put_multipart(Purpose::Sink, key, &plan, &mut || match given.fetch_add(1, Ordering::SeqCst) {
            0..3 => Ok(Some(Bytes::from(vec![7; PART]))),
            _ => Err(StoreError::Unavailable { key: "source".into(), cause: "it failed".into() }),
        });
    assert!(matches!(&failed, Err(StoreError::Unavailable { key, .. }) if key == "source"), "{failed:?}");
    assert!(is_absent(store, key));
}

fn a_stream_ends_when_the_object_is_replaced(store: &dyn ObjectStore) {
    let key = "upload/replaced";
    let version = store.put_if_absent(Purpose::Epoch, key, &[Bytes::from(vec![1; 100])]).unwrap();
    let mut chunks = 0;
    let plan = StreamPlan { chunk_bytes: 10, ahead: 1 };
    let ended = store.get_stream(Purpose::Merge, key, &plan, &mut |chunk| {
        assert_eq!(chunk, [1; 10][..], "bytes of the other version");
        chunks += 1;
        if chunks == 3 {
            store.put_if_match(Purpose::Epoch, key, &[2; 101], &version).unwrap();
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(ended, Err(StoreError::Conflict { .. })), "{ended:?}");
    assert_eq!(chunks, 3);
}
