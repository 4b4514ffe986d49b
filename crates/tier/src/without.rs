//! Mechanisms that can be left out, to see what each is worth. Nothing is wrong without them, only slower or dearer.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// Reads of what sank from the free slots that it left.
    CleanCopies,
    /// Reads ahead of scans.
    Prefetch,
    /// Misses that share a request to the store.
    SharedMisses,
    /// Flash leaves to the volume what the volume has.
    FlashForTheStore,
    /// Flash is usable again after a restart.
    WarmFlash,
    /// Blocks that are written again and again sink later.
    Deferral,
    /// Writers slow down as slots run low.
    Pacing,
    /// Objects of a block's changed pages alone.
    Patches,
    /// Of those that wait for a row the one for whom most others wait has it first.
    LockOrder,
    /// Builds in bulk leave slots to small writers as they run low.
    GiveWay,
    /// Who wants a page that another is fetching waits for him. Without: reads it, too, and then waits.
    SingleFlight,
    /// A page that flash has is not written there again when it leaves memory.
    KeptCopies,
    /// Pages that a scan reads together come from flash, or from the volume, in one batch.
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
        ("give-way", GiveWay),
        ("single-flight", SingleFlight),
        ("kept-copies", KeptCopies),
        ("vectored-reads", VectoredReads),
    ];
}

/// What is left out; by default nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Without(u16);

impl Without {
    /// From names by comma. The error is the name that there is not.
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
