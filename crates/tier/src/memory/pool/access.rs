//! The kinds of page accesses, and how each counts for replacement and statistics.

/// Whether a scan continues at the pages after one (up), or at those before it (down).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ScanDirection {
    #[default]
    Up,
    Down,
}

/// How a use of a page counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Normal,
    /// As `Normal`, in a range of keys of which this many pages were read, one after the other: at most that number is read
    /// ahead.
    Range(u8),
    /// The same, in descending key order.
    RangeDown(u8),
    /// Part of a scan: does not heat the page.
    Scan,
    /// The same, in descending key order.
    ScanDown,
    /// An optimizer's estimate of a range, repeated with each such statement: counts as a use of the page, but as a read only if
    /// the page has to be read from below.
    Estimate,
    /// Check, merge, statistics: does not heat the page.
    Internal,
    /// As `Internal`, to open or sample a table: the page may not be needed again. If it had to be read from below, it is evicted
    /// before all others, unless it is used meanwhile.
    Once,
}

impl Access {
    pub(super) fn heats(self) -> bool {
        matches!(self, Access::Normal | Access::Range(_) | Access::RangeDown(_) | Access::Estimate)
    }

    /// Whether a read is counted if the page is in memory.
    pub(super) fn counts(self) -> bool {
        !matches!(self, Access::Estimate | Access::Internal | Access::Once)
    }

    /// Whether a read is counted if the page is read from below.
    pub(super) fn counts_below(self) -> bool {
        !matches!(self, Access::Internal | Access::Once)
    }

    /// Maximum number of pages that may be read along with a missed one.
    pub(super) fn ahead_max(self) -> usize {
        match self {
            Access::Scan | Access::ScanDown => usize::MAX,
            Access::Range(read) | Access::RangeDown(read) => usize::from(read),
            Access::Normal | Access::Estimate | Access::Internal | Access::Once => 0,
        }
    }

    /// The direction in which those pages are.
    pub(super) fn way(self) -> ScanDirection {
        if matches!(self, Access::RangeDown(_) | Access::ScanDown) {
            ScanDirection::Down
        } else {
            ScanDirection::Up
        }
    }
}
