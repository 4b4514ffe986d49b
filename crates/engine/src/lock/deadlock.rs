//! The last deadlock: which session waited for which, for what, and which was the victim.
//!
//! It is found under the lock table's mutex, and reported after that: the statements are asked of the front, which has mutexes of its own. The victim
//! wakes only then, so that its statement is still under way.

use super::{Locks, Name, WantedLock};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use terrace_io::clock::Nanos;
use terrace_io::sched::Event;

/// At most this many members of a cycle are kept; the session that closed it is the first.
const MEMBERS_MAX: usize = 100;

/// The statement that a connection runs, as far as it is known. Called by any thread that waits for a lock; it must not wait for one.
pub type StatementOf = Box<dyn Fn(u64) -> Option<String> + Send + Sync>;

/// Called with each deadlock, by the thread that found it, which holds its transaction and no lock of the table. It must not wait for a row lock.
pub type OnDeadlock = Arc<dyn Fn(&Deadlock) + Send + Sync>;

/// One that waited for the next one, and the last for the first.
#[derive(Clone, Debug)]
pub struct Member {
    pub session: u64,
    pub name: Name,
    pub want: WantedLock,
    pub gave_way: bool,
    pub connection: Option<u64>,
    pub statement: Option<String>,
}

impl Member {
    pub fn new(session: u64, name: Name, want: WantedLock) -> Member {
        Member { session, name, want, gave_way: false, connection: None, statement: None }
    }
}

#[derive(Clone, Debug)]
pub struct Deadlock {
    /// On the world's clock.
    pub at: Nanos,
    pub members: Vec<Member>,
}

/// A circle that was broken and is not told yet, and who is to be woken then.
#[derive(Default)]
pub struct BrokenDeadlock {
    pub members: Vec<Member>,
    pub wake: Vec<Arc<Event>>,
}

#[derive(Default)]
pub struct Deadlocks {
    last: Mutex<Option<Arc<Deadlock>>>,
    statement_of: OnceLock<StatementOf>,
    on_deadlock: Mutex<Option<OnDeadlock>>,
}

impl Deadlocks {
    /// From now on statements are known; the first call counts.
    pub fn ask(&self, statement_of: StatementOf) {
        let _ = self.statement_of.set(statement_of);
    }
    /// From now on each deadlock is told; None: none any more.
    pub fn tell(&self, on_deadlock: Option<OnDeadlock>) {
        *self.on_deadlock.lock() = on_deadlock;
    }
    pub fn statement_of(&self, connection: u64) -> Option<String> {
        self.statement_of.get().and_then(|ask| ask(connection)).filter(|text| !text.is_empty())
    }
    pub fn last(&self) -> Option<Arc<Deadlock>> {
        self.last.lock().clone()
    }
}

impl Locks {
    /// Keeps a cycle as the last one, and wakes the victim. The lock table's mutex is not held.
    pub(super) fn tell_deadlock(&self, found: BrokenDeadlock) {
        let BrokenDeadlock { mut members, wake } = found;
        members.truncate(MEMBERS_MAX);
        for member in &mut members {
            member.connection = self.running.connection_of(member.session);
            member.statement = member.connection.and_then(|one| self.deadlocks.statement_of(one));
        }
        let deadlock = Arc::new(Deadlock { at: self.world.clock.now(), members });
        *self.deadlocks.last.lock() = Some(deadlock.clone());
        wake.iter().for_each(|event| event.notify());
        let on_deadlock = self.deadlocks.on_deadlock.lock().clone();
        on_deadlock.iter().for_each(|tell| tell(&deadlock));
    }
}
