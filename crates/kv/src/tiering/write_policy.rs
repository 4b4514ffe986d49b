//! Write-through and write-back: when changes are written, and whom to slow.
//!
//! Write-through writes at the end of each turn of the loop and answers when the write has landed. Write-back answers at once and writes when enough
//! bytes are dirty, or when the oldest change is old enough; what lands meanwhile is merged per key. Dirty bytes are bounded: between
//! half of the bound and the bound the delay of a writing command grows from nothing to [`DELAY_MAX_US`] with the cube of the fill, so that
//! the rate falls smoothly to what storage takes; at the bound writers wait for room.
//!
//! Pure functions of numbers. TierBase §4.1.

use terrace_io::clock::Nanos;

/// Which of the two; can be changed while the server runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    #[default]
    WriteThrough,
    WriteBack,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Dirty bytes at which a write begins. The more are dirty, the more changes of one key are merged.
    pub write_bytes: u64,
    /// Bytes of one write, about.
    pub cut_bytes: u64,
    /// How old a dirty value becomes at most before its write begins.
    pub age_ms: u64,
    /// Dirty bytes at which writers wait.
    pub dirty_bytes_max: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { write_bytes: 16 << 20, cut_bytes: 4 << 20, age_ms: 1000, dirty_bytes_max: 64 << 20 }
    }
}

/// What waits to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dirty {
    pub bytes: u64,
    /// Age of the oldest change.
    pub age_ms: u64,
    /// The server shuts down, or the mode was changed: everything is to be written.
    pub flush: bool,
}

/// The longest delay of one command, in microseconds.
pub const DELAY_MAX_US: u64 = 20_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    Go,
    /// The command is carried out, and its client is read again after this number of microseconds.
    Slow {
        delay_us: u64,
    },
    /// The command waits until a write has landed.
    Wait,
}

/// Whether a write begins, if one may.
pub fn is_due(mode: Mode, bounds: &Bounds, dirty: &Dirty) -> bool {
    match mode {
        Mode::WriteThrough => true,
        Mode::WriteBack => dirty.flush || dirty.bytes >= bounds.write_bytes || dirty.age_ms >= bounds.age_ms,
    }
}

/// What becomes of a writing command while `dirty_bytes` wait or are in flight.
pub fn admit(mode: Mode, bounds: &Bounds, dirty_bytes: u64) -> Admission {
    let half = bounds.dirty_bytes_max / 2;
    if mode == Mode::WriteThrough || dirty_bytes <= half {
        return Admission::Go;
    }
    if dirty_bytes >= bounds.dirty_bytes_max {
        return Admission::Wait;
    }
    let fill = (dirty_bytes - half) as f64 / (bounds.dirty_bytes_max - half).max(1) as f64;
    match (fill.powi(3) * DELAY_MAX_US as f64) as u64 {
        0 => Admission::Go,
        delay_us => Admission::Slow { delay_us },
    }
}

/// Replies that wait for a sync of the log, and what the last sync was like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gathering {
    /// Replies that wait for the next sync, and those that the last one released.
    pub waiting: usize,
    pub released: usize,
    /// How long the last sync took, and how long ago it ended.
    pub sync_ns: Nanos,
    pub since_ns: Nanos,
}

/// How a sync of the log is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncWay {
    /// By the event loop: another thread would take as long to be woken.
    Here,
    /// By the log's thread; clients that wait for no sync go on.
    Behind,
    /// Not before this time has passed: the clients that the last sync released are about to write again.
    After(Nanos),
}

/// A sync that takes no longer than this is made by the event loop.
pub const SYNC_HERE_NS_MAX: Nanos = 300_000;
/// A sync that takes at least this long waits for writers: the event loop's wait for sockets is counted in milliseconds.
const GATHERED_NS_MIN: Nanos = 2_000_000;
/// The share of the last sync's time, as a divisor, for which the next one waits for writers.
const GATHER_SHARE: Nanos = 4;

/// Whether to sync the log now that replies wait for it. Clients that answer at once are divided between two syncs that follow each other if the
/// second one begins as soon as the first one of them has written: each then has half as many. So the second one waits for as many as the first one had, for a
/// part of the time that it takes.
pub fn sync(gathering: &Gathering) -> SyncWay {
    let Gathering { waiting, released, sync_ns, since_ns } = *gathering;
    let gathers = sync_ns >= GATHERED_NS_MIN && waiting < released;
    if gathers && since_ns < sync_ns / GATHER_SHARE {
        return SyncWay::After(sync_ns / GATHER_SHARE - since_ns);
    }
    if sync_ns > 0 && sync_ns <= SYNC_HERE_NS_MAX { SyncWay::Here } else { SyncWay::Behind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_waits_for_the_writers_of_the_last_one_for_a_part_of_its_time() {
        let slow = Gathering { waiting: 3, released: 50, sync_ns: 2_000_000, since_ns: 100_000 };
        assert_eq!(sync(&slow), SyncWay::After(400_000));
        assert_eq!(sync(&Gathering { waiting: 50, ..slow }), SyncWay::Behind);
        assert_eq!(sync(&Gathering { since_ns: 500_000, ..slow }), SyncWay::Behind);
        let fast = Gathering { sync_ns: 100_000, ..slow };
        assert_eq!(sync(&fast), SyncWay::Here);
        assert_eq!(sync(&Gathering { since_ns: 10_000, ..fast }), SyncWay::Here);
        // Nothing is known yet.
        assert_eq!(sync(&Gathering { waiting: 1, ..Gathering::default() }), SyncWay::Behind);
    }

    #[test]
    fn write_back_writes_when_bytes_or_age_say_so() {
        let bounds = Bounds::default();
        let back = |dirty| is_due(Mode::WriteBack, &bounds, &dirty);
        assert!(!back(Dirty { bytes: 10, age_ms: 10, flush: false }));
        assert!(back(Dirty { bytes: bounds.write_bytes, ..Dirty::default() }));
        assert!(back(Dirty { age_ms: bounds.age_ms, ..Dirty::default() }));
        assert!(back(Dirty { flush: true, ..Dirty::default() }));
        assert!(is_due(Mode::WriteThrough, &bounds, &Dirty::default()));
    }

    #[test]
    fn back_pressure_grows_smoothly_and_ends_at_the_bound() {
        let bounds = Bounds::default();
        let delay =
            |percent: u64| match admit(Mode::WriteBack, &bounds, bounds.dirty_bytes_max / 100 * percent) {
                Admission::Go => 0,
                Admission::Slow { delay_us } => delay_us,
                Admission::Wait => u64::MAX,
            };
        let delays: Vec<u64> = (0..100).map(delay).collect();
        assert!(delays.is_sorted());
        assert_eq!(delays[50], 0);
        assert!(delays.windows(2).all(|pair| pair[1] - pair[0] <= DELAY_MAX_US / 10), "{delays:?}");
        assert_eq!(admit(Mode::WriteBack, &bounds, bounds.dirty_bytes_max), Admission::Wait);
        assert_eq!(admit(Mode::WriteThrough, &bounds, u64::MAX), Admission::Go);
    }
}
