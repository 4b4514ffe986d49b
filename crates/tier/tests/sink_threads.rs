//! Readers, the flusher, two sinkers and collection on real threads: every reader gets a version that
//! was current while it read.

mod rig;

use rig::{Rig, page_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_io::AlignedBuf;
use terrace_tier::memory::lower_tiers::{Below, ReadError};
use terrace_tier::page::PAGE_SIZE;

const PAGES: u32 = 60;

fn page(n: u32) -> terrace_tier::page::PageId {
    page_of(n % 3, n / 3)
}

#[test]
fn a_reader_beside_flush_sink_and_collection_gets_a_current_version() {
    let rig = Rig::new(1, 400);
    (0..PAGES).for_each(|n| assert!(rig.flush(page(n))));
    let stop = Arc::new(AtomicBool::new(false));
    let retried = Arc::new(AtomicU64::new(0));
    let newest: Arc<Vec<AtomicU64>> = Arc::new((0..PAGES).map(|_| AtomicU64::new(1)).collect());
    let mut dice = 7u64;
    std::thread::scope(|threads| {
        for reader in 0..2u64 {
            let (path, stop, newest) = (rig.run.path.clone(), stop.clone(), newest.clone());
            threads.spawn(move || {
                let mut dice = reader;
                let mut buf = AlignedBuf::zeroed(PAGE_SIZE);
                while !stop.load(Ordering::SeqCst) {
                    dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let n = (dice >> 33) as u32 % PAGES;
                    let least = newest[n as usize].load(Ordering::SeqCst);
                    match path.fetch(page(n), &mut buf) {
                        Ok(_) => {
                            let version = u64::from_le_bytes(buf[9000..9008].try_into().unwrap());
                            // The version being published may be seen before the model knows of it.
                            let most = newest[n as usize].load(Ordering::SeqCst) + 1;
                            assert!((least..=most).contains(&version), "page {n}: {least} {version} {most}");
                            assert!(buf[..] == rig::image(page(n), version).0[..]);
                        }
                        Err(error @ ReadError::Absent(_)) => panic!("{error}"),
                        Err(error) => panic!("page {n}: {error}"),
                    }
                }
            });
        }
        for _ in 0..2 {
            let (sinker, collector, stop) = (rig.run.sinker.clone(), rig.run.collector.clone(), stop.clone());
            threads.spawn(move || {
                let mut block = 0;
                while !stop.load(Ordering::SeqCst) {
                    block = (block + 1) % 3;
                    // Two may want the same block; the simulated scheduler cannot wait on threads.
                    _ = sinker.try_sink_block(rig::block_of(block)).unwrap();
                    collector.step();
                }
            });
        }
        let hand = rig.hand();
        let deleted = || rig.run.collector.counters.deleted.load(Ordering::Relaxed);
        let until = Instant::now() + Duration::from_secs(180);
        while deleted() < 150 && Instant::now() < until {
            dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let n = (dice >> 33) as u32 % PAGES;
            if hand.flush(page(n)) {
                newest[n as usize].fetch_add(1, Ordering::SeqCst);
            } else {
                retried.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
    rig.read_all();
    let deleted = rig.run.collector.counters.deleted.load(Ordering::Relaxed);
    assert!(deleted >= 150, "only {deleted} objects were collected meanwhile: this proves little");
    println!("{deleted} collected, {} flushes found no slot", retried.load(Ordering::SeqCst));
}
