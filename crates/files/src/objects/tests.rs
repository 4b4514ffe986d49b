//! Objects against a model: clients that create, seal, get, release, delete and die in any order; spills that end late.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MEMORY: u64 = 64 * 20;
const FLASH: u64 = 3000;

#[derive(Clone, Debug)]
enum Op {
    Create { client: u64, name: u8, len: u64 },
    Seal { client: u64, name: u8 },
    Get { client: u64, name: u8 },
    Release { which: usize },
    Delete { name: u8 },
    Die { client: u64 },
    EndSpill { is_written: bool },
    Pass,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0u64..4, 0u8..8, 0u64..500).prop_map(|(client, name, len)| Op::Create { client, name, len }),
        3 => (0u64..4, 0u8..8).prop_map(|(client, name)| Op::Seal { client, name }),
        4 => (0u64..4, 0u8..8).prop_map(|(client, name)| Op::Get { client, name }),
        4 => any::<usize>().prop_map(|which| Op::Release { which }),
        2 => (0u8..8).prop_map(|name| Op::Delete { name }),
        1 => (0u64..4).prop_map(|client| Op::Die { client }),
        2 => any::<bool>().prop_map(|is_written| Op::EndSpill { is_written }),
        1 => Just(Op::Pass),
    ]
}

fn overlap(a: Extent, b: Extent) -> bool {
    a.offset < b.offset + b.taken() && b.offset < a.offset + a.taken()
}

fn run(ops: Vec<Op>) {
    let mut objects = Objects::new(Settings { memory_bytes: MEMORY, flash_bytes: FLASH });
    // By client: what it holds. A creator holds what it writes.
    let mut held: Vec<(u64, Given)> = Vec::new();
    let mut sealed: BTreeMap<String, bool> = BTreeMap::new();
    let mut asked: BTreeMap<u64, (u64, String)> = BTreeMap::new();
    let mut spills: Vec<Spill> = Vec::new();
    let (mut now, mut request) = (0, 0);
    for op in ops {
        now += 1;
        let name = |name: u8| format!("o{name}");
        match op {
            Op::Create { client, name: which, len } => {
                match objects.create(&name(which), len, true, client, now) {
                    Ok(Created::Made(given)) => {
                        assert!(sealed.insert(name(which), false).is_none(), "two objects of one name");
                        for (_, other) in &held {
                            if let (Place::Memory(a), Place::Memory(b)) = (given.place, other.place) {
                                assert!(!overlap(a, b), "bytes that a client holds are given out again");
                            }
                        }
                        for spill in &spills {
                            assert!(!matches!(given.place, Place::Memory(a) if overlap(a, spill.extent)));
                        }
                        held.push((client, given));
                    }
                    Ok(Created::After(spill)) => spills.push(spill),
                    Err(Fault::Exists) => assert!(sealed.contains_key(&name(which))),
                    Err(_) => {}
                }
            }
            Op::Seal { client, name: which } => {
                if let Ok(answers) = objects.seal(&name(which), client, now) {
                    sealed.insert(name(which), true);
                    let at = held.iter().position(|(holder, given)| {
                        *holder == client && objects.names.get(&*name(which)) == Some(&given.id)
                    });
                    held.remove(at.expect("the creator held it"));
                    for answer in answers {
                        let (client, _) = asked.remove(&answer.request).expect("a get is answered once");
                        held.push((client, answer.result.unwrap()));
                    }
                }
            }
            Op::Get { client, name: which } => match objects.get(&name(which), client, now) {
                Some(given) => {
                    assert!(sealed[&name(which)], "an object that is being written is given to a reader");
                    held.push((client, given.unwrap()));
                }
                None => {
                    request += 1;
                    objects.wait(&name(which), client, request, now + 20).unwrap();
                    asked.insert(request, (client, name(which)));
                }
            },
            Op::Release { which } if !held.is_empty() => {
                let at = which % held.len();
                let (client, given) = held[at];
                // What is being written is given up by its creator's end alone.
                let is_written = objects.objects.get(&given.id).is_some_and(|object| !object.sealed);
                if !is_written {
                    held.swap_remove(at);
                    assert!(objects.release(given.id, client));
                }
            }
            Op::Delete { name: which } => {
                let is_sealed = sealed.get(&name(which)) == Some(&true);
                if is_sealed {
                    objects.delete(&name(which)).unwrap();
                    sealed.remove(&name(which));
                }
            }
            Op::Die { client } => {
                let unsealed: Vec<String> =
                    sealed.iter().filter(|(_, sealed)| !**sealed).map(|(name, _)| name.clone()).collect();
                for name in unsealed {
                    if objects.find(&name).is_some_and(|(_, object)| object.creator == client) {
                        sealed.remove(&name);
                    }
                }
                objects.client_gone(client);
                held.retain(|(holder, _)| *holder != client);
                asked.retain(|_, (holder, _)| *holder != client);
                assert!(!objects.references.contains_key(&client));
            }
            Op::EndSpill { is_written } if !spills.is_empty() => {
                objects.spilled(spills.remove(0), is_written)
            }
            Op::Pass => now += 15,
            _ => {}
        }
        for answer in objects.expire(now) {
            assert!(asked.remove(&answer.request).is_some() && answer.result == Err(Fault::Absent));
        }
        for (client, given) in &held {
            let object = objects.objects.get(&given.id).expect("what a client holds is not freed");
            assert!(objects.references[client][&given.id] > 0);
            assert_eq!(
                (object.place, object.len),
                (given.place, given.len),
                "bytes that a client holds were moved"
            );
        }
        objects.check_invariants();
    }
    spills.into_iter().for_each(|spill| objects.spilled(spill, true));
    (0..4).for_each(|client| objects.client_gone(client));
    objects.delete_idle(Nanos::MAX);
    objects.check_invariants();
    assert_eq!(objects.sizes(), (0, 0, 0, 0), "all is free at the end");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn what_a_client_holds_stays_and_the_rest_is_free_at_the_end(ops in prop::collection::vec(op(), 0..200)) {
        run(ops);
    }
}

fn made(created: Result<Created, Fault>) -> Given {
    match created {
        Ok(Created::Made(given)) => given,
        Ok(Created::After(_)) => panic!("memory is full"),
        Err(fault) => panic!("{fault}"),
    }
}

#[test]
fn an_object_is_readable_from_its_seal_on_and_frees_its_bytes_with_its_last_reader() {
    let mut objects = Objects::new(Settings { memory_bytes: MEMORY, flash_bytes: 0 });
    let given = made(objects.create("a", 1000, false, 1, 0));
    assert!(objects.get("a", 2, 1).is_none(), "a reader sees what is being written");
    objects.wait("a", 2, 77, 50).unwrap();
    assert!(objects.seal("a", 2, 2).is_err(), "it is another client's");
    assert!(objects.delete_by("a", 2).is_err(), "its creator is writing it");
    let answers = objects.seal("a", 1, 2).unwrap();
    assert_eq!(answers, [Answer { client: 2, request: 77, result: Ok(given) }]);
    objects.delete("a").unwrap();
    assert!(objects.get("a", 3, 3).is_none());
    assert!(
        matches!(objects.create("b", 1000, false, 3, 3), Err(Fault::Busy(_))),
        "its reader has its bytes"
    );
    assert!(objects.release(given.id, 2) && !objects.release(given.id, 2));
    made(objects.create("b", 1000, false, 3, 4));
}

#[test]
fn an_object_that_is_read_is_never_spilled() {
    let mut objects = Objects::new(Settings { memory_bytes: 64 * 20, flash_bytes: 1 << 20 });
    for name in ["a", "b"] {
        made(objects.create(name, 600, false, 1, 0));
        objects.seal(name, 1, 0).unwrap();
    }
    let held = objects.get("a", 2, 5).unwrap().unwrap();
    let Ok(Created::After(spill)) = objects.create("c", 600, false, 1, 6) else { panic!("memory is full") };
    assert_ne!(spill.id, held.id);
    objects.spilled(spill, true);
    made(objects.create("c", 600, false, 1, 7));
    assert_eq!(objects.get("a", 2, 8).unwrap().unwrap().place, held.place);
    assert_eq!(objects.get("b", 2, 8).unwrap().unwrap().place, Place::Flash);
    assert!(matches!(objects.create("d", 600, false, 1, 9), Err(Fault::Busy(_))));
}

#[test]
fn large_objects_go_to_flash_unless_they_are_read_at_once() {
    let mut objects = Objects::new(Settings { memory_bytes: 64 << 20, flash_bytes: 64 << 20 });
    assert!(matches!(made(objects.create("small", SMALL, false, 1, 0)).place, Place::Memory(_)));
    assert_eq!(made(objects.create("large", SMALL + 1, false, 1, 0)).place, Place::Flash);
    assert!(matches!(made(objects.create("soon", SMALL + 1, true, 1, 0)).place, Place::Memory(_)));
    assert!(objects.create("huge", 1 << 30, true, 1, 0).is_err());
    assert_eq!(objects.create("small", 1, false, 1, 0).err(), Some(Fault::Exists));
}

fn found_with(bug: &planted::Switch, claim: fn()) {
    static ONE_AT_A_TIME: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock();
    bug.set(true);
    let result = std::panic::catch_unwind(claim);
    bug.set(false);
    assert!(result.is_err(), "the planted bug was not found");
}

#[test]
#[ignore = "a planted bug"]
fn planted_unsealed_object_given_is_found() {
    let claim = an_object_is_readable_from_its_seal_on_and_frees_its_bytes_with_its_last_reader;
    found_with(&planted::UNSEALED_OBJECT_GIVEN, claim);
}

#[test]
#[ignore = "a planted bug"]
fn planted_read_object_freed_is_found() {
    let claim = an_object_is_readable_from_its_seal_on_and_frees_its_bytes_with_its_last_reader;
    found_with(&planted::READ_OBJECT_FREED, claim);
}

#[test]
#[ignore = "a planted bug"]
fn planted_referenced_object_spilled_is_found() {
    found_with(&planted::REFERENCED_OBJECT_SPILLED, an_object_that_is_read_is_never_spilled);
}
