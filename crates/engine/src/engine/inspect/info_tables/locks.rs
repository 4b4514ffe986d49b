//! Transactions, locks, waits and the last deadlock, as tables: `transactions`, `locks`, `lock_waits`, `last_deadlock`.
//! `docs/observability.md` explains every column.
//!
//! Temporary tables are not in them: only their own session locks their rows.

use super::Value;
use crate::lock::Isolation;
use crate::lock::{Deadlock, Kind, Mode, Name, Phase, ShownKey, ShownLock, ShownWait, WantedLock};
use crate::txn::shared::Core;
use hashbrown::{HashMap, HashSet};
use std::fmt::Write;
use terrace_io::clock::Nanos;
use terrace_tier::page::SpaceId;

/// At most this many rows of `locks` are shown.
pub const LOCKS_MAX: usize = 100_000;
const NANOS_A_MS: u64 = 1_000_000;
/// Where a range of keys that has no end ends.
const END: &str = "supremum";

/// Calls `each` with the rows of one of these tables; false: it is none of them.
pub fn each(core: &Core, name: &str, each: &mut dyn FnMut(&[Value])) -> bool {
    match name {
        "transactions" => transactions(core, each),
        "locks" => locks(core, each),
        "lock_waits" => lock_waits(core, each),
        "last_deadlock" => last_deadlock(core, each),
        _ => return false,
    }
    true
}

fn time(core: &Core, at: Nanos) -> Value {
    let clock = &core.storage.world.clock;
    Value::Time(clock.unix_ms().saturating_sub(clock.now().saturating_sub(at) / NANOS_A_MS))
}

fn number_or_null(number: Option<u64>) -> Value {
    number.map_or(Value::Null, Value::Number)
}
fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}
fn text_or_null(one: Option<String>) -> Value {
    one.map_or(Value::Null, text)
}

fn transactions(core: &Core, each: &mut dyn FnMut(&[Value])) {
    let waits: HashMap<u64, ShownWait> =
        core.locks.waits_seen().into_iter().map(|wait| (wait.session, wait)).collect();
    let counts = core.locks.counts_seen();
    for runs in core.locks.running.all() {
        let wait = waits.get(&runs.session);
        let state = match (runs.phase, wait) {
            (Phase::RollingBack, _) => "ROLLING BACK",
            (Phase::Prepared, _) => "PREPARED",
            (Phase::Active, Some(_)) => "LOCK WAIT",
            (Phase::Active, None) => "RUNNING",
        };
        let isolation = runs.isolation.map(|isolation| match isolation {
            Isolation::ReadUncommitted => "READ UNCOMMITTED",
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE READ",
            Isolation::Serializable => "SERIALIZABLE",
        });
        let statement = runs.connection.and_then(|one| core.locks.deadlocks.statement_of(one));
        each(&[
            Value::Number(runs.session),
            text(state),
            time(core, runs.started),
            isolation.map_or(Value::Null, text),
            Value::Number(runs.changes),
            Value::Number(counts.get(&runs.session).copied().unwrap_or(0)),
            number_or_null(runs.connection),
            text_or_null(statement),
            wait.map_or(Value::Null, |wait| time(core, wait.since)),
            wait.map_or(Value::Null, |wait| text(wanted_id(wait))),
            Value::Number(runs.changes + runs.locked),
            Value::Number(runs.locked),
            number_or_null(runs.rows),
        ]);
    }
}

/// Tables and indexes, by their trees.
struct Trees(HashMap<SpaceId, (String, String)>);

impl Trees {
    fn of(core: &Core) -> Trees {
        Trees(core.catalog.list().into_iter().map(|(space, table, index)| (space, (table, index))).collect())
    }
    /// Empty if the tree is gone.
    fn names(&self, space: SpaceId) -> [Value; 2] {
        let (table, index) = self.0.get(&space).cloned().unwrap_or_default();
        [Value::Table(table), text(index)]
    }
}

fn hex(key: &ShownKey) -> String {
    let mut hex = String::with_capacity(2 * key.bytes.len() + 2);
    for byte in &key.bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    hex + if key.is_cut { ".." } else { "" }
}

/// The lock that is waited for, as it is named.
fn wanted_id(wait: &ShownWait) -> String {
    format!("{}:{}:W:{}", wait.session, wait.space.0, hex(&wait.key))
}

/// Mode and type of what is wanted.
fn wanted(want: WantedLock) -> [&'static str; 2] {
    match want {
        WantedLock { fills: true, .. } => ["X,INSERT_INTENTION", "RANGE"],
        WantedLock { inserts: true, .. } => ["X,INSERT_INTENTION", "RECORD"],
        WantedLock { rowless: true, .. } => ["X,UNIQUE", "RECORD"],
        WantedLock { mode, .. } => [mode_text(mode), "RECORD"],
    }
}
fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Shared => "S",
        Mode::Exclusive => "X",
    }
}

fn held_row(trees: &Trees, lock: &ShownLock) -> [Value; 9] {
    let (letter, mode, kind) = match lock.kind {
        Kind::Name(mode) => ('R', mode_text(mode), "RECORD"),
        Kind::Rows(mode) => ('N', mode_text(mode), "RANGE"),
        Kind::Gap => ('G', "GAP", "GAP"),
    };
    let from = hex(&lock.from);
    let id = format!("{}:{}:{letter}:{from}", lock.session, lock.space.0);
    let to = match lock.kind {
        Kind::Name(_) => Value::Null,
        _ => text(lock.to.as_ref().map_or(END.into(), hex)),
    };
    let [table, index] = trees.names(lock.space);
    [
        text(id),
        Value::Number(lock.session),
        text("GRANTED"),
        text(mode),
        text(kind),
        table,
        index,
        text(from),
        to,
    ]
}

fn locks(core: &Core, each: &mut dyn FnMut(&[Value])) {
    let trees = Trees::of(core);
    let waits = core.locks.waits_seen();
    // Rows that are locked by the transaction id in them are shown if a session waits for them.
    let mut changed = HashSet::new();
    let mut left = LOCKS_MAX;
    let mut put = |row: &[Value]| {
        if left > 0 {
            left -= 1;
            each(row);
        }
    };
    for wait in &waits {
        let [mode, kind] = wanted(wait.want);
        let to = if wait.want.fills { text(END) } else { Value::Null };
        let [table, index] = trees.names(wait.space);
        let (id, key) = (text(wanted_id(wait)), text(hex(&wait.key)));
        put(&[
            id,
            Value::Number(wait.session),
            text("WAITING"),
            text(mode),
            text(kind),
            table,
            index,
            key,
            to,
        ]);
        for target in wait.targets.iter().filter(|_| wait.is_changed) {
            if changed.insert((*target, wait.space, &wait.key.bytes)) {
                let (from, kind) = (wait.key.clone(), Kind::Name(Mode::Exclusive));
                let lock = ShownLock { session: *target, space: wait.space, kind, from, to: None };
                put(&held_row(&trees, &lock));
            }
        }
    }
    core.locks.each_seen(left, &mut |lock| each(&held_row(&trees, lock)));
}

fn lock_waits(core: &Core, each: &mut dyn FnMut(&[Value])) {
    let waits = core.locks.waits_seen();
    if waits.is_empty() {
        return;
    }
    let trees = Trees::of(core);
    for wait in waits {
        let ([mode, kind], [table, index]) = (wanted(wait.want), trees.names(wait.space));
        for target in &wait.targets {
            each(&[
                Value::Number(wait.session),
                text(wanted_id(&wait)),
                Value::Number(*target),
                number_or_null(core.locks.running.connection_of(wait.session)),
                number_or_null(core.locks.running.connection_of(*target)),
                time(core, wait.since),
                text(mode),
                text(kind),
                table.clone(),
                index.clone(),
                text(hex(&wait.key)),
            ]);
        }
    }
}

fn last_deadlock(core: &Core, each: &mut dyn FnMut(&[Value])) {
    core.locks.deadlocks.last().iter().for_each(|last| deadlock(core, last, each));
}

/// The rows of one deadlock, as `last_deadlock` has them of the last one.
pub fn deadlock(core: &Core, deadlock: &Deadlock, each: &mut dyn FnMut(&[Value])) {
    let trees = Trees::of(core);
    for (at, member) in deadlock.members.iter().enumerate() {
        let next = &deadlock.members[(at + 1) % deadlock.members.len()];
        let Name { space, key } = &member.name;
        let [mode, kind] = wanted(member.want);
        let [table, index] = trees.names(*space);
        each(&[
            time(core, deadlock.at),
            Value::Number(at as u64 + 1),
            Value::Number(member.session),
            number_or_null(member.connection),
            Value::Number(u64::from(member.gave_way)),
            text(mode),
            text(kind),
            table,
            index,
            text(hex(&ShownKey::of(key))),
            Value::Number(next.session),
            text_or_null(member.statement.clone()),
        ]);
    }
}
