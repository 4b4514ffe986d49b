//! Large lists: a queue reads and writes the rows at its ends, whatever is between; lists with gaps in their numbers; clients that wait for a list.

use super::*;

const JOBS: usize = 100_000;

fn job(number: usize) -> String {
    format!("job:{number}:{}", "j".repeat(number % 20))
}

fn push(client: &mut Client, key: &str, jobs: std::ops::Range<usize>) {
    let all: Vec<usize> = jobs.collect();
    for piece in all.chunks(1000) {
        let jobs: Vec<String> = piece.iter().map(|&number| job(number)).collect();
        let reply = client.ask(&format!("RPUSH {key} {}", jobs.join(" ")));
        assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
    }
}

fn jobs(numbers: impl Iterator<Item = usize>) -> Reply {
    Reply::Array(numbers.map(|number| bulk(&job(number))).collect())
}

fn a_queue_uses_its_ends(policy: &str) {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), policy);
    push(&mut server.connect(), "queue", 0..JOBS);
    server.stop();

    let server = start(dir.path(), policy);
    let mut one = server.connect();
    let reads = info(&mut one, "tiering_reads");
    assert_eq!(one.ask("LLEN queue"), int(JOBS as i64));
    assert_eq!(info(&mut one, "tiering_reads") - reads, 1, "the head");
    assert_eq!(one.ask("LPOP queue"), bulk(&job(0)));
    assert_eq!(one.ask("RPOP queue 2"), jobs((JOBS - 2..JOBS).rev()));
    assert_eq!(one.ask("LPUSH queue first"), int(JOBS as i64 - 2));
    assert_eq!(one.ask("RPUSH queue last"), int(JOBS as i64 - 1));
    assert_eq!(one.ask("LINDEX queue 1"), bulk(&job(1)));
    assert_eq!(one.ask("LRANGE queue -3 -2"), jobs(JOBS - 4..JOBS - 2));
    assert_eq!(one.ask("LTRIM queue 1 -2"), ok());
    assert_eq!(one.ask("RPOPLPUSH queue taken"), bulk(&job(JOBS - 3)));
    // The last listpack may have few elements.
    let fetched = info(&mut one, "tiering_elements_fetched");
    assert!((2..=4).contains(&fetched), "{fetched} listpacks at the ends");
    assert_eq!(one.ask("LRANGE queue 0 499"), jobs(1..501));
    let fetched = info(&mut one, "tiering_elements_fetched");
    assert!((3..20).contains(&fetched), "{fetched} listpacks have 500 elements");
    // Listpacks are popped one after the other.
    let popped: Vec<Reply> = (0..30).map(|_| one.ask("RPOP queue 50")).collect();
    for (at, reply) in popped.into_iter().enumerate() {
        let last = JOBS - 3 - 50 * at;
        assert_eq!(reply, jobs((last - 50..last).rev()), "{at}");
    }
    let len = JOBS as i64 - 4 - 1500;
    assert_eq!(one.ask("LLEN queue"), int(len));
    server.stop();

    let server = start(dir.path(), policy);
    let mut one = server.connect();
    // Write-back stores when the server ends: asked of the server that has written.
    assert_eq!(one.ask("LPUSH queue a"), int(len + 1));
    assert_eq!(one.ask("CONFIG SET tiering-write-policy write-through"), ok());
    assert_eq!(one.ask("LPUSH queue b"), int(len + 2));
    assert_eq!(one.ask("RPOP queue"), bulk(&job(len as usize)));
    let (rows, bytes) = (info(&mut one, "tiering_rows"), info(&mut one, "tiering_row_bytes"));
    assert!(rows <= 6, "three commands wrote {rows} rows");
    assert!(bytes < 3 * 2200, "three commands wrote {bytes} bytes");
    assert_eq!(info(&mut one, "tiering_large_loads"), 0);
    assert_eq!(one.ask("LRANGE queue 2 -1"), jobs(1..len as usize));
    assert_eq!(info(&mut one, "tiering_large_loads"), 1, "more than half of it is one read");
}

#[test]
fn a_queue_of_a_hundred_thousand_reads_and_writes_listpacks_at_its_ends_after_a_restart() {
    a_queue_uses_its_ends("write-through");
}

#[test]
fn the_same_holds_of_queues_with_write_back() {
    a_queue_uses_its_ends("write-back");
}

#[test]
fn a_list_that_was_changed_in_the_middle_is_whole_after_a_restart() {
    for policy in ["write-through", "write-back"] {
        let dir = tempfile::tempdir().unwrap();
        let server = start(dir.path(), policy);
        let mut one = server.connect();
        push(&mut one, "list", 0..3000);
        let mut expected: Vec<String> = (0..3000).map(job).collect();
        // More insertions at one place than there are numbers between two neighbours.
        for number in 0..400 {
            let wide = format!("{number}:{}", "w".repeat(900));
            assert!(matches!(one.ask(&format!("LINSERT list BEFORE {} {wide}", job(1500))), Reply::Int(_)));
            let at = expected.iter().position(|element| *element == job(1500)).unwrap();
            expected.insert(at, wide);
        }
        for number in (2000..2600).step_by(3) {
            assert_eq!(one.ask(&format!("LREM list 0 {}", job(number))), int(1));
            expected.retain(|element| *element != job(number));
        }
        assert_eq!(one.ask("LSET list 700 set"), ok());
        expected[700] = "set".into();
        let strings = |all: &[String]| bulks(&all.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(one.ask("LRANGE list 0 -1"), strings(&expected));
        server.kill();
        let server = start(dir.path(), policy);
        let mut one = server.connect();
        assert_eq!(one.ask("LLEN list"), int(expected.len() as i64));
        assert_eq!(one.ask("RPUSH list end"), int(expected.len() as i64 + 1));
        assert_eq!(one.ask("LPOP list"), bulk(&expected[0]));
        expected.remove(0);
        expected.push("end".into());
        assert_eq!(one.ask("LRANGE list 0 -1"), strings(&expected));
        let Reply::Bulk(dump) = one.ask("DUMP list") else { panic!("a dump") };
        assert_eq!(one.ask_args(&[b"RESTORE", b"restored", b"0", &dump]), ok());
        assert_eq!(one.ask("COPY list copied"), int(1));
        assert_eq!(one.ask("RENAME list renamed"), ok());
        for key in ["restored", "copied", "renamed"] {
            assert_eq!(one.ask(&format!("LRANGE {key} 0 -1")), strings(&expected), "{key}");
        }
        assert_eq!(one.ask("LPOP copied"), bulk(&expected[0]));
        assert_eq!(one.ask("LINDEX renamed 0"), bulk(&expected[0]));
    }
}

#[test]
fn a_client_that_waits_for_a_list_is_served_by_one_that_is_not_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), "write-through");
    let mut one = server.connect();
    push(&mut one, "cold", 0..5000);
    push(&mut one, "target", 0..5000);
    let scored: Vec<String> = (0..500).map(|number| format!("{number} m{number}")).collect();
    assert_eq!(one.ask(&format!("ZADD scores {}", scored.join(" "))), int(500));
    server.stop();
    let server = start(dir.path(), "write-through");
    let (mut one, mut two, mut three) = (server.connect(), server.connect(), server.connect());
    let waits = |client: &mut Client, count: u64| while info(client, "blocked_clients") < count {};
    two.send("BRPOP wanted 0");
    waits(&mut one, 1);
    three.send("BZPOPMAX wanted_scores 0");
    waits(&mut one, 2);
    assert_eq!(one.ask("RENAME cold wanted"), ok());
    assert_eq!(two.reply(), bulks(&["wanted", &job(4999)]));
    assert_eq!(one.ask("RENAME scores wanted_scores"), ok());
    assert_eq!(three.reply(), bulks(&["wanted_scores", "m499", "499"]));
    two.send("BLMOVE source target LEFT LEFT 0");
    waits(&mut one, 1);
    assert_eq!(one.ask("RPUSH source moved"), int(1));
    assert_eq!(two.reply(), bulk("moved"));
    assert_eq!(one.ask("LRANGE target 0 1"), bulks(&["moved", &job(0)]));
    assert_eq!((one.ask("LLEN target"), one.ask("LLEN wanted")), (int(5001), int(4999)));
}

#[test]
fn transactions_on_the_ends_of_a_list_read_what_all_their_commands_take() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), "write-through");
    push(&mut server.connect(), "list", 0..20_000);
    server.stop();
    let server = start(dir.path(), "write-through");
    let mut one = server.connect();
    assert_eq!(one.ask("MULTI"), ok());
    for command in
        ["LPOP list 200", "LPOP list 200", "LPUSH list x", "RPOP list 150", "RPOP list 150", "LLEN list"]
    {
        assert_eq!(one.ask(command), simple("QUEUED"));
    }
    let expected = [
        jobs(0..200),
        jobs(200..400),
        int(19_601),
        jobs((19_850..20_000).rev()),
        jobs((19_700..19_850).rev()),
        int(19_301),
    ];
    assert_eq!(one.ask("EXEC"), Reply::Array(expected.into()));
    assert_eq!(info(&mut one, "tiering_large_loads"), 0);
}
