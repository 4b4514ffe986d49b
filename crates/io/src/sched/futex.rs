//! Linux's futexes: threads that sleep on a word of memory, each in the groups of a mask.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps as long as the word is `expected`, until one of the groups of `mask` is woken; at most `timeout`. It may end
/// sooner. True if the time was over.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>, mask: u32) -> bool {
    let until = timeout.and_then(after);
    // SAFETY: the word is only read, and it and the time outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            expected,
            until.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
            std::ptr::null::<u32>(),
            mask,
        )
    };
    result < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT)
}

/// Wakes at most `count` of those who sleep on the word in a group of `mask`, which is not 0. The word need not be there any more.
pub fn wake(word: &AtomicU32, mask: u32, count: u32) {
    // SAFETY: the word is not touched: its address names the sleepers.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG,
            count.min(i32::MAX as u32),
            std::ptr::null::<libc::timespec>(),
            std::ptr::null::<u32>(),
            mask,
        );
    }
}

/// The time of the clock that a wait ends by. None if that is beyond what the clock can say.
fn after(timeout: Duration) -> Option<libc::timespec> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `now` alone.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let then =
        Duration::new(now.tv_sec.try_into().ok()?, now.tv_nsec.try_into().ok()?).checked_add(timeout)?;
    Some(libc::timespec { tv_sec: then.as_secs().try_into().ok()?, tv_nsec: then.subsec_nanos().into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unbounded_timeouts_wait_for_ever() {
        assert!(after(Duration::MAX).is_none());
        assert!(after(Duration::from_secs(1)).is_some());
    }

    #[test]
    fn a_changed_futex_word_is_not_waited_for() {
        assert!(!wait(&AtomicU32::new(2), 1, None, 1));
        assert!(wait(&AtomicU32::new(1), 1, Some(Duration::from_millis(2)), 1));
    }
}
