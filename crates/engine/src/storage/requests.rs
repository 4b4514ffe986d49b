//! What the instance asked of its devices and its store: requests by tier and purpose, since the start.

use crate::storage::Storage;
use terrace_io::disk::Class;
use terrace_io::stats::{Count, DiskStats};
use terrace_io::store::Purpose;

/// The requests of one purpose to one tier.
#[derive(Clone, Debug)]
pub struct Requests {
    /// `volume`, `flash` or `object`.
    pub tier: &'static str,
    /// The name of a [`Class`] or a [`Purpose`]; with `_sync` behind it, syncs of what that class wrote.
    pub purpose: String,
    pub count: Count,
}

const VOLUME: &[Class] = &[
    Class::LogWrite,
    Class::LogRead,
    Class::PageRead,
    Class::PageFlush,
    Class::MapWrite,
    Class::MapRead,
    Class::Superblock,
    Class::CopyRead,
];
const VOLUME_SYNCS: &[Class] = &[Class::LogWrite, Class::PageFlush, Class::MapWrite, Class::Superblock];
const FLASH: &[Class] = &[Class::BpeRead, Class::BpeFill];

fn of_disk(tier: &'static str, stats: &DiskStats, classes: &[Class], syncs: &[Class]) -> Vec<Requests> {
    let moved = classes.iter().map(|class| (class.name().to_string(), stats.of(*class)));
    let synced = syncs.iter().map(|class| (format!("{}_sync", class.name()), stats.syncs_of(*class)));
    // Classes that a front registered are listed for the devices on which it uses them.
    let added = Class::registered().filter(|class| stats.of(*class).requests > 0);
    let added = added.map(|class| (class.name().to_string(), stats.of(class)));
    moved.chain(synced).chain(added).map(|(purpose, count)| Requests { tier, purpose, count }).collect()
}

/// Every purpose of the tiers there are, also those without a request. A tier that counts nothing (a simulated
/// one) has no lines.
pub fn by_purpose(storage: &Storage) -> Vec<Requests> {
    let mut list = Vec::new();
    if let Some(stats) = storage.volume.stats() {
        list.extend(of_disk("volume", &stats, VOLUME, VOLUME_SYNCS));
    }
    if let Some(stats) = storage.flash.as_ref().and_then(|flash| flash.stats()) {
        list.extend(of_disk("flash", &stats, FLASH, &[]));
    }
    if let Some(stats) = storage.cold.as_ref().and_then(|cold| cold.store.stats()) {
        list.extend(Purpose::ALL.into_iter().chain(Purpose::registered()).map(|purpose| Requests {
            tier: "object",
            purpose: purpose.name().to_string(),
            count: stats.of(purpose),
        }));
    }
    list
}

/// By tier, as counters: all tiers, with zeros where there is none.
pub fn totals(storage: &Storage) -> Vec<(String, u64)> {
    let volume = storage.volume.stats().map(|stats| [stats.total(), stats.syncs()].iter().sum());
    let flash = storage.flash.as_ref().and_then(|flash| flash.stats()).map(|stats| stats.total());
    let store = storage.cold.as_ref().and_then(|cold| cold.store.stats());
    let object = store.as_ref().map(|stats| stats.total()).unwrap_or_default();
    let tiers: [(&str, Count); 3] =
        [("volume", volume.unwrap_or_default()), ("flash", flash.unwrap_or_default()), ("object", object)];
    let mut list = Vec::new();
    for (tier, count) in tiers {
        list.push((format!("{tier}_requests"), count.requests));
        list.push((format!("{tier}_request_bytes"), count.bytes));
        list.push((format!("{tier}_request_errors"), count.errors));
    }
    list.push(("object_request_retries".into(), object.retries));
    list.push(("object_requests_throttled".into(), store.map_or(0, |stats| stats.throttled)));
    list
}
