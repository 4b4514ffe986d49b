//! Waiting for locks.
//!
//! A request that finds something in the way waits for its owners: edges in the wait-for graph, which is searched for
//! a cycle before each wait. The member of a cycle that has done least is the victim, and of equals the one
//! that would close it. Each waiter has an event of its own, notified when one of those it waits for ends or gives
//! something back; then it looks again.
//!
//! Those that wait for one name stand in a line, each behind the one before it. When what they wait for is gone one of them is woken:
//! the first, or one that is worth more (`order`). The served one continues, and the next one waits for it without having been woken.
//!
//! A newcomer may pass those that wait: a running session uses a lock soonest. But not for ever: a waiter that has lost
//! [`LOSSES_MAX`] times is served before all that came later.

use super::deadlock::{BrokenDeadlock, Member};
use super::report::{ShownKey, ShownWait};
use super::{InTheWay, Locks, Mode, Name, NameRef, WantedLock, order};
use crate::error::{Error, Result};
use crate::row::TxnId;
use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use terrace_io::cancel::Cancel;
use terrace_io::clock::Nanos;
use terrace_io::observe;
use terrace_io::sched::{Event, Woken};
use terrace_tier::page::SpaceId;

/// How often a waiter is passed.
const LOSSES_MAX: u32 = 4;

pub(super) struct Waiter {
    /// The sessions that it waits for; empty while it looks.
    pub targets: Vec<u64>,
    /// That is another waiter for the same name, and is served or gives up before it.
    pub behind: bool,
    /// It has the name already, to read, and wants more.
    pub has_part: bool,
    /// It may have no use for the name once what is in the way now has gone: then it looks, whoever has the name next.
    may_give_up: bool,
    /// The server knows whom it waits for (`Owners`), and would have to be told if another waiter went first.
    pub is_owned: bool,
    /// The transaction it waits for, if it is one.
    pub txn: Option<TxnId>,
    /// What would be lost with it: changes and locks.
    weight: u64,
    /// Chosen to break a circle.
    pub victim: bool,
    /// It is to look, and has not done so.
    pub is_woken: bool,
    pub name: Name,
    pub want: WantedLock,
    /// Its place in the line: in the order of arrival, if it was not preferred.
    pub arrival: u64,
    losses: u32,
    /// How often others that came later were preferred.
    pub passed: u32,
    event: Arc<Event>,
    /// On the world's clock.
    since: Nanos,
}

impl Waiter {
    pub fn stands_for(&self, name: &Name) -> bool {
        self.name.space == name.space && self.name.key == name.key
    }

    /// It is woken. The sessions it waits for stay listed until it has looked: a request that comes meanwhile finds the same cycles.
    pub fn looks(&mut self) {
        self.is_woken = true;
        self.event.notify();
    }

    fn waits_for_nobody(&mut self) {
        self.targets.clear();
        (self.behind, self.txn) = (false, None);
    }
}

/// All waiters, by session: a session waits for one thing at a time.
#[derive(Default)]
pub struct Waiters {
    pub(super) waiters: HashMap<u64, Waiter>,
    arrivals: u64,
    /// Those that were preferred so far.
    pub(super) preferred: u64,
    /// They are served as they came.
    pub(super) in_turn: bool,
}

impl Waiters {
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The session, or the transaction, has ended or given something back: in each line that waits for it one is woken.
    pub fn wake(&mut self, session: Option<u64>, txn: Option<TxnId>) {
        let waits = |waiter: &Waiter| {
            session.is_some_and(|session| waiter.targets.contains(&session))
                || (txn.is_some() && waiter.txn == txn)
        };
        let first = self.waiters.iter().filter(|(_, waiter)| !waiter.behind && waits(waiter));
        let first: SmallVec<[u64; 8]> = first.map(|(session, _)| *session).collect();
        let mut edges = None;
        for first in first {
            let next = self.next(first, &mut edges);
            if let Some(waiter) = self.waiters.get_mut(&next) {
                waiter.looks();
            }
        }
    }

    /// The session waits no more. The waiter behind it is the first now: it looks, or, if the session was `served` and no other can have
    /// what it has, waits on.
    fn leaves(&mut self, session: u64, served: bool) {
        let Some(gone) = self.waiters.remove(&session) else { return };
        let alone = served && gone.want == WantedLock::EXCLUSIVE;
        for waiter in self.waiters.values_mut() {
            // Nothing of what it holds is given back here: sessions that wait for that are not concerned.
            if !waiter.targets.contains(&session) || !waiter.stands_for(&gone.name) {
                continue;
            }
            match alone && waiter.want == WantedLock::EXCLUSIVE && !waiter.may_give_up {
                true => waiter.behind = false,
                false if !served && crate::planted::BEHIND_NOT_WOKEN.on() => {}
                false => waiter.looks(),
            }
        }
    }

    /// Adds the session that is to have the name before this one.
    pub fn first_in_line(&self, session: u64, name: &NameRef<'_>, want: WantedLock, out: &mut Vec<u64>) {
        let arrival = self.waiters.get(&session).map_or(u64::MAX, |me| me.arrival);
        let first = self
            .waiters
            .iter()
            .filter(|(other, waiter)| {
                **other != session
                    && waiter.losses >= LOSSES_MAX
                    && waiter.arrival < arrival
                    && waiter.want.mode.max(want.mode) == Mode::Exclusive
                    && waiter.name.space == name.space
                    && *waiter.name.key == *name.key
            })
            .min_by_key(|(_, waiter)| waiter.arrival);
        out.extend(first.map(|(other, _)| *other));
    }

    /// The last in the line for a name, as far as it came before `arrival` and wants what conflicts.
    fn before(&self, session: u64, name: &NameRef<'_>, want: WantedLock, arrival: u64) -> Option<u64> {
        self.waiters
            .iter()
            .filter(|(other, waiter)| {
                **other != session
                    && waiter.arrival < arrival
                    && !waiter.victim
                    && waiter.want.mode.max(want.mode) == Mode::Exclusive
                    && waiter.name.space == name.space
                    && *waiter.name.key == *name.key
            })
            .max_by_key(|(_, waiter)| waiter.arrival)
            .map(|(other, _)| *other)
    }

    /// The members of the cycle that a wait of `session` for `targets` would close, without `session`.
    fn circle(&self, session: u64, targets: &[u64]) -> Option<Vec<u64>> {
        let mut seen = HashSet::new();
        // A path of sessions, each with those it waits for that are still to be followed.
        let mut path: Vec<(u64, Vec<u64>)> = vec![(session, targets.to_vec())];
        while let Some((_, todo)) = path.last_mut() {
            let Some(next) = todo.pop() else {
                path.pop();
                continue;
            };
            if next == session {
                return Some(path.iter().skip(1).map(|(member, _)| *member).collect());
            }
            if seen.insert(next)
                && let Some(waiter) = self.waiters.get(&next)
            {
                path.push((next, waiter.targets.clone()));
            }
        }
        None
    }

    /// Breaks all cycles that the wait would close. True if by giving up the wait itself. Adds the last of them to `found`, and the
    /// victims, which are to be woken.
    fn gives_up(&mut self, asks: &Request<'_>, targets: &[u64], found: &mut BrokenDeadlock) -> bool {
        while let Some(circle) = self.circle(asks.session, targets) {
            found.members = self.members(asks, &circle);
            let lightest = circle
                .into_iter()
                .min_by_key(|member| self.waiters.get(member).map_or(u64::MAX, |w| w.weight));
            let other = lightest.and_then(|member| Some((member, self.waiters.get_mut(&member)?)));
            let victim = match other {
                Some((member, other)) if other.weight < asks.weight => {
                    other.victim = true;
                    other.waits_for_nobody();
                    found.wake.push(other.event.clone());
                    member
                }
                _ => asks.session,
            };
            found.members.iter_mut().for_each(|member| member.gave_way = member.session == victim);
            if victim == asks.session {
                return true;
            }
        }
        false
    }

    /// The members of a cycle, in the order in which each waits for the next: the one that closes it, and the others.
    fn members(&self, asks: &Request<'_>, others: &[u64]) -> Vec<Member> {
        let name = Name { space: asks.space, key: asks.key.into() };
        let mut members = vec![Member::new(asks.session, name, asks.want)];
        members.extend(others.iter().filter_map(|other| {
            let waiter = self.waiters.get(other)?;
            Some(Member::new(*other, waiter.name.clone(), waiter.want))
        }));
        members
    }

    /// Those that wait for something now.
    pub fn seen(&self) -> Vec<ShownWait> {
        let waits = self.waiters.iter().filter(|(_, waiter)| !waiter.targets.is_empty());
        let seen = waits.map(|(session, waiter)| ShownWait {
            session: *session,
            space: waiter.name.space,
            key: ShownKey::of(&waiter.name.key),
            want: waiter.want,
            since: waiter.since,
            targets: waiter.targets.clone(),
            is_changed: waiter.txn.is_some(),
        });
        seen.collect()
    }
}

/// Where a request that must wait stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitPosition {
    /// Nothing is in the way any more.
    Free,
    /// It waits for those in the way.
    First,
    /// It waits for another that waits for the same name.
    Behind,
}

/// One request of a session for one name, with all its waits, until it is dropped.
pub struct Request<'a> {
    locks: &'a Locks,
    session: u64,
    weight: u64,
    space: SpaceId,
    key: &'a [u8],
    want: WantedLock,
    /// How long it waits at most, in nanoseconds.
    patience: u64,
    /// On the world's clock; none before the first wait.
    deadline: Option<u64>,
    /// How long its waits took so far, in nanoseconds.
    waited: Nanos,
    cancel: &'a Cancel,
    in_line: bool,
    served: bool,
    may_give_up: bool,
    /// The owners that it waits for, if a listener outside has to know.
    told: Vec<u64>,
}

impl<'a> Request<'a> {
    /// `weight` says how much would be lost with the session's transaction; `patience` is how long all its waits may take, in nanoseconds.
    pub fn new(
        locks: &'a Locks,
        session: u64,
        weight: u64,
        (space, key): (SpaceId, &'a [u8]),
        want: WantedLock,
        patience: u64,
        cancel: &'a Cancel,
    ) -> Request<'a> {
        Request {
            locks,
            session,
            weight,
            space,
            key,
            want,
            patience,
            deadline: None,
            waited: 0,
            cancel,
            in_line: false,
            served: false,
            may_give_up: false,
            told: Vec::new(),
        }
    }

    /// What it finds when the one in the way has ended may be that it wants the name no more.
    pub fn may_give_up(mut self, may: bool) -> Self {
        self.may_give_up = may;
        self
    }

    /// The session has what it asked for, and will tell of its end: those behind it need not look before that.
    pub fn served(&mut self) {
        self.served = true;
    }

    /// What the request is for turns out to be more or less than was thought.
    pub fn set_want(&mut self, want: WantedLock) {
        self.want = want;
    }

    /// Waits until what was in the way may be gone. No latch is held.
    ///
    /// # Errors
    /// [`Error::Deadlock`], [`Error::LockTimeout`], [`Error::Cancelled`].
    pub fn wait(&mut self, way: &InTheWay, is_active: impl Fn(TxnId) -> bool) -> Result<()> {
        let locks = self.locks;
        let still = |txn: &TxnId| is_active(*txn);
        if self.must_not_wait(way, still) {
            return Err(Error::Cancelled);
        }
        if self.patience == 0 {
            return self.does_not_wait(way, is_active);
        }
        let event = self.cancel.wake_event();
        let ticket = event.ticket();
        let still = match way {
            InTheWay::Txn(txn) => {
                let session = locks.sessions.lock().get(txn).copied();
                let place = self.line_up(Some((*txn, session)), event)?;
                // Every transaction that ends from here on sees the waiter.
                fence(Ordering::SeqCst);
                place == WaitPosition::Behind || is_active(*txn)
            }
            InTheWay::Sessions(_) => self.line_up(None, event)? != WaitPosition::Free,
        };
        let mut woken = Woken::Notified;
        if still && !self.told.is_empty() {
            locks.owners.report(self.session, &std::mem::take(&mut self.told));
        }
        if still && !self.cancel.is_asked() {
            locks.counters.waits.fetch_add(1, Ordering::Relaxed);
            let now = locks.world.clock.now();
            let deadline = *self.deadline.get_or_insert(now.saturating_add(self.patience));
            woken = match deadline.checked_sub(now).filter(|left| *left > 0) {
                Some(left) => {
                    let _shown = observe::wait(observe::Wait::RowLock);
                    locks.world.sched.wait(event, ticket, Some(left))
                }
                None => Woken::TimedOut,
            };
            self.note_waited(locks.world.clock.now().saturating_sub(now));
        }
        if self.look_again() {
            locks.counters.deadlocks.fetch_add(1, Ordering::Relaxed);
            return Err(Error::Deadlock);
        }
        if self.cancel.is_asked() {
            return Err(Error::Cancelled);
        }
        if woken == Woken::TimedOut {
            locks.counters.timeouts.fetch_add(1, Ordering::Relaxed);
            return Err(Error::LockTimeout);
        }
        Ok(())
    }

    /// Whether the request's work refuses to wait, and what is in the way still is: the holder is noted.
    fn must_not_wait(&self, way: &InTheWay, is_active: impl Fn(&TxnId) -> bool) -> bool {
        let holder = match way {
            InTheWay::Txn(txn) if is_active(txn) => self.locks.sessions.lock().get(txn).copied(),
            InTheWay::Txn(_) => return false,
            InTheWay::Sessions(sessions) => sessions.first().copied(),
        };
        self.cancel.refuses(observe::Wait::RowLock, holder.unwrap_or(0))
    }

    /// A request with no time to wait stands in no line and closes no cycle: it makes no victim, nor is it one itself.
    fn does_not_wait(&self, way: &InTheWay, is_active: impl Fn(TxnId) -> bool) -> Result<()> {
        if self.cancel.is_asked() {
            return Err(Error::Cancelled);
        }
        match way {
            InTheWay::Txn(txn) if !is_active(*txn) => Ok(()),
            _ => {
                self.locks.counters.timeouts.fetch_add(1, Ordering::Relaxed);
                Err(Error::LockTimeout)
            }
        }
    }

    fn note_waited(&mut self, nanos: Nanos) {
        self.waited += nanos;
        let counters = &self.locks.counters;
        counters.nanos.fetch_add(nanos, Ordering::Relaxed);
        counters.nanos_max.fetch_max(self.waited, Ordering::Relaxed);
    }

    /// Puts the request where others see it, with whom it waits for: the one before it in the line for the name, or
    /// else the transaction's session, or whoever has locks in the way now.
    fn line_up(&mut self, txn: Option<(TxnId, Option<u64>)>, event: &Arc<Event>) -> Result<WaitPosition> {
        let mut found = BrokenDeadlock::default();
        let place = self.line_up_in(txn, event, &mut found);
        if !found.members.is_empty() {
            self.locks.tell_deadlock(found);
        }
        place
    }

    fn line_up_in(
        &mut self,
        txn: Option<(TxnId, Option<u64>)>,
        event: &Arc<Event>,
        found: &mut BrokenDeadlock,
    ) -> Result<WaitPosition> {
        let locks = self.locks;
        let is_owned = locks.owners.has(self.session);
        let mut inner = locks.inner.lock();
        let targets = match txn {
            Some((_, session)) => session.into_iter().collect(),
            // Those found before may have gone and others come: the sessions that are waited for now are those that wake it.
            None => {
                let name = NameRef { space: self.space, key: self.key };
                match inner.in_the_way(self.session, name, self.want, false) {
                    Some(InTheWay::Sessions(sessions)) => sessions,
                    _ => return Ok(WaitPosition::Free),
                }
            }
        };
        let mut txn = txn.map(|(txn, _)| txn);
        let mut targets: Vec<u64> = targets;
        let mut place = WaitPosition::First;
        let name = NameRef { space: self.space, key: self.key };
        let has_part = inner.has(self.session, name);
        let waiters = &mut inner.waiters;
        let arrival = match waiters.waiters.get(&self.session) {
            Some(me) if self.in_line => me.arrival,
            _ => u64::MAX,
        };
        // A session that waits for this one (which has a part of the name already) can't be waited for.
        if let Some(before) = waiters.before(self.session, &name, self.want, arrival)
            && waiters.circle(self.session, &[before]).is_none()
        {
            (targets, txn, place) = (vec![before], None, WaitPosition::Behind);
        }
        if locks.owners.is_told() {
            self.told.clone_from(&targets);
        }
        if waiters.gives_up(self, &targets, found) {
            locks.counters.deadlocks.fetch_add(1, Ordering::Relaxed);
            return Err(Error::Deadlock);
        }
        if let Some(waiter) = waiters.waiters.get_mut(&self.session).filter(|_| self.in_line) {
            waiter.targets = targets;
            waiter.behind = place == WaitPosition::Behind;
            waiter.has_part = has_part;
            waiter.is_woken = false;
            waiter.txn = txn;
            waiter.want = self.want;
            if place == WaitPosition::First {
                waiter.losses += 1;
                if waiter.losses == LOSSES_MAX {
                    locks.starving.fetch_add(1, Ordering::AcqRel);
                }
            }
            return Ok(place);
        }
        waiters.arrivals += 1;
        let waiter = Waiter {
            targets,
            behind: place == WaitPosition::Behind,
            has_part,
            may_give_up: self.may_give_up,
            is_owned,
            txn,
            weight: self.weight,
            victim: false,
            is_woken: false,
            name: Name { space: self.space, key: self.key.into() },
            want: self.want,
            arrival: order::FIRST_ARRIVAL + waiters.arrivals,
            losses: 0,
            passed: 0,
            event: event.clone(),
            since: locks.world.clock.now(),
        };
        waiters.waiters.insert(self.session, waiter);
        self.in_line = true;
        locks.waiting.fetch_add(1, Ordering::SeqCst);
        Ok(place)
    }

    /// The wait is over, the request goes on. True if it is a circle's victim.
    fn look_again(&self) -> bool {
        let mut inner = self.locks.inner.lock();
        let Some(waiter) = inner.waiters.waiters.get_mut(&self.session) else { return false };
        waiter.waits_for_nobody();
        waiter.victim
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.in_line {
            return;
        }
        let mut inner = self.locks.inner.lock();
        let waiters = &mut inner.waiters;
        if let Some(waiter) = waiters.waiters.get(&self.session) {
            self.locks.waiting.fetch_sub(1, Ordering::SeqCst);
            if waiter.losses >= LOSSES_MAX {
                self.locks.starving.fetch_sub(1, Ordering::AcqRel);
            }
            waiters.leaves(self.session, self.served);
        }
    }
}
