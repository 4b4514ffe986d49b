use super::*;
use crate::address::Slot;
use crate::page::{self, PageId, PageKind, SpaceId};
use crate::volume::map::entry::{self};
use terrace_io::random::Random;
use terrace_sim::SimWorld;

/// The same changes of a whole page and of one that is kept as far as it is used.
#[test]
fn an_image_that_is_kept_in_part_is_the_whole_page() {
    for seed in 0..200 {
        let random = SimWorld::new(seed).random;
        let below = |n: u64| (random.next_u64() % n) as u32;
        let (mut whole, mut image) = (vec![0; PAGE_SIZE], Image::blank());
        let id = PageId::new(SpaceId::MAP, below(9));
        for lsn in 1..40 {
            let (mut ops, mut same) = (Vec::new(), Vec::new());
            let (index, i, slot) = (below(15), below(128) as usize, Slot(below(1 << 24) / 2));
            if lsn == 1 || below(20) == 0 {
                image.clear();
                image.head_mut(&mut ops).init(id, PageKind::Map, 0);
                PageMut::new(&mut whole, &mut same).init(id, PageKind::Map, 0);
            } else if below(4) == 0 {
                entry::set_before(&mut image.head_mut(&mut ops), lsn);
                entry::set_before(&mut PageMut::new(&mut whole, &mut same), lsn);
            } else {
                entry::set_slot(&mut image.entry_mut(index, &mut ops), index, i, slot, 7);
                entry::set_slot(&mut PageMut::new(&mut whole, &mut same), index, i, slot, 7);
            }
            assert_eq!(ops, same, "seed {seed}");
            image.set_lsn(lsn);
            page::set_lsn(&mut whole, lsn);
            let mut copy = vec![0xAA; PAGE_SIZE];
            image.copy_to(&mut copy);
            assert!(copy == whole, "seed {seed}, change {lsn}");
            let again = Image::of(&whole);
            again.copy_to(&mut copy);
            assert!(copy == whole && again.size() <= image.size(), "seed {seed}, change {lsn}");
            for index in 0..ENTRIES {
                let (kept, read) =
                    (entry::Entry::new(image.page(), index), entry::Entry::new(PageRef::new(&whole), index));
                assert_eq!(
                    (kept.slot(i), kept.tag(i), kept.is_unused()),
                    (read.slot(i), read.tag(i), read.is_unused())
                );
                assert_eq!((kept.object(), kept.fault()), (read.object(), read.fault()));
            }
        }
    }
}

#[test]
fn an_image_is_as_long_as_it_is_used() {
    let (mut image, mut ops) = (Image::blank(), Vec::new());
    assert_eq!(image.size(), PAGE_HEADER);
    for (index, size) in [(0, 1152), (2, 3328), (1, 3328), (14, PAGE_SIZE)] {
        entry::set_slot(&mut image.entry_mut(index, &mut ops), index, 5, Slot(1), 7);
        assert_eq!(image.size(), size);
    }
    image.clear();
    assert_eq!(image.size(), PAGE_HEADER);
}
