//! Write-through and write-back: when changes are written, and whom to slow.
//!
//! Write-through writes at the end of each turn of the loop and answers when the write has landed. Write-back answers at once and writes when enough
//! bytes are dirty, or when the oldest change is old enough; what lands meanwhile is merged per key. Dirty bytes are bounded: between
//! half of the bound and the bound the delay of a writing command grows from nothing to [`DELAY_MAX_US`] with the cube of the fill, so that
//! the rate falls smoothly to what storage takes; at the bound writers wait for room.
//!
//! Pure functions of numbers. TierBase §4.1.

/// Which of the two; can be changed while the server runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    #[default]
    WriteThrough,
    WriteBack,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Dirty bytes at which a write begins.
    pub write_bytes: u64,
    /// How old a dirty value becomes at most before its write begins.
    pub age_ms: u64,
    /// Dirty bytes at which writers wait.
    pub dirty_bytes_max: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { write_bytes: 4 << 20, age_ms: 500, dirty_bytes_max: 64 << 20 }
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

#[cfg(test)]
mod tests {
    use super::*;

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
