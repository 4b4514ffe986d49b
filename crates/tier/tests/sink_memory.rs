//! The memory that a block takes while it is sunk, counted as the buffers' memory from the kernel: no more than the guaranteed minimum
//! for sinking, whatever its pages and its objects, and no more than it has reserved of the limit for all blocks. It is one test, because
//! all buffers of a process are counted together.

mod rig;

use rig::{NOISE, Rig, block_of, page_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_io::AlignedBuf;
use terrace_io::random::Random;
use terrace_tier::objects::object::codec::Codec;
use terrace_tier::objects::sink::{MEMORY_MIN, Sunk};
use terrace_tier::page::PAGE_SIZE;

/// What buffers have beyond what they had before, and beyond what the block has taken: the most at any look.
#[derive(Default)]
struct Peak {
    held: AtomicUsize,
    beyond: AtomicUsize,
}

/// Sinks the block, and looks when an old object has been got and when the block waits to be put.
fn sink(rig: &Rig) -> (Sunk, Arc<Peak>) {
    let seen = Arc::new(Peak::default());
    let before = AlignedBuf::mapped();
    for point in ["sink-asked", "sink-gathered"] {
        let (seen, sinker) = (seen.clone(), rig.run.sinker.clone());
        let look = move || {
            let held = AlignedBuf::mapped() - before;
            seen.held.fetch_max(held, Ordering::Relaxed);
            seen.beyond.fetch_max(held.saturating_sub(sinker.memory_taken()), Ordering::Relaxed);
        };
        rig.sim.sched.hook(point, Box::new(look));
    }
    let sunk = rig.run.sinker.sink_block(block_of(0)).unwrap();
    ["sink-asked", "sink-gathered"].into_iter().for_each(|point| rig.sim.sched.unhook(point));
    (sunk, seen)
}

fn flush(rig: &Rig, pages: impl IntoIterator<Item = u32>) {
    for id in pages.into_iter().map(|i| page_of(0, i)) {
        assert!(rig.hand().flush_as(id, ((rig.version(id).unwrap_or(0) & !NOISE) + 1) | NOISE));
    }
}

/// Its object has its first page and its last, with all between that have changed since; its patch as much as one may have.
fn the_most_that_a_block_takes() {
    let rig = Rig::with_flash(1, 300, 0);
    rig.run.objects.codecs.set_fallback(Codec::None);
    flush(&rig, 0..128);
    sink(&rig);
    flush(&rig, 1..33);
    let (sunk, seen) = sink(&rig);
    assert_eq!(sunk, Sunk::Put { pages: 32, patch: true });
    assert_eq!(seen.beyond.load(Ordering::Relaxed), 0);
    flush(&rig, 33..127);
    let (sunk, seen) = sink(&rig);
    assert_eq!(sunk, Sunk::Put { pages: 94, patch: false });
    let [held, beyond] = [&seen.held, &seen.beyond].map(|bytes| bytes.load(Ordering::Relaxed));
    println!("{held} bytes at the most, {beyond} beyond what the block took");
    assert!(held > MEMORY_MIN - 2 * PAGE_SIZE, "this proves little: {held} bytes");
    assert!(held <= MEMORY_MIN, "{held} bytes, and blocks are moved with {MEMORY_MIN}");
    assert_eq!(beyond, 0);
    rig.check_entries();
}

/// Pages at random, packed or not, with objects of all codecs.
fn any_history(seed: u64) -> [u64; 2] {
    let rig = Rig::with_flash(seed, 300, 0);
    let random = rig.sim.random.clone();
    let mut put = [0; 2];
    for _ in 0..30 {
        if random.one_in(5) {
            rig.run.objects.codecs.set_fallback(Codec::NAMES[random.below(3) as usize].1);
        }
        for _ in 0..=random.below(3) {
            let from = random.below(128) as u32;
            let pages =
                from..(from + 1 + random.below(if random.one_in(4) { 128 } else { 12 }) as u32).min(128);
            match random.one_in(2) {
                true => flush(&rig, pages),
                false => pages.for_each(|i| assert!(rig.flush(page_of(0, i)))),
            }
        }
        let (sunk, seen) = sink(&rig);
        let held = seen.held.load(Ordering::Relaxed);
        assert!(held <= MEMORY_MIN, "seed {seed}: {held} bytes for {sunk:?}");
        let Sunk::Put { patch, .. } = sunk else { panic!("seed {seed}: {sunk:?}") };
        put[usize::from(patch)] += 1;
    }
    rig.check_entries();
    put
}

#[test]
fn sinking_a_block_takes_no_more_memory_than_the_guaranteed_minimum() {
    the_most_that_a_block_takes();
    let put = (0..6).map(any_history).fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
    println!("{put:?} whole blocks and patches");
    assert!(put.iter().all(|n| *n > 50), "this proves little: {put:?}");
}
