//! Pages that are intact but wrong are named, not followed.

use super::*;
use terrace_tier::page::{PageId, PageKind, PageRef};

/// A tree of two levels on disk, with a change made to the image of one of its pages.
fn broken(page: u32, change: impl FnOnce(&mut [u8])) -> World {
    let w = world(200);
    for n in 0u64..400 {
        w.tree.put(&n.to_be_bytes(), &[1; 100]).unwrap();
    }
    testing::flush_all(&w.pages, &w.below);
    change(w.below.images.lock().get_mut(&PageId::new(SPACE, page)).unwrap());
    let images = std::mem::take(&mut *w.below.images.lock());
    let (pages, below, log) = testing::pages(200);
    *below.images.lock() = images;
    let tree = Arc::new(Tree::open(&pages, SPACE).unwrap());
    World { tree, pages, below, log }
}

fn is_named(w: &World, page: u32) {
    let is_it = |error: TreeError| match error {
        TreeError::Corrupt { page: named, .. } => assert_eq!(named, PageId::new(SPACE, page)),
        other => panic!("{other}"),
    };
    // Reads and writes of all keys: those of the page fail, and name it.
    let mut failed = 0;
    for n in 0u64..400 {
        if let Err(error) = w.tree.get(&n.to_be_bytes(), Access::Normal, |_| ()) {
            is_it(error);
            failed += 1;
        }
        if let Err(error) = w.tree.put(&n.to_be_bytes(), &[2; 100]) {
            is_it(error);
            failed += 1;
        }
    }
    assert!(failed > 1, "{failed} calls failed");
    let report = w.tree.check(&mut |_, _| ()).unwrap();
    assert!(report.faults.iter().any(|fault| fault.page.page == page), "{:?}", report.faults);
}

#[test]
fn a_page_of_another_level_is_named() {
    is_named(&broken(2, |image| image[terrace_tier::page::at::LEVEL] = 3), 2);
}

#[test]
fn a_page_of_another_kind_is_named() {
    is_named(&broken(2, |image| image[terrace_tier::page::at::KIND] = PageKind::Undo as u8), 2);
}

#[test]
fn a_page_with_another_pages_fences_is_named() {
    let w = broken(2, |image| {
        let low = usize::from(u16::from_le_bytes([image[node::at::LOW], image[node::at::LOW + 1]]));
        image[low + 2..low + 4].fill(9);
    });
    is_named(&w, 2);
}

#[test]
fn a_child_that_is_free_is_an_error_and_not_an_endless_search() {
    let w = broken(2, |image| image[terrace_tier::page::at::KIND] = PageKind::Free as u8);
    let failed = (0u64..400).find_map(|n| w.tree.get(&n.to_be_bytes(), Access::Normal, |_| ()).err());
    assert!(matches!(failed, Some(TreeError::Corrupt { .. })));
}

#[test]
fn a_header_of_another_kind_is_refused() {
    let (pages, _, _) = testing::pages(50);
    crate::tree::space::create(&pages, SPACE, Content::Nothing, Urgency::Normal).unwrap();
    assert!(matches!(Tree::open(&pages, SPACE), Err(TreeError::Corrupt { .. })));
}

#[test]
fn garbage_in_any_page_never_panics_a_reader_a_writer_or_the_checker() {
    let mut dice = Dice(5);
    for round in 0..120 {
        let page = [1, 2, 3][dice.below(3) as usize];
        let w = broken(page, |image| {
            for _ in 0..1 + dice.below(40) {
                let range = if dice.below(2) == 0 { 200 } else { 16_000 };
                let at = 24 + dice.below(range) as usize;
                image[at] = dice.next() as u8;
            }
        });
        let mut cursor = Cursor::new(w.tree.clone(), Access::Normal);
        for n in 0u64..400 {
            let key = n.to_be_bytes();
            let _ = w.tree.get(&key, Access::Normal, |v| v.map(<[u8]>::len));
            let _ = cursor.seek(Seek::AtLeast(&key)).and_then(|_| cursor.next());
            let _ = cursor.seek(Seek::AtMost(&key)).and_then(|_| cursor.prev());
        }
        w.tree.check(&mut |_, _| ()).unwrap();
        if round % 2 == 0 {
            for _ in 0..1000 {
                let key = dice.below(400).to_be_bytes();
                let _ = match dice.below(2) {
                    0 => w.tree.put(&key, &vec![1; dice.below(400) as usize]),
                    _ => w.tree.remove(&key),
                };
            }
            w.tree.check(&mut |_, _| ()).unwrap();
        }
    }
}

#[test]
fn each_of_several_broken_pages_is_named_and_their_subtrees_are_not_leaked() {
    let w = world(200);
    for n in 0u64..1000 {
        w.tree.put(&n.to_be_bytes(), &[1; 100]).unwrap();
    }
    testing::flush_all(&w.pages, &w.below);
    let pages = w.tree.space().counts().pages;
    assert!(pages > 4, "{pages} pages");
    let whole = w.tree.check(&mut |_, _| ()).unwrap();
    assert!(whole.faults.is_empty() && whole.rows == 1000, "{:?}", whole.faults);
    let mut images = std::mem::take(&mut *w.below.images.lock());
    for page in [2, 4] {
        images.get_mut(&PageId::new(SPACE, page)).unwrap()[terrace_tier::page::at::LEVEL] = 3;
    }
    let (pages, below, _log) = testing::pages(200);
    *below.images.lock() = images;
    let tree = Tree::open(&pages, SPACE).unwrap();
    let report = tree.check(&mut |_, _| ()).unwrap();
    let mut named: Vec<u32> = report.faults.iter().map(|fault| fault.page.page).collect();
    named.sort_unstable();
    assert_eq!(named, [2, 4], "{:?}", report.faults);
    assert!(report.incomplete && report.leaked.count == 0);
    assert!((500..1000).contains(&report.rows), "{} rows beside two bad leaves", report.rows);
}

#[test]
fn a_bad_inner_page_hides_only_its_subtree() {
    let w = world(2000);
    for n in 0u64..3000 {
        // Neighbours are alike for long, so separators are long; groups are not, so nothing is cut off them all.
        let group = (n / 30).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        let key = [&(n / 30).to_be_bytes()[..], &group.repeat(150), &n.to_be_bytes()].concat();
        w.tree.put(&key, &[1; 300]).unwrap();
    }
    let levels = w.tree.check(&mut |_, _| ()).unwrap();
    assert!(levels.levels >= 2 && levels.inner > 3, "{levels:?}");
    testing::flush_all(&w.pages, &w.below);
    let mut images = std::mem::take(&mut *w.below.images.lock());
    let is_inner = |image: &[u8]| PageRef::new(image).kind() == PageKind::Inner as u8;
    let mut inner: Vec<PageId> =
        images.iter().filter(|(id, image)| is_inner(image) && id.page != 1).map(|(id, _)| *id).collect();
    inner.sort_unstable();
    let bad = inner[inner.len() / 2];
    images.get_mut(&bad).unwrap()[terrace_tier::page::at::KIND] = PageKind::Undo as u8;
    let (pages, below, _log) = testing::pages(4000);
    *below.images.lock() = images;
    let report = Tree::open(&pages, SPACE).unwrap().check(&mut |_, _| ()).unwrap();
    assert!(report.fault_count == 1 && report.faults[0].page == bad, "{:?}", report.faults);
    assert!(report.rows > 1000 && report.rows < 3000, "{} rows", report.rows);
}
