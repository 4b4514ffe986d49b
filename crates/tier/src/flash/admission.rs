//! Admission to flash: what happens to an evicted clean page. A pure policy.
//!
//! Only evidence of reuse justifies a flash write: more than one use in memory, or an identifier that the ghost list still has
//! from an earlier eviction. Of every other page only the identifier is kept, so a scan leaves only identifiers. CloudJump III
//! §4.1.1; the filter is S3-FIFO's.
//!
//! While flash has free slots, everything is admitted: an empty slot has no better use, and a page that is not on flash costs a
//! read of the volume or the store. The paper's filter begins when flash is nearly full. A prefetched page that was never used is
//! not considered (`pool/room`).
//!
//! All of it is generic over the key (`flash/key`); "page" stands for whatever a cache holds.
//!
//! Other rules, for comparison: `filter`. Whole policies, admission and replacement together: `policy`. The engine's memory
//! queues, simulated on a sequence of uses: `memory`.

mod clock;
pub mod filter;
pub mod memory;
pub mod policy;
mod queues;
pub mod sketch;
mod slots;
mod window;

/// What to do with an evicted page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Write its image to flash and forget its identifier.
    Admit,
    /// Keep only its identifier, in the ghost list.
    Remember,
}

/// * `accesses` counts uses in memory since the page was read, the first included.
/// * `in_ghost`: the ghost list has its identifier.
/// * `has_room`: no page would have to be evicted for it soon.
pub fn choose(accesses: u8, in_ghost: bool, has_room: bool) -> Admission {
    if accesses > 1 || in_ghost || has_room { Admission::Admit } else { Admission::Remember }
}

#[cfg(test)]
mod policies;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reuse_is_admitted_unless_there_is_room() {
        for (accesses, in_ghost, expected) in [
            (0, false, Admission::Remember),
            (1, false, Admission::Remember),
            (2, false, Admission::Admit),
            (3, false, Admission::Admit),
            (0, true, Admission::Admit),
            (1, true, Admission::Admit),
        ] {
            assert_eq!(choose(accesses, in_ghost, false), expected, "{accesses} uses, in ghost: {in_ghost}");
            assert_eq!(choose(accesses, in_ghost, true), Admission::Admit);
        }
    }
}
