//! A memory budget for blocks being sunk, shared by all workers. A block takes its estimated size while it is gathered and
//! packed, and its packed size while the store is waited for.

use parking_lot::Mutex;
use std::sync::Arc;
use terrace_io::sched::{Event, Sched};

pub(super) struct SinkMemory {
    sched: Arc<dyn Sched>,
    bytes: usize,
    taken: Mutex<usize>,
    freed: Event,
}

impl SinkMemory {
    pub fn new(sched: Arc<dyn Sched>, bytes: usize) -> SinkMemory {
        SinkMemory { sched, bytes, taken: Mutex::new(0), freed: Event::new() }
    }

    pub fn taken(&self) -> usize {
        *self.taken.lock()
    }

    /// Takes `bytes`, or the whole budget if they are more. Waits for workers that hold some; a worker that waits here holds
    /// none.
    pub fn take(&self, bytes: usize) -> SinkReservation<'_> {
        let bytes = bytes.min(self.bytes);
        loop {
            let freed = self.freed.ticket();
            {
                let mut taken = self.taken.lock();
                if *taken + bytes <= self.bytes {
                    *taken += bytes;
                    return SinkReservation { room: self, bytes };
                }
            }
            self.sched.wait(&self.freed, freed, None);
        }
    }
}

/// Given back when dropped.
pub(super) struct SinkReservation<'a> {
    room: &'a SinkMemory,
    bytes: usize,
}

impl SinkReservation<'_> {
    /// Changes the amount taken to `bytes`. An increase is taken at once, and other workers wait longer.
    pub fn fit(&mut self, bytes: usize) {
        let bytes = bytes.min(self.room.bytes);
        {
            let mut taken = self.room.taken.lock();
            *taken = *taken - self.bytes + bytes;
        }
        if bytes < self.bytes {
            self.room.freed.notify();
        }
        self.bytes = bytes;
    }
}

impl Drop for SinkReservation<'_> {
    fn drop(&mut self) {
        self.fit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_sim::SimWorld;

    #[test]
    fn places_come_to_no_more_than_there_is_and_a_shorter_one_lets_others_in() {
        let sim = SimWorld::new(1);
        let room = SinkMemory::new(sim.world().sched, 100);
        let mut first = room.take(70);
        let second = room.take(30);
        assert_eq!(*room.taken.lock(), 100);
        first.fit(80);
        assert_eq!(*room.taken.lock(), 110, "what it turned out to need");
        first.fit(20);
        let third = room.take(50);
        assert_eq!(*room.taken.lock(), 100);
        drop((first, second, third));
        assert_eq!(*room.taken.lock(), 0);
        let all = room.take(1000);
        assert_eq!((*room.taken.lock(), all.bytes), (100, 100));
    }
}
