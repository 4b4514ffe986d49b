//! Quotas and placement: how much of flash a table may use, and how fast it may read each tier. CloudJump III §2.3, §3.1.
//!
//! Flash groups pages in *classes*: a class is the pages of one table with one placement. A flash slot stores its class (a byte),
//! and a class its number of slots. Everything else in this file only decides:
//!
//! * `KEEP`: admitted without evidence of reuse, and evicted only for another kept page, for a page of its own table, or for one
//!   of a table below its minimum.
//! * `DEFAULT`: as admission decides.
//! * `NONE`: never admitted.
//! * A table's minimum: while it has no more than that, its pages are not evicted for another table's. Other tables borrow the
//!   unused part, and return it as the table's pages come.
//! * A table's cap: once it is reached, a page of the table replaces another one of its own. If a cap is lowered, the pages above
//!   it are removed at once.
//!
//! In the object buffer, blocks of a table above its cap are sunk before their slots are needed, and blocks up to its minimum
//! stay when others sink, as long as there are others.
//!
//! Limits of reads and of writes, one for each tier, are token buckets (`limits`).
//!
//! A table or index without rules has class 0: the cheapest case is the usual one.

use crate::address::BufferedBlock;
use crate::limits::write_policy::WritePolicy;
use crate::page::{BLOCK_PAGES, BlockId, PAGE_SIZE, SpaceId};
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_io::lock::{Mutex, Mutexes, RwLock, RwLocks};

mod limits;
pub use limits::{Bucket, Table};

const BLOCK_BYTES: u64 = BLOCK_PAGES as u64 * PAGE_SIZE as u64;

/// Where the pages of a table or an index are to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Placement {
    #[default]
    Default,
    Keep,
    None,
}

/// A table's shares, in bytes; a cap of 0 means no cap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    pub min: u64,
    pub max: u64,
}

/// Limits of a table's reads from one tier, or of its writes to it, a second; 0 means no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limit {
    pub requests: u64,
    pub bytes: u64,
}

/// What a table is allowed and guaranteed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableRule {
    pub flash: Share,
    /// Its share of the object buffer.
    pub buffer: Share,
    pub flash_limit: Limit,
    pub volume_limit: Limit,
    pub object_limit: Limit,
    /// The same for writes: fills of flash, images on the volume, objects that are put.
    pub flash_writes: Limit,
    pub volume_writes: Limit,
    pub object_writes: Limit,
    /// Its write policy on flash.
    pub write: WritePolicy,
}

impl TableRule {
    /// Contradictions in the rule, as text.
    pub fn faults(&self, placements: &[Placement]) -> Vec<String> {
        let mut faults = Vec::new();
        let Share { min, max } = self.flash;
        if max > 0 && min > max {
            faults.push(format!("FLASH_MIN = {min} is more than FLASH_MAX = {max}"));
        }
        let none = !placements.is_empty() && placements.iter().all(|p| *p == Placement::None);
        let Share { min: buffer_min, max: buffer_max } = self.buffer;
        if buffer_max > 0 && buffer_min > buffer_max {
            faults.push(format!("BUFFER_MIN = {buffer_min} is more than BUFFER_MAX = {buffer_max}"));
        }
        for (name, bytes) in [("FLASH_MIN", min), ("FLASH_MAX", max), ("BUFFER_MIN", buffer_min)] {
            if (1..PAGE_SIZE as u64).contains(&bytes) {
                let kept = name == "FLASH_MAX" && placements.contains(&Placement::Keep);
                let so = if kept { ", so PLACEMENT = KEEP keeps nothing" } else { "" };
                faults.push(format!("{name} = {bytes} is less than a page of {PAGE_SIZE}{so}"));
            }
        }
        if buffer_max > 0 && buffer_max < BLOCK_BYTES {
            faults.push(format!("BUFFER_MAX = {buffer_max} is less than a block of {BLOCK_BYTES}"));
        }
        for (name, limit) in [
            ("FLASH", self.flash_limit),
            ("VOLUME", self.volume_limit),
            ("OBJECT", self.object_limit),
            ("FLASH_WRITE", self.flash_writes),
            ("VOLUME_WRITE", self.volume_writes),
            ("OBJECT_WRITE", self.object_writes),
        ] {
            if (1..PAGE_SIZE as u64).contains(&limit.bytes) {
                let bytes = limit.bytes;
                faults
                    .push(format!("{name}_BANDWIDTH = {bytes} is less than a page of {PAGE_SIZE} a second"));
            }
        }
        if none && min > 0 {
            faults.push(format!("PLACEMENT = NONE keeps off flash what FLASH_MIN = {min} guarantees there"));
        }
        if none && max > 0 {
            faults.push(format!("PLACEMENT = NONE keeps off flash what FLASH_MAX = {max} allows there"));
        }
        if none && self.write == WritePolicy::Dual {
            faults.push("PLACEMENT = NONE keeps off flash what WRITE_POLICY = DUAL rewrites there".into());
        }
        faults
    }
}

/// Checks the sum of several tables' guaranteed minimums against the capacity: `option` names the guarantee, `setting` the
/// capacity.
pub fn too_much_guaranteed(
    minimums: &[(String, u64)],
    (option, setting, has): (&str, &str, u64),
) -> Option<String> {
    let sum = minimums.iter().fold(0u64, |sum, (_, min)| sum.saturating_add(*min));
    (sum > has).then(|| {
        if let [(name, _)] = minimums {
            return format!("{option} guarantees {sum} bytes to {name}, and {setting} = {has} has less");
        }
        let largest = minimums.iter().max_by_key(|(_, min)| *min).map_or("", |(name, _)| name);
        format!(
            "{option} of {} tables guarantee {sum} bytes together (most of them to {largest}), and {setting} = {has} has less",
            minimums.len()
        )
    })
}

/// The verdict of object buffer shares on the blocks that could sink.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct ByShare {
    /// Blocks of tables above their cap, those unchanged longest, as many as bring each down to it.
    pub over: Vec<BlockId>,
    /// All other blocks except those that a minimum protects, which are each table's most recently flushed blocks, up to its
    /// minimum. If `needed` slots cannot be had without them, as many protected blocks as needed are included, those unchanged
    /// longest.
    pub others: Vec<BufferedBlock>,
}

/// Sorts the blocks by the shares of their tables (`share_of`: the table's id and its share; None: it has none).
pub fn by_share(
    blocks: Vec<BufferedBlock>,
    share_of: impl Fn(SpaceId) -> Option<(u32, Share)>,
    needed: u32,
) -> ByShare {
    let mut tables: HashMap<u32, (Share, Vec<BufferedBlock>)> = HashMap::new();
    let mut sorted = ByShare::default();
    for block in blocks {
        match share_of(block.block.space).filter(|_| block.block.space.sinks()) {
            Some((table, share)) if share != Share::default() => {
                tables.entry(table).or_insert_with(|| (share, Vec::new())).1.push(block);
            }
            _ => sorted.others.push(block),
        }
    }
    let mut spared = Vec::new();
    let mut tables: Vec<_> = tables.into_iter().collect();
    tables.sort_unstable_by_key(|(id, _)| *id);
    for (_, (share, mut blocks)) in tables {
        let slots = |bytes: u64| bytes / PAGE_SIZE as u64;
        blocks.sort_unstable_by_key(|b| (b.last_change, b.block));
        let mut used: u64 = blocks.iter().map(|b| u64::from(b.slots)).sum();
        for block in blocks {
            let left = used - u64::from(block.slots);
            if share.max > 0 && used > slots(share.max) {
                sorted.over.push(block.block);
            } else if left < slots(share.min) {
                spared.push(block);
            } else {
                sorted.others.push(block);
            }
            used = left;
        }
    }
    let mut free: u64 =
        sorted.others.iter().filter(|b| b.block.space.sinks()).map(|b| u64::from(b.slots)).sum();
    spared.sort_unstable_by_key(|b: &BufferedBlock| (b.last_change, b.block));
    for block in spared {
        if free >= u64::from(needed) {
            break;
        }
        free += u64::from(block.slots);
        sorted.others.push(block);
    }
    sorted
}

/// The identity by which flash knows a page.
pub type Class = u8;

/// One class in its present state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holder {
    pub table: u32,
    pub keep: bool,
    /// The table's slots in all its classes, its guaranteed minimum, and its cap.
    pub used: u32,
    pub min: u32,
    pub max: u32,
}

impl Holder {
    pub fn is_full(&self) -> bool {
        self.max > 0 && self.used >= self.max
    }
}

/// Whether a page of `victim` may be evicted from flash for one of `comer`.
pub fn may_leave(victim: &Holder, comer: &Holder) -> bool {
    if victim.table == comer.table && comer.table != 0 {
        return comer.keep || !victim.keep;
    }
    // A guarantee takes precedence over `KEEP`; otherwise a table with `KEEP` could have all of flash.
    let is_kept = victim.keep && !comer.keep && comer.used >= comer.min;
    !comer.is_full() && !is_kept && (victim.min == 0 || victim.used > victim.min)
}

/// The decision on an evicted page before admission is consulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Admission decides.
    Ask,
    /// It is written, regardless of admission.
    Take,
    Refuse,
}

pub fn entry(placement: Placement) -> Entry {
    match placement {
        Placement::Default => Entry::Ask,
        Placement::Keep => Entry::Take,
        Placement::None => Entry::Refuse,
    }
}

/// The rules of one space.
#[derive(Clone, Debug)]
pub struct SpaceRule {
    pub table: Arc<Table>,
    pub placement: Placement,
}

/// The rules of all spaces that have any.
#[derive(Default)]
pub struct Rules {
    /// Held by a thread that sets new rules, from before it reads them.
    pub turn: Mutex<(), { Mutexes::Limits as u8 }>,
    any: AtomicBool,
    caps: AtomicBool,
    writes: AtomicBool,
    spaces: RwLock<HashMap<SpaceId, SpaceRule>, { RwLocks::Rules as u8 }>,
}

impl Rules {
    /// The rules of a space; None if it has no rules.
    pub fn of(&self, space: SpaceId) -> Option<SpaceRule> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.spaces.read().get(&space).cloned()
    }

    /// Sets the rules: for each table its id, its rule, and its spaces with their placement. Tokens that a table has spent stay
    /// spent.
    pub fn set(&self, tables: Vec<(u32, TableRule, Vec<(SpaceId, Placement)>)>) {
        let mut spaces = self.spaces.write();
        let before: HashMap<u32, Arc<Table>> =
            spaces.values().map(|rule| (rule.table.id, rule.table.clone())).collect();
        spaces.clear();
        for (id, rule, members) in tables {
            let table = before.get(&id).filter(|table| table.rule == rule).cloned();
            let table = table.unwrap_or_else(|| Arc::new(Table::new(id, rule)));
            spaces.extend(
                members
                    .into_iter()
                    .map(|(space, placement)| (space, SpaceRule { table: table.clone(), placement })),
            );
        }
        self.caps.store(spaces.values().any(|rule| rule.table.rule.buffer.max > 0), Ordering::Relaxed);
        self.writes.store(spaces.values().any(|rule| rule.table.limits_any_writes()), Ordering::Relaxed);
        self.any.store(!spaces.is_empty(), Ordering::Relaxed);
    }

    /// Whether a table has a cap in the object buffer.
    pub fn cap_the_buffer(&self) -> bool {
        self.caps.load(Ordering::Relaxed)
    }

    /// The space's table, if its writes to any tier are limited.
    pub fn limiting_writes(&self, space: SpaceId) -> Option<Arc<Table>> {
        if !self.writes.load(Ordering::Relaxed) {
            return None;
        }
        self.of(space).map(|rule| rule.table).filter(|table| table.limits_any_writes())
    }

    /// Whether writes of any table are limited.
    pub fn limit_writes(&self) -> bool {
        self.writes.load(Ordering::Relaxed)
    }

    /// All spaces that have rules.
    pub fn all(&self) -> Vec<(SpaceId, SpaceRule)> {
        self.spaces.read().iter().map(|(space, rule)| (*space, rule.clone())).collect()
    }
}

#[cfg(test)]
mod tests;
