use super::file::{FileReader, FileWriter, Record};
use super::length::{read_length, read_string, write_length, write_string};
use super::*;
use crate::value::integer::parse_integer;
use crate::value::stream::listpack::{Builder, View};
use crate::value::stream::{Group, NodeLimits, Pending, Stream, StreamId};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<i64>().prop_map(|value| value.to_string().into_bytes()),
        (-5000i64..5000).prop_map(|value| value.to_string().into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..40),
        (0usize..20_000, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ]
}

fn stream() -> impl Strategy<Value = Object> {
    (1u64..60, any::<u64>(), 0usize..4).prop_map(|(entries, seed, groups)| {
        let mut stream = Stream::new();
        for i in 1..=entries {
            let value = seed.rotate_left(i as u32).to_string();
            let name: &[u8] = if value.ends_with('7') { b"seven" } else { b"field" };
            stream.append(
                StreamId::new(i, seed & 3),
                &[name, value.as_bytes()],
                NodeLimits { bytes_max: 300, entries_max: 9 },
            );
        }
        stream.delete(StreamId::new(seed % entries + 1, seed & 3));
        for group in 0..groups {
            let mut built = Group::new(StreamId::new(entries / 2, 0), (group > 0).then_some(group as u64));
            let owner = built.see_consumer(b"owner", seed >> 20);
            for i in 0..group as u64 {
                built.assign(
                    StreamId::new(i, 1),
                    Pending { consumer: owner.clone(), delivered_ms: seed >> 10, deliveries: i },
                );
            }
            built.create_consumer(b"idle", 9);
            stream.create_group(format!("group {group}").as_bytes(), built);
        }
        Object::Stream(Box::new(stream))
    })
}

fn object() -> impl Strategy<Value = Object> {
    let distinct = || proptest::collection::btree_map(element(), element(), 1..150);
    let numbers = proptest::collection::btree_set(any::<i16>(), 1..100);
    prop_oneof![
        element().prop_map(Object::String),
        proptest::collection::vec(element(), 1..80).prop_map(Object::List),
        distinct().prop_map(|map| Object::Set(map.into_keys().collect())),
        numbers.prop_map(|set| Object::Set(
            set.into_iter().map(|member| member.to_string().into_bytes()).collect()
        )),
        distinct().prop_map(|map| Object::Hash(map.into_iter().collect())),
        proptest::collection::btree_map(
            element(),
            any::<f64>().prop_filter("a number", |score| !score.is_nan()),
            1..60
        )
        .prop_map(|map| Object::Zset(map.into_iter().collect())),
        stream(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_value_of_the_server_dumps_and_restores_as_it_was(object in object(), small in any::<bool>()) {
        let mut limits = crate::value::limits::CollectionLimits::default();
        if small {
            limits.hash_max_listpack_entries = 3;
            limits.set_max_intset_entries = 3;
            limits.set_max_listpack_entries = 2;
            limits.zset_max_listpack_entries = 3;
        }
        let value = crate::value::Value::from_rdb(object, &limits);
        let read = payload::decode(&value.to_rdb()).expect("own value");
        let again = crate::value::Value::from_rdb(read.clone(), &limits);
        prop_assert_eq!(value.encoding(), again.encoding());
        let reread = payload::decode(&again.to_rdb()).expect("own value");
        prop_assert_eq!(meaning(&sorted(reread)), meaning(&sorted(read)));
    }
}

/// Sorted sets in the order of their members, as the order of equal scores is the server's, and without the sign of a zero: the compact encoding
/// keeps whole numbers as integers, as Redis does.
fn sorted(object: Object) -> Object {
    match object {
        Object::Zset(mut members) => {
            members.sort_by(|a, b| a.0.cmp(&b.0));
            members.iter_mut().for_each(|(_, score)| *score += 0.0);
            Object::Zset(members)
        }
        other => other,
    }
}

/// What an object holds, independent of order and encoding.
fn meaning(object: &Object) -> String {
    match object {
        Object::Set(members) => format!("{:?}", members.iter().collect::<std::collections::BTreeSet<_>>()),
        Object::Hash(pairs) => format!("{:?}", pairs.iter().cloned().collect::<BTreeMap<_, _>>()),
        Object::Stream(stream) => {
            let mut bytes = Vec::new();
            super::stream::write(&mut bytes, stream);
            format!("{bytes:?}")
        }
        other => format!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn a_value_reads_back_as_it_was_written(object in object()) {
        let payload = payload::seal(payload::encode(&object));
        let value = payload::open(&payload).expect("own payload");
        prop_assert_eq!(meaning(&payload::decode(value).expect("own value")), meaning(&object));
    }

    #[test]
    fn a_damaged_payload_is_refused(object in object(), at in any::<usize>(), bit in 0u8..8) {
        let mut payload = payload::seal(payload::encode(&object));
        let at = at % payload.len();
        payload[at] ^= 1 << bit;
        prop_assert!(payload::open(&payload).is_none());
    }

    #[test]
    fn hostile_values_are_errors_without_panic_or_large_allocation(
        object in object(),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        kind in proptest::option::of(0u8..24),
        cut in any::<usize>(),
    ) {
        let mut bytes = payload::encode(&object);
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Some(kind) = kind {
            bytes[0] = kind;
        }
        if let Ok(read) = payload::decode(&bytes) {
            // What is accepted is usable.
            meaning(&payload::decode(&payload::encode(&read)).expect("a value that was accepted"));
        }
        let _ = payload::decode(&bytes[..cut % bytes.len()]);
    }

    #[test]
    fn random_bytes_of_every_type_are_errors_without_panic(kind in 0u8..30, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut source = SliceSource::new(&bytes);
        let _ = Object::read(&mut source, kind);
        let mut packed = Vec::new();
        write_length(&mut packed, bytes.len() as u64);
        packed.extend_from_slice(&bytes);
        let _ = Object::read(&mut SliceSource::new(&packed), kind);
        let _ = View::checked(&bytes);
        let _ = FileReader::new(&bytes[..], bytes.len() as u64).map(|mut reader| while let Ok(Some(_)) = reader.next_record() {});
    }

    #[test]
    fn lzf_restores_what_it_compressed(parts in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..12), 1usize..400), 0..30)) {
        let input: Vec<u8> = parts.iter().flat_map(|(bytes, times)| bytes.iter().copied().cycle().take(bytes.len() * times % 9000)).collect();
        if let Some(compressed) = lzf::compress(&input) {
            prop_assert!(compressed.len() + 4 <= input.len());
            prop_assert_eq!(lzf::decompress(&compressed, input.len()), Some(input.clone()));
            prop_assert_eq!(lzf::decompress(&compressed, input.len() + 1), None);
        }
    }

    #[test]
    fn lzf_of_hostile_bytes_ends(bytes in proptest::collection::vec(any::<u8>(), 0..200), length in 0usize..100_000) {
        let _ = lzf::decompress(&bytes, length);
    }

    #[test]
    fn lengths_and_strings_read_back(length in any::<u64>(), string in element()) {
        let mut out = Vec::new();
        write_length(&mut out, length);
        write_string(&mut out, &string);
        let mut source = SliceSource::new(&out);
        prop_assert_eq!(read_length(&mut source), Ok(length));
        prop_assert_eq!(read_string(&mut source), Ok(string));
        prop_assert!(source.rest().is_empty());
    }

    #[test]
    fn a_listpack_holds_what_was_pushed(elements in proptest::collection::vec(element(), 0..60), replaced in any::<(usize, i64)>()) {
        let mut pack = Builder::default();
        for element in &elements {
            pack.push(element);
        }
        let read: Vec<Vec<u8>> = View::checked(pack.bytes()).expect("own pack").iter().map(|element| element.to_vec()).collect();
        prop_assert_eq!(&read, &elements);
        if !elements.is_empty() {
            let which = replaced.0 % elements.len();
            let mut walk = pack.iter();
            walk.skip_elements(which);
            let at = walk.offset();
            pack.replace_integer(at, replaced.1);
            let mut expected = elements.clone();
            expected[which] = replaced.1.to_string().into_bytes();
            let read: Vec<Vec<u8>> = View::checked(pack.bytes()).expect("own pack").iter().map(|element| element.to_vec()).collect();
            prop_assert_eq!(read, expected);
        }
    }

    #[test]
    fn the_canonical_form_of_an_integer_is_unique(value in any::<i64>(), text in "[-+]?[0-9]{1,20}") {
        prop_assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
        let parsed = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
        prop_assert_eq!(parse_integer(text.as_bytes()), parsed);
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_file_reads_back_and_resumes_anywhere(objects in proptest::collection::vec((object(), proptest::option::of(any::<u64>())), 1..8), stop in any::<usize>()) {
        let mut writer = FileWriter::new(Vec::new()).unwrap();
        writer.aux("redis-ver", "7.0.15").unwrap();
        writer.select(3, objects.len() as u64, 0).unwrap();
        for (i, (object, expires_ms)) in objects.iter().enumerate() {
            writer.key(format!("key {i}").as_bytes(), *expires_ms, |out| object.write(out)).unwrap();
        }
        let (file, size) = writer.finish().unwrap();
        prop_assert_eq!(size, file.len() as u64);
        let mut reader = FileReader::new(&file[..], size).unwrap();
        let mut seen = 0;
        while let Some(record) = reader.next_record().unwrap() {
            let Record::Key(record) = record else { continue };
            prop_assert_eq!(record.db, 3);
            prop_assert_eq!(record.expires_ms, objects[seen].1);
            prop_assert_eq!(meaning(&record.object), meaning(&objects[seen].0));
            seen += 1;
            if seen == stop % objects.len() + 1 {
                let position = reader.position();
                reader = FileReader::resume(&file[position.offset as usize..], size, position).unwrap();
            }
        }
        prop_assert_eq!(seen, objects.len());
        let mut damaged = file.clone();
        let at = 9 + stop % (file.len() - 9);
        damaged[at] ^= 0x10;
        let mut reader = FileReader::new(&damaged[..], size).unwrap();
        let outcome = loop {
            match reader.next_record() {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        prop_assert!(outcome.is_err());
    }
}

#[test]
fn packed_forms_of_older_versions_are_read() {
    // A ziplist of "a", 5, -200, 70000, and a 70-byte string.
    let mut ziplist = vec![0; 10];
    let entries: [&[u8]; 4] = [b"\x00\x01a", b"\x03\xf6", b"\x02\xc0\x38\xff", b"\x04\xf0\x70\x11\x01"];
    for entry in entries {
        ziplist.extend_from_slice(entry);
    }
    ziplist.extend_from_slice(&[5, 0x40, 70]);
    ziplist.extend_from_slice(&[b'x'; 70]);
    ziplist.push(255);
    let size = ziplist.len() as u32;
    ziplist[..4].copy_from_slice(&size.to_le_bytes());
    let expected: Vec<Vec<u8>> =
        vec![b"a".to_vec(), b"5".to_vec(), b"-200".to_vec(), b"70000".to_vec(), vec![b'x'; 70]];
    assert_eq!(legacy::ziplist(&ziplist), Ok(expected));
    let zipmap = b"\x02\x03foo\x03\x00bar\x05hello\x05\x02world..\xff";
    assert_eq!(
        legacy::zipmap(zipmap),
        Ok(vec![(b"foo".to_vec(), b"bar".to_vec()), (b"hello".to_vec(), b"world".to_vec())])
    );
    for members in [vec![-3i64, 0, 400], vec![-70_000, 5], vec![i64::MIN, i64::MAX]] {
        assert_eq!(legacy::intset(&legacy::write_intset(&members)), Ok(members));
    }
    assert!(legacy::intset(&legacy::write_intset(&[3, 2])).is_err());
}

#[test]
fn sets_and_streams_of_redis_7_2_are_read() {
    let mut pack = Builder::default();
    pack.push(b"one");
    pack.push(b"2");
    let mut set = vec![kind::SET_LISTPACK];
    write_string(&mut set, pack.bytes());
    let Ok(Object::Set(members)) = payload::decode(&set) else { panic!("a set") };
    assert_eq!(members, [b"one".to_vec(), b"2".to_vec()]);

    let mut stream = Stream::new();
    stream.append(StreamId::new(1, 1), &[b"field", b"value"], NodeLimits { bytes_max: 300, entries_max: 9 });
    let mut group = Group::new(StreamId::new(0, 0), Some(0));
    group.create_consumer(b"reader", 77);
    stream.create_group(b"group", group);
    let second = payload::encode(&Object::Stream(Box::new(stream)));
    // The last consumer has no entries: before their number stands the second time.
    let mut third = second.clone();
    third[0] = kind::STREAM_LISTPACKS_3;
    let end = third.len() - 1;
    third.splice(end..end, 88u64.to_le_bytes());
    let read = payload::decode(&third).expect("a stream");
    assert_eq!(payload::encode(&read), second);
}
