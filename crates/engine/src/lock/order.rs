//! Which waiter in a line is served next.
//!
//! Where all sessions want a few rows, nearly all of them stand in lines, and most of them wait for rows of others that stand in lines themselves. The choice of
//! the next one decides how long these wait: a session that has locked nothing yet makes all others wait once more, while serving one that half of
//! them wait for lets these continue. So the one for whom most sessions wait, directly or through others, not counting those in the same line, is
//! served first, and of equals the one that came first (Tian, Huang, Mozafari, Schoenebeck: Contention-Aware Lock Scheduling for Transactional
//! Databases, VLDB 2018). No waiter is passed more than [`PASSED_MAX`] times.
//!
//! Only where all in the line want the row for themselves, and none of them has it already to read: one is served, and all others wait for it.
//! Nor where replication commits in an order of its own (`owners`): a later transaction there waits with the row for an earlier one.

use super::wait::{Waiter, Waiters};
use super::{Name, WantedLock};
use smallvec::SmallVec;

/// Numbers of arrivals begin here: those that are preferred get lower ones.
pub const FIRST_ARRIVAL: u64 = 1 << 63;
/// How often a waiter is passed by others that came later, and are served first.
const PASSED_MAX: u32 = 32;
/// In lines with more waiters weights are not counted: they are served in order of arrival.
const COUNTED_MAX: usize = 1024;

/// One who waits, for whom, and whether behind him in a line.
struct Edge {
    target: u64,
    session: u64,
    behind: bool,
}

/// Which session waits for which, ordered by the one that is waited for.
pub(super) struct Edges(Vec<Edge>);

impl Edges {
    fn of(waiters: &Waiters) -> Edges {
        let edges = waiters.waiters.iter().flat_map(|(session, waiter)| {
            let behind = waiter.behind;
            waiter.targets.iter().map(move |target| Edge { target: *target, session: *session, behind })
        });
        let mut edges: Vec<Edge> = edges.collect();
        edges.sort_unstable_by_key(|edge| edge.target);
        Edges(edges)
    }

    fn waiting_for(&self, target: u64) -> std::ops::Range<usize> {
        let from = self.0.partition_point(|edge| edge.target < target);
        from..from + self.0[from..].iter().take_while(|edge| edge.target == target).count()
    }

    /// Sessions that wait for what this one has, and for those, and so on. One that waits for several counts for each.
    fn waiting(&self, session: u64) -> usize {
        let mut seen = vec![false; self.0.len()];
        let mut todo: SmallVec<[usize; 16]> =
            self.waiting_for(session).filter(|edge| !self.0[*edge].behind).collect();
        let mut count = 0;
        while let Some(edge) = todo.pop() {
            if !std::mem::replace(&mut seen[edge], true) {
                count += 1;
                todo.extend(self.waiting_for(self.0[edge].session));
            }
        }
        count
    }
}

impl Waiters {
    /// The waiter to be woken in the line whose first is `first`, now that what it waits for is gone. If that is another, it is the first now.
    /// `edges` are looked at once for all lines of one wake: what another line's new order changes in them is forgotten.
    pub(super) fn next(&mut self, first: u64, edges: &mut Option<Edges>) -> u64 {
        let best = match self.waiters.len() {
            2..=COUNTED_MAX if !self.in_turn => self.best(first, edges),
            _ => first,
        };
        if best != first {
            self.prefer(best, first);
        }
        best
    }

    fn line<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = (u64, &'a Waiter)> {
        let line = self.waiters.iter().filter(|(_, waiter)| waiter.stands_for(name));
        line.map(|(session, waiter)| (*session, waiter))
    }

    fn best(&self, first: u64, edges: &mut Option<Edges>) -> u64 {
        let Some(head) = self.waiters.get(&first) else { return first };
        let line: SmallVec<[(u64, &Waiter); 16]> = self.line(&head.name).collect();
        let stands = |session: u64, waiter: &Waiter| {
            waiter.want == WantedLock::EXCLUSIVE
                && !waiter.victim
                && !waiter.has_part
                && !waiter.is_woken
                && !waiter.is_owned
                && waiter.targets.len() == 1
                && waiter.behind != (session == first)
        };
        if line.len() < 2 || !line.iter().all(|(session, waiter)| stands(*session, waiter)) {
            return first;
        }
        let patience = line.iter().filter(|(_, waiter)| waiter.passed >= PASSED_MAX);
        let last = patience.map(|(_, waiter)| waiter.arrival).min().unwrap_or(u64::MAX);
        let edges = edges.get_or_insert_with(|| Edges::of(self));
        let worth =
            |(session, waiter): &(u64, &Waiter)| (edges.waiting(*session), std::cmp::Reverse(waiter.arrival));
        let may_be = line.into_iter().filter(|(_, waiter)| waiter.arrival <= last);
        may_be.max_by_key(worth).map_or(first, |(session, _)| session)
    }

    /// `best` leaves its place in the line for that of `first`, who is behind it from now on.
    fn prefer(&mut self, best: u64, first: u64) {
        let Some((name, arrival)) =
            self.waiters.get(&best).map(|waiter| (waiter.name.clone(), waiter.arrival))
        else {
            return;
        };
        let before = self.line(&name).filter(|(_, waiter)| waiter.arrival < arrival);
        let before = before.max_by_key(|(_, waiter)| waiter.arrival).map(|(session, _)| session);
        self.preferred += 1;
        let (front, mut of_first) = (FIRST_ARRIVAL - self.preferred, (Vec::new(), None));
        for (session, waiter) in self.waiters.iter_mut().filter(|(_, waiter)| waiter.stands_for(&name)) {
            waiter.passed += u32::from(waiter.arrival < arrival);
            if *session == first {
                of_first = (std::mem::replace(&mut waiter.targets, vec![best]), waiter.txn.take());
                waiter.behind = true;
            } else if *session != best && waiter.targets == [best] {
                // It was behind the one that goes, and is behind the one before that.
                before.iter().for_each(|before| waiter.targets = vec![*before]);
            }
        }
        if let Some(waiter) = self.waiters.get_mut(&best) {
            (waiter.arrival, waiter.behind) = (front, false);
            (waiter.targets, waiter.txn) = of_first;
        }
    }
}
