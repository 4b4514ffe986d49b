//! The limits that docs/files.md states, and what it says of outages, each as a client meets it.

mod rig;

use rig::{Rig, body, figure};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace_files::catalogue::{Fault, Freshness};
use terrace_files::client::{Client, Error};

fn fault<T>(result: Result<T, Error>) -> Fault {
    match result.err().expect("it is refused") {
        Error::Fault(fault) => fault,
        error => panic!("{error}"),
    }
}

fn is_busy(fault: &Fault, with: &str) -> bool {
    matches!(fault, Fault::Busy(why) if why.contains(with))
}

#[test]
fn requests_to_the_store_a_second_are_no_more_than_the_limit() {
    const PER_SECOND: u64 = 40;
    let rig = Rig::start(|config, _| config.requests_per_second = PER_SECOND);
    let names: Vec<String> = (0..100).map(|i| format!("f/{i}")).collect();
    names.iter().for_each(|name| rig.put(name, b"some bytes"));
    let client = rig.client();
    let began = Instant::now();
    let paths: Vec<&str> = names.iter().map(String::as_str).collect();
    client.read_many(&paths, |_, view| assert_eq!(view.unwrap().to_vec(), b"some bytes")).unwrap();
    let requests = rig.gets() + rig.store.heads.load(Ordering::SeqCst);
    // A tenth of a second of requests may come at once.
    let least = Duration::from_secs_f64((requests - PER_SECOND / 10 - 1) as f64 / PER_SECOND as f64);
    assert!(requests >= 100 && began.elapsed() >= least, "{requests} in {:?}", began.elapsed());
    // What is in memory takes none.
    client.read_many(&paths, |_, view| assert_eq!(view.unwrap().to_vec(), b"some bytes")).unwrap();
    assert_eq!(rig.gets() + rig.store.heads.load(Ordering::SeqCst), requests);
}

#[test]
fn a_client_writes_256_files_at_a_time_and_the_next_is_refused_until_one_ends() {
    let rig = Rig::start(|_, _| ());
    let client = rig.client();
    let open: Vec<u64> = (0..256).map(|i| client.open_write(&format!("w/{i}"), false).unwrap()).collect();
    assert!(is_busy(&fault(client.open_write("w/more", false)), "256"));
    // The limit is a client's own.
    rig.client().write("w/other", b"other").unwrap();
    client.write_part(open[7], b"seven").unwrap();
    client.commit(open[7]).unwrap();
    client.open_write("w/more", false).unwrap();
    assert_eq!(client.read("w/7", 0, 9, "").unwrap().to_vec(), b"seven");
}

#[test]
fn a_client_has_sixteen_groups_and_the_next_is_refused() {
    let rig = Rig::start(|config, scratch| config.flash = Some((scratch.join("flash"), 256 << 20)));
    let client = rig.client();
    let groups: Vec<String> = (0..16).map(|_| client.begin_group().unwrap()).collect();
    assert!(is_busy(&fault(client.begin_group()), "16"));
    client.abort_group(&groups[0]).unwrap();
    client.begin_group().unwrap();
}

#[test]
fn files_that_are_not_committed_take_an_eighth_of_flash_and_the_next_close_is_refused() {
    let rig = Rig::start(|config, scratch| config.flash = Some((scratch.join("flash"), 128 << 20)));
    let client = rig.client();
    let group = client.begin_group().unwrap();
    let keep = |i: u64| {
        let handle = client.open_in_group(&group, &format!("g/{i}"), false)?;
        client.write_part(handle, &body(i, 3 << 20))?;
        client.commit(handle)
    };
    let kept = (0..9).take_while(|i| keep(*i).is_ok()).count();
    assert_eq!(kept, 5, "of 3 MiB each, in 16 MiB");
    assert!(is_busy(&fault(keep(9)), &(16 << 20).to_string()));
    assert_eq!(client.commit_group(&group).unwrap(), 5);
}

#[test]
fn without_flash_there_are_no_groups_and_the_error_says_so() {
    let rig = Rig::start(|_, _| ());
    assert!(matches!(fault(rig.client().begin_group()), Fault::Invalid(why) if why.contains("--flash")));
}

#[test]
fn a_client_leases_half_of_the_memory_for_files_and_its_next_read_is_refused() {
    let rig = Rig::start(|config, _| config.memory = 64 << 20);
    (0..12).for_each(|i| rig.put(&format!("{i}"), &body(i, 4 << 20)));
    let client = rig.client();
    let half = figure(&client, "memory_bytes") / 2;
    let mut held = Vec::new();
    let refused = loop {
        match client.read(&format!("{}", held.len()), 0, u64::MAX, "") {
            Ok(view) => held.push(view),
            refused => break fault(refused),
        }
    };
    assert!(is_busy(&refused, &half.to_string()), "{refused:?}");
    assert!(held.len() as u64 * (4 << 20) > half && (held.len() as u64 - 1) * (4 << 20) <= half);
    // Others go on.
    assert!(rig.client().read("0", 0, u64::MAX, "").unwrap().to_vec() == body(0, 4 << 20));
    held.clear();
    client.read("11", 0, 1, "").unwrap();
}

#[test]
fn a_path_of_more_than_1024_bytes_is_refused_and_one_of_1024_is_a_path() {
    let rig = Rig::start(|_, _| ());
    let client = rig.client();
    let longest = "x/".repeat(511) + "yy";
    assert_eq!(longest.len(), 1024);
    client.write(&longest, b"deep").unwrap();
    assert_eq!(client.read(&longest, 0, 9, "").unwrap().to_vec(), b"deep");
    assert!(
        matches!(fault(client.stat(&format!("{longest}z"))), Fault::Invalid(why) if why.contains("1024"))
    );
}

/// What is served while the store does not answer, by `--freshness`.
#[test]
fn in_an_outage_each_freshness_serves_what_it_says_and_all_else_fails_at_once() {
    for (freshness, serves) in
        [(Freshness::Immutable, true), (Freshness::Ttl(1_000_000), true), (Freshness::Always, false)]
    {
        let rig = Rig::start(|config, _| config.freshness = freshness);
        rig.put("cached", &body(1, 10_000));
        rig.put("other", &body(2, 10_000));
        let client: Client = rig.client();
        client.read("cached", 0, u64::MAX, "").unwrap();
        rig.store.is_down.store(true, Ordering::SeqCst);
        // Three requests without an answer, and it is an outage.
        while client.status().unwrap().contains("\"outage\": null") {
            assert!(matches!(fault(client.read("other", 0, 1, "")), Fault::Unavailable(_)));
        }
        rig.store.delay_ms.store(2000, Ordering::SeqCst);
        let began = Instant::now();
        for _ in 0..50 {
            let read = client.read("cached", 0, u64::MAX, "");
            match serves {
                true => assert!(read.unwrap().to_vec() == body(1, 10_000), "{freshness:?}"),
                false => assert!(
                    matches!(fault(read), Fault::Unavailable(why) if why.contains("cable")),
                    "{freshness:?}"
                ),
            }
            for refused in [
                fault(client.read("other", 0, 1, "")),
                fault(client.write("new", b"x")),
                fault(client.list("", false)),
            ] {
                assert!(
                    matches!(&refused, Fault::Unavailable(why) if why.contains("cable")),
                    "{freshness:?} {refused:?}"
                );
            }
        }
        // One a second is let through, and waits for two: if all did, it would take minutes.
        assert!(began.elapsed() < Duration::from_secs(40), "{freshness:?}: {:?}", began.elapsed());
        rig.store.delay_ms.store(0, Ordering::SeqCst);
        rig.store.is_down.store(false, Ordering::SeqCst);
        while client.read("other", 0, 1, "").is_err() {}
        assert!(client.status().unwrap().contains("\"outage\": null"));
        assert_eq!(figure(&client, "served_in_outage") > 0, matches!(freshness, Freshness::Ttl(_)));
    }
}
