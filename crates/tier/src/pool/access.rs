//! Who uses a page, and what that says of it.

/// Whether a scan goes on at the pages behind one, or at those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Way {
    #[default]
    Up,
    Down,
}

/// How a use of a page counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Normal,
    /// As normal, in a range of keys of which so many pages were read, one after the other: no more than that are fetched ahead.
    Range(u8),
    /// The same, from key to key down.
    RangeDown(u8),
    /// Part of a scan: does not heat the page.
    Scan,
    /// The same, from key to key down.
    ScanDown,
    /// An estimate of a range, which comes again with each such statement: heats the page, but is counted only where it has to be read from below.
    Estimate,
    /// Check, merge, statistics: does not heat the page.
    Internal,
    /// As internal, to open a table or to sample it: the page may be of no use after that, and if it had to be read from below it leaves before all
    /// others, unless it is used meanwhile.
    Once,
}

impl Access {
    pub(super) fn heats(self) -> bool {
        matches!(self, Access::Normal | Access::Range(_) | Access::RangeDown(_) | Access::Estimate)
    }

    /// Whether it is counted where the page is in memory.
    pub(super) fn counts(self) -> bool {
        !matches!(self, Access::Estimate | Access::Internal | Access::Once)
    }

    /// Whether it is counted where the page is read from below.
    pub(super) fn counts_below(self) -> bool {
        !matches!(self, Access::Internal | Access::Once)
    }

    /// Pages that may come along with one that is missed.
    pub(super) fn ahead_max(self) -> usize {
        match self {
            Access::Scan | Access::ScanDown => usize::MAX,
            Access::Range(read) | Access::RangeDown(read) => usize::from(read),
            Access::Normal | Access::Estimate | Access::Internal | Access::Once => 0,
        }
    }

    /// Where those pages are.
    pub(super) fn way(self) -> Way {
        if matches!(self, Access::RangeDown(_) | Access::ScanDown) { Way::Down } else { Way::Up }
    }
}
