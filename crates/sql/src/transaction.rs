//! Transactions at the border: begin, statements, savepoints, commit with a ticket, two phases, cancel.

use crate::bytes::TerraceBytes;
use crate::engine::{Prepared, TerraceEngine, Waiting};
use crate::error::{Code, Fault, Result, guard};
use std::ffi::c_void;
use std::sync::Arc;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Savepoint;
use terrace_engine::Ticket;
use terrace_engine::Txn;

/// Where the numbers that the server sees begin.
const NUMBERS: u64 = 1 << 48;

/// A transaction. Ended by `terrace_txn_commit` or `terrace_txn_rollback`, then freed by `terrace_txn_close`.
pub struct TerraceTxn {
    pub(crate) txn: Arc<Txn>,
    prepared: Arc<Prepared>,
    /// Its name, from its prepare to its end.
    xid: Option<Vec<u8>>,
    pub(crate) row: Vec<u8>,
}

/// A commit on its way to the volume. Freed by `terrace_ticket_wait` or `terrace_ticket_close`.
pub struct TerraceTicket {
    ticket: Ticket,
}

/// A savepoint. Freed by `terrace_savepoint_close`.
pub struct TerraceSavepoint {
    savepoint: Savepoint,
}

#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TerraceIsolation {
    ReadUncommitted = 0,
    ReadCommitted = 1,
    RepeatableRead = 2,
    Serializable = 3,
}

/// How rows are locked that a read returns.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TerraceLock {
    /// Not at all: a consistent read.
    None = 0,
    Shared = 1,
    Exclusive = 2,
}

fn isolation_of(isolation: u32) -> Result<Isolation> {
    match isolation {
        0 => Ok(Isolation::ReadUncommitted),
        1 => Ok(Isolation::ReadCommitted),
        2 => Ok(Isolation::RepeatableRead),
        3 => Ok(Isolation::Serializable),
        _ => Err(Fault::invalid(format!("no isolation level {isolation}"))),
    }
}

pub(crate) fn lock_of(lock: u32) -> Result<Lock> {
    match lock {
        0 => Ok(Lock::None),
        1 => Ok(Lock::Shared),
        2 => Ok(Lock::Exclusive),
        _ => Err(Fault::invalid(format!("no lock mode {lock}"))),
    }
}

/// Starts a transaction. It takes no number and no view before it needs one.
///
/// # Safety
/// `engine` is open, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_begin(
    engine: *const TerraceEngine,
    isolation: u32,
    out: *mut *mut TerraceTxn,
) -> i32 {
    guard(|| {
        let isolation = isolation_of(isolation)?;
        // SAFETY: the caller's promise.
        unsafe {
            let txn = (*engine).engine.begin(isolation);
            let prepared = (*engine).prepared.clone();
            *out = Box::into_raw(Box::new(TerraceTxn { txn, prepared, xid: None, row: Vec::new() }));
        }
        Ok(Code::Ok)
    })
}

/// As `terrace_txn_begin`, with the handle of a transaction that was committed or rolled back and whose cursors are closed. Its
/// cancel handles are of this one, too, if `*same` is true; else they are of nothing any more.
///
/// # Safety
/// `txn` is open, `same` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_begin_again(
    txn: *mut TerraceTxn,
    isolation: u32,
    same: *mut bool,
) -> i32 {
    guard(|| {
        let isolation = isolation_of(isolation)?;
        // SAFETY: the caller's promise.
        let (txn, same) = unsafe { (&mut *txn, &mut *same) };
        if !txn.txn.has_ended() {
            return Err(Fault::invalid("the transaction has not ended".into()));
        }
        let before = Arc::as_ptr(&txn.txn);
        txn.txn.begin_again(isolation);
        txn.xid = None;
        *same = Arc::as_ptr(&txn.txn) == before;
        Ok(Code::Ok)
    })
}

/// Whether the transaction was committed or rolled back. If so, its waits are not reported any more.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_rest(txn: *mut TerraceTxn) -> bool {
    // SAFETY: the caller's promise.
    let txn = unsafe { &*txn };
    let ended = txn.xid.is_none() && txn.txn.has_ended();
    if ended {
        txn.txn.disown();
    }
    ended
}

/// Frees the handle; rolls back what was neither committed, rolled back nor prepared. What was prepared waits to be
/// decided by name. Null is fine.
///
/// # Safety
/// `txn` came from this library and is no longer used by any other thread; its cursors are closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_close(txn: *mut TerraceTxn) {
    guard(|| {
        if !txn.is_null() {
            // SAFETY: the caller's promise.
            let TerraceTxn { txn, prepared, xid, .. } = *unsafe { Box::from_raw(txn) };
            txn.disown();
            if let Some(xid) = xid {
                txn.set_connection(0);
                prepared.leave(xid, txn);
            }
        }
        Ok(Code::Ok)
    });
}

/// A statement starts: an implicit savepoint, and at READ COMMITTED a new view.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_statement_begin(txn: *mut TerraceTxn) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*txn }.txn.statement_begin();
        Ok(Code::Ok)
    })
}

/// A statement has ended: at READ COMMITTED its view goes. Cursors are used again after the next `terrace_txn_statement_begin` only.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_statement_end(txn: *mut TerraceTxn) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*txn }.txn.statement_end();
        Ok(Code::Ok)
    })
}

/// Undoes what was done since `terrace_txn_statement_begin`.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_statement_rollback(txn: *mut TerraceTxn) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*txn }.txn.statement_rollback()?;
        Ok(Code::Ok)
    })
}

/// Fixes the view of a REPEATABLE READ transaction now (START TRANSACTION WITH CONSISTENT SNAPSHOT).
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_open_view(txn: *mut TerraceTxn) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*txn }.txn.open_view();
        Ok(Code::Ok)
    })
}

/// As `terrace_txn_open_view`, with all that is committed by now: with durable reads it waits until that is durable.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_open_view_of_all(txn: *mut TerraceTxn) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*txn }.txn.open_view_of_all();
        Ok(Code::Ok)
    })
}

/// Whether from now on views hold all that was committed before they are opened, for which they wait. For a replica, which applies what
/// follows on it. Not so when the transaction begins.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_set_views_of_all(txn: *mut TerraceTxn, on: bool) {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*txn }.txn.set_views_of_all(on);
        Ok(Code::Ok)
    });
}

/// Whether from now on what the transaction reads is told to the client before the transaction ends; so it is when the transaction begins. With
/// durable reads a read under locks then returns when the commits that it has seen are durable. If not, `terrace_txn_settle` waits for them, or
/// the commit.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_set_tells(txn: *mut TerraceTxn, on: bool) {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*txn }.txn.set_tells(on);
        Ok(Code::Ok)
    });
}

/// With durable reads, waits until the commits that the transaction has seen under locks are durable. Also of one that has ended.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_settle(txn: *mut TerraceTxn) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*txn }.txn.settle()?;
        Ok(Code::Ok)
    })
}

/// How long this transaction waits for a row lock, in milliseconds; 0 is not at all.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_set_lock_wait(txn: *mut TerraceTxn, milliseconds: u64) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*txn }.txn.set_lock_wait_timeout_ms(milliseconds);
        Ok(Code::Ok)
    })
}

/// From now on, or no longer, the transaction has changed something that its rollback doesn't take back, such as a table of an engine without
/// transactions: in a deadlock it is the victim only if all members of the cycle have. Not so when it begins.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_set_one_way(txn: *mut TerraceTxn, on: bool) {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*txn }.txn.set_one_way(on);
        Ok(Code::Ok)
    });
}

/// From now on, or no longer, the transaction is strict about its view: a row that was changed since the view was opened is not
/// locked, `TERRACE_ROW_CHANGED` is returned, and the transaction must be rolled back. Not so when it begins.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_set_strict(txn: *mut TerraceTxn, on: bool) {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*txn }.txn.set_strict(on);
        Ok(Code::Ok)
    });
}

/// The owner that the function of `terrace_engine_tell_lock_waits` gets, until `terrace_txn_close` returns.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_set_owner(txn: *mut TerraceTxn, owner: *mut c_void) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*txn }.txn.set_owner(owner as usize as u64);
        Ok(Code::Ok)
    })
}

/// The connection that runs the transaction, and those that follow in its handle as long as `terrace_txn_begin_again` says that it is the
/// same one: by this number they are seen (`terrace_engine_seen`). 0: by none any more.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_set_connection(txn: *mut TerraceTxn, connection: u64) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*txn }.txn.set_connection(connection);
        Ok(Code::Ok)
    })
}

/// # Safety
/// `txn` is open, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_savepoint(txn: *mut TerraceTxn, out: *mut *mut TerraceSavepoint) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let savepoint = (*txn).txn.savepoint();
            *out = Box::into_raw(Box::new(TerraceSavepoint { savepoint }));
        }
        Ok(Code::Ok)
    })
}

/// Undoes everything since the savepoint, which stays valid.
///
/// # Safety
/// `txn` is open, `savepoint` is one of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_rollback_to(
    txn: *mut TerraceTxn,
    savepoint: *const TerraceSavepoint,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { (*txn).txn.rollback_to((*savepoint).savepoint)? };
        Ok(Code::Ok)
    })
}

/// Frees the handle; null is fine.
///
/// # Safety
/// `savepoint` came from this library and is no longer used by any other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_savepoint_close(savepoint: *mut TerraceSavepoint) {
    if !savepoint.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(savepoint) });
    }
}

/// Commits: others see the changes, with durable reads when the ticket says so. Durable when the ticket says so; `*out` may be null if there is
/// nothing to wait for. With `out` null nothing is waited for. On an error the transaction is still open.
///
/// # Safety
/// `txn` is open, `out` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_commit(txn: *mut TerraceTxn, out: *mut *mut TerraceTicket) -> i32 {
    // SAFETY: the caller's promise.
    guard(|| unsafe { commit(txn, out, Txn::commit) })
}

/// As `terrace_txn_commit`, of a transaction that the binary log has, durably: a crash finds it prepared, and commits it. `terrace_ticket_close`
/// has then no commit to wait for that is not durable, but those before it in the log.
///
/// # Safety
/// As `terrace_txn_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_commit_decided(
    txn: *mut TerraceTxn,
    out: *mut *mut TerraceTicket,
) -> i32 {
    // SAFETY: the caller's promise.
    guard(|| unsafe { commit(txn, out, Txn::commit_decided) })
}

/// # Safety
/// As `terrace_txn_commit`.
unsafe fn commit(
    txn: *mut TerraceTxn,
    out: *mut *mut TerraceTicket,
    commit: impl FnOnce(&Txn) -> terrace_engine::Result<Ticket>,
) -> Result<Code> {
    // SAFETY: the caller's promise.
    unsafe {
        let ticket = commit(&(*txn).txn)?;
        (*txn).xid = None;
        if !out.is_null() {
            *out = match ticket.is_nothing() {
                true => std::ptr::null_mut(),
                false => Box::into_raw(Box::new(TerraceTicket { ticket })),
            };
        }
    }
    Ok(Code::Ok)
}

/// Waits until the commit is durable, and frees the ticket, whatever is returned. Null is fine.
///
/// # Safety
/// `ticket` came from this library and is no longer used by any other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_ticket_wait(ticket: *mut TerraceTicket) -> i32 {
    guard(|| {
        if !ticket.is_null() {
            // SAFETY: the caller's promise.
            let ticket = unsafe { Box::from_raw(ticket) };
            ticket.ticket.wait()?;
        }
        Ok(Code::Ok)
    })
}

/// As `terrace_ticket_wait`, but waits until the operating system has the commit: it survives the end of the process, and the loss of power
/// about a second later.
///
/// # Safety
/// As `terrace_ticket_wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_ticket_wait_written(ticket: *mut TerraceTicket) -> i32 {
    guard(|| {
        if !ticket.is_null() {
            // SAFETY: the caller's promise.
            let ticket = unsafe { Box::from_raw(ticket) };
            ticket.ticket.wait_written()?;
        }
        Ok(Code::Ok)
    })
}

/// Frees the ticket without waiting for the volume, but with durable reads until others see the commit; null is fine. A transaction that made changes while
/// the object buffer was nearly full waits a moment, as `terrace_ticket_wait` does, too.
///
/// # Safety
/// As `terrace_ticket_wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_ticket_close(ticket: *mut TerraceTicket) {
    if !ticket.is_null() {
        // SAFETY: the caller's promise.
        let ticket = unsafe { Box::from_raw(ticket) };
        // If the log has failed, no session sees it before the next start.
        let _ = ticket.ticket.wait_seen();
        ticket.ticket.throttle();
    }
}

/// Undoes everything and ends the transaction. After an error of the store, the volume or the log it has ended too, and is undone in the background.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_rollback(txn: *mut TerraceTxn) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let txn = unsafe { &mut *txn };
        let undone = txn.txn.rollback();
        if txn.txn.has_ended() {
            txn.xid = None;
        }
        undone?;
        Ok(Code::Ok)
    })
}

/// First phase of a two-phase commit, durable when it returns: the transaction outlives a crash under this name until it is
/// committed or rolled back, through its handle or by name.
///
/// # Safety
/// `txn` is open, `xid` lives during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_prepare(txn: *mut TerraceTxn, xid: TerraceBytes) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (txn, xid) = unsafe { (&mut *txn, xid.get()) };
        if txn.txn.has_changes() {
            txn.txn.prepare(xid)?;
            txn.xid = Some(xid.to_vec());
        }
        Ok(Code::Ok)
    })
}

/// As `terrace_txn_prepare`, but when it returns the operating system has it, as after `terrace_ticket_wait_written`.
///
/// # Safety
/// As `terrace_txn_prepare`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_prepare_written(txn: *mut TerraceTxn, xid: TerraceBytes) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (txn, xid) = unsafe { (&mut *txn, xid.get()) };
        if txn.txn.has_changes() {
            txn.txn.prepare_written(xid)?;
            txn.xid = Some(xid.to_vec());
        }
        Ok(Code::Ok)
    })
}

/// Gives back what the prepared transaction has locked to read again: gaps between rows, and rows that it shares.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_release_reads(txn: *mut TerraceTxn) {
    // SAFETY: the caller's promise.
    unsafe { &*txn }.txn.release_reads();
}

pub type TerraceXidFn = Option<unsafe extern "C" fn(context: *mut c_void, xid: TerraceBytes)>;

/// Calls `each` with the name of every prepared transaction that no handle owns.
///
/// # Safety
/// `engine` is open; `each` may be called with `context` on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_prepared(
    engine: *const TerraceEngine,
    each: TerraceXidFn,
    context: *mut c_void,
) -> i32 {
    guard(|| {
        let Some(each) = each else { return Err(Fault::invalid("no function to call".into())) };
        // SAFETY: the caller's promise.
        let engine = unsafe { &*engine };
        for xid in engine.engine.prepared().into_iter().chain(engine.prepared.names()) {
            // SAFETY: the caller's promise.
            unsafe { each(context, TerraceBytes::of(&xid)) };
        }
        Ok(Code::Ok)
    })
}

/// Calls `each` with the name of every table in which a prepared transaction that no handle owns has changes or locks. Those that a
/// crash left hold no locks but on what they changed.
///
/// # Safety
/// `engine` is open; `each` may be called with `context` on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_prepared_tables(
    engine: *const TerraceEngine,
    each: TerraceXidFn,
    context: *mut c_void,
) -> i32 {
    guard(|| {
        let Some(each) = each else { return Err(Fault::invalid("no function to call".into())) };
        // SAFETY: the caller's promise.
        let engine = unsafe { &*engine };
        for name in engine.engine.tables_of_prepared(&engine.prepared.transactions())? {
            // SAFETY: the caller's promise.
            unsafe { each(context, TerraceBytes::of(name.as_bytes())) };
        }
        Ok(Code::Ok)
    })
}

/// The same of one that a handle owns, beside those that a crash left.
///
/// # Safety
/// `engine` and `txn` are open; `each` may be called with `context` on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_tables(
    engine: *const TerraceEngine,
    txn: *const TerraceTxn,
    each: TerraceXidFn,
    context: *mut c_void,
) -> i32 {
    guard(|| {
        let Some(each) = each else { return Err(Fault::invalid("no function to call".into())) };
        // SAFETY: the caller's promise.
        let (engine, txn) = unsafe { (&*engine, &*txn) };
        for name in engine.engine.tables_of_prepared(std::slice::from_ref(&txn.txn))? {
            // SAFETY: the caller's promise.
            unsafe { each(context, TerraceBytes::of(name.as_bytes())) };
        }
        Ok(Code::Ok)
    })
}

/// Commits a prepared transaction by name, durably. `TERRACE_ABSENT` if there is none. After another error it is prepared
/// still, and can be decided again.
///
/// # Safety
/// `engine` is open, `xid` lives during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_prepared_commit(engine: *const TerraceEngine, xid: TerraceBytes) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, xid) = unsafe { (&*engine, xid.get()) };
        match engine.prepared.take(xid) {
            Some(waiting) => engine.prepared.decide(xid, waiting, Waiting::commit)?,
            None => {
                engine.engine.commit_prepared(xid)?;
                engine.engine.make_durable()?;
            }
        }
        Ok(Code::Ok)
    })
}

/// Rolls a prepared transaction back by name. `TERRACE_ABSENT` if there is none. After another error it is rolled back in the background, and has no
/// name any more; or, if none could be undone for the log's sake, it is named still.
///
/// # Safety
/// As `terrace_prepared_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_prepared_rollback(engine: *const TerraceEngine, xid: TerraceBytes) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, xid) = unsafe { (&*engine, xid.get()) };
        match engine.prepared.take(xid) {
            Some(waiting) => engine.prepared.decide(xid, waiting, Waiting::roll_back)?,
            None => engine.engine.rollback_prepared(xid)?,
        }
        Ok(Code::Ok)
    })
}

/// Whether the transaction changed anything so far.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_has_changes(txn: *const TerraceTxn) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*txn }.txn.has_changes()
}

/// Whether the transaction may hold locks of rows or of gaps, which a rollback to a savepoint doesn't give back.
///
/// # Safety
/// `txn` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_has_locks(txn: *const TerraceTxn) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*txn }.txn.has_locks()
}

/// The number by which the transaction's versions of rows are known; with it the transaction has changes. `*number` is below those
/// of transactions that get theirs later, and is never given again. Not InnoDB's numbers, which are below 2^48: the server keeps both in
/// one registry.
///
/// # Safety
/// `txn` is open, `number` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_number(txn: *const TerraceTxn, number: *mut u64) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { *number = NUMBERS + (*txn).txn.number()? };
        Ok(Code::Ok)
    })
}

/// As `terrace_txn_number` a number that no transaction has: above those given by now, below those to come. For the commit.
///
/// # Safety
/// `txn` is open, `number` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_number_after(txn: *const TerraceTxn, number: *mut u64) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { *number = NUMBERS + (*txn).txn.number_after()? };
        Ok(Code::Ok)
    })
}
