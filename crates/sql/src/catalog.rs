//! Tables at the border: create, open, drop, rename, truncate, list; their counters and estimates.

use crate::bytes::TerraceBytes;
use crate::engine::TerraceEngine;
use crate::error::{Code, Fault, Result, guard};
use std::ffi::c_void;
use std::ops::Bound;
use std::sync::Arc;
use terrace_engine::IndexDef;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::table::catalog::{Codec, Redefined};
use terrace_tier::page::PAGE_SIZE;

/// An open table. Freed by `terrace_table_close`.
pub struct TerraceTable {
    pub(crate) table: Arc<Table>,
    properties: Vec<u8>,
}

impl TerraceTable {
    pub(crate) fn new(table: Arc<Table>) -> TerraceTable {
        let properties = table.properties();
        TerraceTable { table, properties }
    }
}

/// One index of a definition. The first is the primary one: it holds the rows.
#[repr(C)]
pub struct TerraceIndexDefinition {
    pub size: usize,
    pub name: TerraceBytes,
    pub unique: bool,
}

/// A table to be created.
#[repr(C)]
pub struct TerraceTableDefinition {
    pub size: usize,
    pub name: TerraceBytes,
    pub indexes: *const TerraceIndexDefinition,
    pub index_count: usize,
    /// Kept for the caller, never looked at.
    pub properties: TerraceBytes,
    /// It ends with the process: unlogged, and in no tier that lasts. It is not listed by `terrace_table_list`.
    pub temporary: bool,
}

/// What is roughly true of a table.
#[repr(C)]
pub struct TerraceEstimate {
    pub size: usize,
    pub rows: u64,
    /// Bytes of the primary tree.
    pub data_bytes: u64,
    /// Bytes of all secondary trees.
    pub index_bytes: u64,
    pub pages: u64,
}

pub type TerraceTableFn =
    Option<unsafe extern "C" fn(context: *mut c_void, name: TerraceBytes, properties: TerraceBytes)>;

/// Creates a table and its empty indexes, durably; opens it if `out` is not null.
///
/// # Safety
/// `engine` is open, `definition` and what it points to are valid, `out` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_create(
    engine: *const TerraceEngine,
    definition: *const TerraceTableDefinition,
    out: *mut *mut TerraceTable,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, definition) = unsafe { (&*engine, &*definition) };
        let known = definition.size == size_of::<TerraceTableDefinition>();
        if !known || definition.index_count == 0 || definition.indexes.is_null() {
            return Err(Fault::invalid(
                "a table definition of another version, or without a primary index".into(),
            ));
        }
        let mut def = TableDef { indexes: Vec::new(), properties: Vec::new() };
        // SAFETY: the caller's promise about the array.
        let indexes = unsafe { std::slice::from_raw_parts(definition.indexes, definition.index_count) };
        for index in indexes {
            if index.size != size_of::<TerraceIndexDefinition>() {
                return Err(Fault::invalid("an index definition of another version".into()));
            }
            // SAFETY: the caller's promise.
            let name = unsafe { index.name.text()? }.to_string();
            def.indexes.push(IndexDef { name, unique: index.unique });
        }
        // SAFETY: the caller's promise.
        let name = unsafe {
            def.properties = definition.properties.get().to_vec();
            definition.name.text()?
        };
        let table = match definition.temporary {
            true => engine.engine.create_temporary_table(name, &def)?,
            false => engine.engine.create_table(name, &def)?,
        };
        if !out.is_null() {
            // SAFETY: the caller's promise.
            unsafe { *out = Box::into_raw(Box::new(TerraceTable::new(table))) };
        }
        Ok(Code::Ok)
    })
}

/// # Safety
/// `engine` is open, `name` lives during the call, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_open(
    engine: *const TerraceEngine,
    name: TerraceBytes,
    out: *mut *mut TerraceTable,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            *out = std::ptr::null_mut();
            let table = (*engine).engine.open_table(name.text()?)?;
            *out = Box::into_raw(Box::new(TerraceTable::new(table)));
        }
        Ok(Code::Ok)
    })
}

/// Frees the handle; null is fine.
///
/// # Safety
/// `table` came from this library and is no longer used by any other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_close(table: *mut TerraceTable) {
    guard(|| {
        if !table.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(table) });
        }
        Ok(Code::Ok)
    });
}

/// Drops the table, durably. Handles that are open stay valid to close.
///
/// # Safety
/// `engine` is open, `name` lives during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_drop(engine: *const TerraceEngine, name: TerraceBytes) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { (*engine).engine.drop_table(name.text()?)? };
        Ok(Code::Ok)
    })
}

/// As `terrace_table_drop`, and waits for no log: after a crash the table may be there, as it was, to be dropped again.
///
/// # Safety
/// As for `terrace_table_drop`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_drop_unwaited(
    engine: *const TerraceEngine,
    name: TerraceBytes,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { (*engine).engine.drop_table_unwaited(name.text()?)? };
        Ok(Code::Ok)
    })
}

/// # Safety
/// `engine` is open, the names live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_rename(
    engine: *const TerraceEngine,
    from: TerraceBytes,
    to: TerraceBytes,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { (*engine).engine.rename_table(from.text()?, to.text()?)? };
        Ok(Code::Ok)
    })
}

/// Gives the table a name, which may be the one that it has, and other properties, in one change. Durable when it returns. What
/// handles that are open say of the properties stays.
///
/// # Safety
/// `engine` is open, names and properties live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_redefine(
    engine: *const TerraceEngine,
    from: TerraceBytes,
    to: TerraceBytes,
    properties: TerraceBytes,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { (*engine).engine.redefine_table(from.text()?, to.text()?, properties.get())? };
        Ok(Code::Ok)
    })
}

/// What becomes of a table. The names may be the same.
#[repr(C)]
pub struct TerraceRedefined {
    pub from: TerraceBytes,
    pub to: TerraceBytes,
    pub properties: TerraceBytes,
}

/// # Safety
/// `all` are `count` definitions whose bytes outlive the result; null if there is none.
pub(crate) unsafe fn redefined<'a>(all: *const TerraceRedefined, count: usize) -> Result<Vec<Redefined<'a>>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's promise.
    let all = unsafe { std::slice::from_raw_parts(all, count) };
    let one = |one: &TerraceRedefined| {
        // SAFETY: the caller's promise.
        let (from, to, properties) = unsafe { (one.from.text()?, one.to.text()?, one.properties.get()) };
        Ok(Redefined { from, to, properties: Some(properties) })
    };
    all.iter().map(one).collect()
}

/// Gives tables other names and properties, all of them or none after a crash, as `terrace_table_redefine` does with one.
///
/// # Safety
/// `engine` is open, `all` are `count` definitions that live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_tables_redefine(
    engine: *const TerraceEngine,
    all: *const TerraceRedefined,
    count: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { (*engine).engine.redefine_tables(&redefined(all, count)?)? };
        Ok(Code::Ok)
    })
}

/// Empties tables, all of them or none after a crash, durably, and sets their counters back. Handles opened before must be closed
/// and opened again. Temporary tables are emptied one by one.
///
/// # Safety
/// `engine` is open, `names` are `count` names that live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_tables_truncate(
    engine: *const TerraceEngine,
    names: *const TerraceBytes,
    count: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, names) = unsafe { (&*engine, std::slice::from_raw_parts(names, count)) };
        // SAFETY: the caller's promise.
        let names = names.iter().map(|name| unsafe { name.text() }).collect::<Result<Vec<&str>>>()?;
        engine.engine.truncate_tables(&names)?;
        Ok(Code::Ok)
    })
}

/// Views that are open now are too old for the table, whose consistent reads are an error (`TERRACE_CHANGED`): it was made, or emptied, after
/// them.
///
/// # Safety
/// `engine` and `table` are open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_outdate_views(
    engine: *const TerraceEngine,
    table: *const TerraceTable,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { (*engine).engine.outdate_views(&(*table).table) };
        Ok(Code::Ok)
    })
}

/// The codec with this name; none: as the instance's.
pub(crate) fn codec_of(name: &str) -> Result<Option<Codec>> {
    if name.is_empty() {
        return Ok(None);
    }
    Codec::named(name).map(Some).ok_or_else(|| Fault::invalid(format!("compression {name} is not known")))
}

/// How the table's pages are compressed in objects from now on: `none`, `lz4`, `zstd`, or empty: as the instance's are.
/// Durable when it returns.
///
/// # Safety
/// `engine` is open, the texts live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_set_compression(
    engine: *const TerraceEngine,
    name: TerraceBytes,
    compression: TerraceBytes,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, name, compression) = unsafe { (&*engine, name.text()?, compression.text()?) };
        engine.engine.set_compression(name, codec_of(compression)?)?;
        Ok(Code::Ok)
    })
}

/// Calls `each` with every table's name and properties, temporary ones left out.
///
/// # Safety
/// `engine` is open; `each` may be called with `context` on this thread. `each` must not drop tables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_list(
    engine: *const TerraceEngine,
    each: TerraceTableFn,
    context: *mut c_void,
) -> i32 {
    guard(|| {
        let Some(each) = each else { return Err(Fault::invalid("no function to call".into())) };
        // SAFETY: the caller's promise.
        let engine = unsafe { &*engine };
        for name in engine.engine.list_tables() {
            let properties = match engine.engine.table_properties(&name) {
                Ok(properties) => properties,
                Err(terrace_engine::Error::Absent(_)) => continue, // dropped meanwhile
                Err(error) => return Err(error.into()),
            };
            // SAFETY: the caller's promise.
            unsafe { each(context, TerraceBytes::of(name.as_bytes()), TerraceBytes::of(&properties)) };
        }
        Ok(Code::Ok)
    })
}

/// Calls `each` with the table's name and properties, without opening it: what it holds may be damaged, or out of reach.
///
/// # Safety
/// `engine` is open, `name` lives during the call; `each` may be called with `context` on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_defined(
    engine: *const TerraceEngine,
    name: TerraceBytes,
    each: TerraceTableFn,
    context: *mut c_void,
) -> i32 {
    guard(|| {
        let Some(each) = each else { return Err(Fault::invalid("no function to call".into())) };
        // SAFETY: the caller's promise.
        unsafe {
            let properties = (*engine).engine.table_properties(name.text()?)?;
            each(context, name, TerraceBytes::of(&properties));
        }
        Ok(Code::Ok)
    })
}

/// The properties given at creation; they live as long as the handle.
///
/// # Safety
/// `table` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_properties(table: *const TerraceTable) -> TerraceBytes {
    // SAFETY: the caller's promise.
    TerraceBytes::of(unsafe { &(*table).properties })
}

/// A number for a row without a key of its own: unique for ever in this table, ascending.
///
/// # Safety
/// `table` is open, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_next_row_id(table: *const TerraceTable, out: *mut u64) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { *out = (*table).table.next_row_id()? };
        Ok(Code::Ok)
    })
}

/// The next value of the auto-increment counter (at least 1).
///
/// # Safety
/// `table` is open, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_auto_increment(table: *const TerraceTable, out: *mut u64) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { *out = (*table).table.auto_increment()?.max(1) };
        Ok(Code::Ok)
    })
}

/// Takes `wanted` values `first, first + increment, …` of the form `offset + k × increment` that were not taken before, and moves the
/// counter past them, as InnoDB does. Near the end of the type's range `first` may not have this form, and values may be
/// above `limit`: the caller checks. Where the counter is above `limit`, `*first` is the counter and `*taken` 0. Values taken and
/// not used are gaps.
///
/// # Safety
/// `table` is open, `first` and `taken` are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_auto_increment_take(
    table: *const TerraceTable,
    offset: u64,
    increment: u64,
    wanted: u64,
    limit: u64,
    first: *mut u64,
    taken: *mut u64,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let table = unsafe { &(*table).table };
        let series = Series { offset, increment: increment.max(1), limit };
        let (start, count) = loop {
            let next = table.auto_increment()?.max(1);
            let start = series.first(next);
            if start > limit {
                break (start, 0);
            }
            if table.take_auto_increment(next, series.after(start, wanted.max(1)))? {
                break (start, wanted.max(1));
            }
        };
        // SAFETY: the caller's promise.
        unsafe {
            *first = start;
            *taken = count;
        }
        Ok(Code::Ok)
    })
}

/// Where the auto-increment counter stands when `value` and the `count` - 1 after it in the series are taken; the largest number of all:
/// behind the end.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_auto_increment_after(
    value: u64,
    count: u64,
    offset: u64,
    increment: u64,
    limit: u64,
) -> u64 {
    Series { offset, increment: increment.max(1), limit }.after(value, count)
}

/// The values `offset + k × increment` up to `limit`, as `auto_increment_offset` and `_increment` define them. What the counter shows, and
/// which error a statement gets at the end, follow from InnoDB's arithmetic (`ha_innobase::get_auto_increment`,
/// `innobase_next_autoinc`): so it is done as there.
struct Series {
    offset: u64,
    increment: u64,
    limit: u64,
}

impl Series {
    /// The first value at or after `next`. Where that would be the limit or more: `next`, from which the server goes on.
    fn first(&self, next: u64) -> u64 {
        if self.increment == 1 || self.increment > !next || next >= self.limit {
            return next;
        }
        // An offset that is larger than all this wraps, and back again.
        let up = (next - 1).wrapping_add(self.increment).wrapping_sub(self.offset) / self.increment;
        let value = up.wrapping_mul(self.increment).wrapping_add(self.offset);
        if value >= self.limit { next } else { value.max(1) }
    }

    /// The value that comes when `count` from `value` are taken.
    fn after(&self, value: u64, count: u64) -> u64 {
        if value > self.limit {
            return u64::MAX;
        }
        // As the server does: an offset larger than the increment is ignored.
        let offset = if self.offset > self.increment { 0 } else { self.offset };
        let distance = value.abs_diff(offset);
        let block = count.checked_mul(self.increment);
        let after = (distance - distance % self.increment).checked_add(offset);
        after.zip(block).and_then(|(after, block)| after.checked_add(block)).unwrap_or(u64::MAX)
    }
}

/// Moves the auto-increment counter up to `next` at least. Never down.
///
/// # Safety
/// `table` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_auto_increment_raise(table: *const TerraceTable, next: u64) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { (*table).table.raise_auto_increment(next)? };
        Ok(Code::Ok)
    })
}

/// What is roughly true now. Cheap; takes no lock.
///
/// # Safety
/// `table` is open, `out` is valid and its `size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_estimate(
    table: *const TerraceTable,
    out: *mut TerraceEstimate,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (table, out) = unsafe { (&*table, &mut *out) };
        if out.size != size_of::<TerraceEstimate>() {
            return Err(Fault::invalid("terrace_estimate of another version".into()));
        }
        let estimate = table.table.estimate();
        out.rows = estimate.rows;
        out.data_bytes = estimate.data_pages * PAGE_SIZE as u64;
        out.index_bytes = estimate.index_pages * PAGE_SIZE as u64;
        out.pages = estimate.data_pages + estimate.index_pages;
        Ok(Code::Ok)
    })
}

/// About how many entries of `index` have keys in [`low`, `high`). A null `data` is no bound. `*near` tells whether the
/// range is so short that the entries were counted, or nearly so.
///
/// # Safety
/// `table` is open, the bytes live during the call, `out` and `near` are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_records_in_range(
    table: *const TerraceTable,
    index: u32,
    low: TerraceBytes,
    high: TerraceBytes,
    out: *mut u64,
    near: *mut bool,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (table, low, high) =
            unsafe { (&*table, bound(low, Bound::Included), bound(high, Bound::Excluded)) };
        let found = table.table.records_in_range(index as usize, low, high)?;
        // SAFETY: the caller's promise.
        unsafe { (*out, *near) = (found.rows, found.near) };
        Ok(Code::Ok)
    })
}

/// Counts the table's rows anew, or, of a large one, those of some pages: what crashes took of the count is put right.
///
/// # Safety
/// `table` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_recount(table: *const TerraceTable) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &(*table).table }.recount()?;
        Ok(Code::Ok)
    })
}

pub type TerraceKeyFn = Option<unsafe extern "C" fn(context: *mut c_void, key: TerraceBytes)>;

/// Hands over the keys, in order, of the entries in one leaf of `index`: the leaf that lies at this fraction (0 to 1) of
/// the tree.
///
/// # Safety
/// `table` is open; `each` may be called with `context` during the call, and doesn't keep the key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_sample(
    table: *const TerraceTable,
    index: u32,
    fraction: f64,
    each: TerraceKeyFn,
    context: *mut c_void,
) -> i32 {
    guard(|| {
        let Some(each) = each else { return Err(Fault::invalid("no function for the keys".into())) };
        // SAFETY: the caller's promise.
        let keys = unsafe { &(*table).table }.sample(index as usize, fraction)?;
        // SAFETY: the caller's promise.
        keys.iter().for_each(|key| unsafe { each(context, TerraceBytes::of(key)) });
        Ok(Code::Ok)
    })
}

/// # Safety
/// As [`TerraceBytes::get`].
unsafe fn bound<'a>(key: TerraceBytes, kind: fn(&'a [u8]) -> Bound<&'a [u8]>) -> Bound<&'a [u8]> {
    if key.data.is_null() {
        return Bound::Unbounded;
    }
    // SAFETY: the caller's promise.
    kind(unsafe { key.get() })
}

/// Walks one index of the table, which others may change meanwhile, from end to end and checks its structure. `TERRACE_CORRUPT` says what is wrong;
/// `*entries` is the number of entries that count.
///
/// # Safety
/// `table` is open, `entries` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_check(
    table: *const TerraceTable,
    index: u32,
    entries: *mut u64,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let table = unsafe { &(*table).table };
        let count = table.check(index as usize).map_err(Fault::from)?;
        // SAFETY: the caller's promise.
        unsafe { *entries = count };
        Ok(Code::Ok)
    })
}

#[cfg(test)]
mod tests;
