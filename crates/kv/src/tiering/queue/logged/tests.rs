use super::super::Before;
use super::*;
use crate::storage::Outcome;

fn key(name: &str) -> Key {
    Key::new(0, name.as_bytes())
}

fn set(queue: &mut Queue, record: u64, names: &[&str]) {
    let changed = names.iter().map(|name| Changed {
        key: key(name),
        before: Before::default(),
        exists: true,
        bytes: 10,
    });
    queue.add_logged(Since { record, ms: record as i64 }, changed, Vec::new());
    queue.check_invariants();
}

fn cut(queue: &mut Queue, bytes: u64) -> Option<Cut> {
    let cut = queue.cut_logged(bytes, |key| Some(Stored { expires_ms: None, rdb: key.name.to_vec() }));
    queue.check_invariants();
    cut
}

fn names(cut: &Cut) -> Vec<String> {
    cut.write.rows.iter().map(|row| String::from_utf8(row.key.name.to_vec()).unwrap()).collect()
}

fn oldest(queue: &Queue) -> Option<u64> {
    queue.oldest().map(|oldest| oldest.record)
}

#[test]
fn a_million_changes_of_a_dirty_key_wait_once() {
    let mut queue = Queue::new();
    (1..=1_000_000).for_each(|record| {
        let change = Changed { key: key("a"), before: Before::default(), exists: true, bytes: 10 };
        queue.add_logged(Since { record, ms: 0 }, vec![change], Vec::new());
    });
    assert_eq!(queue.groups.iter().flat_map(Group::keys).count(), 1);
    assert_eq!((queue.waiting_bytes(), oldest(&queue)), (10, Some(1)));
    assert_eq!(names(&cut(&mut queue, 1000).unwrap()), ["a"]);
}

#[test]
fn a_cut_takes_the_oldest_keys_up_to_a_number_of_bytes() {
    let mut queue = Queue::new();
    set(&mut queue, 1, &["a", "b"]);
    set(&mut queue, 2, &["c", "a"]);
    set(&mut queue, 3, &["d"]);
    let first = cut(&mut queue, 20).unwrap();
    assert_eq!((names(&first), oldest(&queue)), (vec!["a".into(), "b".into()], Some(2)));
    // One is in flight at a time.
    assert!(cut(&mut queue, 20).is_none());
    // A key that is dirty again in flight waits behind the others.
    set(&mut queue, 4, &["a"]);
    assert_eq!(queue.count(0, 0), 4);
    queue.land(first.id, Outcome::Written);
    assert_eq!(names(&cut(&mut queue, 20).unwrap()), ["c", "d"]);
    assert_eq!(oldest(&queue), Some(4));
}

#[test]
fn a_cut_that_is_put_back_is_the_oldest_again() {
    let mut queue = Queue::new();
    set(&mut queue, 1, &["a", "b"]);
    set(&mut queue, 2, &["c"]);
    let first = cut(&mut queue, 20).unwrap();
    set(&mut queue, 3, &["a"]);
    assert!(queue.put_back(first.id, |_| Before::default()));
    queue.check_invariants();
    assert_eq!(oldest(&queue), Some(1));
    set(&mut queue, 4, &["b", "e"]);
    let again = cut(&mut queue, 20).unwrap();
    assert_eq!((names(&again), oldest(&queue)), (vec!["a".into(), "b".into()], Some(2)));
    queue.land(again.id, Outcome::Written);
    assert_eq!(names(&cut(&mut queue, 100).unwrap()), ["c", "e"]);
    assert_eq!(oldest(&queue), None);
}

#[test]
fn an_emptied_database_takes_its_dirty_keys_along_and_keeps_the_order() {
    let mut queue = Queue::new();
    set(&mut queue, 1, &["a"]);
    let other = Changed { key: Key::new(1, b"other"), before: Before::default(), exists: true, bytes: 10 };
    queue.add_logged(Since { record: 2, ms: 2 }, vec![other], Vec::new());
    queue.add_logged(Since { record: 3, ms: 3 }, Vec::new(), vec![0]);
    set(&mut queue, 4, &["a"]);
    queue.check_invariants();
    assert_eq!((queue.count(0, 7), queue.count(1, 7), oldest(&queue)), (1, 8, Some(2)));
    let first = cut(&mut queue, 5).unwrap();
    assert_eq!(
        (names(&first), &first.write.emptied[..], oldest(&queue)),
        (vec!["other".into()], &[][..], Some(3))
    );
    queue.land(first.id, Outcome::Written);
    let second = cut(&mut queue, 5).unwrap();
    assert_eq!((names(&second), &second.write.emptied[..]), (vec!["a".into()], &[0][..]));
    assert!(queue.holds(&key("anything")) && oldest(&queue).is_none());
    queue.put_back(second.id, |row| Before { existed: row.existed, expires_ms: None });
    assert_eq!((queue.count(0, 7), oldest(&queue)), (1, Some(3)));
}
