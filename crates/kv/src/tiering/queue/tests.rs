use super::*;

fn key(name: &str) -> Key {
    Key::new(0, name.as_bytes())
}

fn changed(name: &str, existed: bool, exists: bool) -> Changed {
    Changed { key: key(name), before: Before { existed, expires_ms: None }, exists, bytes: 10 }
}

fn set(queue: &mut Queue, names: &[&str]) -> GroupId {
    let changed = names.iter().map(|name| changed(name, false, true)).collect();
    queue.add(names.iter().map(|name| key(name)).collect(), changed, Vec::new())
}

fn cut(queue: &mut Queue) -> Option<Cut> {
    let cut = queue.cut(|key| Some(Stored { expires_ms: None, rdb: key.name.to_vec() }));
    queue.check_invariants();
    cut
}

fn names(cut: &Cut) -> Vec<&[u8]> {
    cut.write.rows.iter().map(|row| &row.key.name[..]).collect()
}

fn refused() -> Outcome {
    Outcome::NotWritten(StorageError::Invalid("no".into()))
}

#[test]
fn changes_of_one_key_between_two_cuts_are_one_row() {
    let mut queue = Queue::new();
    let groups: Vec<GroupId> = (0..100).map(|_| set(&mut queue, &["a"])).collect();
    let cut = cut(&mut queue).unwrap();
    assert_eq!(names(&cut), [b"a"]);
    let landed = queue.land(cut.id, Outcome::Written);
    assert_eq!((landed.written, landed.clean), (groups, vec![key("a")]));
    assert!(queue.is_empty());
}

#[test]
fn a_key_in_flight_is_not_written_again_and_others_are() {
    let mut queue = Queue::new();
    set(&mut queue, &["a"]);
    let first = cut(&mut queue).unwrap();
    set(&mut queue, &["a", "b"]);
    set(&mut queue, &["b", "c"]);
    set(&mut queue, &["d"]);
    let second = cut(&mut queue).unwrap();
    // `b` and `c` are connected with `a`.
    assert_eq!(names(&second), [b"d"]);
    assert!(cut(&mut queue).is_none());
    assert_eq!(queue.land(first.id, Outcome::Written).clean, []);
    assert_eq!(names(&cut(&mut queue).unwrap()), [b"a", b"b", b"c"]);
}

#[test]
fn a_failed_write_takes_what_rests_on_it_and_nothing_else() {
    let mut queue = Queue::new();
    let one = set(&mut queue, &["a"]);
    let first = cut(&mut queue).unwrap();
    let two = set(&mut queue, &["a", "b"]);
    let three = queue.gate(&[key("b")]).unwrap();
    let four = set(&mut queue, &["d"]);
    let landed = queue.land(first.id, Outcome::Unknown(StorageError::Unavailable("gone".into())));
    queue.check_invariants();
    assert_eq!(landed.failed, [one, two, three]);
    assert_eq!(landed.lost, [key("a"), key("b")]);
    assert!(landed.is_unknown);
    let next = cut(&mut queue).unwrap();
    assert_eq!(names(&next), [b"d"]);
    assert_eq!(queue.land(next.id, Outcome::Written).written, [four]);
}

#[test]
fn a_refusal_reaches_its_own_clients_alone() {
    let mut queue = Queue::new();
    let good = set(&mut queue, &["a", "b"]);
    let bad = set(&mut queue, &["x"]);
    let together = cut(&mut queue).unwrap();
    assert_eq!(queue.land(together.id, refused()), Landed::default());
    queue.check_invariants();
    // The parts go before later changes of their keys.
    let later = set(&mut queue, &["a"]);
    let (first, second) = (cut(&mut queue).unwrap(), cut(&mut queue).unwrap());
    assert_eq!((names(&first), names(&second)), (vec![&b"a"[..], b"b"], vec![&b"x"[..]]));
    assert!(cut(&mut queue).is_none());
    assert_eq!(queue.land(second.id, refused()).failed, [bad]);
    assert_eq!(queue.land(first.id, Outcome::Written).written, [good]);
    let last = cut(&mut queue).unwrap();
    assert_eq!(queue.land(last.id, Outcome::Written).written, [later]);
}

#[test]
fn counts_are_exact_while_writes_wait_and_are_in_flight() {
    let mut queue = Queue::new();
    set(&mut queue, &["a", "b"]);
    queue.add(Vec::new(), vec![changed("old", true, false)], Vec::new());
    assert_eq!(queue.count(0, 10), 11);
    let flight = queue.cut(|key| (&key.name[..] != b"old").then(Stored::default)).unwrap();
    assert_eq!(queue.count(0, 10), 11);
    // Deleted again while in flight: storage will have it.
    queue.add(Vec::new(), vec![changed("a", true, false)], Vec::new());
    assert_eq!(queue.count(0, 10), 10);
    queue.land(flight.id, Outcome::Written);
    assert_eq!(queue.count(0, 11), 10);
    queue.add(Vec::new(), Vec::new(), vec![0]);
    assert_eq!((queue.count(0, 11), queue.count(1, 3)), (0, 3));
}

#[test]
fn an_emptied_database_forgets_what_waits_and_orders_what_follows() {
    let mut queue = Queue::new();
    set(&mut queue, &["a"]);
    let first = cut(&mut queue).unwrap();
    set(&mut queue, &["b"]);
    let other = queue.add(Vec::new(), Vec::new(), vec![0]);
    set(&mut queue, &["c"]);
    assert!(queue.holds(&key("anything")));
    // The database is being written to: it is emptied afterwards.
    assert!(cut(&mut queue).is_none());
    queue.land(first.id, Outcome::Written);
    let second = cut(&mut queue).unwrap();
    assert_eq!((names(&second), &second.write.emptied[..]), (vec![&b"c"[..]], &[0][..]));
    assert!(!second.write.rows[0].existed);
    assert!(queue.land(second.id, Outcome::Written).written.contains(&other));
    assert!(!queue.holds(&key("anything")));
}

#[test]
fn a_write_that_is_put_back_keeps_what_storage_had() {
    let mut queue = Queue::new();
    set(&mut queue, &["a"]);
    let first = cut(&mut queue).unwrap();
    queue.add(Vec::new(), vec![changed("a", true, true)], Vec::new());
    assert!(queue.put_back(first.id, |row| Before { existed: row.existed, expires_ms: row.expired_ms }));
    queue.check_invariants();
    let again = cut(&mut queue).unwrap();
    assert!(!again.write.rows[0].existed);
    assert_eq!(queue.count(0, 0), 1);
}
