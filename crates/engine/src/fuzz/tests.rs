use super::TARGETS;
use terrace_tier::fuzz::{Target, soak_alone};

fn run(name: &str) {
    soak_alone(TARGETS.iter().find(|t| t.name == name).unwrap());
}

#[test]
fn each_target_has_a_binary_for_libfuzzer() {
    let manifest = include_str!("../../../../fuzz/Cargo.toml");
    let lacks = |target: &&Target| !manifest.contains(&format!("\nname = \"{}\"\n", target.name));
    let missing: Vec<&str> = TARGETS.iter().filter(lacks).map(|target| target.name).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn log_blocks() {
    run("block");
}
#[test]
fn log_records() {
    run("record");
}
#[test]
fn undo_records() {
    run("undo-record");
}
#[test]
fn superblocks() {
    run("superblock");
}
#[test]
fn catalog_entries() {
    run("catalog");
}
#[test]
fn row_values() {
    run("row");
}
#[test]
fn nodes() {
    run("node");
}
#[test]
fn trees() {
    run("tree");
}
#[test]
fn undo_streams() {
    run("undo");
}
#[test]
fn logs() {
    run("log");
}
#[test]
fn volumes() {
    run("volume");
}

// --- what they found: each input ran on for ever, panicked, or was taken for sound --------------

use crate::superblock::Superblock;
use crate::tree::node;
use crate::tree::space;
use crate::undo::record;
use terrace_tier::page::PAGE_SIZE;

/// A target's first sample with bytes written over it.
fn edited(name: &str, edits: &[(usize, &[u8])]) -> Vec<u8> {
    let target = TARGETS.iter().find(|t| t.name == name).unwrap();
    let mut bytes = (target.samples)().remove(0).bytes;
    edits.iter().for_each(|(at, new)| bytes[*at..at + new.len()].copy_from_slice(new));
    (target.run)(&bytes);
    bytes
}

/// The first leaf of the tree's sample.
fn a_leaf() -> usize {
    let bytes = edited("tree", &[]);
    bytes.chunks(PAGE_SIZE).skip(2).position(|page| page[7] == 1).unwrap() + 2
}

#[test]
fn a_leaf_that_is_its_own_right_neighbour_is_corrupt_and_no_circle() {
    let leaf = a_leaf();
    let at = leaf * PAGE_SIZE;
    edited("tree", &[(at + node::at::RIGHT, &(leaf as u32).to_le_bytes())]);
    // Both fences the same: each step right would end where it began.
    let high = edited("tree", &[])[at + node::at::HIGH..][..2].to_vec();
    let right = (leaf as u32).to_le_bytes();
    edited("tree", &[(at + node::at::RIGHT, &right), (at + node::at::LOW, &high)]);
}

#[test]
fn a_cursor_takes_no_entry_from_a_leaf_whose_areas_overlap() {
    edited("tree", &[(a_leaf() * PAGE_SIZE + node::at::COUNT, &[0xFF; 2])]);
}

#[test]
fn a_header_that_names_missing_pages_ends_the_check() {
    edited("tree", &[(space::at::NEXT, &u32::MAX.to_le_bytes())]);
    edited("tree", &[(space::at::NEXT, &[0xF0, 0xFF, 0xFF, 0xFF])]);
}

#[test]
fn a_page_number_that_is_in_use_is_not_given_out_again() {
    edited("tree", &[(space::at::NEXT, &2u32.to_le_bytes())]);
    edited("undo", &[(space::at::NEXT, &3u32.to_le_bytes())]);
}

#[test]
fn the_number_of_free_pages_may_be_anything() {
    edited("tree", &[(space::at::FREE_COUNT, &[0xFF; 4])]);
    edited("undo", &[(space::at::FREE_COUNT, &[0xFF; 4])]);
}

#[test]
fn an_undo_stream_that_leads_back_to_its_beginning_is_corrupt_and_no_circle() {
    for page in 2usize..4 {
        edited("undo", &[(page * PAGE_SIZE + 64, &2u32.to_le_bytes())]);
        edited("undo", &[(page * PAGE_SIZE + 68, &(page as u32).to_le_bytes())]);
        edited("undo", &[(page * PAGE_SIZE + 72, &[0xFF; 2])]);
        edited("undo", &[(page * PAGE_SIZE + 72, &[3, 0])]);
    }
}

#[test]
fn an_undo_record_with_a_non_canonical_encoding_is_refused() {
    let begin = record::Body::Begin { state: record::TxnStatus::Active, csn: 1 };
    let mut bytes = record::encode(&record::Record { txn: 1, before: Default::default(), body: begin });
    bytes.push(0);
    bytes[0] += 1;
    assert!(record::decode(&bytes).is_none());
}

#[test]
fn a_superblock_that_no_instance_can_have_is_refused() {
    let good = super::parts::a_superblock();
    let read = |change: fn(&mut Superblock)| {
        let mut changed = good.clone();
        change(&mut changed);
        Superblock::decode(&changed.encode()).unwrap()
    };
    assert_eq!(read(|_| ()), Some(good.clone()));
    // A ring of no blocks: a division by zero. Counters at their end: overflows.
    let changes: [fn(&mut Superblock); 6] = [
        |s| s.log_blocks = 0,
        |s| s.log_blocks = u64::MAX / 4096 + 1,
        |s| s.starts[1] = u64::MAX,
        |s| s.checkpoint = u64::MAX,
        |s| s.history = vec![(3, 20), (2, 30)],
        |s| s.transactions = u64::MAX,
    ];
    changes.into_iter().for_each(|change| assert_eq!(read(change), None));
}

#[test]
fn a_definition_without_an_index_or_over_the_engines_own_spaces_is_refused() {
    let good = crate::table::catalog::entry::samples().remove(0);
    let (count, first) = (2 + 8, 2 + 8 + 2);
    assert_eq!((&good[count..first], &good[first..first + 4]), (&[1, 0][..], &[16, 0, 0, 0][..]));
    let decoded = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        crate::table::catalog::entry::decode(9, &bytes).is_some()
    };
    assert!(decoded(count, 1));
    assert!(!decoded(count, 0));
    assert!(!decoded(first, 2), "the undo space is no table's");
    assert!(!decoded(first + 4, 7), "an index is unique or not");
}
