use super::super::build::Image;
use super::super::edit::{self, Keep};
use super::*;
use terrace_tier::page::{PageId, SpaceId};
use terrace_tier::redo::{self, PageMut};

const ID: PageId = PageId::new(SpaceId::FIRST_USER, 5);

/// A page and the redo that made it.
struct Page {
    bytes: Vec<u8>,
    ops: Vec<u8>,
}

impl Page {
    fn new(low: &[u8], high: Option<&[u8]>) -> Page {
        let mut page = Page { bytes: vec![0; PAGE_SIZE], ops: Vec::new() };
        Image::new(0, low, high, high.map(|_| 9)).write_to(&mut page.edit(), ID);
        page
    }
    fn edit(&mut self) -> PageMut<'_> {
        PageMut::new(&mut self.bytes, &mut self.ops)
    }
    fn node(&self) -> Node<'_> {
        Node::new(PageRef::new(&self.bytes))
    }
    fn put(&mut self, key: &[u8], value: &[u8]) {
        let place = self.node().find(key);
        if place.found {
            edit::set_value(&mut self.edit(), place.slot, value);
        } else {
            edit::insert(&mut self.edit(), place.slot, key, value);
        }
    }
    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let place = self.node().find(key);
        place.found.then(|| self.node().value(place.slot))
    }
    fn repack(&mut self, count: usize, cut: Option<(&[u8], u32)>, prefix: usize) {
        edit::repack(&mut self.edit(), &Keep { count, cut, prefix });
    }
    /// The page is sound, and its redo makes the same page from nothing.
    fn check(&self) {
        self.node().verify().unwrap();
        let mut again = vec![0; PAGE_SIZE];
        redo::apply(&mut again, ID, &self.ops, 1).unwrap();
        assert!(again[48..] == self.bytes[48..]);
    }
}

#[test]
fn heads_order_as_keys_do() {
    let keys: [&[u8]; 8] = [b"", b"\0", b"a", b"a\0", b"ab", b"abcd", b"abce", b"\xff\xff\xff\xff\xff"];
    for pair in keys.windows(2) {
        assert!(head(pair[0]) <= head(pair[1]), "{pair:?}");
    }
}

#[test]
fn keys_with_equal_heads_are_distinguished() {
    let mut page = Page::new(b"", None);
    let keys: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"\0\0\0\0", b"\0\0\0\0\0", b"same1"];
    for (i, key) in keys.iter().enumerate().rev() {
        page.put(key, &[i as u8]);
    }
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(page.get(key), Some(&[i as u8][..]));
        assert_eq!(page.node().key(i), *key);
    }
    assert_eq!(page.get(b"\0\0\0"), None);
    page.check();
}

#[test]
fn the_prefix_that_the_fences_share_is_stored_once() {
    let mut page = Page::new(b"customer/0001", Some(b"customer/0002"));
    for n in 0..100 {
        page.put(format!("customer/0001/{n:03}").as_bytes(), b"x");
    }
    assert_eq!(page.node().prefix(), b"customer/000");
    assert!(page.node().used() < 100 * (SLOT + ENTRY_HEAD + 6) + 40);
    assert_eq!(page.node().key(7), b"customer/0001/007");
    page.check();
}

#[test]
fn values_grow_shrink_and_stay_and_a_repack_wins_the_garbage_back() {
    let mut page = Page::new(b"k", Some(b"k\xff"));
    for n in 0..60u8 {
        page.put(&[b'k', n], &[n; 100]);
    }
    for n in (0..60u8).step_by(2) {
        page.put(&[b'k', n], &[n + 1; 40]);
        page.put(&[b'k', n + 1], &[n + 1; 120]);
    }
    for slot in (0..60).rev().step_by(3) {
        edit::remove(&mut page.edit(), slot);
    }
    page.check();
    let (free, count) = (page.node().free(), page.node().count());
    assert!(page.node().garbage() > 0);
    let entries: Vec<_> = (0..count).map(|s| (page.node().key(s), page.node().value(s).to_vec())).collect();
    page.repack(count, None, 1);
    page.check();
    assert_eq!((page.node().garbage(), page.node().gap()), (0, free));
    for (slot, (key, value)) in entries.iter().enumerate() {
        assert!(page.node().key(slot) == *key && page.node().value(slot) == value);
    }
}

#[test]
fn a_repack_cuts_a_longer_prefix() {
    let mut page = Page::new(b"", None);
    for n in 0..200 {
        page.put(format!("order/{n:05}").as_bytes(), &[n as u8; 20]);
    }
    page.repack(100, Some((b"order/001", 77)), 0);
    page.check();
    let mut page = Page::new(b"order/000", None);
    for n in 0..200 {
        page.put(format!("order/{n:05}").as_bytes(), &[n as u8; 20]);
    }
    page.repack(100, Some((b"order/001", 77)), 8);
    page.check();
    assert_eq!((page.node().prefix(), page.node().right()), (&b"order/00"[..], Some(77)));
    for n in 0..100 {
        assert_eq!(page.get(format!("order/{n:05}").as_bytes()), Some(&[n as u8; 20][..]));
    }
}

#[test]
fn verify_finds_each_damage() {
    let sound = || {
        let mut page = Page::new(b"a", Some(b"c"));
        for n in 0..20u8 {
            page.put(&[b'b', n], &[n; 10]);
        }
        page
    };
    sound().check();
    let broken = |at: usize, byte: u8| {
        let mut page = sound();
        page.bytes[at] ^= byte;
        page.node().verify()
    };
    assert!(broken(at::COUNT, 1).is_err());
    assert!(broken(at::COUNT + 1, 0xff).is_err());
    assert!(broken(at::HEAP, 2).is_err());
    assert!(broken(at::GARBAGE, 1).is_err());
    assert!(broken(at::PREFIX, 1).is_err());
    assert!(broken(at::LOW, 4).is_err());
    assert!(broken(SLOTS, 1).is_err());
    assert!(broken(SLOTS + 4, 1).is_err());
}

#[test]
fn reading_garbage_is_total() {
    let mut x = 1u64;
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..PAGE_SIZE)
            .map(|_| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (x >> 56) as u8
            })
            .collect();
        let node = Node::new(PageRef::new(&bytes));
        let _ = (node.sound(), node.verify(), node.low(), node.high(), node.right(), node.used());
        let place = node.find(b"some key");
        let _ = (node.value(place.slot), node.key(place.slot), node.child(place.slot), node.entry_len(9));
    }
}

#[test]
fn keys_compare_as_bytes_whatever_their_lengths() {
    let base = [7u8; 10];
    let mut keys = Vec::new();
    for len in 0..=base.len() {
        keys.push(base[..len].to_vec());
        for at in 0..len {
            for byte in [0, 8, 255] {
                let mut key = base[..len].to_vec();
                key[at] = byte;
                keys.push(key);
            }
        }
    }
    for a in &keys {
        for b in &keys {
            assert_eq!(compare(a, b), a.cmp(b), "{a:?} and {b:?}");
        }
    }
}
