//! Structures of many pages or blocks, of which each is intact but wrong.

use super::parts::{a_superblock, records, reseal, undo_bodies};
use super::{Sample, of_pages, sample, sized};
use crate::error::{Error, Kind};
use crate::storage::open_logs;
use crate::superblock::{COPY, Superblock};
use crate::tree::node::Node;
use crate::tree::overflow::{self, Large, Placed, ValueLogging};
use crate::tree::{Cursor, Seek, Tree};
use crate::undo::record::{self, Record};
use crate::undo::stream::{self, Mark, Streams};
use std::ops::Bound;
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk};
use terrace_log::Urgency;
use terrace_log::block::{self, BLOCK, BlockHeader};
use terrace_log::file_name;
use terrace_log::recovery;
use terrace_sim::SimWorld;
use terrace_tier::memory::pages::Pages;
use terrace_tier::memory::pool::Access;
use terrace_tier::page::{PAGE_SIZE, PageId, PageRef, SpaceId};
use terrace_tier::testing::{self, MemoryBelow, flush_all};

const SPACE: SpaceId = SpaceId::FIRST_USER;

/// The images of a space's pages from 0 on.
fn images(pages: &Pages, below: &MemoryBelow, space: SpaceId) -> Vec<Vec<u8>> {
    flush_all(pages, below);
    let images = below.images.lock();
    (0..).map_while(|page| images.get(&PageId::new(space, page)).map(|image| image.to_vec())).collect()
}

/// Pages over these images.
fn over(bytes: &[u8], space: SpaceId) -> (Arc<Pages>, usize) {
    let (pages, below, _) = testing::pages(200);
    let mut images = below.images.lock();
    for (page, image) in bytes.chunks(PAGE_SIZE).enumerate() {
        images.insert(PageId::new(space, page as u32), sized(image, PAGE_SIZE).into_boxed_slice());
    }
    let count = images.len();
    drop(images);
    (pages, count)
}

/// What a call on a damaged structure may say.
fn allowed<T>(result: Result<T, impl Into<Error>>) -> Option<T> {
    match result.map_err(Into::into) {
        Ok(value) => Some(value),
        Err(error) => {
            let kind = error.kind();
            let known = matches!(kind, Kind::Corrupt | Kind::Invalid | Kind::Unavailable);
            assert!(known, "{kind:?}: {error}");
            None
        }
    }
}

// --- trees -----------------------------------------------------------------------------------

const LARGE: usize = 40_000;

/// Four levels' worth of shapes in few pages: long keys make an inner node of three leaves.
fn tree_images() -> Vec<Vec<u8>> {
    let (pages, below, _) = testing::pages(200);
    let tree = Tree::create(&pages, SPACE, Urgency::Normal).unwrap();
    for n in 0u32..60 {
        tree.put(&key(n), &vec![n as u8; 20 + 11 * n as usize]).unwrap();
    }
    let write = |byte| {
        overflow::write(tree.space(), &vec![byte; LARGE], ValueLogging::Logged, Urgency::Normal)
            .unwrap()
            .large
    };
    let (large, gone) = (write(7), write(8));
    tree.put(b"large", &large.encode()).unwrap();
    overflow::free(tree.space(), gone, Urgency::Normal).unwrap();
    images(&pages, &below, SPACE)
}

fn key(n: u32) -> Vec<u8> {
    [&b"key/"[..], &n.to_be_bytes(), &vec![n as u8; (n % 7) as usize * 60]].concat()
}

pub fn node_samples() -> Vec<Sample> {
    let images = tree_images();
    let nodes = images.into_iter().filter(|image| Node::new(PageRef::new(image)).is_live());
    nodes.map(|image| of_pages(vec![image])).collect()
}

/// Reads one node in every way; one that passes `verify` reads back whole.
pub fn node(bytes: &[u8]) {
    let image = sized(bytes, PAGE_SIZE);
    let node = Node::new(PageRef::new(&image));
    let _ =
        (node.used(), node.free(), node.prefix(), node.right(), node.need(10, 10), node.used_with_prefix(0));
    let sound = node.verify().is_ok();
    let slots = node.count().min(3000);
    for slot in (0..slots).chain([node.count(), 65_535]) {
        let key = node.key(slot);
        let _ = (node.value(slot), node.child(slot), node.entry_is_sound(slot));
        if sound && slot < slots {
            let place = node.find(&key);
            let first_of_inner = slot == 0 && !node.is_leaf();
            assert!(
                place.found && place.slot == slot || first_of_inner,
                "a key of a verified node is not found"
            );
            assert!(node.contains(&key), "a key of a verified node is beyond its fences");
        }
    }
    let _ = (node.find(b""), node.find(b"key/"), node.child_slot(b"key/x"), node.child_slot_before(b"k"));
}

pub fn tree_samples() -> Vec<Sample> {
    vec![of_pages(tree_images())]
}

/// Reads, changes and checks a tree.
pub fn tree(bytes: &[u8]) {
    let (pages, count) = over(bytes, SPACE);
    let Some(tree) = allowed(Tree::open(&pages, SPACE)) else { return };
    let tree = Arc::new(tree);
    let report = allowed(tree.check(&mut |_, _| ()));
    let _ = (tree.rows(), allowed(tree.estimate_range(Bound::Included(&key(3)), Bound::Unbounded)));
    let _ = allowed(tree.sample_leaf(0.6));
    let mut cursor = Cursor::new(tree.clone(), Access::Normal);
    for backward in [false, true] {
        let mut valid = allowed(cursor.seek(if backward { Seek::Last } else { Seek::First }));
        // No tree of this few pages has more entries.
        let mut steps = 0;
        while valid == Some(true) {
            valid = allowed(if backward { cursor.prev() } else { cursor.next() });
            steps += 1;
            assert!(steps < 3000 * (count + 1), "a cursor runs on");
        }
    }
    for n in (0u32..60).step_by(3) {
        let key = key(n);
        allowed(tree.get(&key, Access::Normal, |v| v.map(<[u8]>::len)));
        allowed(cursor.seek(Seek::AtLeast(&key)));
        allowed(cursor.seek(Seek::Before(&key)));
    }
    let large = allowed(tree.get(b"large", Access::Normal, |v| v.and_then(Large::decode))).flatten();
    // Its length may be anything: no more is read than there are pages.
    if let Some(large) = large {
        let mut value = Vec::new();
        allowed(overflow::read(tree.space(), large, Access::Normal, &mut value));
        assert!(value.len() <= count * PAGE_SIZE);
        allowed(overflow::free(tree.space(), large, Urgency::Normal));
    }
    for n in 0u32..80 {
        let key = key(n);
        allowed(match n % 4 {
            0 => tree.remove(&key).map(drop),
            1 => tree.put(&key, &[1; 3]).map(drop),
            _ => tree.put(&key, &vec![2; 900]).map(drop),
        });
    }
    (0u32..60).for_each(|n| _ = allowed(tree.remove(&key(n))));
    let written =
        allowed(overflow::write(tree.space(), &vec![9; LARGE], ValueLogging::Logged, Urgency::Normal));
    if let (Some(Placed { large, .. }), Some(0)) = (written, report.as_ref().map(|r| r.fault_count)) {
        let mut value = Vec::new();
        overflow::read(tree.space(), large, Access::Normal, &mut value).unwrap();
        assert!(value == vec![9; LARGE]);
    }
    allowed(tree.save_rows(Urgency::Normal));
    let after = allowed(tree.check(&mut |_, _| ()));
    if let (Some(before), Some(after)) = (report, after) {
        assert!(before.fault_count > 0 || after.fault_count == 0, "a sound tree broke: {:?}", after.faults);
    }
}

// --- undo ------------------------------------------------------------------------------------

pub fn undo_samples() -> Vec<Sample> {
    let (pages, below, _) = testing::pages(200);
    stream::create(&pages, SpaceId::UNDO).unwrap();
    let (streams, _) = Streams::open(&pages, SpaceId::UNDO).unwrap();
    let mut one = streams.take().unwrap();
    let mut before = Default::default();
    let large = [3; 5000];
    for round in 0..4 {
        let mut bodies = undo_bodies();
        if let Some(record::Body::Change(change)) = bodies.get_mut(2) {
            change.old = Some(&large);
        }
        for body in bodies {
            let bytes = record::encode(&Record { txn: round, before, body });
            streams.make_room(&mut one, bytes.len(), Urgency::Normal).unwrap();
            let mut mtr = pages.begin(stream::append_log(bytes.len()), 0, Urgency::Normal).unwrap();
            before = one.next();
            one.append(&mut mtr, &bytes);
            mtr.commit();
            one.appended(bytes.len());
        }
    }
    let images = images(&pages, &below, SpaceId::UNDO);
    assert!(images.len() >= 4, "{} pages", images.len());
    vec![of_pages(images)]
}

/// Opens the streams as a start does, walks them, goes back on them, writes on and forgets.
pub fn undo(bytes: &[u8]) {
    let (pages, count) = over(bytes, SpaceId::UNDO);
    if allowed(stream::create(&pages, SpaceId::UNDO)).is_none() {
        return;
    }
    let Some((streams, found)) = allowed(Streams::open(&pages, SpaceId::UNDO)) else { return };
    let in_use = found.len();
    for found in found.into_iter().take(8) {
        let Some(mut one) = allowed(streams.at_end(&found)) else { continue };
        let mut last: Vec<_> = Vec::new();
        let end = allowed(streams.walk(found.head, None, |at, _| {
            assert!(last.len() < 3000 * (count + 1), "a walk runs on");
            last.push(at);
            Ok(true)
        }));
        for at in last.iter().rev().take(9) {
            allowed(streams.read(*at, |record| record.txn));
            let Some(()) = allowed(streams.back_to(&mut one, *at)) else { break };
            let Ok(mut mtr) = pages.begin(stream::append_log(64), 0, Urgency::Reserve) else { break };
            one.take_off(&mut mtr, *at);
            mtr.commit();
            one.taken_off(*at);
        }
        let bytes = record::encode(&Record { txn: 9, before: one.next(), body: undo_bodies()[2] });
        for _ in 0..4 {
            let Some(()) = allowed(streams.make_room(&mut one, bytes.len(), Urgency::Normal)) else { break };
            let mut mtr = pages.begin(stream::append_log(bytes.len()), 0, Urgency::Normal).unwrap();
            one.append(&mut mtr, &bytes);
            mtr.commit();
            one.appended(bytes.len());
        }
        let number = one.number;
        let upto = end.unwrap_or(Mark { page: 3, end: 80 });
        streams.give_back(one);
        allowed(streams.forget_before(number, upto));
        allowed(streams.rewind(number, upto));
    }
    // With none left that never had a page, this would wait for one to be given back: a minute.
    if in_use < stream::STREAMS {
        allowed(streams.take());
    }
}

// --- the log ---------------------------------------------------------------------------------

/// Blocks of each of the two rings.
const RING: usize = 16;

/// A superblock, then two rings whose records alternate.
fn log_bytes() -> Vec<u8> {
    let superblock = a_superblock();
    let mut streams = [Vec::new(), Vec::new()];
    let mut first = superblock.checkpoint;
    let mut after = [first; 2];
    for (i, lens) in [&[20, 300][..], &[9000], &[5, 5, 5], &[12_000], &[70]].into_iter().enumerate() {
        let (bytes, end) = records(after[i % 2], first, lens);
        (first, after[i % 2]) = (end, end);
        streams[i % 2].extend(bytes);
    }
    let mut out = superblock.encode().to_vec();
    for (number, records) in streams.iter().enumerate() {
        let blocks = block::blocks_for(records.len() as u64) as usize;
        let mut written = vec![0; blocks * BLOCK];
        let header = BlockHeader {
            instance: superblock.instance as u64,
            epoch: 3,
            partition: number as u16,
            sequence: superblock.starts[number],
            attested: 150,
            first: None,
            after: superblock.checkpoint,
        };
        block::encode(header, records, 0, &mut written);
        let mut ring = vec![0; RING * BLOCK];
        let at = superblock.starts[number] as usize * BLOCK;
        ring[at..at + written.len()].copy_from_slice(&written);
        out.extend_from_slice(&ring);
    }
    out
}

pub fn log_samples() -> Vec<Sample> {
    vec![sample(log_bytes(), (BLOCK, 90))]
}

/// Ops as recovery hands them on.
type Replayed = Vec<(PageId, u64, Vec<u8>)>;

/// Replays a log of superblock and rings; the superblock's sum is repaired, the blocks' if `repair`.
fn replay(bytes: &[u8], repair: bool) -> Result<Replayed, Error> {
    let mut all = sized(bytes, COPY + 2 * RING * BLOCK);
    let (copy, rings) = all.split_at_mut(COPY);
    reseal(copy);
    let Some(mut superblock) = Superblock::decode(copy)? else { return Ok(Vec::new()) };
    let disk = SimWorld::new(1).disk("volume");
    for (number, ring) in rings.chunks_exact_mut(RING * BLOCK).enumerate() {
        if repair {
            // What was never written stays so.
            ring.chunks_exact_mut(BLOCK).filter(|block| block.iter().any(|b| *b != 0)).for_each(reseal);
        }
        let file = disk.create(&file_name(number))?;
        let mut aligned = AlignedBuf::zeroed(ring.len());
        aligned.copy_from_slice(ring);
        file.write(Class::LogWrite, 0, &aligned)?;
    }
    let files = open_logs(&*disk, &superblock)?;
    let mut replayed = Vec::new();
    let found =
        recovery::replay(&superblock.log_bounds(), &files, &mut |header, ops, _| -> Result<(), Error> {
            replayed.push((header.id, header.own, ops.to_vec()));
            Ok(())
        })?;
    assert!(found.end >= superblock.checkpoint && found.starts.len() == files.len());
    superblock.begin_epoch(found.end)?;
    Ok(replayed)
}

pub fn log(bytes: &[u8]) {
    allowed(replay(bytes, true));
    allowed(replay(bytes, false));
}

/// What is not repaired and read nonetheless was written: a prefix, or an error.
#[cfg(test)]
#[test]
fn a_damaged_log_gives_a_prefix_or_is_refused() {
    use terrace_tier::fuzz::mutate::{Dice, mutate};
    let good = log_bytes();
    let whole = replay(&good, false).unwrap();
    assert_eq!(whole.len(), 8);
    let (mut refused, mut shorter) = (0, 0);
    for seed in 0..2000 {
        let mut dice = Dice::new(seed);
        let mut rings = good[COPY..].to_vec();
        mutate(&mut dice, &mut rings, (BLOCK, 60));
        let damaged = [&good[..COPY], &rings].concat();
        match replay(&damaged, false) {
            Ok(found) => {
                assert!(whole.starts_with(&found), "seed {seed}: {} records", found.len());
                shorter += usize::from(found.len() < whole.len());
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::Corrupt, "seed {seed}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 100 && shorter > 100, "{refused} refused, {shorter} shorter");
}
