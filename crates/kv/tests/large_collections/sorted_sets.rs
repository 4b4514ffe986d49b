//! Large sorted sets: a command on one member reads and writes its row; ranks and ranges read all members once.

use super::*;

const MEMBERS: usize = 100_000;

fn fill_scores(client: &mut Client, key: &str, members: usize) {
    let all: Vec<usize> = (0..members).collect();
    for piece in all.chunks(1000) {
        let pairs: Vec<String> = piece.iter().map(|number| format!("{number}.5 m{number}")).collect();
        assert_eq!(client.ask(&format!("ZADD {key} {}", pairs.join(" "))), int(piece.len() as i64));
    }
}

fn a_leaderboard_uses_its_members(policy: &str) {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), policy);
    fill_scores(&mut server.connect(), "board", MEMBERS);
    server.stop();

    let server = start(dir.path(), policy);
    let mut one = server.connect();
    assert_eq!(one.ask("ZCARD board"), int(MEMBERS as i64));
    let before = info(&mut one, "tiering_reads");
    assert_eq!(one.ask("ZSCORE board m77777"), bulk("77777.5"));
    assert_eq!(one.ask("ZMSCORE board none m1 none"), Reply::Array(vec![nil(), bulk("1.5"), nil()]));
    assert_eq!(one.ask("ZINCRBY board 100000 m5"), bulk("100005.5"));
    assert_eq!(one.ask("ZADD board XX GT CH 5 m6 9 m7 1 absent"), int(1));
    assert_eq!(one.ask("ZREM board m8 missing"), int(1));
    assert_eq!(info(&mut one, "tiering_reads") - before, 9, "nine members were not known");
    assert_eq!(one.ask("ZADD board 200000 new"), int(1));
    server.stop();

    let server = start(dir.path(), policy);
    let mut one = server.connect();
    assert_eq!(one.ask("CONFIG SET tiering-write-policy write-through"), ok());
    assert_eq!(one.ask("ZADD board 3 m3"), int(0));
    assert_eq!(one.ask("ZINCRBY board 1 m4"), bulk("5.5"));
    let (rows, bytes) = (info(&mut one, "tiering_rows"), info(&mut one, "tiering_row_bytes"));
    assert!(rows <= 4 && bytes < 200, "two commands wrote {rows} rows of {bytes} bytes");
    assert_eq!(info(&mut one, "tiering_large_loads"), 0);
    assert_eq!(one.ask("ZREVRANGE board 0 1"), bulks(&["new", "m5"]));
    assert_eq!(one.ask("ZRANGE board 0 6"), bulks(&["m0", "m1", "m2", "m3", "m4", "m6", "m7"]));
    assert_eq!(one.ask("ZRANK board m99999"), int(MEMBERS as i64 - 3));
    assert_eq!(one.ask("ZCARD board"), int(MEMBERS as i64));
    assert_eq!(info(&mut one, "tiering_large_loads"), 1);
}

#[test]
fn commands_on_members_of_a_sorted_set_of_a_hundred_thousand_read_and_write_a_few_rows_after_a_restart() {
    a_leaderboard_uses_its_members("write-through");
}

#[test]
fn the_same_holds_of_sorted_sets_with_write_back() {
    a_leaderboard_uses_its_members("write-back");
}

#[test]
fn large_sets_and_sorted_sets_that_are_not_in_memory_are_read_for_commands_of_several_types() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), "write-through");
    let mut one = server.connect();
    fill_scores(&mut one, "scores", 500);
    let members: Vec<String> = (300..800).map(|number| format!("m{number}")).collect();
    assert_eq!(one.ask(&format!("SADD members {}", members.join(" "))), int(500));
    let places: Vec<String> = (0..500).map(|number| format!("13.{number} 38.1 p{number}")).collect();
    assert_eq!(one.ask(&format!("GEOADD places {}", places.join(" "))), int(500));
    server.stop();
    let asked = |ask: &dyn Fn(&mut Client)| {
        let server = start(dir.path(), "write-through");
        ask(&mut server.connect());
        server.stop();
    };
    asked(&|one| assert_eq!(one.ask("ZINTERCARD 2 scores members"), int(200)));
    asked(&|one| assert_eq!(one.ask("ZUNIONSTORE both 2 members scores"), int(800)));
    asked(&|one| assert_eq!(one.ask("SORT members ALPHA LIMIT 0 2"), bulks(&["m300", "m301"])));
    asked(&|one| assert_eq!(one.ask("SORT scores ALPHA DESC LIMIT 0 1"), bulks(&["m99"])));
    asked(&|one| {
        let reads = info(one, "tiering_reads");
        assert!(matches!(one.ask("GEODIST places p1 p2"), Reply::Bulk(_)));
        assert_eq!(one.ask("GEOADD places XX CH 13.5 38.2 p3"), int(1));
        assert_eq!(info(one, "tiering_reads") - reads, 4);
        let near = one.ask("GEOSEARCH places FROMMEMBER p3 BYRADIUS 1 m");
        assert_eq!(near, bulks(&["p3"]));
    });
}
