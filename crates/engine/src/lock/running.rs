//! What other sessions can see of a running transaction while its own thread works or waits.
//!
//! A transaction that a connection runs has a face, which its own thread writes and all threads may read; one that was not told
//! whose it is ([`crate::Txn::set_connection`]) has none, and costs nothing. A face stays for the transactions that follow in the same
//! memory. Orphaned transactions (`txn::orphaned`), which no connection runs, have one, too.

use crate::lock::Isolation;
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use terrace_io::clock::Nanos;
use terrace_io::lock::{Mutex, Mutexes};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Active,
    RollingBack,
    Prepared,
}

const PHASES: [Phase; 3] = [Phase::Active, Phase::RollingBack, Phase::Prepared];
const LEVELS: [Isolation; 4] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

const UNKNOWN: u64 = u64::MAX;

/// Its owner writes it; what others read is of one transaction ([`Face::look`]).
#[derive(Default)]
pub struct Face {
    /// 0: no transaction.
    session: AtomicU64,
    /// 0: none any more.
    connection: AtomicU64,
    started: AtomicU64,
    /// Undo records that stand.
    changes: AtomicU64,
    /// Rows changed, as far as that stands; [`UNKNOWN`].
    rows: AtomicU64,
    /// Rows locked, one by one or on ranges.
    locked: AtomicU64,
    /// The place in [`PHASES`].
    phase: AtomicU8,
    /// The place in [`LEVELS`], and behind them: unknown.
    isolation: AtomicU8,
}

/// A transaction that runs, at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Runs {
    pub session: u64,
    pub connection: Option<u64>,
    /// On the world's clock.
    pub started: Nanos,
    pub changes: u64,
    /// Rows changed, if it is known: an insert, an update, a delete is one each.
    pub rows: Option<u64>,
    /// Rows locked, one by one or on ranges.
    pub locked: u64,
    pub phase: Phase,
    pub isolation: Option<Isolation>,
}

impl Face {
    pub fn begins(&self, session: u64, isolation: Option<Isolation>, now: Nanos) {
        self.ends();
        // No thread takes what follows for the former transaction's.
        fence(Ordering::Release);
        let level = isolation.and_then(|isolation| LEVELS.iter().position(|level| *level == isolation));
        self.started.store(now, Ordering::Relaxed);
        for counter in [&self.changes, &self.rows, &self.locked] {
            counter.store(0, Ordering::Relaxed);
        }
        self.phase.store(0, Ordering::Relaxed);
        self.isolation.store(level.unwrap_or(LEVELS.len()) as u8, Ordering::Relaxed);
        self.session.store(session, Ordering::Release);
    }
    pub fn ends(&self) {
        self.session.store(0, Ordering::Relaxed);
    }
    pub fn set_connection(&self, connection: u64) {
        self.connection.store(connection, Ordering::Relaxed);
    }
    /// None: the rows were not counted.
    pub fn set_changes(&self, changes: u64, rows: Option<u64>) {
        self.changes.store(changes, Ordering::Relaxed);
        self.rows.store(rows.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }
    pub fn set_locked(&self, rows: u64) {
        self.locked.store(rows, Ordering::Relaxed);
    }
    pub fn set_phase(&self, phase: Phase) {
        let at = PHASES.iter().position(|one| *one == phase);
        self.phase.store(at.unwrap_or(0) as u8, Ordering::Relaxed);
    }

    /// What it shows; None: there is no transaction, or another one begins just now.
    fn look(&self) -> Option<Runs> {
        let session = self.session.load(Ordering::Acquire);
        let connection = self.connection.load(Ordering::Relaxed);
        let runs = Runs {
            session,
            connection: (connection != 0).then_some(connection),
            started: self.started.load(Ordering::Relaxed),
            changes: self.changes.load(Ordering::Relaxed),
            rows: Some(self.rows.load(Ordering::Relaxed)).filter(|rows| *rows != UNKNOWN),
            locked: self.locked.load(Ordering::Relaxed),
            phase: PHASES[usize::from(self.phase.load(Ordering::Relaxed)) % PHASES.len()],
            isolation: LEVELS.get(usize::from(self.isolation.load(Ordering::Relaxed))).copied(),
        };
        fence(Ordering::Acquire);
        (session != 0 && self.session.load(Ordering::Relaxed) == session).then_some(runs)
    }
}

#[derive(Default)]
pub struct Running(Mutex<HashMap<usize, Arc<Face>>, { Mutexes::Sessions as u8 }>);

fn place(face: &Arc<Face>) -> usize {
    Arc::as_ptr(face) as usize
}

impl Running {
    /// A face without a transaction, seen until [`Running::forget`].
    pub fn add(&self) -> Arc<Face> {
        let face = Arc::new(Face::default());
        self.0.lock().insert(place(&face), face.clone());
        face
    }
    pub fn forget(&self, face: &Arc<Face>) {
        self.0.lock().remove(&place(face));
    }
    pub fn forget_session(&self, session: u64) {
        self.0.lock().retain(|_, face| face.session.load(Ordering::Relaxed) != session);
    }

    /// The transactions that run, oldest first.
    pub fn all(&self) -> Vec<Runs> {
        let mut all: Vec<Runs> = self.0.lock().values().filter_map(|face| face.look()).collect();
        all.sort_unstable_by_key(|runs| runs.session);
        all
    }
    /// Whose connection runs the session's transaction.
    pub fn connection_of(&self, session: u64) -> Option<u64> {
        let faces = self.0.lock();
        let face = faces.values().find(|face| face.session.load(Ordering::Relaxed) == session)?;
        Some(face.connection.load(Ordering::Relaxed)).filter(|connection| *connection != 0)
    }
}
