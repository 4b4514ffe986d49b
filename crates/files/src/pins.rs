//! Pinned files: what is in memory of them is not evicted.
//!
//! A pin names a file or a folder. Each of its files is *held*: a lease on each of its blocks, as a client would have it, so nothing else knows of pins. A file
//! is held whole, of one version. Its way: queued → its blocks are read one by one, up to [`AT_A_TIME`] files at a time → held. It is queued again when it was
//! written through the daemon, when it was evicted by name, and when the daemon has found files in other versions than it knew: if it is still the
//! same, that only looks at memory.
//!
//! Pins are kept on flash (`list`), and are there again after a start, which reads their files. What other machines add to a pinned folder is
//! pinned at the next start, or when the folder is pinned again.
//!
//! Limits: bytes held, files held, pins. A pin of more than there is room for is refused whole. A file that no longer fits, because it or another one has
//! grown, is not held, and is counted.
//!
//! Lock order: the state, then the catalogue.

mod list;

use crate::catalogue::{BLOCK_BYTES, BlockId, Fault, Leased, Meta, Read, Wants, block_len};
use crate::memory::extents::Extent;
use hashbrown::{HashMap, HashSet};
use list::List;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use terrace_io::clock::Nanos;

/// The client of the reads that hold files: no client's id.
pub const CLIENT: u64 = u64::MAX;
pub const PINS_MAX: usize = 1000;
/// Files whose blocks are read at a time.
const AT_A_TIME: usize = 16;
/// After the store did not answer, in nanoseconds.
const RETRY: Nanos = 5_000_000_000;

pub struct Limits {
    pub bytes: u64,
    pub files: usize,
}

/// What is to be done, without the lock.
#[derive(Default)]
pub struct Next {
    pub reads: Vec<Read>,
    pub releases: Vec<BlockId>,
    /// Clients whose files are all held, or not: with their number.
    pub ended: Vec<(u64, u64, Result<u64, Fault>)>,
}

struct Held {
    version: Arc<str>,
    leases: Vec<(BlockId, u64)>,
}

/// A file whose blocks are being read.
struct Reading {
    path: Arc<str>,
    version: Option<Arc<str>>,
    leases: Vec<(BlockId, u64)>,
    waiter: Option<u64>,
}

/// A client that waits until its files are held.
struct Waiter {
    client: u64,
    request: u64,
    left: usize,
    held: u64,
    fault: Option<Fault>,
}

#[derive(Default)]
struct State {
    pins: BTreeSet<String>,
    held: HashMap<Arc<str>, Held>,
    bytes: u64,
    todo: VecDeque<(Arc<str>, Option<u64>)>,
    /// Of `todo`, those that no client waits for.
    queued: HashSet<Arc<str>>,
    reads: HashMap<u64, Reading>,
    next: u64,
    waiters: HashMap<u64, Waiter>,
    /// Pins whose files are to be looked for in the store.
    unlisted: bool,
    /// Files that the store did not give.
    later: Vec<Arc<str>>,
    retry_at: Nanos,
    /// What the catalogue had counted at the last look.
    changes: u64,
    without_room: u64,
}

pub struct Pins {
    list: Option<List>,
    limits: Limits,
    state: Mutex<State>,
}

fn sum(leases: &[(BlockId, u64)]) -> u64 {
    leases.iter().map(|(_, bytes)| bytes).sum()
}

fn taken(length: u64) -> u64 {
    Extent { offset: 0, len: length }.taken()
}

impl State {
    /// The pin that covers the path: itself, or a folder that it is in.
    fn covers(&self, path: &str) -> bool {
        let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
        self.pins.contains(path) || folders.into_iter().any(|folder| self.pins.contains(folder))
    }

    fn queue(&mut self, path: Arc<str>, waiter: Option<u64>) {
        if waiter.is_some() || self.queued.insert(path.clone()) {
            self.todo.push_back((path, waiter));
        }
    }

    /// Starts as many reads as there may be.
    fn go_on(&mut self, next: &mut Next) {
        while self.reads.len() < AT_A_TIME
            && let Some((path, waiter)) = self.todo.pop_front()
        {
            if waiter.is_none() {
                self.queued.remove(&path);
            }
            if !self.covers(&path) {
                self.end(waiter, Err(Fault::Invalid("it was unpinned meanwhile".into())), next);
                continue;
            }
            let reading = Reading { path, version: None, leases: Vec::new(), waiter };
            self.read(reading, 0, next);
        }
    }

    fn read(&mut self, reading: Reading, block: u64, next: &mut Next) {
        self.next += 1;
        next.reads.push(Read {
            client: CLIENT,
            request: self.next,
            item: 0,
            wants: Wants::Bytes,
            path: reading.path.clone(),
            offset: block * BLOCK_BYTES,
            length: BLOCK_BYTES,
            expected: reading.version.clone(),
            since: 0,
        });
        self.reads.insert(self.next, reading);
    }

    fn release(&mut self, path: &str, next: &mut Next) {
        if let Some(held) = self.held.remove(path) {
            self.bytes -= sum(&held.leases);
            next.releases.extend(held.leases.iter().map(|(block, _)| *block));
        }
    }

    /// Tells the client that waits for the file, if one does.
    fn end(&mut self, waiter: Option<u64>, result: Result<(), Fault>, next: &mut Next) {
        let Some(id) = waiter else { return };
        let Some(waiter) = self.waiters.get_mut(&id) else { return };
        waiter.left -= 1;
        match result {
            Ok(()) => waiter.held += 1,
            Err(fault) => {
                waiter.fault.get_or_insert(fault);
            }
        }
        if waiter.left == 0
            && let Some(waiter) = self.waiters.remove(&id)
        {
            let result = waiter.fault.map_or(Ok(waiter.held), Err);
            next.ended.push((waiter.client, waiter.request, result));
        }
    }
}

impl Pins {
    /// Finds what was pinned. Without a directory nothing is kept.
    pub fn open(directory: Option<&Path>, limits: Limits) -> Result<Pins, String> {
        let (mut state, mut list) = (State::default(), None);
        if let Some(directory) = directory {
            let opened = List::open(directory)?;
            state.pins = opened.read()?.into_iter().collect();
            state.unlisted = !state.pins.is_empty();
            list = Some(opened);
        }
        Ok(Pins { list, limits, state: Mutex::new(state) })
    }

    pub fn names(&self) -> Vec<String> {
        self.state.lock().pins.iter().cloned().collect()
    }

    /// Pins, files held, their bytes, those at most, and files that found no room.
    pub fn sizes(&self) -> (usize, usize, u64, u64, u64) {
        let state = self.state.lock();
        (state.pins.len(), state.held.len(), state.bytes, self.limits.bytes, state.without_room)
    }

    fn keep(&self, state: &State) -> Result<(), Fault> {
        let Some(list) = &self.list else { return Ok(()) };
        list.write(state.pins.iter().map(String::as_str)).map_err(|why| Fault::Busy(format!("flash: {why}")))
    }

    /// Pins these paths, which have these files. The client is told when all are held.
    pub fn pin(&self, paths: &[String], files: Vec<(Arc<str>, u64)>, to: (u64, u64)) -> Result<Next, Fault> {
        let mut next = Next::default();
        let mut state = self.state.lock();
        let fresh: Vec<_> = files.iter().filter(|(path, _)| !state.held.contains_key(path)).collect();
        let needed: u64 = fresh.iter().map(|(_, length)| taken(*length)).sum();
        let most = self.limits.bytes;
        if state.bytes + needed > most {
            return Err(Fault::Refused(format!(
                "{needed} bytes more would be pinned than the {} that are; {most} may be, half of the memory for files",
                state.bytes
            )));
        }
        if state.held.len() + fresh.len() > self.limits.files {
            return Err(Fault::Refused(format!("more than {} files would be pinned", self.limits.files)));
        }
        let before = state.pins.clone();
        state.pins.extend(paths.iter().cloned());
        if state.pins.len() > PINS_MAX {
            state.pins = before;
            return Err(Fault::Refused(format!("more than {PINS_MAX} paths would be pinned")));
        }
        if let Err(fault) = self.keep(&state) {
            state.pins = before;
            return Err(fault);
        }
        let (client, request) = to;
        if files.is_empty() {
            next.ended.push((client, request, Ok(0)));
            return Ok(next);
        }
        state.next += 1;
        let id = state.next;
        state.waiters.insert(id, Waiter { client, request, left: files.len(), held: 0, fault: None });
        files.into_iter().for_each(|(path, _)| state.queue(path, Some(id)));
        state.go_on(&mut next);
        Ok(next)
    }

    /// How many files are no longer held. Fails if one of the paths is no pin.
    pub fn unpin(&self, paths: &[String]) -> Result<(u64, Next), Fault> {
        let mut next = Next::default();
        let mut state = self.state.lock();
        if let Some(path) = paths.iter().find(|path| !state.pins.contains(*path)) {
            return Err(Fault::Invalid(format!("`{path}` is not pinned: `ls` and `status` show what is")));
        }
        paths.iter().for_each(|path| {
            state.pins.remove(path);
        });
        let gone: Vec<Arc<str>> = state.held.keys().filter(|path| !state.covers(path)).cloned().collect();
        gone.iter().for_each(|path| state.release(path, &mut next));
        self.keep(&state)?;
        Ok((gone.len() as u64, next))
    }

    /// A read that holds a file has ended.
    pub fn taken(&self, request: u64, answer: Result<(Meta, Vec<Leased>), Fault>, now: Nanos) -> Next {
        let mut next = Next::default();
        let mut state = self.state.lock();
        let Some(mut reading) = state.reads.remove(&request) else {
            next.releases.extend(answer.into_iter().flat_map(|(_, parts)| parts).map(|part| part.block));
            return next;
        };
        match answer {
            Ok((meta, parts)) => {
                reading.leases.extend(parts.iter().map(|part| (part.block, part.held)));
                self.step(&mut state, reading, &meta, &mut next);
            }
            Err(fault) => {
                next.releases.extend(reading.leases.iter().map(|(block, _)| *block));
                match &fault {
                    Fault::Changed => state.queue(reading.path, reading.waiter),
                    Fault::Unavailable(_) | Fault::Busy(_) => {
                        state.later.push(reading.path);
                        state.retry_at = now + RETRY;
                        state.end(reading.waiter, Err(fault), &mut next);
                    }
                    _ => {
                        state.release(&reading.path, &mut next);
                        state.end(reading.waiter, Err(fault), &mut next);
                    }
                }
            }
        }
        state.go_on(&mut next);
        next
    }

    /// A block of the file has come.
    fn step(&self, state: &mut State, mut reading: Reading, meta: &Meta, next: &mut Next) {
        reading.version = Some(meta.version.clone());
        let path = reading.path.clone();
        if state.held.get(&path).is_some_and(|held| held.version != meta.version) {
            // Not both at a time.
            state.release(&path, next);
        }
        let block = reading.leases.len() as u64;
        let more = block_len(meta.length, u32::try_from(block).unwrap_or(u32::MAX));
        let mine = state.held.get(&path).map_or(0, |held| sum(&held.leases));
        let reading_now: u64 = state.reads.values().map(|other| sum(&other.leases)).sum();
        let needed =
            state.bytes - mine + reading_now + sum(&reading.leases) + taken(more) * u64::from(more > 0);
        let is_new = !state.held.contains_key(&path);
        if !state.covers(&path) {
            next.releases.extend(reading.leases.iter().map(|(block, _)| *block));
            state.release(&path, next);
            return state.end(reading.waiter, Err(Fault::Invalid("it was unpinned meanwhile".into())), next);
        }
        if needed > self.limits.bytes || is_new && state.held.len() >= self.limits.files {
            next.releases.extend(reading.leases.iter().map(|(block, _)| *block));
            state.release(&path, next);
            state.without_room += 1;
            let most = self.limits.bytes;
            let fault =
                Fault::Refused(format!("`{path}` does not fit into the {most} bytes that may be pinned"));
            return state.end(reading.waiter, Err(fault), next);
        }
        if more > 0 {
            return state.read(reading, block, next);
        }
        state.release(&path, next);
        state.bytes += sum(&reading.leases);
        if crate::planted::PINNED_BLOCK_RELEASED.on() {
            next.releases.extend(reading.leases.iter().map(|(block, _)| *block));
        }
        let held = Held { version: meta.version.clone(), leases: reading.leases };
        state.held.insert(path, held);
        state.end(reading.waiter, Ok(()), next);
    }

    /// The file was written through the daemon.
    pub fn changed(&self, path: &Arc<str>) -> Option<Next> {
        let mut state = self.state.lock();
        if state.pins.is_empty() || !state.covers(path) {
            return None;
        }
        let mut next = Next::default();
        state.queue(path.clone(), None);
        state.go_on(&mut next);
        Some(next)
    }

    /// What is cached of files whose path starts with the prefix was dropped.
    pub fn evicted(&self, prefix: &str) -> Next {
        let mut next = Next::default();
        let mut state = self.state.lock();
        let again: Vec<Arc<str>> =
            state.held.keys().filter(|path| path.starts_with(prefix)).cloned().collect();
        for path in again {
            state.release(&path, &mut next);
            state.queue(path, None);
        }
        state.go_on(&mut next);
        next
    }

    /// Called once a second. `changes`: files that were found in another version since the start; if there are new ones, pinned files are read again. So are
    /// those that the store did not give.
    pub fn look(&self, changes: u64, now: Nanos) -> Next {
        let mut next = Next::default();
        let mut state = self.state.lock();
        if state.changes != changes {
            state.changes = changes;
            let all: Vec<Arc<str>> = state.held.keys().cloned().collect();
            all.into_iter().for_each(|path| state.queue(path, None));
        }
        if now >= state.retry_at {
            let later = std::mem::take(&mut state.later);
            later.into_iter().for_each(|path| state.queue(path, None));
        }
        state.go_on(&mut next);
        next
    }

    /// Pins whose files are to be looked for, if it is time for that: after a start. `listed` or `not_listed` must follow.
    pub fn unlisted(&self, now: Nanos) -> Option<Vec<String>> {
        let mut state = self.state.lock();
        let is_time = state.unlisted && now >= state.retry_at;
        is_time.then(|| {
            state.unlisted = false;
            state.pins.iter().cloned().collect()
        })
    }

    pub fn listed(&self, files: Vec<Arc<str>>) -> Next {
        let mut next = Next::default();
        let mut state = self.state.lock();
        files.into_iter().for_each(|path| state.queue(path, None));
        state.go_on(&mut next);
        next
    }

    pub fn not_listed(&self, now: Nanos) {
        let mut state = self.state.lock();
        (state.unlisted, state.retry_at) = (true, now + RETRY);
    }

    /// The daemon ends: its blocks may be copied to flash.
    pub fn release_all(&self) -> Vec<BlockId> {
        let mut next = Next::default();
        let mut state = self.state.lock();
        let all: Vec<Arc<str>> = state.held.keys().cloned().collect();
        all.iter().for_each(|path| state.release(path, &mut next));
        next.releases
    }
}

#[cfg(test)]
mod tests;
