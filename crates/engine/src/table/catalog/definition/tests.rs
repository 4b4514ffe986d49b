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
    let Whole { definitions: whole, left, group, .. } = entries.put_together();
    assert!(group.is_empty());
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
    let Whole { definitions: whole, left, group, .. } = entries.put_together();
    assert!(group.is_empty());
    assert_eq!(whole, [(9, Some(b"onetwothree".to_vec()))]);
    assert_eq!(left, [dropped, old].concat());
}

#[test]
fn a_missing_part_and_an_unknown_key_cannot_be_read() {
    let mut entries = Entries::default();
    entries.add(&9u32.to_be_bytes(), &PARTS.encode());
    entries.add(&PARTS.keys(9).next().unwrap(), b"one");
    assert_eq!(entries.put_together().definitions, [(9, None)]);
    let mut entries = Entries::default();
    entries.add(b"what", b"");
    entries.add(b"what is this", b"");
    assert_eq!(
        entries.put_together(),
        Whole {
            definitions: vec![(u32::from_be_bytes(*b"what"), Some(Vec::new())), (0, None)],
            ..Whole::default()
        }
    );
}

#[test]
fn a_definition_is_not_taken_for_a_mark() {
    assert_eq!(parts_of(Some(&PARTS.encode())), Some(PARTS));
    for sample in crate::table::catalog::entry::samples() {
        assert_eq!(parts_of(Some(&sample)), None);
    }
}

fn group_of(rules: [Option<Vec<u8>>; 2]) -> Vec<Member> {
    let both = [(9, &b"new nine"[..]), (10, b"new ten")];
    let member =
        |((id, definition), rules): ((u32, &[u8]), _)| Member { id, definition: definition.to_vec(), rules };
    both.into_iter().zip(rules).map(member).collect()
}

#[test]
fn a_group_records_its_rules_and_their_absence() {
    let rules_of = |group: &[u8]| {
        let mut entries = long();
        entries.add(&10u32.to_be_bytes(), b"old");
        for id in [9, 10, 11] {
            entries.add(&super::super::rules::key(id), b"old rules");
        }
        entries.add(&GROUP.to_be_bytes(), group);
        let mut whole = entries.put_together();
        whole.rules.sort_unstable();
        (whole.rules, whole.group)
    };
    let group = encode_group(&group_of([Some(b"new rules".to_vec()), Some(Vec::new())]));
    assert_eq!(
        rules_of(&group),
        (vec![(9, b"new rules".to_vec()), (11, b"old rules".to_vec())], vec![9, 10])
    );
    let old = |id| (id, b"old rules".to_vec());
    assert_eq!(rules_of(&encode_group(&group_of([None, None]))).0, [old(9), old(10), old(11)]);
    (1..group.len()).for_each(|len| assert!(rules_of(&group[..len]).1.len() < 2, "{len} bytes"));
}

#[test]
fn a_group_names_its_tables_while_it_exists() {
    let tables = || {
        let mut entries = long();
        entries.add(&10u32.to_be_bytes(), b"old");
        entries
    };
    let group = encode_group(&group_of([None, None]));
    let mut entries = tables();
    entries.add(&GROUP.to_be_bytes(), &group);
    let Whole { definitions: mut whole, left, group: changed, .. } = entries.put_together();
    whole.sort_unstable();
    assert_eq!(whole, [(9, Some(b"new nine".to_vec())), (10, Some(b"new ten".to_vec()))]);
    assert_eq!((left, changed), (Vec::new(), vec![9, 10]));
    for bad in [&group[..group.len() - 1], &b"\x02"[..], b"\x01", b""] {
        let mut entries = tables();
        entries.add(&GROUP.to_be_bytes(), bad);
        let Whole { definitions: whole, group: changed, .. } = entries.put_together();
        assert!(whole.contains(&(GROUP, None)) && changed.is_empty(), "{bad:?}");
    }
    // A group of a table that there is not.
    let mut entries = long();
    entries.add(&GROUP.to_be_bytes(), &group);
    assert_eq!(entries.put_together().definitions, [(GROUP, None)]);
}
