//! Changes of a table's indexes at the border: rows out, entries in, trees built, all of it made the table's in one go.
//!
//! The order: begin; rows and their entries; load each new index, or build all if the rows are built, too; any number of rounds, the last of them when no other
//! session uses the table; commit. A batch lies in the handle's own buffer until its next call.

use crate::bytes::TerraceBytes;
use crate::catalog::{TerraceRedefined, codec_of, redefined};
use crate::cursor::{TerraceBatch, append_row};
use crate::engine::TerraceEngine;
use crate::engine::rules::{TerraceRules, said_by};
use crate::error::{Code, Fault, Result, guard};
use crate::row::{TerraceEntry, TerraceSpan, with_entries, with_row};
use crate::transaction::TerraceTxn;
use std::ffi::c_void;
use terrace_engine::Alteration;
use terrace_engine::Entry;
use terrace_engine::IndexDef;
use terrace_engine::NewIndex;
use terrace_engine::Side;
use terrace_engine::table::catalog::TableOptions;

/// A table's change under way. Freed by `terrace_alter_close`; without a commit the table stays as it was.
pub struct TerraceAlter {
    alteration: Alteration,
    buffer: Vec<u8>,
    /// Rows in it.
    rows: u32,
    key: Vec<u8>,
    row: Vec<u8>,
    /// What comes next in the round, by its keys.
    at: usize,
    keys: usize,
}

/// An index of the table as it is to be.
#[repr(C)]
pub struct TerraceNewIndex {
    pub size: usize,
    pub name: TerraceBytes,
    pub unique: bool,
    /// The place of the table's index that it is; all ones: it is built. New indexes are counted in their order, from 0.
    pub from: u32,
}

/// How many entries of how many are built, or bytes are copied; false ends it with `TERRACE_CANCELLED`.
pub type TerraceProgressFn =
    Option<unsafe extern "C" fn(context: *mut c_void, entries: u64, all: u64) -> bool>;

/// Begins to change a table's indexes. If the first is built, so is each other, of rows that `terrace_alter_add_row` takes. If there are indexes to build, no open
/// transaction may have changed rows of the table. `owner` is the session that waits; its cancel handle ends the wait.
///
/// # Safety
/// `engine` and `owner` are open, `indexes` are `count` valid definitions, the name lives during the call, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_begin(
    engine: *const TerraceEngine,
    name: TerraceBytes,
    indexes: *const TerraceNewIndex,
    count: usize,
    owner: *const TerraceTxn,
    out: *mut *mut TerraceAlter,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, owner) = unsafe { (&*engine, &*owner) };
        // SAFETY: the caller's promise about the array.
        let indexes = unsafe { std::slice::from_raw_parts(indexes, count) };
        let one = |index: &TerraceNewIndex| {
            if index.size != size_of::<TerraceNewIndex>() {
                return Err(Fault::invalid("terrace_new_index of another version".into()));
            }
            // SAFETY: the caller's promise.
            let name = unsafe { index.name.text()? }.to_string();
            let from = (index.from != u32::MAX).then_some(index.from as usize);
            Ok(NewIndex { def: IndexDef { name, unique: index.unique }, from })
        };
        let indexes = indexes.iter().map(one).collect::<Result<_>>()?;
        // SAFETY: the caller's promise.
        let name = unsafe { name.text()? };
        let alteration = engine.engine.alter(name, indexes, &owner.txn)?;
        let (buffer, key, row) = (Vec::new(), Vec::new(), Vec::new());
        let alter = TerraceAlter { alteration, buffer, rows: 0, key, row, at: 0, keys: 0 };
        // SAFETY: the caller's promise.
        unsafe { *out = Box::into_raw(Box::new(alter)) };
        Ok(Code::Ok)
    })
}

/// Frees the handle; null is fine.
///
/// # Safety
/// `alter` came from this library and is no longer used by any other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_close(alter: *mut TerraceAlter) {
    guard(|| {
        if !alter.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(alter) });
        }
        Ok(Code::Ok)
    });
}

/// The next rows that are to get entries, about `max_bytes` of them. `TERRACE_NO_ROW` behind the last.
///
/// # Safety
/// `alter` is open, `batch` is valid and its `size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_rows(
    alter: *mut TerraceAlter,
    max_bytes: u32,
    batch: *mut TerraceBatch,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (alter, batch) = unsafe { (&mut *alter, &mut *batch) };
        alter.fill(batch, |alter| {
            while alter.buffer.len() < max_bytes as usize {
                if !alter.alteration.next_row(&mut alter.key, &mut alter.row)? {
                    return Ok(true);
                }
                alter.append();
            }
            Ok(false)
        })
    })
}

/// Takes entries of a row. `index`: which of the new indexes. `TERRACE_TOO_LARGE` if one does not fit.
///
/// # Safety
/// `alter` is open, `entries` are `count` valid entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_add(
    alter: *mut TerraceAlter,
    entries: *const TerraceEntry,
    count: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let alter = unsafe { &mut *alter };
        // SAFETY: the caller's promise.
        unsafe {
            with_entries(entries, count, |all| {
                Ok(all.iter().try_for_each(|one| alter.alteration.add(one))?)
            })
        }?;
        Ok(Code::Ok)
    })
}

/// Builds one of the new indexes of the entries it got. `TERRACE_DUPLICATE`: see `terrace_alter_duplicate`.
///
/// # Safety
/// `alter` is open; `progress` may be called with `context` on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_load(
    alter: *mut TerraceAlter,
    which: u32,
    progress: TerraceProgressFn,
    context: *mut c_void,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let alter = unsafe { &mut *alter };
        alter.alteration.load(which as usize, &mut |entries, all| match progress {
            // SAFETY: the caller's promise.
            Some(progress) => unsafe { progress(context, entries, all) },
            None => true,
        })?;
        Ok(Code::Ok)
    })
}

/// Where rows are built: takes a row as it is to be, with its entries, whose `index` is the place of their index. `TERRACE_DUPLICATE`: see
/// `terrace_alter_duplicate`.
///
/// # Safety
/// `alter` is open; all bytes live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_add_row(
    alter: *mut TerraceAlter,
    key: TerraceBytes,
    row: TerraceBytes,
    spans: *const TerraceSpan,
    span_count: usize,
    entries: *const TerraceEntry,
    entry_count: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let alteration = &mut (*alter).alteration;
            with_entries(entries, entry_count, |entries| {
                with_row(row, spans, span_count, |row| Ok(alteration.add_row(key.get(), row, entries)?))
            })?;
        }
        Ok(Code::Ok)
    })
}

/// Where rows are built: builds the trees. `TERRACE_DUPLICATE`: see `terrace_alter_duplicate`.
///
/// # Safety
/// `alter` is open; `progress` may be called with `context` on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_build(
    alter: *mut TerraceAlter,
    progress: TerraceProgressFn,
    context: *mut c_void,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let alter = unsafe { &mut *alter };
        alter.alteration.build(&mut |entries, all| match progress {
            // SAFETY: the caller's promise.
            Some(progress) => unsafe { progress(context, entries, all) },
            None => true,
        })?;
        Ok(Code::Ok)
    })
}

/// Where rows are built: as `terrace_alter_change`, of one of the round's rows with its entries.
///
/// # Safety
/// As `terrace_alter_add_row`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_change_row(
    alter: *mut TerraceAlter,
    after: bool,
    key: TerraceBytes,
    row: TerraceBytes,
    spans: *const TerraceSpan,
    span_count: usize,
    entries: *const TerraceEntry,
    entry_count: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let (alteration, key) = (&mut (*alter).alteration, key.get());
            with_entries(entries, entry_count, |entries| {
                with_row(row, spans, span_count, |row| match after {
                    true => Ok(alteration.put_row(key, row, entries)?),
                    false => Ok(alteration.remove_row(key, entries)?),
                })
            })?;
        }
        Ok(Code::Ok)
    })
}

/// The row that the last `TERRACE_DUPLICATE` was about; where rows are built, as it was to be.
///
/// # Safety
/// `alter` is open, `batch` is valid and its `size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_duplicate(alter: *mut TerraceAlter, batch: *mut TerraceBatch) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (alter, batch) = unsafe { (&mut *alter, &mut *batch) };
        alter.fill(batch, |alter| {
            if alter.alteration.duplicate(&mut alter.key, &mut alter.row)? {
                alter.append();
            }
            Ok(true)
        })
    })
}

/// How many rows changed since the trees were built or the last round began.
///
/// # Safety
/// `alter` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_behind(alter: *const TerraceAlter) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*alter }.alteration.behind() as u64
}

/// Begins a round over the rows that changed. `last`: no other session uses the table any more.
///
/// # Safety
/// `alter` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_round(alter: *mut TerraceAlter, last: bool) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let alter = unsafe { &mut *alter };
        alter.keys = alter.alteration.begin_round(last)?;
        alter.at = 0;
        Ok(Code::Ok)
    })
}

/// The round's next rows: first, with `after` false, all as they were, whose entries go; then, with `after` true, all as
/// they are. `TERRACE_NO_ROW` behind the last of a kind.
///
/// # Safety
/// `alter` is open, `batch` is valid and its `size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_round_rows(
    alter: *mut TerraceAlter,
    after: bool,
    max_bytes: u32,
    batch: *mut TerraceBatch,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (alter, batch) = unsafe { (&mut *alter, &mut *batch) };
        let side = if after { Side::After } else { Side::Before };
        let code = alter.fill(batch, |alter| {
            while alter.at < alter.keys && alter.buffer.len() < max_bytes as usize {
                let there = alter.alteration.round_row(alter.at, side, &mut alter.key, &mut alter.row)?;
                alter.at += 1;
                if there {
                    alter.append();
                }
            }
            Ok(alter.at == alter.keys)
        })?;
        if code == Code::NoRow {
            alter.at = 0;
        }
        Ok(code)
    })
}

/// Takes the entries of one of the round's rows out of the new indexes or, with `after` true, puts them in.
///
/// # Safety
/// `alter` is open, `entries` are `count` valid entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_change(
    alter: *mut TerraceAlter,
    after: bool,
    entries: *const TerraceEntry,
    count: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let alter = &mut unsafe { &mut *alter }.alteration;
        let one = |entry: &Entry<'_>| if after { alter.put(entry) } else { alter.remove(entry) };
        // SAFETY: the caller's promise.
        unsafe { with_entries(entries, count, |all| Ok(all.iter().try_for_each(one)?)) }?;
        Ok(Code::Ok)
    })
}

/// # Safety
/// `alter` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_round_end(alter: *mut TerraceAlter) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &mut *alter }.alteration.end_round()?;
        Ok(Code::Ok)
    })
}

/// The auto-increment counter is `next` from the commit on, down as well. It is past all values that rows have.
///
/// # Safety
/// `alter` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_counter(alter: *mut TerraceAlter, next: u64) {
    // SAFETY: the caller's promise.
    unsafe { &mut *alter }.alteration.set_counter(next);
}

/// What tables have from a commit on: as `terrace_table_set_compression` and `terrace_table_set_rules` say.
#[repr(C)]
pub struct TerraceTableOptions {
    pub size: usize,
    pub compression: TerraceBytes,
    pub rules: TerraceRules,
}

/// Makes the tables what is prepared, all of them or none after a crash, each with its new properties and all with the same
/// options (null: those that they have). No other session uses them, and each has had its last round. Durable when it returns. Options that
/// `terrace_table_set_rules` would refuse are refused, and nothing has changed; but not for what the tables have already. Other tables
/// become what `beside` says in the same change, and keep their names.
///
/// # Safety
/// `engine` is open, `all` are `count` different open handles, `properties` as many; `options` and what they point to, and `beside`
/// with its `beside_count` definitions (null if there is none) live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_alter_commit(
    engine: *const TerraceEngine,
    all: *const *mut TerraceAlter,
    properties: *const TerraceBytes,
    count: usize,
    options: *const TerraceTableOptions,
    beside: *const TerraceRedefined,
    beside_count: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, all, properties, options) = unsafe {
            let all = std::slice::from_raw_parts(all, count);
            (&*engine, all, std::slice::from_raw_parts(properties, count), options.as_ref())
        };
        if options.is_some_and(|options| options.size != size_of::<TerraceTableOptions>()) {
            return Err(Fault::invalid("terrace_table_options of another version".into()));
        }
        let said = |options: &TerraceTableOptions| -> Result<TableOptions> {
            // SAFETY: the caller's promise.
            let (codec, rules) =
                unsafe { (codec_of(options.compression.text()?)?, said_by(&options.rules)?) };
            Ok(TableOptions { codec, rules })
        };
        let options = options.map(said).transpose()?;
        let mut pairs: Vec<(&mut Alteration, Vec<u8>)> = all
            .iter()
            .zip(properties)
            // SAFETY: the caller's promise: each handle is open and there once.
            .map(|(alter, properties)| unsafe { (&mut (**alter).alteration, properties.get().to_vec()) })
            .collect();
        // SAFETY: the caller's promise.
        let beside = unsafe { redefined(beside, beside_count)? };
        engine.engine.commit_alterations_beside(&mut pairs, options.as_ref(), &beside)?;
        Ok(Code::Ok)
    })
}

impl TerraceAlter {
    /// The row at hand, into the buffer.
    fn append(&mut self) {
        append_row(&mut self.buffer, &self.key, 0, &self.row);
        self.rows += 1;
    }

    /// Lets `work` fill the buffer; it tells whether nothing follows.
    fn fill(
        &mut self,
        batch: &mut TerraceBatch,
        work: impl FnOnce(&mut TerraceAlter) -> Result<bool>,
    ) -> Result<Code> {
        if batch.size != size_of::<TerraceBatch>() {
            return Err(Fault::invalid("terrace_batch of another version".into()));
        }
        self.buffer.clear();
        self.rows = 0;
        batch.ended = work(self)?;
        batch.rows = self.rows;
        batch.data = TerraceBytes::of(&self.buffer);
        Ok(if batch.rows > 0 { Code::Ok } else { Code::NoRow })
    }
}
