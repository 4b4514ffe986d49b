//! Reads that their reader may leave behind: what a device that hangs would hold up is read elsewhere.
//!
//! A reader that has another copy of the bytes says so with [`bounded`]: a read of a local file within it that the device has not answered
//! after the bound fails with [`DiskError::Overdue`](crate::disk::DiskError). So no call between the two carries the bound. The request goes on
//! in memory of its own; its end is told to the reader's [`LeftRead`].
//!
//! A file that cannot leave a read behind answers when its device does. A real disk can if batches go through `io_uring`
//! (`real/ring/single.rs`), an emulated one if the disk below it can.
//!
//! Writes are never left behind: what is on the device would not be known.

use crate::clock::Nanos;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

thread_local! {
    /// How long a read of this thread may take, in nanoseconds.
    static BOUND: Cell<Option<Nanos>> = const { Cell::new(None) };
    /// The first read that was left behind within the innermost [`bounded`].
    static LEFT: RefCell<Option<LeftRead>> = const { RefCell::new(None) };
}

/// Told when the device has answered: the read's latency in nanoseconds, and whether the bytes came.
type Answered = Box<dyn FnOnce(Nanos, bool) + Send>;

#[derive(Default)]
struct Answer {
    came: Option<(Nanos, bool)>,
    tell: Option<Answered>,
}

/// A read that was left behind, as its reader sees it.
pub struct LeftRead(Arc<Mutex<Answer>>);

impl LeftRead {
    /// Calls `tell` when the device has answered; at once if it has.
    pub fn on_answer(self, tell: impl FnOnce(Nanos, bool) + Send + 'static) {
        let mut answer = self.0.lock();
        match answer.came {
            Some((latency, came)) => {
                drop(answer);
                tell(latency, came);
            }
            None => answer.tell = Some(Box::new(tell)),
        }
    }
}

/// A read that was left behind, as the device sees it.
pub struct LateRead(Arc<Mutex<Answer>>);

impl LateRead {
    /// The device has answered, `latency` after it was asked.
    pub fn answered(self, latency: Nanos, came: bool) {
        let mut answer = self.0.lock();
        answer.came = Some((latency, came));
        let tell = answer.tell.take();
        drop(answer);
        if let Some(tell) = tell {
            tell(latency, came);
        }
    }
}

/// Runs `work`. Each read of a local file in it takes `bound` nanoseconds at most, if one is given and the file can. Returns the first read that
/// was left behind, too.
pub fn bounded<T>(bound: Option<Nanos>, work: impl FnOnce() -> T) -> (T, Option<LeftRead>) {
    if bound.is_none() {
        return (work(), None);
    }
    let _outer = Restore(BOUND.replace(bound), LEFT.take());
    let done = work();
    (done, LEFT.take())
}

/// Runs `work` of another thread, or as if it was: without the bound that this thread is under.
pub fn shield<T>(work: impl FnOnce() -> T) -> T {
    let _outer = Restore(BOUND.take(), LEFT.take());
    work()
}

/// Puts back what an outer scope had, also after a panic.
struct Restore(Option<Nanos>, Option<LeftRead>);

impl Drop for Restore {
    fn drop(&mut self) {
        BOUND.set(self.0);
        LEFT.set(self.1.take());
    }
}

/// How long a read that this thread makes now may take. For implementations of files.
pub fn bound() -> Option<Nanos> {
    BOUND.get()
}

/// Whether this thread has left a read behind since its innermost [`bounded`] began.
pub fn has_left() -> bool {
    LEFT.with_borrow(Option::is_some)
}

/// This thread leaves a read behind. For implementations of files, which then return an error.
pub fn leave() -> LateRead {
    let answer = Arc::new(Mutex::new(Answer::default()));
    LEFT.with_borrow_mut(|left| _ = left.get_or_insert_with(|| LeftRead(answer.clone())));
    LateRead(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_first_read_left_behind_is_told_of_its_answer_before_or_after_it_is_asked_for() {
        for early in [true, false] {
            let (tell, told) = channel();
            let ((first, second), left) = bounded(Some(5), || (leave(), leave()));
            let left = left.unwrap();
            second.answered(2, true);
            if early {
                first.answered(7, false);
                left.on_answer(move |latency, came| tell.send((latency, came)).unwrap());
            } else {
                left.on_answer(move |latency, came| tell.send((latency, came)).unwrap());
                assert!(told.try_recv().is_err());
                first.answered(7, false);
            }
            assert_eq!(told.recv(), Ok((7, false)));
        }
    }

    #[test]
    fn bounds_nest_and_end_with_their_work() {
        assert_eq!(bound(), None);
        let (inner, left) = bounded(Some(9), || {
            let (seen, inner) = bounded(Some(3), || (bound(), leave()).0);
            assert_eq!((seen, bound()), (Some(3), Some(9)));
            drop(leave());
            assert_eq!(shield(|| (bound(), has_left())), (None, false));
            assert!(has_left());
            inner.is_some()
        });
        assert!(inner && left.is_some() && bound().is_none());
        let (seen, left) = bounded(None, bound);
        assert!(seen.is_none() && left.is_none());
    }
}
