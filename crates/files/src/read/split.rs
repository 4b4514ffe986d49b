//! A block that is on flash as well as in the store: which of the two serves a read (NetCAS §4, and past it).
//!
//! The router (`terrace_io::split`) names the device. A store bills by request, so it gets no hits of flash unless an operator gives it a weight. What
//! the router does without one is to keep bad flash from readers: a read of flash that exceeds its bound is left behind (`terrace_io::disk::hedge`) and the store
//! is asked; flash that fails or hangs gets probes only, until it answers again. A version is named with each read, and both devices answer for that
//! version or not at all. So a route changes where bytes are read, never which.
//!
//! Small files that are packed are flash, too; what the packer still has in memory counts as read there.

use super::Files;
use crate::catalogue::Fault;
use crate::flash::Flash;
use crate::memory::extents::Extent;
use std::sync::Arc;
use terrace_io::clock::Nanos;
use terrace_io::disk::hedge::{self, LeftRead};
use terrace_io::split::health::LOST;
use terrace_io::split::router::{Status, lane};
use terrace_io::split::{Device, Outcome, Policy, Request, Router, Settings};

const FLASH: usize = 0;
const STORE: usize = 1;
const BOTH: u8 = 1 << FLASH | 1 << STORE;
/// What a read of flash may take more than its least bound for each byte, in nanoseconds: 20 MB/s.
const BOUND_OF_BYTE: Nanos = 50;

/// A block that is wanted.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub path: &'a str,
    pub version: &'a str,
    pub index: u32,
    pub len: u64,
}

pub struct BlockSplit {
    router: Arc<Router>,
}

impl BlockSplit {
    /// `store_weight`: what part of the hits that the policy would send to the store it gets. `flash_timeout`: what a read of flash may take at least.
    pub fn new(store_weight: f64, flash_timeout: Nanos) -> BlockSplit {
        let store = Device { billed: true, weight: Some(store_weight), ..Device::new("store") };
        let defaults = Settings::default();
        let hedge_max = defaults.hedge_max.max(flash_timeout);
        let settings = Settings { policy: Policy::Knee, hedge_min: flash_timeout, hedge_max, ..defaults };
        BlockSplit { router: Arc::new(Router::new(vec![Device::new("flash"), store], settings)) }
    }

    pub fn status(&self) -> Status {
        self.router.status()
    }
}

impl Files {
    /// Reads a block that flash seems to have.
    pub(super) fn block_of_two(&self, flash: &Flash, wanted: Wanted<'_>) -> Result<Extent, Fault> {
        let router = &self.split.router;
        let request = Request { on: BOTH, bytes: wanted.len as u32 };
        let (lane, mut tried, mut fault) = (lane(), 0, None);
        let mut route = router.route(lane, &request, self.world.clock.now());
        if let Some(device) = route.shadow {
            self.probe(device, wanted);
        }
        loop {
            let (device, started) = (route.device, self.world.clock.now());
            tried |= 1 << device;
            // The last copy is waited for, and so is the store: it has limits of its own.
            let bound = (device == FLASH && tried != BOTH)
                .then(|| route.hedge_after.saturating_add(wanted.len * BOUND_OF_BYTE));
            let errors = flash.errors();
            let (result, left) = hedge::bounded(bound, || match device {
                FLASH => self.block_on_flash(flash, wanted),
                _ => self.block_in_store(wanted).map(Some),
            });
            let now = self.world.clock.now();
            let ended = |bytes, outcome| router.finished(lane, device, bytes, now - started, outcome, now);
            match result {
                Ok(Some(extent)) => {
                    ended(wanted.len as u32, Outcome::Done);
                    return Ok(extent);
                }
                Ok(None) => match left {
                    Some(left) => self.left(left, lane, device, now),
                    // Perhaps another read failed; three in a row are needed for a suspicion.
                    None if flash.errors() > errors => ended(0, Outcome::Failed),
                    None => ended(0, Outcome::Stale),
                },
                Err(cause) if device == STORE => {
                    let unavailable = matches!(cause, Fault::Unavailable(_));
                    ended(0, if unavailable { Outcome::Failed } else { Outcome::Stale });
                    if !unavailable {
                        return Err(cause);
                    }
                    fault = Some(cause);
                }
                Err(cause) => {
                    ended(0, Outcome::Stale);
                    return Err(cause);
                }
            }
            match router.fall_back(tried, &request) {
                Some(next) => route = next,
                // The store was asked first, and failed.
                None => return Err(fault.unwrap_or(Fault::Changed)),
            }
        }
    }

    /// A read of flash was left behind. It counts as in flight until flash answers.
    fn left(&self, left: LeftRead, lane: usize, device: usize, now: Nanos) {
        let (router, clock) = (self.split.router.clone(), self.world.clock.clone());
        router.overdue(device, now);
        left.on_answer(move |latency, came| {
            let outcome = if came { Outcome::Done } else { Outcome::Failed };
            router.finished(lane, device, 0, latency, outcome, clock.now());
        });
    }

    /// Has a worker read the block on flash, which no reader waits for.
    fn probe(&self, device: usize, wanted: Wanted<'_>) {
        let (path, version) = (wanted.path.to_string(), wanted.version.to_string());
        let Wanted { index, len, .. } = wanted;
        self.submit(Box::new(move |files| {
            let Some(flash) = files.flash.as_ref().filter(|_| device == FLASH) else { return };
            let errors = flash.errors();
            // One probe is under way at a time.
            let _room = files.bodies.take(len);
            let (_, left) = hedge::bounded(Some(LOST), || {
                let packed = flash.find_packed(&path, &version, |_| ());
                packed.is_some() || flash.find(&path, index, &version).is_some()
            });
            let answered = left.is_none() && flash.errors() == errors;
            files.split.router.probed(device, answered, files.world.clock.now());
        }));
    }
}
