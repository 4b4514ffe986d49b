//! Sorting entries by key: in memory as far as its budget goes, then in sorted runs on the volume that are merged.
//!
//! The memory is lent by the pool, a step at a time as entries come. What the pool does not lend the sort does without: its runs
//! are shorter and more. Only the least that it works with it takes in any case. Merged runs give their room on the volume to
//! what is written next, so at most about twice the entries are stored.
//!
//! An entry in memory and in a run: `key length u16 · unique length u16 (all ones: none) · value length u16 · key ·
//! value`. Keys are distinct, because each ends in its row's key.

use crate::error::Result;
use crate::storage::sort_file::{self, Run, Spill, Writer};
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_tier::memory::pool::{Loan, Pool, Purpose};

const HEAD: usize = 6;
const NOT_UNIQUE: u16 = u16::MAX;
/// The least number of bytes that it works with.
const LEAST: usize = 4 * sort_file::CHUNK;
/// What a run that is merged takes.
const WAY: usize = sort_file::CARRIED + sort_file::CHUNK;

/// An entry in memory: the key's first bytes, which mostly decide, and where it is.
type Ref = [u64; 2];

fn len_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}
fn key_of(entry: &[u8]) -> &[u8] {
    &entry[HEAD..HEAD + len_at(entry, 0)]
}
fn len_of(head: &[u8]) -> usize {
    HEAD + len_at(head, 0) + len_at(head, 4)
}
/// The first bytes as a number that compares as they do.
fn head_of(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let len = key.len().min(8);
    head[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(head)
}

/// Memory with entries: from its start they themselves, one after the other, towards its end their references. In one mapping, for
/// what an allocator is given back of a list that grew it keeps for a while, beyond what was lent.
#[derive(Default)]
struct Filled {
    /// Made with the first entry, as long as the budget, and real as far as it was filled.
    buf: Option<AlignedBuf>,
    used: usize,
    entries: usize,
}

impl Filled {
    /// Bytes with one more entry, of `bytes` bytes of key and value.
    fn with(&self, len: usize) -> usize {
        self.used + HEAD + len + (self.entries + 1) * size_of::<Ref>()
    }

    /// One more entry, of these parts. It fits: [`Filled::with`] it is no more than `budget`.
    fn push(&mut self, budget: usize, head: u64, parts: [&[u8]; 3]) {
        let buf = self.buf.get_or_insert_with(|| AlignedBuf::zeroed(budget));
        self.entries += 1;
        let at = buf.len() - self.entries * size_of::<Ref>();
        let (bytes, refs) = buf.split_words_mut(at);
        (refs[0], refs[1]) = (head, self.used as u64);
        for part in parts {
            bytes[self.used..self.used + part.len()].copy_from_slice(part);
            self.used += part.len();
        }
    }

    fn sort(&mut self) {
        let Some(buf) = &mut self.buf else { return };
        let (bytes, refs) = buf.split_words_mut(buf.len() - self.entries * size_of::<Ref>());
        refs.as_chunks_mut::<2>().0.sort_unstable_by(|a: &Ref, b: &Ref| {
            a[0].cmp(&b[0]).then_with(|| key_of(&bytes[a[1] as usize..]).cmp(key_of(&bytes[b[1] as usize..])))
        });
    }

    /// The entry at a place of their order.
    fn entry(&self, index: usize) -> &[u8] {
        let Some(buf) = &self.buf else { return &[] };
        let (bytes, refs) = buf.split_words(buf.len() - self.entries * size_of::<Ref>());
        let entry = &bytes[refs[2 * index + 1] as usize..];
        &entry[..len_of(entry)]
    }

    fn clear(&mut self) {
        (self.used, self.entries) = (0, 0);
    }
}

pub struct Sort {
    spill: Arc<Spill>,
    budget: usize,
    loan: Loan,
    /// Bytes that it borrows at a time.
    step: usize,
    filled: Filled,
    runs: Vec<Arc<Run>>,
    entries: u64,
}

impl Sort {
    /// `budget`: the most bytes of memory that it borrows from the pool, about.
    pub fn new(spill: Arc<Spill>, budget: usize, pool: &Arc<Pool>) -> Sort {
        Sort {
            spill,
            budget: budget.clamp(LEAST, 1 << 30),
            loan: Loan::new(pool, Purpose::Sorts),
            step: pool.loan_step(),
            filled: Filled::default(),
            runs: Vec::new(),
            entries: 0,
        }
    }

    /// Borrows the least that it works with before it has anything to keep there. False: the pool has lent all it can.
    #[must_use]
    pub fn borrow_least(&mut self) -> bool {
        self.loan.bytes() >= LEAST || self.loan.take(LEAST)
    }

    /// As `borrow_least`, as far as the pool lends to those that can do with less.
    #[must_use]
    pub fn ask_least(&mut self) -> bool {
        self.loan.bytes() >= LEAST || self.loan.ask(LEAST)
    }

    /// Whether an entry with `bytes` bytes of key and value would be too much for its memory. Borrows some if possible.
    pub fn is_full(&mut self, len: usize) -> bool {
        let needed = self.filled.with(len);
        self.filled.entries > 0 && needed > self.loan.bytes().max(LEAST) && !self.borrow(needed)
    }

    /// Borrows so much that it has `needed` bytes, if that is within its budget and the pool lends it.
    fn borrow(&mut self, needed: usize) -> bool {
        let has = self.loan.bytes();
        needed <= self.budget && self.loan.ask((needed - has).max(self.step).min(self.budget - has))
    }

    pub fn entries(&self) -> u64 {
        self.entries
    }
    /// Runs written so far.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// `unique`: how much of the key is not to come twice. Lengths fit a page.
    pub fn push(&mut self, key: &[u8], unique: Option<usize>, value: &[u8]) -> Result<()> {
        if self.is_full(key.len() + value.len()) {
            self.write_run()?;
        }
        if self.loan.bytes() == 0 {
            // If the pool has lent all it can: so little it takes beside it.
            let _ = self.borrow_least();
        }
        let unique = unique.map_or(NOT_UNIQUE, |len| len as u16);
        let lens = [key.len() as u16, unique, value.len() as u16].map(u16::to_le_bytes);
        self.filled.push(self.budget, head_of(key), [lens.as_flattened(), key, value]);
        self.entries += 1;
        Ok(())
    }

    fn write_run(&mut self) -> Result<()> {
        self.filled.sort();
        let mut writer = Writer::new(self.spill.clone());
        for index in 0..self.filled.entries {
            writer.write(self.filled.entry(index))?;
        }
        self.runs.push(Arc::new(writer.finish()?));
        self.filled.clear();
        Ok(())
    }

    /// Runs that are merged at a time.
    fn ways(&self) -> usize {
        (self.loan.bytes() / WAY).max(LEAST / WAY)
    }

    /// `go_on` is asked from time to time; what it fails with ends the sort.
    pub fn finish(mut self, go_on: &mut dyn FnMut() -> Result<()>) -> Result<Sorted> {
        if self.runs.is_empty() {
            self.filled.sort();
            let source = Source::Memory { filled: self.filled, next: 0 };
            return Ok(Sorted { source, _loan: self.loan });
        }
        if self.filled.entries > 0 {
            self.write_run()?;
        }
        self.filled = Filled::default();
        // All at once, if that is to be had.
        let needed = (self.runs.len() * WAY).min(self.budget);
        while self.loan.bytes() < needed && self.borrow(self.loan.bytes() + 1) {}
        self.loan.keep(needed.max(LEAST));
        while self.runs.len() > self.ways() {
            let some: Vec<Arc<Run>> = self.runs.drain(..self.ways()).collect();
            let mut merge = Merge::new(&some)?;
            let mut writer = Writer::new(self.spill.clone());
            let mut count = 0u64;
            while merge.advance()? {
                writer.write(merge.entry())?;
                count += 1;
                if count.is_multiple_of(1024) {
                    go_on()?;
                }
            }
            self.runs.push(Arc::new(writer.finish()?));
        }
        let merge = Merge::new(&self.runs)?;
        Ok(Sorted { source: Source::Merge { merge, runs: self.runs }, _loan: self.loan })
    }
}

enum Source {
    Memory { filled: Filled, next: usize },
    Merge { merge: Merge, runs: Vec<Arc<Run>> },
}

/// The entries in the order of their keys.
pub struct Sorted {
    source: Source,
    /// What they take in memory.
    _loan: Loan,
}

impl Sorted {
    /// Goes to the next entry, at first to the first. False: there is none.
    pub fn advance(&mut self) -> Result<bool> {
        match &mut self.source {
            Source::Memory { filled, next } => {
                *next = (*next + 1).min(filled.entries + 1);
                Ok(*next <= filled.entries)
            }
            Source::Merge { merge, .. } => merge.advance(),
        }
    }
    /// Goes back before the first entry.
    pub fn rewind(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Memory { next, .. } => *next = 0,
            Source::Merge { merge, runs } => {
                // First the memory of what was read is given back.
                *merge = Merge::default();
                *merge = Merge::new(runs)?;
            }
        }
        Ok(())
    }
    fn entry(&self) -> &[u8] {
        match &self.source {
            Source::Memory { filled, next } => filled.entry(*next - 1),
            Source::Merge { merge, .. } => merge.entry(),
        }
    }
    pub fn key(&self) -> &[u8] {
        key_of(self.entry())
    }
    /// The part of the key that is not to come twice.
    pub fn unique(&self) -> Option<&[u8]> {
        let entry = self.entry();
        match len_at(entry, 2) as u16 {
            NOT_UNIQUE => None,
            len => key_of(entry).get(..usize::from(len)),
        }
    }
    pub fn value(&self) -> &[u8] {
        let entry = self.entry();
        &entry[HEAD + len_at(entry, 0)..]
    }
}

/// A run under way.
struct MergeInput {
    reader: sort_file::Reader,
    /// Bytes of the entry at hand.
    len: usize,
}

impl MergeInput {
    fn entry(&self) -> &[u8] {
        self.reader.peeked(self.len)
    }
    fn key(&self) -> &[u8] {
        key_of(self.entry())
    }
    /// Goes to the next entry. False: there is none.
    fn advance(&mut self) -> Result<bool> {
        self.reader.take(self.len);
        self.len = 0;
        if self.reader.is_at_end() {
            return Ok(false);
        }
        let len = len_of(self.reader.peek(HEAD)?);
        self.reader.peek(len)?;
        self.len = len;
        Ok(true)
    }
}

/// A heap of runs, the one with the least key on top.
#[derive(Default)]
struct Merge {
    ways: Vec<MergeInput>,
    /// The top's entry was handed out.
    begun: bool,
}

impl Merge {
    fn new(runs: &[Arc<Run>]) -> Result<Merge> {
        let mut ways = Vec::with_capacity(runs.len());
        for run in runs {
            let mut way = MergeInput { reader: sort_file::Reader::new(run.clone()), len: 0 };
            if way.advance()? {
                ways.push(way);
            }
        }
        ways.sort_by(|a, b| a.key().cmp(b.key()));
        Ok(Merge { ways, begun: false })
    }

    fn advance(&mut self) -> Result<bool> {
        if self.begun && !self.ways.is_empty() {
            if !self.ways[0].advance()? {
                self.ways.swap_remove(0);
            }
            self.sink_top();
        }
        self.begun = true;
        Ok(!self.ways.is_empty())
    }
    fn sink_top(&mut self) {
        let ways = &mut self.ways;
        let mut at = 0;
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < ways.len() && ways[child].key() < ways[least].key() {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            ways.swap(at, least);
            at = least;
        }
    }
    fn entry(&self) -> &[u8] {
        self.ways[0].entry()
    }
}

#[cfg(test)]
mod tests;
