//! Memory objects over the socket: written once and read by many without a copy, whoever dies when; spilled when memory is full.

mod rig;

use rig::{Rig, body, figure};
use std::sync::Barrier;
use terrace_files::catalogue::Fault;
use terrace_files::client::{Client, Error};

fn start() -> Rig {
    Rig::start(|config, scratch| {
        config.flash = Some((scratch.join("flash"), 512 << 20));
        config.memory = 320 << 20;
        config.objects = Some(32 << 20);
    })
}

fn fault<T>(result: Result<T, Error>) -> Fault {
    match result {
        Ok(_) => panic!("it succeeded"),
        Err(Error::Fault(fault)) => fault,
        Err(error) => panic!("{error}"),
    }
}

fn make(client: &Client, name: &str, bytes: &[u8], at_once: bool) {
    let mut object = client.create_object(name, bytes.len(), at_once).unwrap();
    object.bytes_mut().copy_from_slice(bytes);
    object.seal().unwrap();
}

#[test]
fn an_object_is_read_by_all_where_its_creator_wrote_it() {
    let rig = start();
    let (producer, reader) = (rig.client(), rig.client());
    for (round, len) in [0, 1, 1000, 3 << 20, 8 << 20, 20 << 20].into_iter().enumerate() {
        for at_once in [false, true] {
            let name = format!("result/{round}/{at_once}");
            make(&producer, &name, &body(round as u64, len), at_once);
            let found = reader.get_object(&name, 0).unwrap().expect("it is sealed");
            assert!(found[..] == body(round as u64, len), "{name}");
            assert_eq!(fault(producer.create_object(&name, 5, false)), Fault::Exists);
            reader.delete_object(&name).unwrap();
            assert!(reader.get_object(&name, 0).unwrap().is_none());
            assert!(found[..] == body(round as u64, len), "{name}: its reader has it still");
        }
    }
    // The last release is told with the next request.
    figure(&reader, "object_count");
    assert_eq!((figure(&reader, "object_count"), figure(&reader, "object_memory_used_bytes")), (0, 0));
    assert_eq!(figure(&reader, "object_flash_bytes"), 0);
}

#[test]
fn readers_wait_for_the_seal_or_their_time() {
    let rig = start();
    let start = Barrier::new(9);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let client = rig.client();
                assert!(client.get_object("never", 30).unwrap().is_none());
                start.wait();
                let found = client.get_object("soon", 60_000).unwrap().expect("it was sealed");
                assert!(found[..] == body(7, 100_000));
            });
        }
        let producer = rig.client();
        let mut object = producer.create_object("soon", 100_000, true).unwrap();
        start.wait();
        while figure(&rig.client(), "object_waits") < 8 {}
        object.bytes_mut().copy_from_slice(&body(7, 100_000));
        object.seal().unwrap();
    });
    let client = rig.client();
    assert_eq!(figure(&client, "object_waits"), 0);
    assert!(client.get_object("soon", 0).unwrap().is_some());
}

#[test]
fn what_a_client_holds_ends_with_it() {
    let rig = start();
    let client = rig.client();
    make(&client, "kept", &body(1, 1000), false);
    let dead = rig.client();
    // Without an end of their own: as a killed process.
    std::mem::forget(dead.create_object("unsealed", 1 << 20, false).unwrap());
    std::mem::forget(dead.get_object("kept", 0).unwrap());
    client.delete_object("kept").unwrap();
    assert_eq!(figure(&client, "object_count"), 2);
    drop(dead);
    while figure(&client, "object_count") > 0 {}
    assert_eq!(figure(&client, "object_memory_used_bytes"), 0);
    // One that is given up.
    drop(client.create_object("given up", 1000, false).unwrap());
    figure(&client, "object_count");
    assert_eq!(figure(&client, "object_count"), 0);
}

#[test]
fn what_memory_does_not_hold_is_spilled_and_read_from_flash() {
    let rig = start();
    let client = rig.client();
    let len = 3 << 20;
    (0..20).for_each(|n| make(&client, &format!("{n}"), &body(n, len), true));
    assert!(figure(&client, "objects_spilled") >= 10);
    assert!(figure(&client, "object_memory_used_bytes") <= 32 << 20);
    for n in 0..20 {
        let found = client.get_object(&format!("{n}"), 0).unwrap().expect("it is there");
        assert!(found[..] == body(n, len), "{n}");
    }
    let held: Vec<_> = (10..20).map(|n| client.get_object(&format!("{n}"), 0).unwrap().unwrap()).collect();
    let other = rig.client();
    (0..20).for_each(|n| other.delete_object(&format!("{n}")).unwrap());
    let full = (20..60).find_map(|n| match client.create_object(&format!("{n}"), len, true) {
        Ok(object) => {
            std::mem::forget(object);
            None
        }
        Err(Error::Fault(fault)) => Some(fault),
        Err(error) => panic!("{error}"),
    });
    assert!(matches!(full, Some(Fault::Busy(_))), "all is held: {full:?}");
    held.iter().enumerate().for_each(|(at, found)| assert!(found[..] == body(10 + at as u64, len)));
    drop(held);
    drop(client);
    while figure(&other, "object_count") > 0 {}
    let files = || std::fs::read_dir(rig.scratch.path().join("flash/objects")).unwrap();
    while files().any(|file| file.unwrap().file_name().to_str().unwrap().starts_with("object-")) {}
}

#[test]
fn many_writers_and_readers_see_whole_objects_alone() {
    let rig = start();
    std::thread::scope(|scope| {
        for pair in 0..6u64 {
            let rig = &rig;
            scope.spawn(move || {
                let client = rig.client();
                for round in 0..60 {
                    let len = (round as usize * 7919 + pair as usize * 104_729) % 900_000;
                    make(&client, &format!("{pair}/{round}"), &body(round + pair, len), round % 2 == 0);
                }
            });
            scope.spawn(move || {
                let client = rig.client();
                for round in 0..60 {
                    let len = (round as usize * 7919 + pair as usize * 104_729) % 900_000;
                    let name = format!("{pair}/{round}");
                    let found = client.get_object(&name, 60_000).unwrap().expect("it comes");
                    assert!(found[..] == body(round + pair, len), "{name}");
                    drop(found);
                    client.delete_object(&name).unwrap();
                }
            });
        }
    });
    let client = rig.client();
    while figure(&client, "object_count") > 0 {}
    assert_eq!((figure(&client, "object_memory_used_bytes"), figure(&client, "object_flash_bytes")), (0, 0));
}
