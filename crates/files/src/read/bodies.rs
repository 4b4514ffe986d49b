//! Room for the bodies of requests to the store, which are in memory beside the arena: answers that are being received, and parts of files
//! that are being written. Bounds their bytes.

use parking_lot::Mutex;
use terrace_io::World;
use terrace_io::sched::Event;

pub struct Bodies {
    world: World,
    bytes_max: u64,
    taken: Mutex<u64>,
    freed: Event,
}

/// Room that is returned when it is dropped.
pub struct BodyRoom<'a> {
    bodies: &'a Bodies,
    bytes: u64,
}

impl Bodies {
    pub fn new(world: World, bytes_max: u64) -> Bodies {
        Bodies { world, bytes_max, taken: Mutex::new(0), freed: Event::new() }
    }

    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }
    pub fn taken(&self) -> u64 {
        *self.taken.lock()
    }

    /// Takes room if there is any: for callers that cannot wait. More than all is taken when nothing else is.
    pub fn try_take(&self, bytes: u64) -> bool {
        let mut taken = self.taken.lock();
        let fits = *taken == 0 || *taken + bytes <= self.bytes_max;
        *taken += if fits { bytes } else { 0 };
        fits
    }

    pub fn give_back(&self, bytes: u64) {
        *self.taken.lock() -= bytes;
        self.freed.notify_one();
    }

    /// Waits for room. The caller holds no other, so that all wait for requests that end.
    pub fn take(&self, bytes: u64) -> BodyRoom<'_> {
        loop {
            let seen = self.freed.ticket();
            if self.try_take(bytes) {
                // There may be room for another, too. Woken one after the other, as all at once would fight for what one of them gets. One
                // that finds too little waits for the next end of a request: something is taken then, and is given back.
                if self.taken() < self.bytes_max {
                    self.freed.notify_one();
                }
                return BodyRoom { bodies: self, bytes };
            }
            self.world.sched.wait(&self.freed, seen, None);
        }
    }
}

impl Drop for BodyRoom<'_> {
    fn drop(&mut self) {
        self.bodies.give_back(self.bytes);
    }
}
