//! Whole policies: which pages flash holds, from what happens to them. Pure: no clock, no device, and
//! what they draw by lot comes from a seed of their own, so the same calls give the same answers.
//!
//! The order of the calls is the engine's. Memory misses a page: [`Policy::read`]. A page leaves memory, clean:
//! [`Policy::left`]. A page was flushed: [`Policy::invalidate`].

use super::clock::Clocked;
use super::filter::{Memory, Rule};
use super::queues::{Lru, S3Fifo, TwoQueues};
use super::window::WTinyLfu;
use crate::flash::key::Key;
use crate::page::PageId;
use std::fmt;
use std::str::FromStr;

/// What became of a page that left memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Flash had it already.
    Kept,
    /// It was written to flash.
    Written,
    /// It was not worth a write.
    Declined,
    /// It was worth a write, and none was allowed.
    Dropped,
}

pub trait Policy<K = PageId> {
    /// Memory missed the page. True if flash has it.
    fn read(&mut self, id: K) -> bool;
    /// The page leaves memory after `accesses` uses there. Without `may_write`, flash takes no writes now.
    fn left(&mut self, id: K, accesses: u8, may_write: bool) -> Fate;
    /// The page has newer content than flash could have. True if flash had it.
    fn invalidate(&mut self, id: K) -> bool;
    /// Whether flash has the page; no use of it.
    fn has(&self, id: K) -> bool;
    fn pages(&self) -> usize;
    /// Memory that the policy has, in bytes.
    fn bytes(&self) -> usize;
}

/// A policy by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    Fifo,
    Lru,
    /// A rule of admission before a CLOCK with this number of bits a page, and the ghost list's length in percent of the pages on
    /// flash.
    Clock {
        rule: Rule,
        bits: u8,
        ghost_percent: u16,
    },
    /// As `Clock`, but the victim is the page of a sample that was requested least, by the sketch.
    Sampled {
        rule: Rule,
        ghost_percent: u16,
    },
    TwoQueues,
    /// With this number of bits a page.
    S3Fifo {
        bits: u8,
    },
    WTinyLfu,
}

/// What a name may be, for people.
pub const NAMES: &str = "fifo, lru, 2q, s3-fifo (two bits a page for its uses; s3-fifo/1: one), w-tiny-lfu, or a rule of admission (admit-all, \
                         one-hit-discard, ghost, tiny-lfu, ghost-tiny-lfu, ghost-whole) with what follows it: /1 or /2 or /3 bits of CLOCK (1 if none is named), /sampled eviction by \
                         the sketch (rules with tiny-lfu only), and @50 for a ghost list of 50 % of flash's pages";

impl Named {
    /// Those that are compared when none is named.
    pub fn usual() -> Vec<Named> {
        let clock = |rule, bits| Named::Clock { rule, bits, ghost_percent: 100 };
        let s3 = [1, 2].map(|bits| Named::S3Fifo { bits });
        let mut usual = vec![Named::Fifo, Named::Lru, Named::TwoQueues, s3[0], s3[1], Named::WTinyLfu];
        // Here the ghost list is as long as flash, if nothing else is said.
        for rule in Rule::NAMES.map(|(_, rule)| rule).into_iter().filter(|rule| *rule != Rule::GhostWhole) {
            usual.extend([clock(rule, 1), clock(rule, 2)]);
        }
        let sampled = |rule| Named::Sampled { rule, ghost_percent: 100 };
        usual.extend([sampled(Rule::TinyLfu), sampled(Rule::GhostTinyLfu)]);
        usual
    }

    /// The policy for a flash of `pages`, empty. What it draws by lot comes from `seed`.
    pub fn build<K: Key>(self, pages: usize, seed: u64) -> Box<dyn Policy<K>> {
        let memory = |percent: u16| Memory { ghost_percent: percent.into(), ..Memory::default() };
        match self {
            Named::Fifo => Box::new(Clocked::fifo(pages)),
            Named::Lru => Box::new(Lru::new(pages)),
            Named::Clock { rule, bits, ghost_percent } => {
                Box::new(Clocked::new(pages, rule, bits, memory(ghost_percent)))
            }
            Named::Sampled { rule, ghost_percent } => {
                Box::new(Clocked::sampled(pages, rule, memory(ghost_percent), seed))
            }
            Named::TwoQueues => Box::new(TwoQueues::new(pages)),
            Named::S3Fifo { bits } => Box::new(S3Fifo::new(pages, bits)),
            Named::WTinyLfu => Box::new(WTinyLfu::new(pages)),
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rule, how, ghost) = match *self {
            Named::Fifo => return f.write_str("fifo"),
            Named::Lru => return f.write_str("lru"),
            Named::TwoQueues => return f.write_str("2q"),
            Named::S3Fifo { bits: 2 } => return f.write_str("s3-fifo"),
            Named::S3Fifo { bits } => return write!(f, "s3-fifo/{bits}"),
            Named::WTinyLfu => return f.write_str("w-tiny-lfu"),
            Named::Clock { rule, bits, ghost_percent } => (rule, bits.to_string(), ghost_percent),
            Named::Sampled { rule, ghost_percent } => (rule, "sampled".into(), ghost_percent),
        };
        write!(f, "{}/{how}", rule.name())?;
        if ghost == 100 { Ok(()) } else { write!(f, "@{ghost}") }
    }
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        let whole = match text {
            "fifo" => Some(Named::Fifo),
            "lru" => Some(Named::Lru),
            "2q" => Some(Named::TwoQueues),
            "s3-fifo" | "s3-fifo/2" => Some(Named::S3Fifo { bits: 2 }),
            "s3-fifo/1" => Some(Named::S3Fifo { bits: 1 }),
            "w-tiny-lfu" => Some(Named::WTinyLfu),
            _ => None,
        };
        if let Some(whole) = whole {
            return Ok(whole);
        }
        let wrong = || format!("there is no policy `{text}`: {NAMES}");
        let (rest, percent) = text.split_once('@').unwrap_or((text, "100"));
        let ghost_percent = percent.parse().ok().filter(|p| *p <= 1000).ok_or_else(wrong)?;
        let (name, how) = rest.split_once('/').unwrap_or((rest, "1"));
        let rule = Rule::named(name).ok_or_else(wrong)?;
        match how {
            "1" | "2" | "3" => {
                Ok(Named::Clock { rule, bits: how.parse().map_err(|_| wrong())?, ghost_percent })
            }
            "sampled" if matches!(rule, Rule::TinyLfu | Rule::GhostTinyLfu) => {
                Ok(Named::Sampled { rule, ghost_percent })
            }
            _ => Err(wrong()),
        }
    }
}
