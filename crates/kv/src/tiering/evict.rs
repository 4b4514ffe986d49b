//! Which clean value to evict: LRU, LFU and S3-FIFO behind one interface.
//!
//! A policy keeps 32 bits with each entry ([`Mark`]) and looks at a few entries drawn at random ([`Policy::victim`]): no list has to be kept,
//! and an entry costs no more than its mark. What is dirty or in use is not offered by the caller.
//!
//! Time is a count of insertions and evictions, not a clock: what matters is the order, and an idle server forgets nothing.
//!
//! Pure. Compared on traces in `tests`; the numbers are in docs/benchmarks.md when they are measured on a server.

mod lfu;
mod lru;
mod s3_fifo;

pub use lfu::Lfu;
pub use lru::Lru;
pub use s3_fifo::S3Fifo;

/// What a policy knows of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark(pub u32);

/// An entry that may be evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// A hash of its key, for policies that remember what was evicted.
    pub hash: u64,
    pub mark: Mark,
}

/// What becomes of the candidates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The candidate with this index goes.
    Evict(usize),
    /// None of them goes: their marks are these now. Draw again.
    Spare(Vec<Mark>),
}

pub trait Policy: Send {
    fn name(&self) -> &'static str;
    /// How often an entry was used, if the policy counts it: `OBJECT FREQ`.
    fn frequency(&self, _: Mark) -> Option<u32> {
        None
    }
    /// The mark of an entry that comes into memory.
    fn admitted(&mut self, hash: u64) -> Mark;
    /// The mark of an entry that is used; `random` is uniform.
    fn used(&mut self, mark: Mark, random: u64) -> Mark;
    /// Chooses among candidates, of which there is at least one.
    fn victim(&mut self, candidates: &[Candidate]) -> Verdict;
    /// An entry left memory by eviction.
    fn evicted(&mut self, candidate: Candidate);
    /// An entry left memory because it was deleted.
    fn deleted(&mut self, mark: Mark);
}

/// The policy of a name, for a cache of about `entries` entries.
pub fn by_name(name: &str, entries: usize) -> Option<Box<dyn Policy>> {
    Some(match name {
        "lru" => Box::new(Lru::default()),
        "lfu" => Box::new(Lfu::default()),
        "s3-fifo" => Box::new(S3Fifo::new(entries)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
