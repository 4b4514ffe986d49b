use super::*;

fn run(name: &str) {
    soak_alone(TARGETS.iter().find(|t| t.name == name).unwrap());
}

#[test]
fn page_images() {
    run("page");
}
#[test]
fn redo_operations() {
    run("redo");
}
#[test]
fn objects() {
    run("object");
}
#[test]
fn page_bodies() {
    run("body");
}
#[test]
fn object_keys() {
    run("key");
}
#[test]
fn epoch_objects() {
    run("epoch");
}
#[test]
fn flash_indexes() {
    run("flash");
}
#[test]
fn map_pages() {
    run("map");
}

#[test]
fn each_target_has_a_binary_for_libfuzzer() {
    let manifest = include_str!("../../../../fuzz/Cargo.toml");
    let lacks = |target: &&Target| !manifest.contains(&format!("\nname = \"{}\"\n", target.name));
    let missing: Vec<&str> = TARGETS.iter().filter(lacks).map(|target| target.name).collect();
    assert_eq!(missing, [""; 0]);
}

/// The control: a target that trusts one field must be found out.
#[test]
fn a_parser_that_trusts_a_length_is_found_out() {
    let trusting = Target {
        name: "control",
        run: |bytes| {
            let len = bytes.get(2..4).map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]])));
            assert!(len <= bytes.len());
        },
        samples: || vec![Sample { bytes: vec![0; 64], headers: (64, 8) }],
        rounds: 200,
    };
    assert!(catch_unwind(|| soak(&trusting)).is_err());
}

// --- what they found -----------------------------------------------------------------------------

use crate::page::{self, PAGE_HEADER, PAGE_SIZE, SpaceId};
use crate::testing::MemoryLog;
use crate::volume::map::entry::{self, ENTRIES, ENTRY};
use crate::volume::map::home::{self, Loading};
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk};
use terrace_sim::SimWorld;

fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|t| t.name == name).unwrap()
}

/// The map of the sample with bytes written over its first home, and the rest of what was asked for.
fn map_with(edits: &[(usize, &[u8])]) -> Result<(), String> {
    let disk = SimWorld::new(1).disk("volume");
    home::create(&*disk).unwrap();
    let bytes = (target("map").samples)().remove(0).bytes;
    let mut homes = AlignedBuf::zeroed(4 * PAGE_SIZE);
    homes.copy_from_slice(&bytes);
    edits.iter().for_each(|(at, new)| homes[*at..at + new.len()].copy_from_slice(new));
    targets::seal_homes(&mut homes);
    disk.open(home::FILE).unwrap().write(Class::MapWrite, 0, &homes).unwrap();
    let loading = Loading::open(&*disk).unwrap();
    loading.finish(300, Arc::new(MemoryLog::default())).map(|_| ()).map_err(|e| e.to_string())
}

#[test]
fn a_map_page_of_blocks_that_no_space_has_is_refused() {
    assert_eq!(map_with(&[]), Ok(()));
    let group = page::at::OWNED + 4;
    assert!(map_with(&[(group, &u32::MAX.to_le_bytes())]).is_err());
    // The last group there is has entries for two blocks: this one's third is in use.
    let last = (entry::BLOCKS - 1) / ENTRIES;
    assert!(map_with(&[(group, &last.to_le_bytes())]).unwrap_err().contains("no pages"));
    assert!(map_with(&[(page::at::OWNED, &SpaceId::MAP.0.to_le_bytes())]).is_err());
}

#[test]
fn a_page_with_a_tag_and_no_place_is_refused_when_the_map_is_loaded() {
    let first = PAGE_HEADER;
    let (tag_9, slot_0) = (first + 64 + 4 * 9, first + 704);
    assert!(map_with(&[(tag_9, &[1])]).unwrap_err().contains("neither slot nor object"));
    assert!(map_with(&[(slot_0 + 3 * 9, &[200])]).unwrap_err().contains("no tag"));
    // The block has an object; without its sequence it has none.
    let third = PAGE_HEADER + 2 * ENTRY;
    assert!(map_with(&[(third + 32, &[0; 8])]).unwrap_err().contains("the block has none"));
}

#[test]
fn a_record_of_a_map_page_far_behind_the_last_is_refused_and_takes_no_memory() {
    let disk = SimWorld::new(1).disk("volume");
    home::create(&*disk).unwrap();
    let mut loading = Loading::open(&*disk).unwrap();
    let ops = [1, page::PageKind::Map as u8, 0];
    assert!(loading.apply(u32::MAX, &ops, 10, 20).is_err());
    assert!(loading.apply(65, &ops, 10, 20).is_err());
    loading.apply(64, &ops, 10, 20).unwrap();
    loading.apply(65, &ops, 20, 30).unwrap();
}

#[test]
fn a_key_without_a_sequence_is_no_key() {
    let text = "00000000000000000000000000000007/00000014/00000003/00000009-0000000000000000";
    assert_eq!(crate::address::ObjectKey::parse(text), None);
}

#[test]
fn invalid_bytes_are_refused_in_objects_and_epoch_objects() {
    let mut object = (target("object").samples)().remove(0).bytes;
    object[90] = 1;
    object[12..16].fill(0);
    let crc = crc32c::crc32c(&object);
    object[12..16].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(
        crate::objects::object::format::Header::decode(&object),
        Err(crate::objects::object::format::BadObject::Stray)
    );
    let mut epoch = (target("epoch").samples)().remove(0).bytes;
    epoch[62] = 1;
    let crc = crc32c::crc32c(&epoch[16..]);
    epoch[12..16].copy_from_slice(&crc.to_le_bytes());
    assert!(crate::objects::fence::EpochContent::decode(&epoch).is_err());
}
