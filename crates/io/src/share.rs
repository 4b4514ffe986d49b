//! Shares of a device or a store: background work may use some of the places at a time, so that what
//! a commit or a reader waits for never queues behind it.
//!
//! Two kinds of work. *Urgent* work takes a place as long as any is free; *background* work only as
//! long as fewer than its limit are taken by its kind. A device has no total (the kernel queues), a
//! store has one: connections cost.

use crate::cancel;
use crate::store::Purpose;
use parking_lot::{Condvar, Mutex};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Urgency {
    Urgent,
    Background,
}

impl Urgency {
    #[cfg_attr(not(feature = "object-store"), allow(dead_code))]
    pub(crate) fn of_purpose(purpose: Purpose) -> Urgency {
        match purpose {
            Purpose::PageMiss | Purpose::BlockRead | Purpose::Epoch | Purpose::Resolve => Urgency::Urgent,
            Purpose::Merge | Purpose::Sink | Purpose::Collect | Purpose::Scrub => Urgency::Background,
        }
    }
}

#[derive(Default)]
struct Taken {
    urgent: usize,
    background: usize,
}

/// Places for requests in flight.
pub(crate) struct Share {
    taken: Mutex<Taken>,
    freed: Condvar,
    /// Of both kinds together.
    places: usize,
    background_max: usize,
}

impl Share {
    pub(crate) fn new(places: usize, background_max: usize) -> Share {
        assert!(background_max > 0 && background_max <= places);
        Share { taken: Mutex::default(), freed: Condvar::new(), places, background_max }
    }

    /// Takes up to `wanted` places, at least one; waits while there is none for its kind. None: cancelled.
    pub(crate) fn enter(&self, urgency: Urgency, wanted: usize) -> Option<Places<'_>> {
        assert!(wanted > 0);
        let mut taken = self.taken.lock();
        loop {
            let free = self.places - taken.urgent - taken.background;
            let free = match urgency {
                Urgency::Urgent => free,
                Urgency::Background => free.min(self.background_max - taken.background),
            };
            if free > 0 {
                let count = wanted.min(free);
                match urgency {
                    Urgency::Urgent => taken.urgent += count,
                    Urgency::Background => taken.background += count,
                }
                return Some(Places { share: self, urgency, count });
            }
            if cancel::asked() {
                return None;
            }
            match cancel::patience() {
                Some(look) => _ = self.freed.wait_for(&mut taken, Duration::from_nanos(look)),
                None => self.freed.wait(&mut taken),
            }
        }
    }
}

/// Places taken; given back when dropped.
pub(crate) struct Places<'a> {
    share: &'a Share,
    urgency: Urgency,
    pub(crate) count: usize,
}

impl Drop for Places<'_> {
    fn drop(&mut self) {
        let mut taken = self.share.taken.lock();
        match self.urgency {
            Urgency::Urgent => taken.urgent -= self.count,
            Urgency::Background => taken.background -= self.count,
        }
        drop(taken);
        self.share.freed.notify_all();
    }
}

#[cfg(test)]
mod tests;
