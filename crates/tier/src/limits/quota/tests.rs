use super::*;
use crate::address::Tier;
use std::sync::atomic::Ordering;
use terrace_io::clock::Nanos;

fn holder(table: u32, keep: bool, used: u32, min: u32, max: u32) -> Holder {
    Holder { table, keep, used, min, max }
}

#[test]
fn victims_are_chosen_by_shares_and_guarantees() {
    let other = holder(0, false, 500, 0, 0);
    for (victim, comer, expected, why) in [
        (other, other, true, "nobody has rules"),
        (holder(1, true, 5, 0, 0), other, false, "kept pages stay"),
        (holder(1, true, 5, 0, 0), holder(2, true, 5, 0, 0), true, "kept pages among themselves"),
        (
            holder(1, true, 5, 0, 0),
            holder(1, false, 5, 0, 0),
            false,
            "kept pages stay in their own table, too",
        ),
        (holder(1, false, 5, 0, 0), holder(1, true, 5, 0, 0), true, "its own table's page, kept"),
        (holder(1, false, 10, 10, 0), other, false, "at its minimum"),
        (holder(1, false, 11, 10, 0), other, true, "what it has borrowed it gives back"),
        (holder(1, false, 10, 10, 0), holder(1, false, 10, 10, 0), true, "its own at its minimum"),
        (other, holder(1, false, 10, 0, 10), false, "a full table takes from itself only"),
        (holder(1, false, 10, 0, 10), holder(1, false, 10, 0, 10), true, "and from itself it does"),
        (holder(2, false, 10, 0, 0), holder(1, true, 10, 0, 10), false, "kept or not"),
    ] {
        assert_eq!(may_leave(&victim, &comer), expected, "{why}");
    }
}

#[test]
fn no_choice_of_rules_lets_a_guarantee_be_broken() {
    let mut x = 1u64;
    let mut next = |n: u64| {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (x >> 33) % n
    };
    for _ in 0..20_000 {
        let mut any = || {
            let (used, min, max) = (next(20) as u32, next(20) as u32, next(20) as u32);
            holder(next(3) as u32, next(2) == 1, used, min, max)
        };
        let (victim, comer) = (any(), any());
        let allowed = may_leave(&victim, &comer);
        let strangers = victim.table != comer.table || comer.table == 0;
        if allowed && strangers {
            assert!(victim.min == 0 || victim.used > victim.min, "{victim:?} {comer:?}");
            assert!(!comer.is_full(), "{victim:?} {comer:?}");
        }
        let is_owed = strangers && comer.used < comer.min;
        assert!(!allowed || !victim.keep || comer.keep || is_owed, "{victim:?} {comer:?}");
        let is_spare = victim.min == 0 || victim.used > victim.min;
        assert!(allowed || !is_owed || !is_spare || comer.is_full(), "{victim:?} {comer:?}");
    }
}

#[test]
fn contradictions_name_both_sides() {
    const PAGE: u64 = PAGE_SIZE as u64;
    let bytes = |min, max| TableRule { flash: Share { min, max }, ..TableRule::default() };
    let rule = |min: u64, max: u64| bytes(min * PAGE, max * PAGE);
    let faults = |rule: TableRule, placement| rule.faults(&[placement]).join("; ");
    assert_eq!(faults(rule(1, 2), Placement::Default), "");
    assert_eq!(faults(rule(0, 0), Placement::None), "");
    let found = faults(rule(3, 2), Placement::Keep);
    assert!(found.contains("FLASH_MIN = 49152") && found.contains("FLASH_MAX = 32768"), "{found}");
    let found = faults(rule(3, 0), Placement::None);
    assert!(found.contains("NONE") && found.contains("FLASH_MIN = 49152"), "{found}");
    let found = faults(rule(0, 7), Placement::None);
    assert!(found.contains("NONE") && found.contains("FLASH_MAX = 114688"), "{found}");
    assert!(
        rule(3, 0).faults(&[Placement::None, Placement::Default]).is_empty(),
        "an index may stay off flash"
    );
    let found = faults(bytes(0, 100), Placement::Keep);
    assert!(found.contains("FLASH_MAX = 100") && found.contains("PLACEMENT = KEEP"), "{found}");
    let found = faults(bytes(200, 0), Placement::Default);
    assert!(found.contains("FLASH_MIN = 200") && !found.contains("KEEP"), "{found}");
    assert_eq!(faults(bytes(PAGE, PAGE), Placement::Keep), "", "a page is something");
    let written = |write, placement| faults(TableRule { write, ..TableRule::default() }, placement);
    let found = written(WritePolicy::Dual, Placement::None);
    assert!(found.contains("PLACEMENT = NONE") && found.contains("WRITE_POLICY = DUAL"), "{found}");
    assert_eq!(
        written(WritePolicy::Dual, Placement::Keep) + &written(WritePolicy::Auto, Placement::None),
        ""
    );
    let wanted = [("d/a".to_string(), 60), ("d/b".to_string(), 50)];
    let of = |has| too_much_guaranteed(&wanted, ("FLASH_MIN", "flash", has));
    assert_eq!(of(110), None);
    let found = of(109).unwrap();
    assert!(found.contains("110") && found.contains("flash = 109") && found.contains("d/a"), "{found}");
    let found = too_much_guaranteed(&wanted[..1], ("FLASH_MIN", "flash", 59));
    assert_eq!(found.unwrap(), "FLASH_MIN guarantees 60 bytes to d/a, and flash = 59 has less");
    let buffer = |min, max| TableRule { buffer: Share { min, max }, ..TableRule::default() };
    let found = faults(buffer(5 << 20, 4 << 20), Placement::Default);
    assert!(found.contains("BUFFER_MIN = 5242880") && found.contains("BUFFER_MAX = 4194304"), "{found}");
    let found = faults(buffer(PAGE - 1, 0), Placement::Default);
    assert!(found.contains("BUFFER_MIN = 16383") && found.contains("page of 16384"), "{found}");
    let found = faults(buffer(0, 1 << 20), Placement::Default);
    assert!(found.contains("BUFFER_MAX = 1048576") && found.contains("block of 2097152"), "{found}");
}

#[test]
fn a_bucket_gives_its_rate_and_no_more_than_a_tenth_of_a_second_at_once() {
    const SECOND: Nanos = 1_000_000_000;
    let mut bucket = Bucket::default();
    let mut now = 10 * SECOND;
    let (mut served, start) = (0u64, now);
    while now < start + 5 * SECOND {
        now += bucket.take(now, 1000, 1);
        served += 1;
    }
    assert!((5000..=5101).contains(&served), "{served} in five seconds");
    now += 60 * SECOND;
    let burst = (0..1000).take_while(|_| bucket.take(now, 1000, 1) == 0).count();
    assert!((100..=101).contains(&burst), "{burst} at once after a minute's rest");
    assert_eq!(Bucket::default().take(now, 0, 1 << 40), 0, "no limit");
    // A request larger than what the bucket holds is served, and paid for by those that follow.
    let mut bucket = Bucket::default();
    assert_eq!(bucket.take(now, 1000, 5000), 0);
    assert!(bucket.take(now, 1000, 1) >= 4 * SECOND);
}

#[test]
fn limits_are_each_tables_own_and_each_tiers() {
    let limit = Limit { requests: 10, bytes: 0 };
    let rule = TableRule {
        volume_limit: limit,
        object_limit: Limit { requests: 0, bytes: 16384 },
        ..TableRule::default()
    };
    let rules = Rules::default();
    assert!(rules.of(SpaceId(20)).is_none());
    let members = |space| vec![(SpaceId(space), Placement::Default)];
    rules.set(vec![(1, rule, members(20)), (2, rule, members(30))]);
    let one = rules.of(SpaceId(20)).unwrap().table;
    let now = 1_000_000_000;
    let waits: Vec<Nanos> = (0..4).map(|_| one.take(Tier::Volume, now, 1, 16384)).collect();
    assert_eq!(waits, [0, 0, 100_000_000, 200_000_000]);
    assert_eq!(one.take(Tier::Flash, now, 1, 1 << 30), 0);
    assert_eq!(one.take(Tier::Object, now, 1, 16384), 0);
    assert_eq!(one.take(Tier::Object, now, 1, 16384), 900_000_000);
    assert_eq!(rules.of(SpaceId(30)).unwrap().table.take(Tier::Volume, now, 1, 1), 0, "another table's");
    // Setting the same rule again does not fill the bucket; another rule resets it.
    rules.set(vec![(1, rule, members(20))]);
    assert!(rules.of(SpaceId(20)).unwrap().table.take(Tier::Volume, now, 1, 1) > 0);
    assert!(rules.of(SpaceId(30)).is_none());
}

#[test]
fn blocks_of_the_object_buffer_are_sorted_by_shares() {
    let block = |space, block, slots, last_change| BufferedBlock {
        block: BlockId { space: SpaceId(space), block },
        slots,
        last_change,
        age: 1,
        rewrites: 0,
        rewritten: 0,
        stored: Default::default(),
    };
    let page = PAGE_SIZE as u64;
    let share_of = |space: SpaceId| match space.0 {
        20 => Some((1, Share { min: 0, max: 100 * page })),
        // Two spaces of one table.
        30 | 31 => Some((2, Share { min: 100 * page, max: 0 })),
        _ => None,
    };
    let all = || {
        vec![
            block(20, 0, 60, 5),
            block(20, 1, 60, 4),
            block(20, 2, 60, 9),
            block(30, 0, 50, 1),
            block(31, 0, 50, 2),
            block(30, 1, 50, 3),
            block(40, 0, 10, 7),
        ]
    };
    let ids = |blocks: &[BufferedBlock]| {
        let mut ids: Vec<(u32, u32)> = blocks.iter().map(|b| (b.block.space.0, b.block.block)).collect();
        ids.sort_unstable();
        ids
    };
    let sorted = by_share(all(), share_of, 0);
    let over: Vec<u32> = sorted.over.iter().map(|b| b.block).collect();
    assert_eq!(over, [1, 0], "180 slots and 100 allowed: the two left alone longest, and then it has 60");
    assert_eq!(ids(&sorted.others), [(20, 2), (30, 0), (40, 0)], "100 of 150 slots stay, the newest");
    assert_eq!(ids(&by_share(all(), share_of, 120).others), [(20, 2), (30, 0), (40, 0)]);
    let pressed = by_share(all(), share_of, 121);
    assert_eq!(
        ids(&pressed.others),
        [(20, 2), (30, 0), (31, 0), (40, 0)],
        "nothing else would do, and one is enough"
    );
    assert_eq!(by_share(all(), share_of, 1000).others.len(), 5, "all of them");
    let none = by_share(all(), |_| None, 0);
    assert_eq!((none.over.len(), none.others.len()), (0, 7));
}

/// Prefetchers and others who cannot wait ran up hours for the next statement, and statements that were killed left theirs.
#[test]
fn reads_that_do_not_wait_delay_waiting_reads_by_at_most_a_second() {
    const SECOND: Nanos = 1_000_000_000;
    let rule = TableRule { volume_limit: Limit { requests: 0, bytes: 16384 }, ..TableRule::default() };
    let rules = Rules::default();
    rules.set(vec![(1, rule, vec![(SpaceId(20), Placement::Default)])]);
    let table = rules.of(SpaceId(20)).unwrap().table;
    assert!(table.has_limits());
    let now = 100 * SECOND;
    (0..1000).for_each(|_| table.owe(Tier::Volume, now, 64, 64 * 16384));
    assert_eq!(table.take(Tier::Volume, now, 1, 16384), SECOND);
    for _ in 0..1000 {
        assert_eq!(table.take(Tier::Volume, now, 32, 32 * 16384), 2 * SECOND);
        table.give_back(Tier::Volume, 32, 32 * 16384);
    }
    assert_eq!(table.take(Tier::Volume, now, 1, 16384), 2 * SECOND, "who waited and waits on has his turn");
    assert_eq!(table.take(Tier::Volume, now, 1, 16384), 3 * SECOND);
    // A debt does not take away what was promised before.
    table.owe(Tier::Volume, now, 1, 16384);
    assert_eq!(table.take(Tier::Volume, now, 1, 16384), 4 * SECOND);
    assert_eq!(table.take(Tier::Volume, now, u64::MAX, u64::MAX), 5 * SECOND);
    assert!(table.take(Tier::Volume, now, 1, u64::MAX) > 5 * SECOND, "no overflow");
}

/// A scan's page brought others along: the next reader pays for all of them, also for more than a second's tokens.
#[test]
fn what_is_taken_beyond_a_turn_is_paid_in_full_by_the_next() {
    const SECOND: Nanos = 1_000_000_000;
    let rule = TableRule { volume_limit: Limit { requests: 1, bytes: 0 }, ..TableRule::default() };
    let rules = Rules::default();
    rules.set(vec![(1, rule, vec![(SpaceId(20), Placement::Default)])]);
    let (table, now) = (rules.of(SpaceId(20)).unwrap().table, 100 * SECOND);
    let burst = SECOND / 10;
    assert_eq!(table.take(Tier::Volume, now, 1, 16384), 0);
    table.charge(Tier::Volume, now, 15, 15 * 16384);
    table.charge(Tier::Object, now, 15, 15 * 16384);
    assert_eq!(table.take(Tier::Volume, now, 1, 16384), 16 * SECOND - burst);
    assert_eq!(table.waits.load(Ordering::Relaxed), 1);
}

#[test]
fn writes_have_buckets_of_their_own_and_are_made_while_nothing_is_owed() {
    const SECOND: Nanos = 1_000_000_000;
    let (volume_limit, volume_writes) = (Limit { requests: 10, bytes: 0 }, Limit { requests: 100, bytes: 0 });
    let object_writes = Limit { requests: 0, bytes: 1 << 20 };
    let rule = TableRule { volume_limit, volume_writes, object_writes, ..TableRule::default() };
    let rules = Rules::default();
    rules.set(vec![
        (1, rule, vec![(SpaceId(20), Placement::Default)]),
        (2, TableRule { volume_limit, ..TableRule::default() }, vec![(SpaceId(30), Placement::Default)]),
    ]);
    assert!(rules.limit_writes() && rules.limiting_writes(SpaceId(30)).is_none(), "reads alone are limited");
    let (table, now) = (rules.limiting_writes(SpaceId(20)).unwrap(), 100 * SECOND);
    assert_eq!(table.write_room(Tier::Volume, now, 16384), 11);
    (0..11).for_each(|_| assert!(table.wrote(Tier::Volume, now, 1, 16384)));
    assert_eq!((table.write_room(Tier::Volume, now, 16384), table.over.load(Ordering::Relaxed)), (0, 0));
    assert_eq!(table.take(Tier::Volume, now, 1, 16384), 0, "reads have their own");
    assert_eq!(table.write_room(Tier::Flash, now, 16384), u64::MAX);
    let wait = table.write_wait(Tier::Volume, now);
    assert_eq!((wait, table.write_room(Tier::Volume, now + wait, 16384)), (SECOND / 100, 1));
    // Those who cannot wait leave no more than a second.
    table.wrote(Tier::Volume, now, 5000, 5000 * 16384);
    assert_eq!((table.write_wait(Tier::Volume, now), table.over.load(Ordering::Relaxed)), (SECOND, 5000));
    // One write may be more than what the bucket holds, and those that follow pay. What it was less comes back.
    table.wrote(Tier::Object, now, 1, 2 << 20);
    assert_eq!(table.write_wait(Tier::Object, now), 19 * SECOND / 10);
    table.wrote_less(Tier::Object, 1 << 20);
    assert_eq!(table.write_wait(Tier::Object, now), 9 * SECOND / 10);
    assert!(!table.wrote(Tier::Object, now, 1, 64 << 20), "not all is paid, and nothing of it comes back");
    assert_eq!(table.write_wait(Tier::Object, now), SECOND);
    assert!(table.wrote(Tier::Object, now + SECOND, 1, 1));
    let found = TableRule { object_writes: Limit { requests: 1, bytes: 5 }, ..rule }.faults(&[]).join("; ");
    assert!(found.contains("OBJECT_WRITE_BANDWIDTH = 5"), "{found}");
}
