//! Requests through `io_uring`: many in flight from one thread, one system call for a batch.
//!
//! A batch takes a ring for itself and gives it back. Rings are made when batches meet and kept, at most
//! [`RINGS`] of [`DEPTH`] requests each.
//!
//! The kernel writes to a request's memory until its completion has been seen. So nothing returns
//! before that, whatever fails on the way.
//!
//! Locks: `Rings::idle`, for a push or a pop.

pub(super) mod single;

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, Probe, opcode, squeue};
use parking_lot::Mutex;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Requests of one ring in flight.
pub(super) const DEPTH: usize = 64;
/// Rings of one process. As many batches run at a time; further ones are done in turn.
pub(super) const RINGS: usize = 64;
/// Bytes that one request moves at most; the kernel moves less than 2 GiB.
const LARGEST: usize = 1 << 30;
/// How often the kernel may have no memory for requests, a millisecond apart, before the ring is given up.
const PATIENCE: u32 = 1_000;

pub(super) enum Request<'a> {
    Read {
        fd: BorrowedFd<'a>,
        offset: u64,
        buf: &'a mut [u8],
    },
    Write {
        fd: BorrowedFd<'a>,
        offset: u64,
        buf: &'a [u8],
    },
    /// `fdatasync`.
    Sync {
        fd: BorrowedFd<'a>,
    },
}

impl Request<'_> {
    fn entry(&mut self) -> squeue::Entry {
        let short = |len: usize| len.min(LARGEST) as u32;
        match self {
            Request::Read { fd, offset, buf } => {
                opcode::Read::new(Fd(fd.as_raw_fd()), buf.as_mut_ptr(), short(buf.len()))
                    .offset(*offset)
                    .build()
            }
            Request::Write { fd, offset, buf } => {
                opcode::Write::new(Fd(fd.as_raw_fd()), buf.as_ptr(), short(buf.len())).offset(*offset).build()
            }
            Request::Sync { fd } => {
                opcode::Fsync::new(Fd(fd.as_raw_fd())).flags(FsyncFlags::DATASYNC).build()
            }
        }
    }
}

/// What became of a request.
pub(super) enum Done {
    /// The number of bytes moved, perhaps fewer than asked.
    Moved(usize),
    /// It was interrupted or never begun: the caller makes the request itself.
    Not,
    Failed(Error),
}

impl Done {
    fn of(result: i32) -> Done {
        match usize::try_from(result) {
            Ok(moved) => Done::Moved(moved),
            Err(_) if result == -libc::EINTR || result == -libc::EAGAIN => Done::Not,
            Err(_) => Done::Failed(Error::from_raw_os_error(-result)),
        }
    }
}

pub(super) struct Rings {
    idle: Mutex<Vec<IoUring>>,
    made: AtomicUsize,
}

impl Rings {
    /// An error if the kernel has no rings, refuses them (containers do), or lacks a request that is needed.
    pub fn open() -> Result<Rings> {
        let ring = IoUring::new(DEPTH as u32)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE];
        if !needed.iter().all(|code| probe.is_supported(*code)) {
            return Err(Error::from(ErrorKind::Unsupported));
        }
        Ok(Rings { idle: Mutex::new(vec![ring]), made: AtomicUsize::new(1) })
    }

    /// Runs all requests, in any order; one answer each. None: no ring is free and no more may be made.
    pub fn run(&self, requests: &mut [Request<'_>]) -> Option<Vec<Done>> {
        let mut ring = self.take()?;
        let mut done: Vec<Done> = requests.iter().map(|_| Done::Not).collect();
        if Drive::new(&mut ring).all(requests, &mut done) {
            self.idle.lock().push(ring);
        } else {
            drop(ring);
            self.made.fetch_sub(1, Ordering::SeqCst);
        }
        Some(done)
    }

    fn take(&self) -> Option<IoUring> {
        if let Some(ring) = self.idle.lock().pop() {
            return Some(ring);
        }
        let more = |made| (made < RINGS).then_some(made + 1);
        self.made.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        let ring = IoUring::new(DEPTH as u32).ok();
        if ring.is_none() {
            self.made.fetch_sub(1, Ordering::SeqCst);
        }
        ring
    }
}

/// One batch on its way through a ring.
struct Drive<'a> {
    ring: &'a mut IoUring,
    /// Requests given to the ring, and of those the ones whose completion was seen.
    given: usize,
    seen: usize,
    refused: u32,
}

impl Drive<'_> {
    fn new(ring: &mut IoUring) -> Drive<'_> {
        Drive { ring, given: 0, seen: 0, refused: 0 }
    }

    /// True if the ring can be used again. Whatever it returns, the kernel knows no request any more.
    fn all(&mut self, requests: &mut [Request<'_>], done: &mut [Done]) -> bool {
        while self.seen < requests.len() {
            self.give(requests);
            let in_flight = self.given - self.seen;
            // With more to come, half of them make room for the next.
            let wait_for = if self.given < requests.len() { DEPTH / 2 } else { in_flight };
            let entered = self.ring.submit_and_wait(wait_for.min(in_flight));
            let seen = self.reap(done);
            if let Err(error) = entered
                && seen == 0
                && !self.may_go_on(&error)
            {
                self.give_up(done);
                return false;
            }
        }
        true
    }

    fn give(&mut self, requests: &mut [Request<'_>]) {
        while self.given < requests.len() && self.given - self.seen < DEPTH {
            let entry = requests[self.given].entry().user_data(self.given as u64);
            // SAFETY: the descriptor and the memory are borrowed by the requests, which the caller of `all`
            // holds; `all` returns when the request was completed, or was never taken by the kernel.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                return;
            }
            self.given += 1;
        }
    }

    fn reap(&mut self, done: &mut [Done]) -> usize {
        let mut count = 0;
        for completion in self.ring.completion() {
            if let Some(place) = done.get_mut(completion.user_data() as usize) {
                *place = Done::of(completion.result());
            }
            count += 1;
        }
        self.seen += count;
        count
    }

    /// Whether what `io_uring_enter` said passes.
    fn may_go_on(&mut self, error: &Error) -> bool {
        match error.raw_os_error() {
            Some(libc::EINTR) => true,
            Some(libc::EAGAIN | libc::EBUSY) if self.refused < PATIENCE => {
                self.refused += 1;
                std::thread::sleep(Duration::from_millis(1));
                true
            }
            _ => false,
        }
    }

    /// Waits for those that the kernel has taken; the others are not begun, and the ring must be closed.
    fn give_up(&mut self, done: &mut [Done]) {
        let untaken = self.ring.submission().len();
        while self.seen + untaken < self.given {
            if self.reap(done) == 0 {
                // Coming back from any system call, the thread runs what its completions left to do.
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
}

#[cfg(test)]
mod tests;
