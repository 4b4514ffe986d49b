//! What is copied of a leaf at once.

use super::*;
use crate::tree::build::Image;
use crate::tree::copied::Copied;
use crate::tree::edit;
use crate::tree::node::{Node, SLOT, SLOTS};
use terrace_tier::page::{PAGE_SIZE, PageId, PageRef};
use terrace_tier::redo::PageMut;

const ID: PageId = PageId::new(SPACE, 5);

/// A leaf between fences that share `prefix` bytes; `left` of the entries that were put into it are left, others leave garbage.
fn leaf(dice: &mut Dice, prefix: usize, entries: u64, left: u64) -> Vec<u8> {
    let (low, high) = ([&[7; 9][..prefix], &[1]].concat(), [&[7; 9][..prefix], &[9]].concat());
    let (mut bytes, mut log) = (vec![0; PAGE_SIZE], Vec::new());
    let mut page = PageMut::new(&mut bytes, &mut log);
    Image::new(0, &low, Some(&high), Some(9)).write_to(&mut page, ID);
    for n in 0..entries {
        let key = [&low[..], &(n * 3).to_be_bytes()[8 - 1 - (n % 3) as usize..], &n.to_be_bytes()].concat();
        let value = vec![n as u8; dice.below(120) as usize];
        let place = Node::new(page.get()).find(&key);
        edit::insert(&mut page, place.slot, &key, &value);
    }
    for count in (left..entries).rev() {
        edit::remove(&mut page, dice.below(count + 1) as usize);
    }
    Node::new(PageRef::new(&bytes)).verify().unwrap();
    bytes
}

fn entries(copied: &Copied) -> Vec<(Vec<u8>, Vec<u8>)> {
    copied.from(0).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[test]
fn a_heap_copied_at_once_has_the_requested_entries() {
    let mut dice = Dice(1);
    let mut in_one_go = [0; 10];
    for round in 0..600 {
        let prefix = round % 10;
        let all = 1 + dice.below(120);
        let bytes = {
            let left = if dice.below(3) > 0 { all } else { 1 + dice.below(all) };
            leaf(&mut dice, prefix, all, left)
        };
        let node = Node::new(PageRef::new(&bytes));
        let count = node.count();
        let slots = match dice.below(2) {
            0 => 0..count,
            _ => {
                let from = dice.below(1 + count as u64 / 2) as usize;
                from..from + dice.below((count - from) as u64 + 1) as usize
            }
        };
        let expected: Vec<_> =
            slots.clone().map(|slot| (node.key(slot), node.value(slot).to_vec())).collect();
        let mut copied = Copied::default();
        if copied.copy_heap(node, slots.clone()) {
            in_one_go[prefix] += 1;
        } else {
            assert_eq!(copied.len(), 0);
            copied.copy_one_by_one(node, slots.clone());
        }
        assert_eq!(entries(&copied), expected, "slots {slots:?} of {count}, prefix {prefix}");
    }
    let [some @ .., _, _, _, _, _] = in_one_go;
    assert!(some.iter().all(|times| *times > 8), "{in_one_go:?}");
    assert_eq!(in_one_go[5..], [0; 5], "a longer prefix has no room");
}

/// What a damaged page gives is what it gives to those who read its entries one by one.
#[test]
fn entries_removed_from_the_heap_are_copied_one_by_one() {
    let mut dice = Dice(2);
    let sound = leaf(&mut dice, 3, 60, 60);
    let (heap, count) = (Node::new(PageRef::new(&sound)).heap(), 60);
    let whole = |bytes: &[u8]| {
        let mut copied = Copied::default();
        (copied.copy_heap(Node::new(PageRef::new(bytes)), 0..count), entries(&copied))
    };
    assert!(whole(&sound).0);
    for offset in [0, SLOTS, heap - 1, PAGE_SIZE - 3, PAGE_SIZE, 0xFFFF] {
        let mut bytes = sound.clone();
        let at = SLOTS + SLOT * dice.below(60) as usize + 4;
        bytes[at..at + 2].copy_from_slice(&(offset as u16).to_le_bytes());
        assert_eq!(whole(&bytes), (false, Vec::new()), "an entry at {offset}");
        let (mut copied, mut one_by_one) = (Copied::default(), Copied::default());
        copied.copy(Node::new(PageRef::new(&bytes)), 0..count);
        one_by_one.copy_one_by_one(Node::new(PageRef::new(&bytes)), 0..count);
        assert_eq!(entries(&copied), entries(&one_by_one));
    }
    for _ in 0..2000 {
        let mut bytes = sound.clone();
        for _ in 0..1 + dice.below(40) {
            bytes[SLOTS - 16 + dice.below((PAGE_SIZE - SLOTS + 16) as u64) as usize] = dice.below(256) as u8;
        }
        let mut copied = Copied::default();
        copied.copy(Node::new(PageRef::new(&bytes)), 0..count);
        assert_eq!(copied.len(), count);
    }
}
