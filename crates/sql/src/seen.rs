//! What is to be seen, as rows of values; and what the thread that asks has read.

use crate::bytes::TerraceBytes;
use crate::engine::TerraceEngine;
use crate::error::{Code, Fault, guard};
use terrace_engine::engine::TellRows;
use terrace_engine::engine::inspect::info_tables::{Value, locks};
use terrace_tier::limits::meter;

pub const TERRACE_VALUE_NULL: u32 = 0;
pub const TERRACE_VALUE_NUMBER: u32 = 1;
pub const TERRACE_VALUE_REAL: u32 = 2;
pub const TERRACE_VALUE_TEXT: u32 = 3;
/// A table's name as it was given when the table was created.
pub const TERRACE_VALUE_TABLE: u32 = 4;
/// Milliseconds since 1970, in `number`.
pub const TERRACE_VALUE_TIME: u32 = 5;

/// At most this many rows of `locks` are shown.
pub const TERRACE_LOCKS_SEEN_MAX: u32 = 100_000;
const _: () = assert!(TERRACE_LOCKS_SEEN_MAX as usize == locks::LOCKS_MAX);

/// One column's value. The text is borrowed for the callback.
#[repr(C)]
pub struct TerraceValue {
    /// One of `TERRACE_VALUE_…`: which of the others counts.
    pub kind: u32,
    pub number: u64,
    pub real: f64,
    pub text: TerraceBytes,
}

pub type TerraceRowFn =
    Option<unsafe extern "C" fn(context: *mut std::ffi::c_void, values: *const TerraceValue, count: usize)>;

impl TerraceValue {
    fn of(value: &Value) -> TerraceValue {
        let empty =
            TerraceValue { kind: TERRACE_VALUE_NULL, number: 0, real: 0.0, text: TerraceBytes::of(b"") };
        match value {
            Value::Null => empty,
            Value::Number(number) => TerraceValue { kind: TERRACE_VALUE_NUMBER, number: *number, ..empty },
            Value::Time(ms) => TerraceValue { kind: TERRACE_VALUE_TIME, number: *ms, ..empty },
            Value::Real(real) => TerraceValue { kind: TERRACE_VALUE_REAL, real: *real, ..empty },
            Value::Text(text) => {
                TerraceValue { kind: TERRACE_VALUE_TEXT, text: TerraceBytes::of(text.as_bytes()), ..empty }
            }
            Value::Table(text) => {
                TerraceValue { kind: TERRACE_VALUE_TABLE, text: TerraceBytes::of(text.as_bytes()), ..empty }
            }
        }
    }
}

/// Calls `each` with every row of one of these tables: `index_statistics`, `table_statistics`,
/// `miss_ratio_curve`, `advice`, `metrics`, `transactions`, `locks`, `lock_waits`, `last_deadlock`.
///
/// # Safety
/// `engine` is open; `name` is valid; `each` may be called with `context` on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_seen(
    engine: *const TerraceEngine,
    name: TerraceBytes,
    each: TerraceRowFn,
    context: *mut std::ffi::c_void,
) -> i32 {
    guard(|| {
        let Some(each) = each else { return Err(Fault::invalid("no function to call".into())) };
        // SAFETY: the caller's promise.
        let (engine, name) = unsafe { (&*engine, name.text()?) };
        let is_there = engine.engine.each_seen(name, &mut |row| {
            let values: Vec<TerraceValue> = row.iter().map(TerraceValue::of).collect();
            // SAFETY: the caller's promise; the values live during the call.
            unsafe { each(context, values.as_ptr(), values.len()) };
        });
        match is_there {
            true => Ok(Code::Ok),
            false => Err(Fault::invalid(format!("there is no table {name} to see"))),
        }
    })
}

/// Writes the beginning of the statement that a connection runs to `text`, up to `max` bytes; returns how many. 0: it is not known.
pub type TerraceStatementFn =
    Option<unsafe extern "C" fn(connection: u64, text: *mut u8, max: usize) -> usize>;

/// A statement's text is cut to this length, in bytes.
const STATEMENT_MAX: usize = 1024;

/// From now on `transactions` and `last_deadlock` have statements: `statement_of` is called with the connections of
/// `terrace_txn_set_connection`, by a thread that looks at the tables or that has found a deadlock. It must not wait, nor call this library. The
/// first call of this function counts.
///
/// # Safety
/// `engine` is open; `statement_of` may be called from any thread until the engine is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_ask_statements(
    engine: *const TerraceEngine,
    statement_of: TerraceStatementFn,
) -> i32 {
    guard(|| {
        let Some(statement_of) = statement_of else {
            return Err(Fault::invalid("no function to call".into()));
        };
        let ask = move |connection: u64| {
            let mut text = vec![0; STATEMENT_MAX];
            // SAFETY: the caller's promise; there is so much room.
            let written = unsafe { statement_of(connection, text.as_mut_ptr(), text.len()) };
            text.truncate(written);
            Some(String::from_utf8_lossy(&text).into_owned())
        };
        // SAFETY: the caller's promise.
        unsafe { &*engine }.engine.ask_statements(Box::new(ask));
        Ok(Code::Ok)
    })
}

/// Called with the rows of a deadlock, `columns` values each, one row behind the other.
pub type TerraceDeadlockFn =
    Option<unsafe extern "C" fn(values: *const TerraceValue, columns: usize, rows: usize)>;

/// From now on `on_deadlock` is called with each deadlock, in rows as those of `last_deadlock`; null: it is not any more. A thread that waits for a
/// lock and has found the deadlock calls it: it must not call this library.
///
/// # Safety
/// `engine` is open; `on_deadlock` may be called from any thread until the engine is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_tell_deadlocks(
    engine: *const TerraceEngine,
    on_deadlock: TerraceDeadlockFn,
) -> i32 {
    guard(|| {
        let tell = on_deadlock.map(|on_deadlock| -> TellRows {
            Box::new(move |rows| {
                let values: Vec<TerraceValue> = rows.iter().flatten().map(TerraceValue::of).collect();
                // SAFETY: the caller's promise; the values live during the call.
                unsafe { on_deadlock(values.as_ptr(), values.len() / rows.len().max(1), rows.len()) };
            })
        });
        // SAFETY: the caller's promise.
        unsafe { &*engine }.engine.tell_deadlocks(tell);
        Ok(Code::Ok)
    })
}

/// Pages that a thread read, and the time until they were in memory, in nanoseconds: see `docs/observability.md`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TerraceReads {
    pub pages_memory: u64,
    pub pages_flash: u64,
    pub pages_volume: u64,
    pub pages_object: u64,
    pub pages_log: u64,
    pub pages_ahead_flash: u64,
    pub pages_ahead_volume: u64,
    pub pages_ahead_object: u64,
    pub pages_ahead_log: u64,
    pub nanos_wait: u64,
    pub nanos_flash: u64,
    pub nanos_volume: u64,
    pub nanos_object: u64,
    pub nanos_log: u64,
}

/// What the calling thread has read since its last call of this function, through any engine.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_reads_take() -> TerraceReads {
    let meter::Reads { pages, nanos, ahead } = meter::take();
    TerraceReads {
        pages_memory: pages[0],
        pages_flash: pages[1],
        pages_volume: pages[2],
        pages_object: pages[3],
        pages_log: pages[4],
        pages_ahead_flash: ahead[1],
        pages_ahead_volume: ahead[2],
        pages_ahead_object: ahead[3],
        pages_ahead_log: ahead[4],
        nanos_wait: nanos[0],
        nanos_flash: nanos[1],
        nanos_volume: nanos[2],
        nanos_object: nanos[3],
        nanos_log: nanos[4],
    }
}
