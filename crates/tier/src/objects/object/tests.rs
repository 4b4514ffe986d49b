use super::*;
use crate::page::{BLOCK_PAGES, PageId, PageKind, SpaceId, seal};
use terrace_sim::{SimStore, SimWorld};

fn key(sequence: u64) -> ObjectKey {
    ObjectKey { lineage: 7, space: SpaceId(20), block: 3, epoch: 9, sequence }
}

fn images(fill: u8) -> Vec<(usize, Tag, Vec<u8>)> {
    [0usize, 3, 4, 90]
        .map(|i| {
            let mut image = vec![0; PAGE_SIZE];
            let id = PageId::new(SpaceId(20), 3 * BLOCK_PAGES + i as u32);
            crate::page::format(&mut image, id, PageKind::Leaf, 0);
            image[3000] = fill;
            let tag = seal(&mut image);
            (i, tag, image)
        })
        .to_vec()
}

fn draft(sequence: u64, images: &[(usize, Tag, Vec<u8>)]) -> Draft {
    let pages: Vec<_> =
        images.iter().map(|(i, tag, image)| (*i, *tag, Bytes::copy_from_slice(image))).collect();
    Draft::new(key(sequence), 1, &pages)
}

/// Where the map would say that the pages are.
fn homes(header: &Header) -> Vec<InObject> {
    let mut offset = 0;
    let mut homes = Vec::new();
    for length in header.lengths.map(usize::from).into_iter().filter(|l| *l > 0) {
        homes.push(InObject { key: header.key, offset, length });
        offset += length;
    }
    homes
}

fn objects(seed: u64) -> (Arc<SimStore>, Objects) {
    let store = SimWorld::new(seed).store("store");
    (store.clone(), Objects::new(store))
}

#[test]
fn a_page_comes_back_with_one_range_request() {
    let (store, objects) = objects(1);
    let images = images(1);
    let draft = draft(1, &images);
    objects.put(&draft).unwrap();
    for (home, (_, tag, expected)) in homes(draft.header()).iter().zip(&images) {
        let mut image = vec![0; PAGE_SIZE];
        objects.read_page(home, &mut image).unwrap();
        assert_eq!(image, *expected);
        let id = crate::page::PageRef::new(&image).id();
        crate::page::check(&image, id, Some(*tag)).unwrap();
    }
    assert_eq!(store.requests(Purpose::PageMiss), 4);
    assert_eq!(store.requests(Purpose::Sink), 1);
}

/// A memory budget for pages that are far apart includes the bytes between them.
#[test]
fn what_bodies_take_is_known_before_they_are_read() {
    let (_, objects) = objects(1);
    let draft = draft(1, &images(1));
    objects.put(&draft).unwrap();
    let homes = homes(draft.header());
    let (ends, other) = ([homes[0], homes[3]], InObject { key: key(2), offset: 8192, length: 64 });
    assert_eq!(bytes_of_bodies(&ends), 4 * PAGE_SIZE);
    objects.read_bodies(Purpose::Merge, &ends).into_iter().for_each(|body| _ = body.unwrap());
    assert_eq!(objects.counters.get_bytes.load(Ordering::Relaxed), 4 * PAGE_SIZE as u64);
    assert_eq!(bytes_of_bodies(&[homes[1], homes[2], other]), 2 * PAGE_SIZE + 64);
    assert_eq!(bytes_of_bodies(&[]), 0);
}

#[test]
fn a_compressed_page_is_one_range_of_its_compressed_bytes() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let (store, objects) = objects(1);
        let images = images(1);
        let mut bodies = images.clone();
        for (_, _, body) in &mut bodies {
            let len = objects.packer.pack(codec, body);
            body.truncate(len);
        }
        let draft = draft(1, &bodies);
        objects.put(&draft).unwrap();
        let homes = homes(draft.header());
        for (home, (_, _, expected)) in homes.iter().zip(&images) {
            let mut image = vec![0; PAGE_SIZE];
            objects.read_page(home, &mut image).unwrap();
            assert_eq!(image, *expected);
        }
        assert_eq!(store.requests(Purpose::PageMiss), 4);
        let got = objects.counters.get_bytes.load(Ordering::Relaxed);
        assert_eq!(got, homes.iter().map(|home| home.length as u64).sum::<u64>());
        assert!(got < PAGE_SIZE as u64);
        let mut buf = vec![0; homes.len() * PAGE_SIZE];
        let read = objects.read_run(Purpose::BlockRead, &homes, buf.chunks_exact_mut(PAGE_SIZE).collect());
        assert!(read.iter().all(|r| r.is_ok()) && store.requests(Purpose::BlockRead) == 1);
        let expected: Vec<_> = images.iter().flat_map(|(_, _, image)| image.clone()).collect();
        assert!(buf == expected);
        // A flipped bit is that page's alone, and a fault of the page, not of the store.
        store.flip(&key(1).to_string(), format::HEADER + homes[1].offset + 20, 2);
        let read = objects.read_run(Purpose::BlockRead, &homes, buf.chunks_exact_mut(PAGE_SIZE).collect());
        assert!(matches!(read[1], Err(BodyError::Corrupt(BadImage::Stored(BadBody::Checksum { .. })))));
        assert!([0, 2, 3].iter().all(|i| read[*i].is_ok()));
        assert!(objects.read_block(Purpose::Scrub, &key(1)).is_err());
    }
}

#[test]
fn a_run_within_an_object_is_one_request() {
    let (store, objects) = objects(1);
    let (first, second) = (images(1), images(2));
    let (a, b) = (draft(1, &first), draft(2, &second));
    objects.put(&a).unwrap();
    objects.put(&b).unwrap();
    let homes: Vec<_> = homes(a.header()).into_iter().chain(homes(b.header()).into_iter().skip(2)).collect();
    let mut buf = vec![0; homes.len() * PAGE_SIZE];
    let results = objects.read_run(Purpose::BlockRead, &homes, buf.chunks_exact_mut(PAGE_SIZE).collect());
    assert!(results.iter().all(|r| r.is_ok()));
    let expected: Vec<_> = first.iter().chain(&second[2..]).flat_map(|(_, _, image)| image.clone()).collect();
    assert!(buf == expected);
    assert_eq!(store.requests(Purpose::BlockRead), 2);
    let (header, bytes) = objects.read_block(Purpose::Scrub, &key(1)).unwrap();
    assert_eq!((header.object_len(), &header), (bytes.len(), a.header()));
}

#[test]
fn a_key_that_has_other_content_is_taken() {
    let (_, objects) = objects(1);
    let (first, second) = (images(1), images(2));
    objects.put(&draft(1, &first)).unwrap();
    objects.put(&draft(1, &first)).expect("the same object is there: that is success");
    assert!(matches!(objects.put(&draft(1, &second)), Err(PutError::Taken { .. })));
}

#[test]
fn a_put_that_said_ok_is_there_and_one_that_did_not_may_be_put_again() {
    let mut resolved = 0;
    for seed in 0..200 {
        let (store, objects) = objects(seed);
        store.faults.unknown.store(2, Ordering::SeqCst);
        store.faults.unavailable.store(5, Ordering::SeqCst);
        store.faults.throttled.store(7, Ordering::SeqCst);
        let images = images(seed as u8);
        let draft = draft(1, &images);
        for attempt in 0.. {
            assert!(attempt < 100, "seed {seed}");
            match objects.put(&draft) {
                Ok(()) => break,
                Err(PutError::Taken { .. }) => panic!("seed {seed}: the object is in its own way"),
                Err(PutError::Store(_)) => {}
            }
        }
        assert_eq!(store.keys(), [key(1).to_string()], "seed {seed}");
        store.land_late_puts();
        store.faults.unknown.store(0, Ordering::SeqCst);
        store.faults.unavailable.store(0, Ordering::SeqCst);
        store.faults.throttled.store(0, Ordering::SeqCst);
        objects.read_block(Purpose::Scrub, &key(1)).unwrap();
        resolved += objects.counters.resolved.load(Ordering::Relaxed);
    }
    assert!(resolved > 50, "only {resolved} replies were lost");
}

#[test]
fn a_dead_store_is_an_error_and_absence_is_final() {
    let (store, objects) = objects(1);
    let images = images(1);
    store.faults.dead.store(true, Ordering::SeqCst);
    let unavailable = objects.put(&draft(1, &images));
    assert!(matches!(unavailable, Err(PutError::Store(StoreError::Unavailable { .. }))));
    store.faults.dead.store(false, Ordering::SeqCst);
    // A store without this instance's epoch object is not its store.
    let elsewhere = objects.header(Purpose::Scrub, &key(1));
    assert!(matches!(elsewhere, Err(ObjectError::Store(StoreError::Unavailable { .. }))));
    store
        .put_if_absent(Purpose::Epoch, crate::objects::fence::KEY, &[Bytes::from_static(b"whoever")])
        .unwrap();
    let absent = objects.header(Purpose::Scrub, &key(1));
    assert!(matches!(absent, Err(ObjectError::Store(StoreError::Absent { .. }))));
}

#[test]
fn a_flipped_bit_is_named() {
    let (store, objects) = objects(1);
    let images = images(1);
    objects.put(&draft(1, &images)).unwrap();
    store.flip(&key(1).to_string(), 300, 2);
    let error = objects.header(Purpose::Scrub, &key(1)).unwrap_err();
    assert!(
        error.to_string().contains(&key(1).to_string()) && error.to_string().contains("checksum"),
        "{error}"
    );
}

#[test]
fn a_read_is_registered_while_it_lasts() {
    let (_, objects) = objects(1);
    let first = objects.reading(key(1));
    let second = objects.reading(key(1));
    drop(first);
    assert!(objects.is_read(&key(1)) && !objects.is_read(&key(2)));
    drop(second);
    assert!(!objects.is_read(&key(1)));
}

/// Objects with images, and the object that every store in use has.
fn stored() -> (Arc<SimStore>, Objects, Vec<InObject>) {
    let (store, objects) = objects(1);
    store
        .put_if_absent(Purpose::Epoch, crate::objects::fence::KEY, &[Bytes::from_static(b"whoever")])
        .unwrap();
    let draft = draft(1, &images(1));
    objects.put(&draft).unwrap();
    let homes = homes(draft.header());
    (store, objects, homes)
}

/// Only what was to be put or deleted told of a store that does not answer.
#[test]
fn reads_that_fail_for_the_store_are_trouble_until_one_succeeds() {
    let (store, objects, homes) = stored();
    let mut image = vec![0; PAGE_SIZE];
    assert_eq!(objects.outage.why(), None);
    store.faults.dead.store(true, Ordering::SeqCst);
    objects.read_page(&homes[0], &mut image).unwrap_err();
    let why = objects.outage.why().unwrap();
    assert!(why.text.starts_with("reads fail: ") && why.text.contains("the store is dead"), "{why:?}");
    // Another one that fails changes nothing: it would be one more line in the log.
    let elsewhere = InObject { key: key(2), ..homes[0] };
    objects.read_page(&elsewhere, &mut image).unwrap_err();
    assert_eq!(objects.outage.why(), Some(why));
    store.faults.dead.store(false, Ordering::SeqCst);
    objects.read_page(&homes[0], &mut image).unwrap();
    assert_eq!(objects.outage.why(), None);
    // The same for prefetched pages; and a put that succeeds ends it as well.
    store.faults.dead.store(true, Ordering::SeqCst);
    objects.read_pages(&homes[..1], vec![&mut image]).pop().unwrap().unwrap_err();
    assert!(objects.outage.is_there());
    store.faults.dead.store(false, Ordering::SeqCst);
    objects.put(&draft(3, &images(3))).unwrap();
    assert!(!objects.outage.is_there());
}

#[test]
fn an_object_that_is_missing_or_damaged_is_no_trouble_of_the_store() {
    let (store, objects, homes) = stored();
    let mut image = vec![0; PAGE_SIZE];
    let missing = InObject { key: key(2), ..homes[0] };
    let short = InObject { offset: 1 << 20, ..homes[0] };
    assert!(matches!(
        objects.read_page(&missing, &mut image),
        Err(BodyError::Store(StoreError::Absent { .. }))
    ));
    assert!(matches!(
        objects.read_page(&short, &mut image),
        Err(BodyError::Store(StoreError::Refused { .. }))
    ));
    let cut = InObject { length: homes[0].length - 1, ..homes[0] };
    assert!(matches!(objects.read_page(&cut, &mut image), Err(BodyError::Corrupt(_))));
    assert_eq!(objects.outage.why(), None);
    store.delete(Purpose::Scrub, crate::objects::fence::KEY).unwrap();
    objects.read_page(&missing, &mut image).unwrap_err();
    let why = objects.outage.why().unwrap();
    assert!(why.text.contains("holds nothing of this instance"), "{why:?}");
}
