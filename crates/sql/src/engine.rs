//! The engine's handle: open from a configuration text, look at it, close it.

pub(crate) mod rules;
use crate::bytes::TerraceBytes;
use crate::error::{Code, Fault, Result, guard};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace::open::{self, Listener};
use terrace_engine::Engine;
use terrace_engine::Error;
use terrace_engine::Size;
use terrace_engine::Ticket;
use terrace_engine::Trouble;
use terrace_engine::Txn;
use terrace_engine::config::Bytes;
use terrace_engine::table::row_counters::Rows;

/// An open engine. Freed by `terrace_engine_close`.
pub struct TerraceEngine {
    pub(crate) engine: Arc<Engine>,
    pub(crate) prepared: Arc<Prepared>,
    metrics: Option<Listener>,
    /// Why there are no metrics, if they were asked for.
    metrics_trouble: Option<String>,
    places: Vec<(&'static str, String)>,
}

/// Prepared transactions whose handle was closed: they wait to be decided by name. (Those that a crash left are
/// the engine's own.)
#[derive(Default)]
pub(crate) struct Prepared {
    waiting: Mutex<BTreeMap<Vec<u8>, Waiting>>,
}

pub(crate) struct Waiting {
    txn: Arc<Txn>,
    /// It is committed, and need only become durable.
    committed: Option<Ticket>,
}

impl Waiting {
    pub fn commit(&mut self) -> Result<()> {
        let ticket = match self.committed.take() {
            Some(ticket) => ticket,
            None => self.txn.commit()?,
        };
        Ok(self.committed.insert(ticket).wait()?)
    }
    pub fn roll_back(&mut self) -> Result<()> {
        if self.committed.is_some() {
            return Err(Fault::invalid("the transaction was committed".into()));
        }
        Ok(self.txn.rollback()?)
    }
}

impl Prepared {
    pub fn leave(&self, xid: Vec<u8>, txn: Arc<Txn>) {
        txn.let_go_of_view();
        self.waiting.lock().insert(xid, Waiting { txn, committed: None });
    }
    pub fn take(&self, xid: &[u8]) -> Option<Waiting> {
        self.waiting.lock().remove(xid)
    }
    /// Ends the transaction that was taken; if that fails, it waits under its name again, unless it is being rolled back in the background.
    pub fn decide(
        &self,
        xid: &[u8],
        mut waiting: Waiting,
        end: impl FnOnce(&mut Waiting) -> Result<()>,
    ) -> Result<()> {
        let ended = end(&mut waiting);
        let waits = waiting.committed.is_some() || !waiting.txn.has_ended();
        if ended.is_err() && waits {
            self.waiting.lock().insert(xid.to_vec(), waiting);
        }
        ended
    }
    pub fn transactions(&self) -> Vec<Arc<Txn>> {
        self.waiting.lock().values().map(|waiting| waiting.txn.clone()).collect()
    }
    pub fn names(&self) -> Vec<Vec<u8>> {
        self.waiting.lock().keys().cloned().collect()
    }
}

/// One state of `terrace_engine_troubles`. `severity`: 1: the instance does with less for a while; 2: a person must act. The texts are borrowed for
/// the callback.
pub type TerraceTroubleFn = Option<
    unsafe extern "C" fn(
        context: *mut std::ffi::c_void,
        name: TerraceBytes,
        severity: u8,
        text: TerraceBytes,
    ),
>;

/// How to open an engine.
#[repr(C)]
pub struct TerraceOpenOptions {
    /// Size of this struct.
    pub size: usize,
    /// The configuration file's text (TOML); may be empty.
    pub config: TerraceBytes,
    /// TOML too; what stands here goes before what stands in `config`.
    pub overrides: TerraceBytes,
}

/// One counter of `terrace_engine_status`.
pub type TerraceStatusFn =
    Option<unsafe extern "C" fn(context: *mut std::ffi::c_void, name: TerraceBytes, value: u64)>;

/// A lock wait: the waiting owner, and the owner it waits for.
pub type TerraceWaitFn =
    Option<unsafe extern "C" fn(waiter: *mut std::ffi::c_void, holder: *mut std::ffi::c_void)>;

/// One note of `terrace_engine_notes`. Both texts are borrowed for the callback.
pub type TerraceNoteFn =
    Option<unsafe extern "C" fn(context: *mut std::ffi::c_void, name: TerraceBytes, text: TerraceBytes)>;

/// Where the pages of one space live. `table` and `index` are borrowed for the callback.
#[repr(C)]
pub struct TerraceSpace {
    pub size: usize,
    pub space: u32,
    pub table: TerraceBytes,
    pub index: TerraceBytes,
    pub pages: u64,
    pub memory: u64,
    pub flash: u64,
    pub volume: u64,
    pub object: u64,
}

/// The requests of one purpose to one tier, since the start. The texts are borrowed for the callback; latencies are
/// in microseconds, queueing included.
#[repr(C)]
pub struct TerraceRequests {
    pub size: usize,
    /// `volume`, `flash` or `object`.
    pub tier: TerraceBytes,
    pub purpose: TerraceBytes,
    pub requests: u64,
    /// Bytes of the requests that succeeded.
    pub bytes: u64,
    pub errors: u64,
    /// Attempts beyond a request's first.
    pub retries: u64,
    pub mean: u64,
    /// Known to about an eighth.
    pub p50: u64,
    pub p99: u64,
}

pub type TerraceRequestsFn =
    Option<unsafe extern "C" fn(context: *mut std::ffi::c_void, requests: *const TerraceRequests)>;

pub type TerraceSpaceFn =
    Option<unsafe extern "C" fn(context: *mut std::ffi::c_void, space: *const TerraceSpace)>;

/// Opens the engine: takes the volume's lock, recovers, starts the workers. On an error (every fault of the
/// configuration at once) nothing is open and `*out` is null.
///
/// # Safety
/// `options` and `out` are valid; the options' texts live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_open(
    options: *const TerraceOpenOptions,
    out: *mut *mut TerraceEngine,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (options, out) = unsafe { (&*options, &mut *out) };
        *out = std::ptr::null_mut();
        if options.size != size_of::<TerraceOpenOptions>() {
            return Err(Fault::invalid(format!(
                "terrace_open_options has {} bytes here and {} in the caller",
                size_of::<TerraceOpenOptions>(),
                options.size
            )));
        }
        // SAFETY: the caller's promise.
        let (text, overrides) = unsafe { (options.config.text()?, options.overrides.text()?) };
        let (engine_config, places, parts) = open::assemble_to_run(text, overrides)?;
        // Nothing ran that could have stopped: what failed is told by itself.
        let engine = Engine::open(engine_config, parts).map_err(|error| match error {
            Error::Poisoned(what) => Error::Invalid(what),
            other => other,
        })?;
        // Tables are worth more than to be looked at: without metrics the engine runs all the same.
        let (metrics, metrics_trouble) = match open::metrics_listen(&places) {
            None => (None, None),
            Some(address) => {
                let seen = engine.clone();
                match Listener::start(address, move || {
                    terrace_engine::engine::inspect::metrics::running(&seen)
                }) {
                    Ok(listener) => (Some(listener), None),
                    Err(error) => (None, Some(format!("none are served: {error}"))),
                }
            }
        };
        let places = places.texts();
        let prepared = Arc::default();
        *out = Box::into_raw(Box::new(TerraceEngine { engine, prepared, metrics, metrics_trouble, places }));
        Ok(Code::Ok)
    })
}

/// Shuts down: ends the workers, writes a checkpoint, marks the volume clean. The handle is freed, whatever is
/// returned. Transactions that are open are rolled back at the next start.
///
/// # Safety
/// `engine` came from `terrace_engine_open` and is no longer used by any other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_close(engine: *mut TerraceEngine) -> i32 {
    guard(|| {
        if !engine.is_null() {
            // SAFETY: the caller's promise.
            let mut engine = unsafe { Box::from_raw(engine) };
            drop(engine.metrics.take());
            engine.engine.shutdown()?;
        }
        Ok(Code::Ok)
    })
}

/// Calls `each` with every name and number of `numbers`.
///
/// # Safety
/// As `terrace_engine_status`.
unsafe fn each_number<N: AsRef<str>>(
    each: TerraceStatusFn,
    context: *mut std::ffi::c_void,
    numbers: impl FnOnce() -> Vec<(N, u64)>,
) -> i32 {
    guard(|| {
        let Some(each) = each else { return Err(Fault::invalid("no function to call".into())) };
        for (name, value) in numbers() {
            // SAFETY: the caller's promise.
            unsafe { each(context, TerraceBytes::of(name.as_ref().as_bytes()), value) };
        }
        Ok(Code::Ok)
    })
}

/// Calls `each` with every counter, by name.
///
/// # Safety
/// `engine` is open; `each` may be called with `context` on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_status(
    engine: *const TerraceEngine,
    each: TerraceStatusFn,
    context: *mut std::ffi::c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { each_number(each, context, || (&*engine).engine.status()) }
}

/// Calls `each` with every setting that is a number, as it is in force; sizes in bytes.
///
/// # Safety
/// As `terrace_engine_status`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_settings(
    engine: *const TerraceEngine,
    each: TerraceStatusFn,
    context: *mut std::ffi::c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { each_number(each, context, || (&*engine).engine.settings()) }
}

/// Whether to give up; asked every few milliseconds.
pub type TerraceStopFn = Option<unsafe extern "C" fn(context: *mut std::ffi::c_void) -> bool>;

/// Gives `memory`, `flash` or `object_buffer` (a name of `terrace_engine_settings`) another size, in bytes (0: its default), and waits until it has it. After an
/// error the old size is in force: the new one is impossible, another resize is under way, nothing has moved for
/// `resize_wait_timeout_ms`, or `stop` (may be null) said so.
///
/// # Safety
/// `engine` is open; `name` lives during the call; `stop` may be called with `context` on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_resize(
    engine: *const TerraceEngine,
    name: TerraceBytes,
    bytes: u64,
    stop: TerraceStopFn,
    context: *mut std::ffi::c_void,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { name.text()? };
        let what = Size::named(name)
            .ok_or_else(|| Fault::invalid(format!("`{name}` is no size that can be changed")))?;
        let stop = || {
            // SAFETY: the caller's promise.
            stop.is_some_and(|stop| unsafe { stop(context) })
        };
        // SAFETY: the caller's promise.
        unsafe { &*engine }.engine.resize(what, Bytes(bytes), &stop)?;
        Ok(Code::Ok)
    })
}

/// Whether from here on reads are answered with durable commits only, and a commit is visible to others when its ticket says so. Not so at the
/// start. With `on`, everything committed so far is durable when it returns.
///
/// # Safety
/// `engine` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_set_durable_reads(engine: *const TerraceEngine, on: bool) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*engine }.engine.set_durable_reads(on)?;
        Ok(Code::Ok)
    })
}

/// Whether pages that are built in bulk pass by the log and memory, straight to the volume (they do at the start). It counts for
/// what begins from here on.
///
/// # Safety
/// `engine` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_set_bypass(engine: *const TerraceEngine, on: bool) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*engine }.engine.set_bypass(on);
        Ok(Code::Ok)
    })
}

/// Rows of at least this many bytes bypass the log, too, if bypass is on (64 KiB at the start). Applies to rows from here on.
///
/// # Safety
/// `engine` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_set_bypass_from(engine: *const TerraceEngine, bytes: u64) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*engine }.engine.set_bypass_from(bytes);
        Ok(Code::Ok)
    })
}

/// What becomes of flash copies of pages that are flushed, in tables that do not say it themselves: 1 auto (at the start), 2 clean, 3 dual.
///
/// # Safety
/// `engine` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_set_write_policy(engine: *const TerraceEngine, policy: u8) -> i32 {
    guard(|| {
        let policy = crate::engine::rules::policy_of(policy)?;
        // SAFETY: the caller's promise.
        unsafe { &*engine }.engine.set_write_policy(policy);
        Ok(Code::Ok)
    })
}

/// Calls `on_wait` before each lock wait with the owners (`terrace_txn_set_owner`) of the waiting transaction and of the one it waits for, if both
/// have one; the two live as long as the call lasts. It must not call this library. The first call of this function counts.
///
/// # Safety
/// `engine` is open; `on_wait` may be called from any thread until the engine is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_tell_lock_waits(
    engine: *const TerraceEngine,
    on_wait: TerraceWaitFn,
) -> i32 {
    guard(|| {
        let Some(on_wait) = on_wait else { return Err(Fault::invalid("no function to call".into())) };
        let call = move |waiter: u64, holder: u64| {
            // SAFETY: both were given by `terrace_txn_set_owner`, and the engine forgets them before they go.
            unsafe { on_wait(waiter as usize as *mut _, holder as usize as *mut _) }
        };
        // SAFETY: the caller's promise.
        unsafe { &*engine }.engine.tell_lock_waits(Box::new(call));
        Ok(Code::Ok)
    })
}

/// Calls `each` with what counters can't say: instance, places, and what is wrong. A name that ends in `_trouble`
/// is there only while there is trouble.
///
/// # Safety
/// As `terrace_engine_status`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_notes(
    engine: *const TerraceEngine,
    each: TerraceNoteFn,
    context: *mut std::ffi::c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        each_note(each, context, || {
            let engine = &*engine;
            let mut notes = engine.engine.notes();
            notes.extend(engine.metrics_trouble.iter().map(|what| ("metrics_trouble", what.clone())));
            notes
        })
    }
}

/// Calls `each` with every state of trouble that lasts: those of `terrace_engine_notes` whose names end in `_trouble`. Of one name there may be several,
/// of different severity.
///
/// # Safety
/// As `terrace_engine_status`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_troubles(
    engine: *const TerraceEngine,
    each: TerraceTroubleFn,
    context: *mut std::ffi::c_void,
) -> i32 {
    guard(|| {
        let Some(each) = each else { return Err(Fault::invalid("no function to call".into())) };
        // SAFETY: the caller's promise.
        let engine = unsafe { &*engine };
        let mut troubles = engine.engine.troubles();
        let metrics = engine.metrics_trouble.iter();
        troubles.extend(metrics.map(|what| Trouble::degraded("metrics_trouble", what.clone())));
        for Trouble { name, severity, text } in troubles {
            let (name, text) = (TerraceBytes::of(name.as_bytes()), TerraceBytes::of(text.as_bytes()));
            // SAFETY: the caller's promise.
            unsafe { each(context, name, severity as u8, text) };
        }
        Ok(Code::Ok)
    })
}

/// Calls `each` with every setting that is a text, as it is in force; of places those that are given.
///
/// # Safety
/// As `terrace_engine_status`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_texts(
    engine: *const TerraceEngine,
    each: TerraceNoteFn,
    context: *mut std::ffi::c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { each_note(each, context, || [(&*engine).places.clone(), (&*engine).engine.texts()].concat()) }
}

/// Calls `each` with every name and text of `notes`.
///
/// # Safety
/// As `terrace_engine_status`.
unsafe fn each_note(
    each: TerraceNoteFn,
    context: *mut std::ffi::c_void,
    notes: impl FnOnce() -> Vec<(&'static str, String)>,
) -> i32 {
    guard(|| {
        let Some(each) = each else { return Err(Fault::invalid("no function to call".into())) };
        for (name, text) in notes() {
            // SAFETY: the caller's promise.
            unsafe { each(context, TerraceBytes::of(name.as_bytes()), TerraceBytes::of(text.as_bytes())) };
        }
        Ok(Code::Ok)
    })
}

/// Calls `each` with the sections of a report for people, by name: what the engine does a second since the last call, its history, its log,
/// its tiers.
///
/// # Safety
/// As `terrace_engine_status`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_report(
    engine: *const TerraceEngine,
    each: TerraceNoteFn,
    context: *mut std::ffi::c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { each_note(each, context, || (&*engine).engine.report()) }
}

/// Calls `each` with every space.
///
/// # Safety
/// As `terrace_engine_status`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_spaces(
    engine: *const TerraceEngine,
    each: TerraceSpaceFn,
    context: *mut std::ffi::c_void,
) -> i32 {
    guard(|| {
        let Some(each) = each else { return Err(Fault::invalid("no function to call".into())) };
        // SAFETY: the caller's promise.
        for info in unsafe { &*engine }.engine.spaces() {
            let space = TerraceSpace {
                size: size_of::<TerraceSpace>(),
                space: info.space,
                table: TerraceBytes::of(info.table.as_bytes()),
                index: TerraceBytes::of(info.index.as_bytes()),
                pages: info.pages,
                memory: info.memory,
                flash: info.flash,
                volume: info.volume,
                object: info.object,
            };
            // SAFETY: the caller's promise; the struct lives during the call.
            unsafe { each(context, &space) };
        }
        Ok(Code::Ok)
    })
}

/// Calls `each` with every purpose of every tier there is.
///
/// # Safety
/// As `terrace_engine_status`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_requests(
    engine: *const TerraceEngine,
    each: TerraceRequestsFn,
    context: *mut std::ffi::c_void,
) -> i32 {
    guard(|| {
        let Some(each) = each else { return Err(Fault::invalid("no function to call".into())) };
        // SAFETY: the caller's promise.
        for line in unsafe { &*engine }.engine.requests() {
            let count = line.count;
            let requests = TerraceRequests {
                size: size_of::<TerraceRequests>(),
                tier: TerraceBytes::of(line.tier.as_bytes()),
                purpose: TerraceBytes::of(line.purpose.as_bytes()),
                requests: count.requests,
                bytes: count.bytes,
                errors: count.errors,
                retries: count.retries,
                mean: count.mean() / 1000,
                p50: count.latency.quantile(0.5) / 1000,
                p99: count.latency.quantile(0.99) / 1000,
            };
            // SAFETY: the caller's promise; the struct lives during the call.
            unsafe { each(context, &requests) };
        }
        Ok(Code::Ok)
    })
}

/// Rows that a session has read and changed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TerraceRowCounts {
    pub read: u64,
    pub inserted: u64,
    pub updated: u64,
    pub deleted: u64,
}

/// Adds to the counters of `terrace_engine_status` what a session has counted since it was here last. `session` is any number
/// that sessions have for themselves.
///
/// # Safety
/// `engine` is open; `rows` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_count_rows(
    engine: *const TerraceEngine,
    session: u64,
    rows: *const TerraceRowCounts,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, rows) = unsafe { (&*engine, *rows) };
        let TerraceRowCounts { read, inserted, updated, deleted } = rows;
        engine.engine.count_rows(session, &Rows { read, inserted, updated, deleted });
        Ok(Code::Ok)
    })
}

/// Makes every commit so far durable; returns when it is.
///
/// # Safety
/// `engine` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_sync(engine: *const TerraceEngine) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*engine }.engine.make_durable()?;
        Ok(Code::Ok)
    })
}
