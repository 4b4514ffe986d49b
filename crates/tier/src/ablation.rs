//! Ablation switches: mechanisms that can be turned off, to measure what each is worth. Without them everything is correct, only
//! slower or more expensive.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// Reads sunk pages from the freed slots that still have them.
    CleanCopies,
    /// Read-ahead of scans.
    Prefetch,
    /// Misses that share a request to the store.
    SharedMisses,
    /// The flash cache does not admit pages that the volume has while misses mostly wait for the store.
    FlashForTheStore,
    /// The flash cache is usable again after a restart.
    WarmFlash,
    /// Blocks that are written repeatedly sink later.
    Deferral,
    /// Writers slow down as slots run low.
    Pacing,
    /// Patch objects: only the changed pages of a block are uploaded.
    Patches,
    /// A free row lock goes to the waiting transaction for which most others wait.
    LockOrder,
    /// Bulk builds leave slots to small writers when they run low.
    BulkThrottle,
    /// Single-flight loads: a reader of a page that another thread is fetching waits for it. Without: it reads the page too, and
    /// then waits.
    SingleFlight,
    /// A page that flash has is not written there again when it is evicted.
    KeptCopies,
    /// Pages that a scan reads together are read from flash, or from the volume, in one batch.
    VectoredReads,
}

use Mechanism::*;

impl Mechanism {
    pub const NAMES: [(&str, Mechanism); 13] = [
        ("clean-copies", CleanCopies),
        ("prefetch", Prefetch),
        ("shared-misses", SharedMisses),
        ("flash-for-the-store", FlashForTheStore),
        ("warm-flash", WarmFlash),
        ("deferral", Deferral),
        ("pacing", Pacing),
        ("patches", Patches),
        ("lock-order", LockOrder),
        ("give-way", BulkThrottle),
        ("single-flight", SingleFlight),
        ("kept-copies", KeptCopies),
        ("vectored-reads", VectoredReads),
    ];
}

/// The mechanisms that are turned off; by default none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Without(u16);

impl Without {
    /// Parses names separated by commas. The error is the first unknown name.
    pub fn named(text: &str) -> Result<Without, String> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.into_iter().try_fold(Without::default(), |without, name| {
            let known = Mechanism::NAMES.iter().find(|(known, _)| *known == name);
            known.map(|(_, one)| without.and(*one)).ok_or_else(|| name.to_string())
        })
    }
    pub fn and(self, one: Mechanism) -> Without {
        Without(self.0 | 1 << one as u8)
    }
    pub fn has(self, one: Mechanism) -> bool {
        self.0 >> one as u8 & 1 == 1
    }
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            Mechanism::NAMES.iter().filter(|(_, one)| self.has(*one)).map(|(name, _)| *name).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_shown() {
        assert_eq!(Without::named(""), Ok(Without::default()));
        let two = Without::named(" pacing, prefetch,").unwrap();
        assert!(two.has(Pacing) && two.has(Prefetch) && !two.has(CleanCopies));
        assert_eq!(two.to_string(), "prefetch,pacing");
        assert_eq!(Without::named("pacing,speed"), Err("speed".into()));
        let all = Mechanism::NAMES.map(|(name, _)| name).join(",");
        assert_eq!(Without::named(&all).unwrap().to_string(), all);
    }
}
