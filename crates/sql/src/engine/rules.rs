//! Rules of tables at the border: quotas of flash, limits of reads and writes, placement.

use crate::bytes::TerraceBytes;
use crate::engine::TerraceEngine;
use crate::error::{Code, Fault, Result, guard};
use std::ffi::c_void;
use terrace_engine::Instead;
use terrace_engine::table::catalog::Codec;
use terrace_engine::table::catalog::rules::{Limit, Placement, Share, TableRule, TableRules, WritePolicy};

/// Rules of a table. Numbers that are 0 say nothing.
#[repr(C)]
pub struct TerraceRules {
    pub size: usize,
    /// Bytes of flash that are reserved for the table, and that it may have at most.
    pub flash_min: u64,
    pub flash_max: u64,
    /// The same of the object buffer.
    pub buffer_min: u64,
    pub buffer_max: u64,
    /// Reads from each tier in a second, and bytes.
    pub flash_iops: u64,
    pub flash_bandwidth: u64,
    pub volume_iops: u64,
    pub volume_bandwidth: u64,
    pub object_iops: u64,
    pub object_bandwidth: u64,
    /// The same of writes.
    pub flash_write_iops: u64,
    pub flash_write_bandwidth: u64,
    pub volume_write_iops: u64,
    pub volume_write_bandwidth: u64,
    pub object_write_iops: u64,
    pub object_write_bandwidth: u64,
    /// The rule of the table's rows, and of its indexes that have none of their own: 0 default, 1 keep, 2 none.
    pub placement: u8,
    /// What its flushes do to flash: 0 as the instance's, 1 auto, 2 clean, 3 dual.
    pub write_policy: u8,
    /// Indexes that have one of their own.
    pub indexes: *const TerracePlacement,
    pub index_count: usize,
}

/// Placement of one index.
#[repr(C)]
pub struct TerracePlacement {
    pub size: usize,
    pub index: TerraceBytes,
    pub placement: u8,
}

/// What holds for one index of a table that has rules, or a compression of its own. The texts are borrowed for the callback.
#[repr(C)]
pub struct TerraceRuleLine {
    pub size: usize,
    pub table: TerraceBytes,
    pub index: TerraceBytes,
    pub placement: u8,
    /// The table's, as `terrace_table_set_compression` has it; empty: as the instance's.
    pub compression: TerraceBytes,
    /// The table's, without its indexes.
    pub rules: TerraceRules,
    /// Pages that the table has on flash, as far as they are known to be its.
    pub flash_pages: u64,
    /// Slots of the object buffer that it has.
    pub buffer_pages: u64,
    /// Reads of the table that waited for their turn, and how long, in microseconds.
    pub waits: u64,
    pub wait_microseconds: u64,
    /// The same of changes, builds and large values, for the limits of writes.
    pub write_waits: u64,
    pub write_wait_microseconds: u64,
    /// Changed pages that wait for the volume now, and blocks for the store.
    pub pages_held: u64,
    pub blocks_held: u64,
    /// Pages and objects written beyond the limit, and pages that flash did not get.
    pub writes_over: u64,
    pub fills_refused: u64,
}

pub type TerraceRuleFn = Option<unsafe extern "C" fn(context: *mut c_void, line: *const TerraceRuleLine)>;

fn placement_of(number: u8) -> Result<Placement> {
    match number {
        0 => Ok(Placement::Default),
        1 => Ok(Placement::Keep),
        2 => Ok(Placement::None),
        _ => Err(Fault::invalid(format!("placement {number} is none of 0, 1, 2"))),
    }
}

pub(crate) fn policy_of(number: u8) -> Result<WritePolicy> {
    WritePolicy::numbered(number)
        .ok_or_else(|| Fault::invalid(format!("write policy {number} is none of 0, 1, 2, 3")))
}

fn number_of(placement: Placement) -> u8 {
    match placement {
        Placement::Default => 0,
        Placement::Keep => 1,
        Placement::None => 2,
    }
}

/// # Safety
/// What the rules point to lives.
pub(crate) unsafe fn said_by(rules: &TerraceRules) -> Result<TableRules> {
    if rules.size != size_of::<TerraceRules>() {
        return Err(Fault::invalid("terrace_rules of another version".into()));
    }
    let limit = |requests, bytes| Limit { requests, bytes };
    let rule = TableRule {
        flash: Share { min: rules.flash_min, max: rules.flash_max },
        buffer: Share { min: rules.buffer_min, max: rules.buffer_max },
        flash_limit: limit(rules.flash_iops, rules.flash_bandwidth),
        volume_limit: limit(rules.volume_iops, rules.volume_bandwidth),
        object_limit: limit(rules.object_iops, rules.object_bandwidth),
        flash_writes: limit(rules.flash_write_iops, rules.flash_write_bandwidth),
        volume_writes: limit(rules.volume_write_iops, rules.volume_write_bandwidth),
        object_writes: limit(rules.object_write_iops, rules.object_write_bandwidth),
        write: policy_of(rules.write_policy)?,
    };
    let mut said = TableRules { rule, placement: placement_of(rules.placement)?, indexes: Vec::new() };
    let indexes = if rules.index_count > 0 {
        // SAFETY: the caller's promise about the array.
        unsafe { std::slice::from_raw_parts(rules.indexes, rules.index_count) }
    } else {
        &[]
    };
    for index in indexes {
        if index.size != size_of::<TerracePlacement>() {
            return Err(Fault::invalid("terrace_placement of another version".into()));
        }
        // SAFETY: the caller's promise.
        let name = unsafe { index.index.text()? };
        said.indexes.push((name.to_string(), placement_of(index.placement)?));
    }
    Ok(said)
}

/// The table has these rules from now on: durable when it returns, and in force. Rules that contradict one another, or that
/// guarantee more than there is, are refused with words that name both, and nothing has changed; but not for what the table
/// `instead_of` has already, whose place this one is to take (empty: none).
///
/// # Safety
/// `engine` is open; the names, `rules` and what it points to live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_set_rules(
    engine: *const TerraceEngine,
    name: TerraceBytes,
    rules: *const TerraceRules,
    instead_of: TerraceBytes,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, name, rules, replaced) =
            unsafe { (&*engine, name.text()?, &*rules, instead_of.text()?) };
        // SAFETY: the caller's promise.
        let said = unsafe { said_by(rules)? };
        let ruled = engine.engine.tables_with_rules();
        let going = going(name, replaced, &ruled);
        let of = (!replaced.is_empty()).then_some(replaced);
        engine.engine.set_table_rules(name, said, Some(Instead { of, going: &going }))?;
        Ok(Code::Ok)
    })
}

/// The rules, among the tables `ruled`, that go with `replaced`, whose place `name` is to take: the whole table and its partitions, if it is copied;
/// if some of its partitions are rebuilt, those that have been rebuilt already.
fn going<'a>(name: &str, replaced: &str, ruled: &'a [String]) -> Vec<&'a str> {
    const MARK: &str = "#P#";
    const NEW: &str = "#TMP#";
    let table = |name: &str| name.split_once(MARK).map_or(name, |(table, _)| table).to_string();
    if replaced.is_empty() {
        return Vec::new();
    }
    let copied = table(name) != table(replaced);
    let goes = |one: &&String| {
        let made = |other: &String| other.strip_suffix(NEW) == Some(one.as_str());
        table(one) == table(replaced) && (copied || ruled.iter().any(made))
    };
    ruled.iter().filter(goes).map(String::as_str).collect()
}

/// Calls `each` with every index of every table that has rules, or a compression of its own.
///
/// # Safety
/// As `terrace_engine_status`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_rules(
    engine: *const TerraceEngine,
    each: TerraceRuleFn,
    context: *mut c_void,
) -> i32 {
    guard(|| {
        let Some(each) = each else { return Err(Fault::invalid("no function to call".into())) };
        // SAFETY: the caller's promise.
        for line in unsafe { &*engine }.engine.rules() {
            let TableRule { flash, buffer, flash_limit, volume_limit, object_limit, .. } = line.rules.rule;
            let TableRule { flash_writes, volume_writes, object_writes, write, .. } = line.rules.rule;
            let rules = TerraceRules {
                size: size_of::<TerraceRules>(),
                flash_min: flash.min,
                flash_max: flash.max,
                buffer_min: buffer.min,
                buffer_max: buffer.max,
                flash_iops: flash_limit.requests,
                flash_bandwidth: flash_limit.bytes,
                volume_iops: volume_limit.requests,
                volume_bandwidth: volume_limit.bytes,
                object_iops: object_limit.requests,
                object_bandwidth: object_limit.bytes,
                flash_write_iops: flash_writes.requests,
                flash_write_bandwidth: flash_writes.bytes,
                volume_write_iops: volume_writes.requests,
                volume_write_bandwidth: volume_writes.bytes,
                object_write_iops: object_writes.requests,
                object_write_bandwidth: object_writes.bytes,
                placement: number_of(line.rules.placement),
                write_policy: write as u8,
                indexes: std::ptr::null(),
                index_count: 0,
            };
            let line = TerraceRuleLine {
                size: size_of::<TerraceRuleLine>(),
                table: TerraceBytes::of(line.table.as_bytes()),
                index: TerraceBytes::of(line.index.as_bytes()),
                placement: number_of(line.placement),
                compression: TerraceBytes::of(line.compression.map_or("", Codec::name).as_bytes()),
                rules,
                flash_pages: line.flash_pages,
                buffer_pages: line.buffer_pages,
                waits: line.waits,
                wait_microseconds: line.wait_nanos / 1000,
                write_waits: line.writes.waits,
                write_wait_microseconds: line.writes.wait_nanos / 1000,
                pages_held: line.writes.pages_held,
                blocks_held: line.writes.blocks_held,
                writes_over: line.writes.over,
                fills_refused: line.writes.fills_refused,
            };
            // SAFETY: the caller's promise; the struct lives during the call.
            unsafe { each(context, &line) };
        }
        Ok(Code::Ok)
    })
}

#[cfg(test)]
mod tests {
    use super::going;

    #[test]
    fn rules_of_a_replaced_table_and_its_partitions_are_removed() {
        let ruled = ["d/t", "d/t2", "d/p#P#a", "d/p#P#b", "d/p#P#a#TMP#", "d/p2#P#a"].map(String::from);
        // Created, copied, partitioned, copied with its partitions, of which one is created anew.
        for (name, replaced, goes) in [
            ("d/new", "", vec![]),
            ("d/#sql-alter-1", "d/t", vec!["d/t"]),
            ("d/#sql-alter-1#P#a", "d/t#P#a", vec!["d/t"]),
            ("d/#sql-alter-1#P#a", "d/p#P#a", vec!["d/p#P#a", "d/p#P#b", "d/p#P#a#TMP#"]),
            ("d/p#P#b#TMP#", "d/p#P#b", vec!["d/p#P#a"]),
        ] {
            assert_eq!(going(name, replaced, &ruled), goes, "{name} for {replaced}");
        }
    }
}
