use super::*;
use std::collections::BTreeSet;

#[test]
fn each_number_has_one_home_and_homes_begin_what_they_have() {
    for number in [0, 1, INLINE - 1, INLINE, INLINE + GROUP - 1, INLINE + GROUP, u32::MAX] {
        let home = home_of(number);
        assert!(span(home).contains(&number) || number == u32::MAX && span(home).end == number);
        assert_eq!(home_of(home), home);
    }
    assert_eq!(homes(INLINE).count(), 0);
    assert_eq!(homes(INLINE + 1).collect::<Vec<_>>(), [INLINE]);
    assert_eq!(homes(INLINE + GROUP + 1).collect::<Vec<_>>(), [INLINE, INLINE + GROUP]);
    assert!(!is_home(0) && is_home(INLINE) && !is_home(INLINE + 1) && is_home(INLINE + GROUP));
}

/// Against a set of numbers, in the header and in a home.
#[test]
fn bits_read_back_as_set() {
    for home in [0, INLINE + GROUP] {
        let (mut bytes, mut ops) = (vec![0; PAGE_SIZE], Vec::new());
        let mut page = PageMut::new(&mut bytes, &mut ops);
        let mut free = BTreeSet::new();
        let span = span(home);
        let mut n = 1u32;
        for _ in 0..2000 {
            n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = span.start + n % (span.end - span.start);
            match n >> 30 {
                0 => {
                    set(&mut page, number, false);
                    free.remove(&number);
                }
                1 => {
                    let run = number..(number + (n >> 8) % 70).min(span.end);
                    let fresh = run.clone().filter(|number| free.insert(*number)).count();
                    assert_eq!(set_free(&mut page, run) as usize, fresh);
                }
                _ => {
                    set(&mut page, number, true);
                    free.insert(number);
                }
            }
            assert_eq!(is_free(page.get(), number), free.contains(&number));
        }
        let blocks = span.start / BLOCK_PAGES..span.end / BLOCK_PAGES;
        let found = blocks.flat_map(|block| numbers(block, of_block(page.get(), block)));
        assert!(found.eq(free.iter().copied()));
    }
}
