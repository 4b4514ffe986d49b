//! The tier's targets.

use super::{Sample, Target, flash};
use crate::address::ObjectKey;
use crate::address::{LENGTH_UNIT, ObjectShape, Slot};
use crate::objects::fence::{EpochContent, Writer};
use crate::objects::object::codec::{Codec, HEAD, Packer};
use crate::objects::object::format::{self, HEADER, Header};
use crate::page::BadBody;
use crate::page::{self, BLOCK_PAGES, BlockId, PAGE_SIZE, PageId, PageKind, PageRef, SpaceId};
use crate::redo::{self, PageMut};
use crate::testing::MemoryLog;
use crate::volume::map::entry::{self, BodyRange, ENTRIES};
use crate::volume::map::home::{self, Loading};
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk};
use terrace_sim::SimWorld;

pub const TARGETS: &[Target] = &[
    Target { name: "page", run: page_image, samples: page_samples, rounds: 20_000 },
    Target { name: "redo", run: redo_ops, samples: redo_samples, rounds: 50_000 },
    Target { name: "object", run: object, samples: object_samples, rounds: 10_000 },
    Target { name: "body", run: body, samples: body_samples, rounds: 50_000 },
    Target { name: "key", run: object_key, samples: key_samples, rounds: 50_000 },
    Target { name: "epoch", run: epoch, samples: epoch_samples, rounds: 50_000 },
    Target { name: "flash", run: flash::run, samples: flash::samples, rounds: 2000 },
    Target { name: "map", run: map, samples: map_samples, rounds: 2000 },
];

const ID: PageId = PageId::new(SpaceId(20), 5);

/// `bytes`, cut or filled up with zeros to a page.
fn as_page(bytes: &[u8]) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE];
    let len = bytes.len().min(PAGE_SIZE);
    page[..len].copy_from_slice(&bytes[..len]);
    page
}

fn sample(bytes: Vec<u8>, headers: (usize, usize)) -> Sample {
    Sample { bytes, headers }
}

// --- pages -----------------------------------------------------------------------------------

fn page_samples() -> Vec<Sample> {
    let mut image = vec![0; PAGE_SIZE];
    page::format(&mut image, ID, PageKind::Leaf, 0);
    page::set_lsn(&mut image, 77);
    image[100..300].fill(9);
    page::seal(&mut image);
    vec![sample(image, (PAGE_SIZE, 64))]
}

fn page_image(bytes: &[u8]) {
    let mut image = as_page(bytes);
    let read = PageRef::new(&image);
    for at in bytes.iter().take(40).map(|b| usize::from(*b) * 65) {
        let _ = (read.u8(at), read.u16(at), read.u32(at), read.u64(at), read.bytes(at, at));
    }
    let claimed = read.tag();
    if page::check(&image, read.id(), None).is_ok() {
        assert_eq!(page::compute_tag(&image), claimed, "an image with another tag was accepted");
    }
    let tag = page::seal(&mut image);
    let id = PageRef::new(&image).id();
    let is_ours = image[4..6] == *b"TP" && image[6] == page::PAGE_VERSION;
    assert_eq!(page::check(&image, id, Some(tag)).is_ok(), is_ours);
    assert!(page::check(&image, PageId::new(id.space, id.page ^ 1), None).is_err(), "another page's image");
    assert!(page::check(&image, id, Some(tag ^ 1)).is_err(), "another image of the page");
}

// --- redo ------------------------------------------------------------------------------------

fn redo_samples() -> Vec<Sample> {
    let (mut bytes, mut ops) = (vec![0; PAGE_SIZE], Vec::new());
    let mut page = PageMut::new(&mut bytes, &mut ops);
    page.init(ID, PageKind::Leaf, 0);
    page.write(100, &[7; 30]);
    page.shift(200, 100, 40);
    page.fill(PAGE_SIZE - 9, 9, 3);
    page.write_u16(50, 9);
    let without_init = ops[3..].to_vec();
    vec![sample(ops, (1, 1)), sample(without_init, (1, 1))]
}

fn redo_ops(ops: &[u8]) {
    let mut image = vec![0; PAGE_SIZE];
    page::format(&mut image, ID, PageKind::Leaf, 0);
    page::set_lsn(&mut image, 10);
    let before = image.clone();
    match redo::apply(&mut image, ID, ops, 99) {
        Ok(()) => assert_eq!(PageRef::new(&image).lsn(), 99),
        Err(bad) => assert!(bad.at < ops.len().max(1)),
    }
    assert_eq!(PageRef::new(&image).id(), ID, "redo changed the page's name");
    assert_eq!(
        (&image[4..7], image.len()),
        (&before[4..7], PAGE_SIZE),
        "redo changed what only `format` may"
    );
    let applied = image.clone();
    if PageRef::new(&image).lsn() == 99 {
        redo::apply(&mut image, ID, ops, 99).expect("what is applied is not looked at");
        assert!(applied == image, "applied twice");
    }
}

// --- objects ---------------------------------------------------------------------------------

const KEY: ObjectKey =
    ObjectKey { lineage: 0xAB << 100 | 7, space: SpaceId(20), block: 3, epoch: 9, sequence: 77 };

fn object_samples() -> Vec<Sample> {
    let packer = Packer::default();
    let of = |indexes: &[usize], codec: Codec| {
        let bodies: Vec<(usize, page::Tag, Vec<u8>)> = indexes
            .iter()
            .map(|i| {
                let mut image = vec![*i as u8; PAGE_SIZE];
                page::format(
                    &mut image,
                    BlockId { space: KEY.space, block: KEY.block }.page(*i),
                    PageKind::Leaf,
                    0,
                );
                let tag = page::seal(&mut image);
                let len = packer.pack(codec, &mut image);
                image.truncate(len);
                (*i, tag, image)
            })
            .collect();
        let parts: Vec<_> = bodies.iter().map(|(i, tag, image)| (*i, *tag, &image[..])).collect();
        let mut bytes = Header::new(KEY, 5, &parts).encode().to_vec();
        parts.iter().for_each(|(_, _, image)| bytes.extend_from_slice(image));
        sample(bytes, (1 << 30, HEADER))
    };
    vec![
        of(&[], Codec::None),
        of(&[0, 127], Codec::None),
        of(&[5], Codec::None),
        of(&[0, 3, 127], Codec::Lz4),
        of(&[4, 5], Codec::Zstd),
    ]
}

fn object(bytes: &[u8]) {
    if let Ok(header) = format::check(&KEY, bytes) {
        assert_eq!(header.key, KEY);
        assert_eq!(header.object_len(), bytes.len());
    }
    let mut repaired = bytes.to_vec();
    if repaired.len() < HEADER {
        assert!(Header::decode(bytes).is_err());
        return;
    }
    repaired[12..16].fill(0);
    let crc = crc32c::crc32c(&repaired[..HEADER]);
    repaired[12..16].copy_from_slice(&crc.to_le_bytes());
    if let Ok(header) = Header::decode(&repaired) {
        assert!(header.encode() == repaired[..HEADER], "a header was accepted that nobody writes");
        let shape = header.shape();
        assert!(
            shape
                .lengths
                .iter()
                .all(|l| usize::from(*l) <= PAGE_SIZE && usize::from(*l).is_multiple_of(LENGTH_UNIT))
        );
        assert!(header.object_len() <= HEADER + BLOCK_PAGES as usize * PAGE_SIZE);
        let whole = format::check(&header.key, &repaired);
        assert!(whole.is_err() || header.object_len() == repaired.len());
    }
}

fn body_samples() -> Vec<Sample> {
    let of = |codec: Codec| {
        let mut image = page_samples().remove(0).bytes;
        let mut noise = 1u32;
        for byte in &mut image[1000..3000] {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (noise >> 24) as u8;
        }
        page::seal(&mut image);
        let len = Packer::default().pack(codec, &mut image);
        image.truncate(len);
        sample(image, (1 << 30, HEAD + 32))
    };
    vec![of(Codec::Lz4), of(Codec::Zstd)]
}

/// The stored body of one page, as it is and with a checksum that fits.
fn body(bytes: &[u8]) {
    let packer = Packer::default();
    let mut image = vec![0; PAGE_SIZE];
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(LENGTH_UNIT).max(LENGTH_UNIT), 0);
    padded[4..HEAD].fill(0);
    let crc = crc32c::crc32c(&padded);
    padded[4..HEAD].copy_from_slice(&crc.to_le_bytes());
    let _ = packer.unpack(bytes, &mut image);
    match packer.unpack(&padded, &mut image) {
        Ok(()) => {
            let len = usize::from(u16::from_le_bytes([padded[2], padded[3]]));
            assert!(padded.len() == PAGE_SIZE || (HEAD + len).next_multiple_of(LENGTH_UNIT) == padded.len());
        }
        Err(BadBody::Checksum { .. }) => panic!("the checksum fits"),
        Err(_) => {}
    }
    assert_eq!(image.len(), PAGE_SIZE);
}

fn key_samples() -> Vec<Sample> {
    let last = ObjectKey { lineage: u128::MAX, epoch: u32::MAX, sequence: u64::MAX, ..KEY };
    [KEY, last].map(|key| sample(key.to_string().into_bytes(), (1, 1))).into()
}

fn object_key(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(key) = ObjectKey::parse(&text) {
        assert_eq!(key.to_string(), text, "a key has two spellings");
        assert!(key.sequence > 0, "a key that is no key");
    }
}

fn epoch_samples() -> Vec<Sample> {
    let writer = Writer { instance: 1 << 90, lineage: 2 << 90, nonce: 3, epoch: 4 };
    [0, 5].map(|mark| sample(EpochContent { writer, mark }.encode().to_vec(), (1, 1))).into()
}

fn epoch(bytes: &[u8]) {
    let mut repaired = bytes.to_vec();
    if repaired.len() >= 16 {
        let crc = crc32c::crc32c(&repaired[16..]);
        repaired[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    for bytes in [bytes, &repaired] {
        if let Ok(held) = EpochContent::decode(bytes) {
            assert!(held.encode()[..] == *bytes, "an epoch object was accepted that nobody writes");
        }
    }
}

// --- the map ---------------------------------------------------------------------------------

/// Homes of the map in a sample; the rest are records for it.
const HOMES: usize = 4;
const SLOTS: u32 = 300;

fn map_samples() -> Vec<Sample> {
    let image = |number: u32, lsn: u64, group: u32| {
        let (mut bytes, mut ops) = (vec![0; PAGE_SIZE], Vec::new());
        let mut page = PageMut::new(&mut bytes, &mut ops);
        page.init(PageId::new(SpaceId::MAP, number), PageKind::Map, 0);
        entry::set_owner(&mut page, ID.space, group);
        let mut lengths = [0; BLOCK_PAGES as usize];
        lengths[..4].fill(PAGE_SIZE as u16);
        let key = ObjectKey { block: group * ENTRIES + 2, ..KEY };
        entry::set_object(&mut page, 2, &ObjectShape { key, snapshot_version: 1, lengths });
        for i in 0..6 {
            entry::set_slot(&mut page, 2, i, Slot(number * 100 + i as u32), 40 + i as u32);
            entry::set_slot(&mut page, 0, i, Slot(number * 100 + 50 + i as u32), 90 + i as u32);
        }
        entry::clear_slot(&mut page, 2, 1);
        // Pages 5 and 3 are in a patch.
        let mut lengths = [0; BLOCK_PAGES as usize];
        (lengths[3], lengths[5]) = (LENGTH_UNIT as u16, PAGE_SIZE as u16);
        let patch = ObjectKey { epoch: 9, sequence: 1 << 40, ..key };
        entry::set_patch(&mut page, 2, &ObjectShape { key: patch, snapshot_version: 1, lengths });
        entry::set_place(&mut page, 2, 3, BodyRange { offset: 0, length: LENGTH_UNIT });
        entry::set_place(&mut page, 2, 5, BodyRange { offset: LENGTH_UNIT, length: PAGE_SIZE });
        page::set_lsn(&mut bytes, lsn);
        (bytes, ops)
    };
    let (first, _) = image(0, 50, 0);
    let (older, _) = image(0, 40, 0);
    let (second, ops) = image(1, 60, 1);
    let homes = [&first[..], &older, &second, &vec![0; PAGE_SIZE]].concat();
    // Then records: the page's number, the length, the ops.
    let mut with_records = homes.clone();
    for (number, ops) in [(1u32, &ops[..]), (2, &ops[..])] {
        with_records.extend_from_slice(&number.to_le_bytes());
        with_records.extend_from_slice(&(ops.len() as u32).to_le_bytes());
        with_records.extend_from_slice(ops);
    }
    [homes, with_records].map(|bytes| sample(bytes, (PAGE_SIZE, 1200))).into()
}

/// Seals all homes but those never written.
pub(super) fn seal_homes(homes: &mut [u8]) {
    let written = homes.chunks_exact_mut(PAGE_SIZE).filter(|image| image.iter().any(|b| *b != 0));
    written.for_each(|image| _ = page::seal(image));
}

fn map(bytes: &[u8]) {
    let sim = SimWorld::new(1);
    let disk = sim.disk("volume");
    home::create(&*disk).unwrap();
    let file = disk.open(home::FILE).unwrap();
    let mut homes = AlignedBuf::zeroed(HOMES * PAGE_SIZE);
    let (images, mut records) = bytes.split_at(bytes.len().min(homes.len()));
    homes[..images.len()].copy_from_slice(images);
    seal_homes(&mut homes);
    file.write(Class::MapWrite, 0, &homes).unwrap();
    let mut loading = Loading::open(&*disk).unwrap();
    let mut lsn = loading.newest().min(1 << 60);
    while let Some((head, rest)) = records.split_first_chunk::<8>() {
        let number = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let (ops, rest) = rest.split_at(len.min(rest.len()));
        lsn += 10;
        if loading.apply(number, ops, lsn - 10, lsn).is_err() {
            return;
        }
        records = rest;
    }
    let log = Arc::new(MemoryLog::default());
    let Ok(map) = loading.finish(SLOTS, log) else { return };
    assert_eq!(map.faults(), Vec::<String>::new(), "a map was accepted that is not sound");
    let _ = (map.counts(), map.spaces(), map.buffered_blocks(), map.collectable());
    for space in map.spaces() {
        map.pages_of(space).into_iter().for_each(|id| _ = (map.locate(id), map.block(id.block())));
    }
    for key in map.objects() {
        let _ = map.names(&key);
    }
    // It can be worked with.
    let slots = map.take_up_to(3, 0);
    let changes: Vec<_> =
        slots.iter().zip(0u32..).map(|(slot, i)| (PageId::new(ID.space, 256 + i), *slot, 7)).collect();
    map.publish_slots(&changes).unwrap();
    let mut lengths = [0; BLOCK_PAGES as usize];
    let block = BlockId { space: ID.space, block: 2 };
    let homes = map.block(block).homes;
    homes.iter().zip(&mut lengths).for_each(|(home, len)| *len = home.map_or(0, |_| PAGE_SIZE as u16));
    let taken: Vec<_> =
        homes.iter().enumerate().filter_map(|(i, home)| Some((i, home.as_ref()?.tag))).collect();
    map.publish_object(
        block,
        &taken,
        &ObjectShape { key: ObjectKey { block: 2, sequence: 78, ..KEY }, snapshot_version: 1, lengths },
    )
    .unwrap();
    // And patched.
    if let (Some(base), [slot]) = (map.block(block).object, &map.take_up_to(1, 0)[..]) {
        map.publish_slots(&[(block.page(3), *slot, 8)]).unwrap();
        let mut lengths = [0; BLOCK_PAGES as usize];
        lengths[3] = PAGE_SIZE as u16;
        let key = ObjectKey { block: 2, sequence: 79, ..KEY };
        let patch = ObjectShape { key, snapshot_version: 1, lengths };
        if patch.can_patch(&base) {
            map.publish_patch(block, &[(3, 8)], &patch, &base).unwrap();
            assert!(map.names(&key) && map.names(&base));
        }
    }
    map.settle();
    map.write_homes().unwrap();
    map.drop_space(ID.space).unwrap();
    map.settle();
    assert_eq!(map.faults(), Vec::<String>::new());
}
