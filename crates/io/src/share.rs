//! Shares of a device or a store: background work may use some of the places at a time, so that what
//! a commit or a reader waits for never queues behind it.
//!
//! Two kinds of work. *Urgent* work takes a place as long as any is free; *background* work only as
//! long as fewer than its limit are taken by its kind. A store has a total: connections cost. A device has none (the
//! kernel queues): there urgent work takes no place at all, and background batches go in pieces ([`in_pieces`]).

use crate::cancel;
use crate::traffic::{Class, Urgency};
use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// Bytes that one place of a device stands for: a longer request takes several.
const PLACE_BYTES: usize = 16 << 10;
/// Places of background classes that a device has in flight at a time: 1 MiB.
pub(crate) const DEVICE_BACKGROUND: usize = 64;
/// Places of a background batch after which a device that serves what comes first first has a pause: few enough that
/// a log write behind them waits about as long as it takes itself.
pub(crate) const PIECE: usize = 16;

/// The places that a request of `bytes` takes.
pub(crate) fn places(bytes: usize) -> usize {
    bytes.div_ceil(PLACE_BYTES).max(1)
}

/// How many of the first items take `count` places together at most; at least one item.
pub(crate) fn fitting<T>(items: &[T], count: usize, places: impl Fn(&T) -> usize) -> usize {
    let mut taken = 0;
    let fit = items.iter().take_while(|item| {
        taken += places(item);
        taken <= count
    });
    fit.count().max(1)
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

    /// A device's.
    pub(crate) fn of_device() -> Share {
        Share::new(usize::MAX, DEVICE_BACKGROUND)
    }

    /// Takes up to `wanted` places, at least one; waits while there is none for its kind. None: cancelled.
    pub(crate) fn enter(&self, urgency: Urgency, wanted: usize) -> Option<Places<'_>> {
        assert!(wanted > 0);
        let mut taken = self.taken.lock();
        loop {
            let free = self.places - taken.urgent - taken.background;
            let free = match urgency {
                Urgency::Foreground | Urgency::Urgent => free,
                Urgency::Background => free.min(self.background_max - taken.background),
            };
            if free > 0 {
                let count = wanted.min(free);
                match urgency {
                    Urgency::Foreground | Urgency::Urgent => taken.urgent += count,
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
            Urgency::Foreground | Urgency::Urgent => taken.urgent -= self.count,
            Urgency::Background => taken.background -= self.count,
        }
        drop(taken);
        self.share.freed.notify_all();
    }
}

/// Runs a batch of a class: urgent work at once, background work piece by piece, each as large as there are places;
/// an item larger than what is free goes alone. One result an item, in order.
pub(crate) fn in_pieces<T, R>(
    share: &Share,
    class: Class,
    items: &mut [T],
    places_of: impl Fn(&T) -> usize,
    mut run: impl FnMut(&mut [T]) -> Vec<R>,
) -> Vec<R> {
    if class.urgency() != Urgency::Background {
        return run(items);
    }
    let mut results = Vec::with_capacity(items.len());
    let mut rest = items;
    while !rest.is_empty() {
        // A cancelled thread does not wait for a place; the request that it is making completes.
        let places = share.enter(Urgency::Background, rest.iter().map(&places_of).sum());
        let fit = places.as_ref().map_or(rest.len(), |places| fitting(rest, places.count, &places_of));
        let (piece, more) = rest.split_at_mut(fit);
        results.extend(run(piece));
        rest = more;
    }
    results
}

#[cfg(test)]
mod tests;
