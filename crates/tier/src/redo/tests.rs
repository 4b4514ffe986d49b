use super::*;
use crate::fuzz::mutate::Dice;
use crate::page::SpaceId;

const ID: PageId = PageId::new(SpaceId(16), 5);

/// A place in the page's content and a length from there, short or long.
fn span(dice: &mut Dice) -> (usize, usize) {
    let at = PAGE_HEADER + dice.below(PAGE_SIZE - PAGE_HEADER);
    let most = if dice.below(4) == 0 { PAGE_SIZE } else { 200 };
    (at, dice.below(most.min(PAGE_SIZE - at) + 1))
}

fn change(page: &mut PageMut<'_>, dice: &mut Dice) {
    let (at, len) = span(dice);
    match dice.below(6) {
        0 => page.write(at, &vec![dice.below(256) as u8; len]),
        1 => page.write_u16(page::at::FLAGS, dice.below(1 << 16) as u16),
        2 => {
            let data: Vec<u8> = (0..len).map(|_| dice.below(256) as u8).collect();
            page.insert(at, &data, dice.below(PAGE_SIZE - at - len + 1));
        }
        3 => {
            let to = PAGE_HEADER + dice.below(PAGE_SIZE - PAGE_HEADER - len + 1);
            page.shift(to, at, len);
        }
        4 => page.fill(at, len, dice.below(256) as u8),
        _ if dice.below(20) == 0 => page.init(ID, PageKind::Leaf, dice.below(256) as u8),
        _ => page.write_u32(PAGE_SIZE - 4, dice.next() as u32),
    }
}

#[test]
fn redo_makes_of_an_older_image_what_the_changes_made() {
    for seed in 0..400 {
        let mut dice = Dice::new(seed);
        let mut made = vec![0; PAGE_SIZE];
        page::format(&mut made, ID, PageKind::Leaf, 0);
        let mut again = made.clone();
        let mut ops = Vec::new();
        for _ in 0..1 + dice.below(30) {
            change(&mut PageMut::new(&mut made, &mut ops), &mut dice);
        }
        page::set_lsn(&mut made, 7);
        apply(&mut again, ID, &ops, 7).unwrap();
        assert!(again == made, "seed {seed}");
        // What the image has is not applied again.
        ops.insert(0, 0xFF);
        apply(&mut again, ID, &ops, 7).unwrap();
        assert!(again == made, "seed {seed}");
    }
}

#[test]
fn only_a_leading_init_record_resets_the_page() {
    let (mut bytes, mut ops) = (vec![0; PAGE_SIZE], Vec::new());
    let mut page = PageMut::new(&mut bytes, &mut ops);
    page.fill(100, 10, 1);
    assert!(!starts_with_init(page.ops));
    page.init(ID, PageKind::Leaf, 3);
    page.write(200, &[1]);
    assert!(starts_with_init(&ops) && !starts_with_init(&[]));
}

/// Any bytes: applied or refused, and what recovery does not own (checksum, name) stays.
#[test]
fn any_ops_are_applied_or_refused() {
    let (mut refused, mut done) = (0, 0);
    for seed in 0..20_000 {
        let mut dice = Dice::new(seed);
        let (mut bytes, mut ops) = (vec![7; PAGE_SIZE], Vec::new());
        if seed % 2 == 0 {
            for _ in 0..1 + dice.below(4) {
                change(&mut PageMut::new(&mut vec![0; PAGE_SIZE], &mut ops), &mut dice);
            }
            ops.truncate(300);
        } else {
            ops = vec![0; 1 + dice.below(40)];
        }
        for _ in 0..1 + dice.below(8) {
            let at = dice.below(ops.len().max(1));
            ops.get_mut(at).into_iter().for_each(|byte| *byte = dice.below(256) as u8);
        }
        page::set_lsn(&mut bytes, 1);
        let name = bytes[..page::at::FLAGS].to_vec();
        match apply(&mut bytes, ID, &ops, 2) {
            Ok(()) => done += 1,
            Err(error) => {
                assert!(error.at < ops.len().max(1));
                refused += 1;
            }
        }
        if !ops.contains(&INIT) {
            page::set_lsn(&mut bytes, 1);
            assert!(bytes[..page::at::FLAGS] == name, "seed {seed}");
        }
    }
    assert!(refused > 1000 && done > 1000, "{refused} refused, {done} applied");
}
