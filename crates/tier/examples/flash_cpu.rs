//! CPU of the flash path, one phase a run: `cargo run --release -p terrace-tier --example flash_cpu -- PHASE [ROUNDS]`.
//!
//! The disk is simulated memory, so what remains is the cache's own work, the image's checksum and copies. Prints CPU nanoseconds an
//! operation; count instructions with `perf stat -e instructions:u` or `valgrind --tool=none` around it. Compare two builds by
//! alternating their runs: `docs/decisions/2026-11-28-flash-cache-is-generic-over-keys.md`.

use std::sync::Arc;
use terrace_io::sched::{Step, Worker};
use terrace_sim::SimWorld;
use terrace_tier::flash::Leaving;
use terrace_tier::flash::admission::filter::Rule;
use terrace_tier::flash::bpe::{Bpe, BpeSettings, BpeWorker, Lookup};
use terrace_tier::page::{self, PAGE_SIZE, PageId, PageKind, SpaceId, Tag};

const PAGES: u32 = 4096;

fn id(n: u32) -> PageId {
    PageId::new(SpaceId(20), n)
}

/// CPU time of this thread, in nanoseconds, as the kernel accounts for it.
fn cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let phase = args.next().unwrap_or_else(|| "hit".into());
    let rounds: u32 = args.next().and_then(|n| n.parse().ok()).unwrap_or(20);
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let bpe = Arc::new(Bpe::open(
        &*disk,
        BpeSettings {
            owner: 1,
            flash_bytes: u64::from(PAGES) * PAGE_SIZE as u64,
            queue_pages: 256,
            admission: Rule::GhostTinyLfu,
            warm: false,
        },
    ));
    let mut worker = BpeWorker(bpe.clone());
    let mut image = vec![0; PAGE_SIZE];
    page::format(&mut image, id(0), PageKind::Leaf, 0);
    let mut sealed = |n: u32| -> Tag {
        page::format(&mut image, id(n), PageKind::Leaf, 0);
        page::seal(&mut image)
    };
    let tags: Vec<Tag> = (0..2 * PAGES).map(&mut sealed).collect();
    let mut pages = vec![vec![0; PAGE_SIZE]; 16];
    let mut fill = |n: u32, accesses: u8, drain: bool| {
        page::format(&mut pages[0], id(n), PageKind::Leaf, 0);
        page::seal(&mut pages[0]);
        let became = bpe.evicted(id(n), &pages[0], Leaving::used(accesses));
        if drain {
            while worker.step() == Step::Worked {}
        }
        became
    };
    (0..PAGES).for_each(|n| _ = fill(n, 2, true));
    let mut buf = vec![0; PAGE_SIZE];
    let mut bufs = vec![vec![0; PAGE_SIZE]; 16];
    let (before, mut ops) = (cpu(), 0u64);
    for round in 0..rounds {
        match phase.as_str() {
            "hit" => {
                for n in 0..PAGES {
                    assert!(bpe.find(id(n), tags[n as usize], &mut buf) == Lookup::Hit);
                    ops += 1;
                }
            }
            "hit-16" => {
                for n in (0..PAGES).step_by(16) {
                    let wanted: Vec<(PageId, Tag)> = (n..n + 16).map(|n| (id(n), tags[n as usize])).collect();
                    let mut images: Vec<&mut [u8]> = bufs.iter_mut().map(|b| &mut b[..]).collect();
                    assert!(bpe.find_many(&wanted, &mut images).iter().all(|found| *found));
                    ops += 16;
                }
            }
            // The index alone, many times: nothing of these is on flash.
            "miss" => {
                for _ in 0..16 {
                    for n in PAGES..2 * PAGES {
                        assert!(bpe.find(id(n + 1_000_000), tags[n as usize], &mut buf) == Lookup::Absent);
                        ops += 1;
                    }
                }
            }
            "remember" => {
                for _ in 0..16 {
                    for n in 0..PAGES {
                        // Never the same identifier again: the ghost list answers no, the page is remembered.
                        let n = (round * 16 + 1) * 100_000_000 + ops as u32 + n;
                        std::hint::black_box(bpe.evicted(id(n), &buf, Leaving::used(1)));
                        ops += 1;
                    }
                }
            }
            "rewrite" => {
                for n in 0..PAGES {
                    page::format(&mut buf, id(n), PageKind::Leaf, 0);
                    page::seal(&mut buf);
                    bpe.rewrite(id(n), &buf);
                    if n % 32 == 31 {
                        while worker.step() == Step::Worked {}
                    }
                    ops += 1;
                }
            }
            other => panic!("no phase {other}: hit, hit-16, miss, remember, rewrite"),
        }
    }
    println!("{phase}: {:.1} CPU ns an operation, {ops} operations", (cpu() - before) as f64 / ops as f64);
}
