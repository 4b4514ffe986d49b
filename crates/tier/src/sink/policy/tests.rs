use super::*;
use crate::ghost::spread;
use crate::page::{PageId, SpaceId};

fn block(n: u32, slots: u32, last_change: Glsn) -> BufferedBlock {
    BufferedBlock { block: BlockId { space: SpaceId::FIRST_USER, block: n }, slots, last_change, rewrites: 0 }
}

fn numbers(chosen: (Reason, Vec<BlockId>)) -> Vec<u32> {
    chosen.1.into_iter().map(|b| b.block).collect()
}

#[test]
fn above_the_watermark_only_cooled_blocks_sink() {
    let p = Pressure { slots: 800, free: 400, cooled_before: 50, recent_after: 50 };
    let chosen = choose(p, vec![block(1, 100, 60), block(2, 3, 40), block(3, 1, 50)], 10);
    assert_eq!(chosen.0, Reason::Cooled);
    assert_eq!(numbers(chosen), [2, 3]);
}

#[test]
fn below_the_watermark_the_fullest_go_first_and_only_as_many_as_needed() {
    let p = Pressure { slots: 800, free: 190, cooled_before: 0, recent_after: 50 };
    let blocks = vec![block(1, 2, 10), block(2, 100, 90), block(3, 120, 80), block(4, 16, 1)];
    let chosen = choose(p, blocks.clone(), 10);
    assert_eq!(chosen.0, Reason::Watermark);
    assert_eq!(numbers(chosen), [3], "110 slots are wanted, and 100 and 120 are alike: the older one");
    let p = Pressure { free: 0, ..p };
    assert_eq!(numbers(choose(p, blocks.clone(), 10)), [3, 2, 4, 1]);
    assert_eq!(numbers(choose(p, blocks, 2)), [3, 2]);
}

#[test]
fn a_hot_block_goes_last_whatever_it_has() {
    let p = Pressure { slots: 800, free: 0, cooled_before: 0, recent_after: 50 };
    let hot = |n, slots, last_change| BufferedBlock { rewrites: slots, ..block(n, slots, last_change) };
    let blocks = vec![hot(1, 128, 90), block(2, 1, 90), block(3, 128, 95), hot(4, 64, 51), hot(5, 2, 50)];
    let some = BufferedBlock { rewrites: 31, ..block(6, 32, 99) };
    let blocks = [blocks, vec![some]].concat();
    // Written anew a moment ago, written again long ago, written again here and there: none of them is hot.
    assert_eq!(numbers(choose(p, blocks.clone(), 10)), [3, 6, 5, 2, 1, 4]);
    // Hot blocks sink when nothing else does it, and when they have cooled.
    assert_eq!(numbers(choose(p, vec![hot(1, 9, 90)], 10)), [1]);
    let cooled = Pressure { free: 800, cooled_before: 99, ..p };
    assert_eq!(choose(cooled, blocks, 10).1.len(), 6);
}

#[test]
fn spaces_that_never_sink_are_never_chosen() {
    let undo = BufferedBlock {
        block: BlockId { space: SpaceId::UNDO, block: 0 },
        slots: 128,
        last_change: 1,
        rewrites: 0,
    };
    for free in [0, 400] {
        let p = Pressure { slots: 400, free, cooled_before: 100, recent_after: 50 };
        assert!(choose(p, vec![undo], 10).1.is_empty());
    }
}

#[test]
fn a_choice_frees_enough_or_is_all_there_is() {
    let mut x = 0;
    let mut dice = |n: u64| {
        x += 1;
        spread(PageId::new(SpaceId(3), x)) % n
    };
    for _ in 0..500 {
        let slots = 8 + dice(5000) as u32;
        let p = Pressure {
            slots,
            free: dice(u64::from(slots)) as u32,
            cooled_before: dice(100),
            recent_after: 50,
        };
        let blocks: Vec<_> =
            (0..dice(60) as u32).map(|n| block(n, 1 + dice(128) as u32, dice(200))).collect();
        let max = 1 + dice(40) as usize;
        let (reason, chosen) = choose(p, blocks.clone(), max);
        assert!(chosen.len() <= max);
        let sinks = |b: &&BufferedBlock| chosen.contains(&b.block);
        let gained: u32 = blocks.iter().filter(sinks).map(|b| b.slots).sum();
        match reason {
            Reason::Watermark => {
                assert!(p.free < low(slots));
                let enough = p.free + gained >= high(slots);
                assert!(enough || chosen.len() == max.min(blocks.len()));
            }
            Reason::Share => unreachable!("shares are not this policy's"),
            Reason::Cooled => {
                assert!(p.free >= low(slots));
                assert!(blocks.iter().filter(sinks).all(|b| b.last_change <= p.cooled_before));
            }
        }
    }
}

#[test]
fn a_position_has_cooled_when_its_time_has_passed() {
    let mut ages = Ages::new(800);
    assert_eq!(ages.sample(1000, 10), 0);
    assert_eq!(ages.sample(1050, 15), 0, "too soon for another sample");
    assert_eq!(ages.sample(1100, 20), 0);
    assert_eq!(ages.sample(1799, 30), 0);
    assert_eq!(ages.sample(1800, 30), 10);
    assert_eq!(ages.sample(1899, 40), 10);
    assert_eq!(ages.sample(1900, 40), 20);
    assert_eq!(ages.sample(9000, 50), 40, "the newest sample that is old enough");
    (0..1000).for_each(|n| _ = ages.sample(10_000 + n * 10, 60));
    assert!(ages.samples.len() <= SAMPLES as usize + 2);
}

#[test]
fn an_eighth_is_kept_free_and_of_few_slots_up_to_a_quarter() {
    let marks = [0, 100, 2048, 4096, 80_000].map(|slots| (low(slots), high(slots)));
    assert_eq!(marks, [(0, 0), (25, 36), (512, 768), (512, 768), (10_000, 15_000)]);
}
