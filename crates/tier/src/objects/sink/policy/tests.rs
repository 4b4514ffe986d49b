use super::*;
use crate::page::spread;
use crate::page::{PageId, SpaceId};

fn block(n: u32, slots: u32, last_change: Glsn) -> BufferedBlock {
    let block = BlockId { space: SpaceId::FIRST_USER, block: n };
    BufferedBlock {
        block,
        slots,
        last_change,
        age: 100,
        rewrites: 0,
        rewritten: 0,
        stored: Stored::default(),
    }
}

fn numbers(chosen: (Reason, Vec<BlockId>)) -> Vec<u32> {
    chosen.1.into_iter().map(|b| b.block).collect()
}

#[test]
fn above_the_watermark_only_cooled_blocks_sink() {
    let p = Pressure { slots: 800, free: 400, cooled_before: 50, defers: true, patch: 0 };
    let chosen = choose(p, vec![block(1, 100, 60), block(2, 3, 40), block(3, 1, 50)], 10);
    assert_eq!(chosen.0, Reason::Cooled);
    assert_eq!(numbers(chosen), [2, 3]);
}

#[test]
fn below_the_watermark_the_fullest_go_first_and_only_as_many_as_needed() {
    let p = Pressure { slots: 800, free: 190, cooled_before: 0, defers: true, patch: 0 };
    let blocks = vec![block(1, 2, 10), block(2, 100, 90), block(3, 120, 80), block(4, 16, 1)];
    let chosen = choose(p, blocks.clone(), 10);
    assert_eq!(chosen.0, Reason::Watermark);
    assert_eq!(numbers(chosen), [3], "110 slots are wanted");
    let p = Pressure { free: 0, ..p };
    assert_eq!(numbers(choose(p, blocks.clone(), 10)), [3, 2, 4, 1]);
    assert_eq!(numbers(choose(p, blocks, 2)), [3, 2]);
    let alike = vec![block(1, 9, 20), block(2, 9, 10)];
    assert_eq!(numbers(choose(p, alike, 10)), [2, 1], "the one that was left alone longer");
}

#[test]
fn slots_that_stay_free_for_long_go_first() {
    let p = Pressure { slots: 800, free: 0, cooled_before: 0, defers: true, patch: 0 };
    let aged = |n, slots, age| BufferedBlock { age, ..block(n, slots, 9) };
    let again = |n, slots, rewritten, rewrites| BufferedBlock { rewritten, rewrites, ..block(n, slots, 9) };
    // Few pages in a long time, many in a short one.
    assert_eq!(numbers(choose(p, vec![aged(1, 30, 100), aged(2, 5, 1000), aged(3, 100, 20)], 9)), [2, 1, 3]);
    // What a moment brought stays where it is; but no longer than some turns of all slots are waited for.
    assert_eq!(numbers(choose(p, vec![aged(1, 128, 10), aged(2, 1, 3000)], 9)), [2, 1]);
    assert_eq!(numbers(choose(p, vec![aged(1, 128, 60), aged(2, 1, 1 << 40)], 9)), [1, 2]);
    // Pages that were written again count for less, the others for as much as before.
    assert_eq!(
        numbers(choose(p, vec![again(1, 64, 64, 640), block(2, 8, 9), again(3, 64, 54, 640)], 9)),
        [3, 2, 1]
    );
    assert_eq!(
        numbers(choose(p, vec![again(1, 64, 64, 64), again(2, 33, 0, 0), again(3, 31, 0, 0)], 9)),
        [2, 1, 3]
    );
    // Hot blocks sink when nothing else does it, and when they have cooled; and with the fullest, if that is wanted.
    assert_eq!(numbers(choose(p, vec![again(1, 9, 9, 1 << 30)], 9)), [1]);
    let blocks = vec![again(1, 64, 64, 640), block(2, 8, 9), again(3, 70, 70, 640)];
    assert_eq!(numbers(choose(Pressure { defers: false, ..p }, blocks.clone(), 9)), [3, 1, 2]);
    let cooled = Pressure { free: 800, cooled_before: 99, ..p };
    assert_eq!(choose(cooled, blocks, 10).1.len(), 3);
}

/// Blocks whose pages are written at random, each block's at a rate of its own, and some of them much more often: puts for each thousand of the slots that are taken
/// when the worth decides, and when the fullest go first.
#[test]
fn fewer_puts_than_where_the_fullest_go_first() {
    let puts = |defers: bool| {
        let (mut buffered, mut x, mut puts, mut taken) =
            (crate::volume::map::buffered::Buffered::default(), 0u32, 0, 0);
        let mut has = vec![[false; 128]; 340];
        let mut dice = |n: u64| {
            x += 1;
            spread(PageId::new(SpaceId(3), x)) % n
        };
        for n in 0..200_000u64 {
            // Forty blocks of an index, a fifth of whose pages are written four times as often as the others; the rest are rows.
            let index = dice(10) < 8;
            let block = if index { dice(40) } else { 40 + dice(300) } as usize;
            let page = if index && dice(2) == 0 { dice(26) } else { dice(128) } as usize;
            let id = BlockId { space: SpaceId::FIRST_USER, block: block as u32 };
            let new = !std::mem::replace(&mut has[block][page], true);
            buffered.flushed(id, page, new, n);
            taken += u64::from(new);
            let free = 4000 - buffered.sinking_slots();
            let p = Pressure { slots: 4000, free, cooled_before: 0, defers, patch: 0 };
            if p.free < low(p.slots) {
                for id in choose(p, buffered.all(), 64).1 {
                    let slots = has[id.block as usize].iter().filter(|has| **has).count() as u32;
                    has[id.block as usize] = [false; 128];
                    buffered.cleaned(id, slots);
                    puts += 1;
                }
            }
        }
        1000 * puts / taken
    };
    let (by_worth, fullest) = (puts(true), puts(false));
    println!("puts for a thousand slots: {by_worth}, the fullest first {fullest}");
    assert!(by_worth * 10 < fullest * 9, "{by_worth}, the fullest first {fullest}");
}

#[test]
fn spaces_that_never_sink_are_never_chosen() {
    let undo = BufferedBlock {
        block: BlockId { space: SpaceId::UNDO, block: 0 },
        slots: 128,
        last_change: 1,
        age: 1,
        rewrites: 0,
        rewritten: 0,
        stored: Stored::default(),
    };
    for free in [0, 400] {
        let p = Pressure { slots: 400, free, cooled_before: 100, defers: true, patch: 0 };
        assert!(choose(p, vec![undo], 10).1.is_empty());
    }
}

#[test]
fn a_choice_frees_enough_slots_or_takes_every_block() {
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
            defers: true,
            patch: 0,
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

/// Sinks of a block with `k` pages that change each time, at random or always the same: pages put for each sink, by what `whole` says of
/// what is new, taken over and there in all.
fn put_each(k: usize, random: bool, mut whole: impl FnMut(usize, usize, usize) -> bool) -> f64 {
    let (mut dice, mut patched, mut put) = (0u32, [false; 128], 0);
    const SINKS: usize = 4000;
    for _ in 0..SINKS {
        let mut changed = [false; 128];
        while changed.iter().filter(|c| **c).count() < k {
            dice += 1;
            let i = spread(PageId::new(SpaceId(3), dice)) as usize % if random { 128 } else { k };
            changed[i] = true;
        }
        let carried = patched.iter().zip(changed).filter(|(patched, changed)| **patched && !changed).count();
        if whole(k, carried, 128) {
            (patched, put) = ([false; 128], put + 128);
        } else {
            patched.iter_mut().zip(changed).for_each(|(patched, changed)| *patched |= changed);
            put += k + carried;
        }
    }
    put as f64 / SINKS as f64
}

/// Against the best share of a block, for each number of pages that change, and against no patches.
#[test]
fn a_patch_is_put_as_long_as_it_pays() {
    const PAGE: usize = 8 << 10;
    let by_form = |new, carried, all| form(new * PAGE, carried * PAGE, all * PAGE) == Form::Whole;
    for (k, saves) in [(1, 8.0), (2, 5.0), (4, 4.0), (8, 3.0), (16, 2.0), (32, 1.3)] {
        let ours = put_each(k, true, by_form);
        let most = PATCH_MAX / PAGE;
        let best = (1..=most).map(|share| put_each(k, true, |new, carried, _| new + carried > share));
        let best = best.fold(f64::MAX, f64::min);
        println!("{k} of 128 pages change: {ours:.1} are put, by the best share {best:.1}");
        assert!(ours <= best * 1.1 && ours * saves <= 128.0, "{k}: {ours:.1}, the best {best:.1}");
        assert_eq!(put_each(k, false, by_form), k as f64, "the same pages each time");
    }
    assert_eq!(form(PATCH_MAX + 64, 0, 4 << 20), Form::Whole, "there is no place for it");
    assert_eq!([form(64, 0, 128), form(65, 0, 128)], [Form::Patch, Form::Whole], "half of it");
    assert_eq!(form(100, 28, 128), Form::Whole, "that is all");
}

#[test]
fn what_a_patch_spares_counts() {
    let p = Pressure { slots: 800, free: 0, cooled_before: 0, defers: true, patch: 32 };
    let of = |n, slots, patched, has_object| {
        let stored = Stored { pages: 128, patched, has_object };
        BufferedBlock { stored, ..block(n, slots, 9) }
    };
    // Of two that free as many slots, that which has an object, and that with the smaller patch; where there are none, what was left alone for longer.
    let blocks = vec![of(1, 6, 0, false), of(2, 6, 20, true), of(3, 6, 0, true)];
    assert_eq!(numbers(choose(p, blocks.clone(), 9)), [3, 2, 1]);
    assert_eq!(numbers(choose(Pressure { patch: 0, ..p }, blocks, 9)), [1, 2, 3]);
    // A request costs as much as some pages: a patch for a page does not go before a block that frees many.
    assert_eq!(numbers(choose(p, vec![of(1, 1, 0, true), of(2, 40, 0, false)], 9)), [2, 1]);
    // One that a patch would have no room for is put whole, with what its patch has.
    assert_eq!([of(1, 40, 0, true), of(1, 20, 20, true)].map(|b| cost(&b, 32)), [64 + 88, 64 + 108]);
    assert_eq!([of(1, 20, 5, true), of(1, 20, 0, true)].map(|b| cost(&b, 32)), [64 + 5, 64]);
}
