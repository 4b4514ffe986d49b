//! The machines that are simulated: pairs of a cache and a backend.
//!
//! `paper` is NetCAS's testbed as its published profile shows it (64 KB; by requests in flight, threads and ratio): persistent
//! memory that the calling threads copy from, fastest with four of them, and an NVMe drive behind a fabric of 3.5 GB/s. `cloud` is
//! the profile of this project's benchmarks: local flash and a network volume.

use super::device::{Model, Servers};
use crate::emulate::{CLOUD, TAIL};

/// Requests a second of 64 KB by threads, from the published profile's column of 100 % cache.
const PMEM: &[(u32, f64)] =
    &[(1, 54_000.0), (2, 88_000.0), (4, 112_000.0), (8, 108_000.0), (16, 77_500.0), (32, 63_000.0)];

pub const NAMES: [&str; 2] = ["paper", "cloud"];

/// The cache and the backend of a machine for a block size. None: there is no such machine.
pub fn named(name: &str, block: u32) -> Option<Vec<Model>> {
    let share = f64::from(block) / 65_536.0;
    let model = |name, servers, delay, spread| Model {
        name,
        servers,
        delay,
        spread,
        jitter: 0.2,
        episodes: Vec::new(),
    };
    match name {
        "paper" => {
            // The link's 18.6 µs and the delay of 385 µs fit the published profile at 64 KB. At 16 KB a quarter of the bytes move;
            // of the delay, about two thirds are the drive's and the fabric's own.
            let (link, delay) = ((18_600.0 * share) as u64, (255_000.0 + 130_000.0 * share) as u64);
            Some(vec![
                model("cache", Servers::ByThread(PMEM, 1.0 / share.max(0.3)), 0, TAIL),
                model("backend", Servers::Each(1, link), delay, TAIL),
            ])
        }
        "cloud" => {
            let device = |d: &crate::emulate::Device| {
                let by_bytes = u64::from(block) * 1_000_000_000 / d.bandwidth;
                (Servers::Each(1, by_bytes.max(1_000_000_000 / d.rate)), d.read, d.spread)
            };
            let (servers, delay, spread) = device(&CLOUD.flash);
            let flash = model("flash", servers, delay, spread);
            let (servers, delay, spread) = device(&CLOUD.volume);
            Some(vec![flash, model("volume", servers, delay, spread)])
        }
        _ => None,
    }
}
