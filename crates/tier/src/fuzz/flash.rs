//! Flash that comes from somewhere: any index, any images.

use super::Sample;
use crate::flash::Leaving;
use crate::flash::admission::filter::Rule;
use crate::flash::bpe::{Bpe, BpeSettings, BpeWorker, Lookup, chunk, saved};
use crate::page::{self, PAGE_SIZE, PageId, PageKind, SpaceId};
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk};
use terrace_io::sched::{Step, Worker};
use terrace_sim::SimWorld;

const SLOTS: u64 = 12;
const OWNER: u128 = 5;

fn settings() -> BpeSettings {
    BpeSettings {
        owner: OWNER,
        flash_bytes: SLOTS * PAGE_SIZE as u64,
        queue_pages: 16,
        admission: Rule::GhostTinyLfu,
        warm: true,
    }
}

fn id(n: u32) -> PageId {
    PageId::new(SpaceId(20), n)
}

fn image(n: u32) -> (Vec<u8>, page::Tag) {
    let mut bytes = vec![n as u8; PAGE_SIZE];
    page::format(&mut bytes, id(n), PageKind::Leaf, 0);
    page::set_lsn(&mut bytes, u64::from(n) + 1);
    let tag = page::seal(&mut bytes);
    (bytes, tag)
}

/// The index's pieces after its header.
pub fn samples() -> Vec<Sample> {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let bpe = Arc::new(Bpe::open(&*disk, settings()));
    let mut worker = BpeWorker(bpe.clone());
    for n in 0..8 {
        bpe.evicted(id(n), &image(n).0, Leaving::used(2));
        while worker.step() == Step::Worked {}
    }
    bpe.save();
    let file = disk.open(saved::FILE).expect("the index was saved");
    let mut bytes = AlignedBuf::zeroed(file.len() as usize);
    file.read(Class::BpeRead, 0, &mut bytes).expect("the index is read");
    vec![Sample { bytes: bytes[saved::PIECE..].to_vec(), headers: (saved::PIECE, 8 + 4 * SLOTS as usize) }]
}

/// `bytes` are the index's pieces; each gets its checksum, so that what they say is looked at.
pub fn run(bytes: &[u8]) {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    drop(Bpe::open(&*disk, settings()));
    let index = disk.open(saved::FILE).expect("an opened flash has an index");
    let images = disk.open(chunk::FILE).expect("an opened flash has images");
    images.grow(SLOTS * PAGE_SIZE as u64, true).expect("there is room");
    for n in 0..8_u32 {
        let buf = AlignedBuf::from_slice(&image(n).0);
        images.write(Class::BpeFill, u64::from(n) * PAGE_SIZE as u64, &buf).expect("it is written");
    }
    for (number, piece) in bytes.chunks(saved::PIECE).take(4).enumerate() {
        let mut whole = AlignedBuf::zeroed(saved::PIECE);
        whole[..piece.len()].copy_from_slice(piece);
        let at = (number as u64 + 1) * saved::PIECE as u64;
        index.grow(at + saved::PIECE as u64, true).expect("there is room");
        index.write(Class::BpeFill, at, &saved::sealed(whole)).expect("it is written");
    }
    let bpe = Arc::new(Bpe::open(&*disk, settings()));
    let mut worker = BpeWorker(bpe.clone());
    while worker.step() == Step::Worked {}
    bpe.check_invariants();
    for n in 0..20 {
        let (mine, tag) = image(n);
        let mut found = vec![0; PAGE_SIZE];
        let served = bpe.find(id(n), tag, &mut found) == Lookup::Hit;
        assert!(!served || found == mine, "page {n} is served with another's image");
        bpe.evicted(id(n + 100), &image(n + 100).0, Leaving::used(2));
        while worker.step() == Step::Worked {}
        bpe.check_invariants();
    }
    assert!(bpe.status().off.is_none(), "an index turned the flash off: {:?}", bpe.status().off);
}
