use super::super::entry::Key;
use super::*;
use crate::value::Str;
use proptest::prelude::*;
use std::collections::HashSet;

fn hash_of(key: &[u8]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = siphasher::sip::SipHasher13::new_with_keys(1, 2);
    hasher.write(key);
    hasher.finish()
}

fn insert(dictionary: &mut Dictionary, key: &str) {
    let entry = Entry { key: Key::new(key.as_bytes()), value: Str::int(0).into(), access: 0, expiry: 0 };
    dictionary.insert(hash_of(key.as_bytes()), Box::new(entry), hash_of);
}

fn remove(dictionary: &mut Dictionary, key: &str) -> bool {
    match dictionary.find(hash_of(key.as_bytes()), key.as_bytes()) {
        Some(place) => dictionary.remove(place, hash_of).is_some(),
        None => false,
    }
}

#[test]
fn keys_are_found_at_every_step_of_growing_and_shrinking() {
    let mut dictionary = Dictionary::new();
    let count = 20_000;
    for number in 0..count {
        insert(&mut dictionary, &number.to_string());
        let probe = (number * 7919 % (number + 1)).to_string();
        assert!(
            dictionary.find(hash_of(probe.as_bytes()), probe.as_bytes()).is_some(),
            "{probe} of {number}"
        );
    }
    assert_eq!(dictionary.len(), count);
    let grown = dictionary.heap_bytes();
    for number in 0..count - 10 {
        assert!(remove(&mut dictionary, &number.to_string()));
    }
    while dictionary.step(&hash_of) {}
    assert_eq!(dictionary.len(), 10);
    assert!(dictionary.heap_bytes() < grown / 20);
}

#[test]
fn a_scan_returns_each_key_that_stays_though_the_dictionary_is_resized() {
    for (before, after) in [(100, 20_000), (20_000, 100)] {
        let mut dictionary = Dictionary::new();
        for number in 0..before {
            insert(&mut dictionary, &number.to_string());
        }
        let stays = before.min(after);
        let mut seen = HashSet::new();
        let mut cursor = 0;
        let mut calls = 0;
        loop {
            cursor = dictionary.scan(cursor, |entry| {
                seen.insert(String::from_utf8(entry.key.to_vec()).unwrap());
            });
            if cursor == 0 {
                break;
            }
            calls += 1;
            if calls == 3 {
                for number in before..after {
                    insert(&mut dictionary, &number.to_string());
                }
                for number in after..before {
                    remove(&mut dictionary, &number.to_string());
                }
            }
            dictionary.step(&hash_of);
        }
        assert!((0..stays).all(|number| seen.contains(&number.to_string())), "{before} to {after}");
    }
}

proptest! {
    #[test]
    fn a_dictionary_holds_what_a_set_holds(operations in prop::collection::vec((any::<bool>(), 0u16..400), 0..2000)) {
        let mut dictionary = Dictionary::new();
        let mut model = HashSet::new();
        for (add, key) in operations {
            let name = key.to_string();
            if add && model.insert(name.clone()) {
                insert(&mut dictionary, &name);
            } else if !add {
                prop_assert_eq!(remove(&mut dictionary, &name), model.remove(&name));
            }
        }
        let mut found = HashSet::new();
        dictionary.for_each(|entry| {
            found.insert(String::from_utf8(entry.key.to_vec()).unwrap());
        });
        prop_assert_eq!(dictionary.len(), model.len());
        prop_assert_eq!(found, model);
    }
}
