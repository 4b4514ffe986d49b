//! Locks and waiters, as shown to an operator.
//!
//! Locks are copied a portion at a time, each under the table's mutex: a session that takes locks meanwhile waits for one portion at most, and
//! the result need not be consistent. Waits are a consistent snapshot.
//!
//! Not here: rows that are locked by the transaction id in them. They are not listed; one that is waited for is shown with the wait.

use super::gaps::RangeKind;
use super::names::Modes;
use super::{Key, Locks, Mode, WantedLock};
use hashbrown::HashMap;
use terrace_io::clock::Nanos;
use terrace_tier::page::SpaceId;

/// Ranges copied at a time. Of locks one by one it is a piece of their slab, which has as many.
const PORTION: usize = 1024;
/// Bytes of a key that are shown.
const KEY_SHOWN: usize = 256;

/// The beginning of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownKey {
    pub bytes: Key,
    pub is_cut: bool,
}

impl ShownKey {
    pub fn of(key: &[u8]) -> ShownKey {
        ShownKey { bytes: key[..key.len().min(KEY_SHOWN)].into(), is_cut: key.len() > KEY_SHOWN }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A row, or a name that must be unique.
    Name(Mode),
    /// All rows that live in a range of keys.
    Rows(Mode),
    /// Others' inserts are kept out of a range of keys.
    Gap,
}

/// A lock that is held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownLock {
    pub session: u64,
    pub space: SpaceId,
    pub kind: Kind,
    pub from: ShownKey,
    /// The end of a range, exclusive. None: the tree's.
    pub to: Option<ShownKey>,
}

/// A lock that is waited for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownWait {
    pub session: u64,
    pub space: SpaceId,
    pub key: ShownKey,
    pub want: WantedLock,
    /// Since when, on the world's clock.
    pub since: Nanos,
    pub targets: Vec<u64>,
    /// The row was changed by the one that it waits for.
    pub is_changed: bool,
}

impl Locks {
    /// All waiters, in order of arrival.
    pub fn waits_seen(&self) -> Vec<ShownWait> {
        let mut waits = self.inner.lock().waiters.seen();
        waits.sort_unstable_by_key(|wait| (wait.since, wait.session));
        waits
    }

    /// How many locks each session holds: one by one, and ranges.
    pub fn counts_seen(&self) -> HashMap<u64, u64> {
        let mut counts: HashMap<u64, u64> = HashMap::new();
        let (mut piece, mut more) = (0, true);
        while more {
            more = self.inner.lock().locks.piece(piece, |session, _, _, _| {
                *counts.entry(session).or_default() += 1;
            });
            piece += 1;
        }
        let inner = self.inner.lock();
        for (session, locks) in inner.gaps.counts().chain(inner.locks.crowds().counts()) {
            *counts.entry(session).or_default() += locks as u64;
        }
        counts
    }

    /// Calls `each` with locks that are held, at most `max` of them. No mutex is held in the call.
    pub fn each_seen(&self, max: usize, each: &mut dyn FnMut(&ShownLock)) {
        let mut left = max;
        let mut hand_out = |portion: &mut Vec<ShownLock>| {
            portion.truncate(left);
            left -= portion.len();
            portion.drain(..).for_each(|lock| each(&lock));
            left > 0
        };
        let mut portion = Vec::new();
        let lock = |session, space, kind, from: &[u8]| ShownLock {
            session,
            space,
            kind,
            from: ShownKey::of(from),
            to: None,
        };
        let (mut piece, mut more) = (0, true);
        while more {
            more = self.inner.lock().locks.piece(piece, |session, space, key, mode| {
                portion.push(lock(session, space, Kind::Name(mode), key));
            });
            piece += 1;
            if !hand_out(&mut portion) {
                return;
            }
        }
        let owners = self.inner.lock().locks.crowds().owners_of_all();
        for (space, session) in owners {
            for modes in Modes::ANY {
                let mut after: Option<Vec<u8>> = None;
                loop {
                    let inner = self.inner.lock();
                    let (whose, kind) = ((space, session), Kind::Name(modes.strongest()));
                    after = inner.locks.crowds().some(whose, modes, after.as_deref(), PORTION, |key| {
                        portion.push(lock(session, space, kind, key));
                    });
                    drop(inner);
                    if !hand_out(&mut portion) {
                        return;
                    }
                    if after.is_none() {
                        break;
                    }
                }
            }
        }
        let owners = self.inner.lock().gaps.owners();
        for (space, session) in owners {
            for held in RangeKind::ALL {
                let kind = match held {
                    RangeKind::Rows(mode) => Kind::Rows(mode),
                    RangeKind::Gaps => Kind::Gap,
                };
                let mut after: Option<Box<[u8]>> = None;
                loop {
                    let inner = self.inner.lock();
                    after = inner.gaps.some((space, session), held, after.as_deref(), PORTION, |from, to| {
                        portion
                            .push(ShownLock { to: to.map(ShownKey::of), ..lock(session, space, kind, from) });
                    });
                    drop(inner);
                    if !hand_out(&mut portion) {
                        return;
                    }
                    if after.is_none() {
                        break;
                    }
                }
            }
        }
    }
}
