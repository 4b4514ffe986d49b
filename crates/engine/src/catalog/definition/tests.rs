use super::*;

const PARTS: Parts = Parts { generation: 77, count: 3 };

fn long() -> Entries {
    let mut entries = Entries::default();
    entries.add(&9u32.to_be_bytes(), &PARTS.encode());
    for (key, part) in PARTS.keys(9).zip(["one", "two", "three"]) {
        entries.add(&key, part.as_bytes());
    }
    entries
}

#[test]
fn parts_are_put_together_in_their_order() {
    let mut entries = long();
    entries.add(&10u32.to_be_bytes(), b"short");
    let (whole, left) = entries.put_together();
    assert_eq!(whole, [(9, Some(b"onetwothree".to_vec())), (10, Some(b"short".to_vec()))]);
    assert!(left.is_empty());
}

#[test]
fn parts_of_another_generation_or_of_no_table_are_left_over() {
    let mut entries = long();
    let old: Vec<_> = Parts { generation: 60, count: 2 }.keys(9).collect();
    let dropped: Vec<_> = Parts { generation: 61, count: 1 }.keys(8).collect();
    for key in old.iter().chain(&dropped) {
        entries.add(key, b"old");
    }
    let (whole, left) = entries.put_together();
    assert_eq!(whole, [(9, Some(b"onetwothree".to_vec()))]);
    assert_eq!(left, [dropped, old].concat());
}

#[test]
fn a_missing_part_and_a_key_that_nobody_writes_cannot_be_read() {
    let mut entries = Entries::default();
    entries.add(&9u32.to_be_bytes(), &PARTS.encode());
    entries.add(&PARTS.keys(9).next().unwrap(), b"one");
    assert_eq!(entries.put_together().0, [(9, None)]);
    let mut entries = Entries::default();
    entries.add(b"what", b"");
    entries.add(b"what is this", b"");
    assert_eq!(
        entries.put_together(),
        (vec![(u32::from_be_bytes(*b"what"), Some(Vec::new())), (0, None)], Vec::new())
    );
}

#[test]
fn a_definition_is_not_taken_for_a_mark() {
    assert_eq!(parts_of(Some(&PARTS.encode())), Some(PARTS));
    for sample in crate::catalog::samples() {
        assert_eq!(parts_of(Some(&sample)), None);
    }
}
