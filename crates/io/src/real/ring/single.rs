//! One read through a ring, which its reader may leave behind ([`crate::disk::hedge`]).
//!
//! The kernel writes to a request's memory until it has completed. So a read that is left behind keeps ring and memory, and a thread that is
//! started for the first such read looks at them until the kernel is done. At most [`LEFT_MAX`] reads are behind at a time; when as many are, or no ring can be had, a
//! read is made as usual, without a bound.
//!
//! Locks: `idle`, for a push or a pop; `left`, for a look at all of it. Neither is held over a request.

use crate::AlignedBuf;
use crate::clock::Nanos;
use crate::disk::hedge::{self, LateRead};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use parking_lot::{Condvar, Mutex};
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

/// Rings of this process for single reads.
const SINGLES: usize = 128;
/// Reads that are behind at a time.
const LEFT_MAX: usize = 64;
/// How often reads that are behind are looked at.
const LOOK: Duration = Duration::from_millis(2);

/// How a read went.
pub(in crate::real) enum Single {
    /// The memory, and the number of bytes that were read.
    Read(AlignedBuf, Result<usize>),
    /// It was left behind.
    Overdue,
    /// It was not begun.
    Not(AlignedBuf),
}

struct Left {
    ring: IoUring,
    /// The kernel writes here.
    _buf: AlignedBuf,
    len: usize,
    started: Instant,
    late: Option<LateRead>,
}

pub(in crate::real) struct Singles {
    idle: Mutex<Vec<IoUring>>,
    made: AtomicUsize,
    left: Mutex<Vec<Left>>,
    more: Condvar,
    looks: OnceLock<bool>,
}

/// The process's; never dropped, as the kernel may have requests of it.
pub(in crate::real) static ALL: LazyLock<Singles> = LazyLock::new(|| Singles {
    idle: Mutex::default(),
    made: AtomicUsize::new(0),
    left: Mutex::default(),
    more: Condvar::new(),
    looks: OnceLock::new(),
});

/// The result of the ring's only request, if it has completed.
fn completed(ring: &mut IoUring) -> Option<i32> {
    let done = ring.completion().next();
    done.map(|done| done.result())
}

impl Singles {
    fn take(&self) -> Option<IoUring> {
        if let Some(ring) = self.idle.lock().pop() {
            return Some(ring);
        }
        let more = |made| (made < SINGLES).then_some(made + 1);
        self.made.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        let ring = IoUring::new(1).ok().filter(|ring| ring.params().is_feature_ext_arg());
        if ring.is_none() {
            self.made.fetch_sub(1, Ordering::SeqCst);
        }
        ring
    }

    fn gone(&self, ring: IoUring) {
        drop(ring);
        self.made.fetch_sub(1, Ordering::SeqCst);
    }

    /// Fills the first `len` bytes of `buf` from `offset`, within `bound` nanoseconds.
    pub fn read(
        &'static self,
        fd: BorrowedFd<'_>,
        offset: u64,
        mut buf: AlignedBuf,
        len: usize,
        bound: Nanos,
    ) -> Single {
        let Ok(short) = u32::try_from(len) else { return Single::Not(buf) };
        if self.left.lock().len() >= LEFT_MAX || !self.is_watched() {
            return Single::Not(buf);
        }
        let Some(mut ring) = self.take() else { return Single::Not(buf) };
        let entry =
            opcode::Read::new(Fd(fd.as_raw_fd()), buf[..len].as_mut_ptr(), short).offset(offset).build();
        // SAFETY: the kernel writes to `buf` until the completion is seen. Until then ring and buffer are kept: here, or in `left`, which
        // lives as long as the process. The descriptor is open until the kernel has taken the request, and the kernel keeps the file.
        if unsafe { ring.submission().push(&entry) }.is_err() {
            self.gone(ring);
            return Single::Not(buf);
        }
        let (started, bound) = (Instant::now(), Duration::from_nanos(bound));
        loop {
            let time = Timespec::from(bound.saturating_sub(started.elapsed()));
            let entered = ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time));
            if let Some(result) = completed(&mut ring) {
                let moved = usize::try_from(result).map_err(|_| Error::from_raw_os_error(-result));
                self.idle.lock().push(ring);
                return Single::Read(buf, moved);
            }
            let untaken = !ring.submission().is_empty();
            match entered.map_err(|error| error.raw_os_error()) {
                Ok(_) | Err(Some(libc::ETIME | libc::EINTR)) if started.elapsed() < bound => {}
                Err(Some(libc::EAGAIN | libc::EBUSY)) if started.elapsed() < bound && !untaken => {
                    std::thread::yield_now();
                }
                _ if untaken => {
                    self.gone(ring);
                    return Single::Not(buf);
                }
                _ => break,
            }
        }
        let left = Left { ring, _buf: buf, len, started, late: Some(hedge::leave()) };
        self.left.lock().push(left);
        self.more.notify_one();
        Single::Overdue
    }

    /// Whether the thread runs that looks at reads that are behind.
    fn is_watched(&'static self) -> bool {
        *self.looks.get_or_init(|| {
            let look = || {
                let _shown = crate::observe::thread("late reads");
                loop {
                    self.look();
                }
            };
            std::thread::Builder::new().name("terrace-late".into()).spawn(look).is_ok()
        })
    }

    fn look(&self) {
        let mut left = self.left.lock();
        if left.is_empty() {
            self.more.wait(&mut left);
        } else {
            self.more.wait_for(&mut left, LOOK);
        }
        let ended: Vec<(Left, i32)> = {
            let mut ended = Vec::new();
            let mut at = 0;
            while at < left.len() {
                match completed(&mut left[at].ring) {
                    Some(result) => ended.push((left.swap_remove(at), result)),
                    None => at += 1,
                }
            }
            ended
        };
        drop(left);
        for (mut read, result) in ended {
            let came = usize::try_from(result) == Ok(read.len);
            if let Some(late) = read.late.take() {
                late.answered(read.started.elapsed().as_nanos() as Nanos, came);
            }
            self.idle.lock().push(read.ring);
        }
    }
}

#[cfg(test)]
mod tests;
