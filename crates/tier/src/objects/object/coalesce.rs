//! Misses that share a request: while a page of an object is being fetched and the store is busy, other misses of pages of the
//! same object wait for that request to end, and are then served together by one request for the range that spans them.
//!
//! A store answers a limited number of requests a second, and each costs money, but bytes cost next to nothing. While few
//! requests are in flight no miss waits: it is sent at once, and has the store's latency.
//!
//! A miss waits no longer than [`PATIENCE`] for another's request, and an error is not passed on: misses that waited for the
//! failed request send their own. Bytes between the wanted pages take memory, which is bounded, and so is a range: misses that do
//! not fit in the next request wait for a later one.
//!
//! Locks: `state`, for memory work only.

use crate::address::InObject;
use crate::address::ObjectKey;
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_io::AlignedBuf;
use terrace_io::clock::Nanos;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::{Event, Sched};

/// While fewer requests than this are in flight, each miss has its own. S3 answers 5,500 a second for a prefix; at 25 to 30
/// milliseconds each that is about 150 at a time.
const BUSY: usize = 128;
/// How long to wait for another miss's request, in nanoseconds.
const PATIENCE: Nanos = 200_000_000;
/// Maximum number of bytes of one request. A page alone takes about as long as three megabytes.
const SPAN_MAX: usize = 256 << 10;

/// A span's share of the memory that all spans may take.
struct Reserved {
    room: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.room.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// A range of an object's bytes that contains several pages.
pub struct Span {
    from: usize,
    bytes: AlignedBuf,
    _reserved: Option<Reserved>,
}

impl Span {
    /// The stored body of one of the pages.
    pub fn body(&self, at: &InObject) -> &[u8] {
        &self.bytes[at.offset - self.from..][..at.length]
    }
}

/// The message to a waiting miss.
enum Answer {
    Come(Arc<Span>),
    /// It sends the request, for itself and for these.
    Lead(Vec<Arc<Seat>>, Option<Reserved>),
    Alone,
}

/// A waiting miss.
struct Seat {
    at: InObject,
    answered: Event,
    answer: Mutex<Option<Answer>, { Mutexes::ObjectReads as u8 }>,
}

impl Seat {
    fn tell(&self, answer: Answer) {
        *self.answer.lock() = Some(answer);
        self.answered.notify();
    }
}

#[derive(Default)]
struct CoalescerState {
    /// Requests in flight.
    requests: usize,
    /// Objects with a request in flight that other misses may wait for, and those that wait.
    objects: HashMap<ObjectKey, Vec<Arc<Seat>>>,
}

pub struct Coalescer {
    sched: Arc<dyn Sched>,
    busy: usize,
    patience: Nanos,
    /// Bytes that spans may still take.
    room: Arc<AtomicUsize>,
    state: Mutex<CoalescerState, { Mutexes::ObjectReads as u8 }>,
}

/// How a page is fetched.
pub enum FetchTurn<'a> {
    /// By a request that the holder makes.
    Go(Flight<'a>),
    /// It has come with another's.
    Come(Arc<Span>),
}

/// A request in flight. When it is dropped, misses that wait for its end continue.
pub struct Flight<'a> {
    coalescer: &'a Coalescer,
    /// None: no miss may wait for its end.
    key: Option<ObjectKey>,
    with: Vec<Arc<Seat>>,
    reserved: Option<Reserved>,
}

impl Flight<'_> {
    /// The range of the object's body to read, for the page at `at` and those of other misses; None if it is for that page alone.
    pub fn range(&self, at: &InObject) -> Option<(usize, usize)> {
        let with = self.with.iter().map(|seat| extent(&seat.at));
        (!self.with.is_empty()).then(|| with.fold(extent(at), spanning))
    }

    /// These bytes have arrived, beginning at `from`: the other misses take theirs.
    pub fn come(mut self, from: usize, bytes: AlignedBuf) -> Arc<Span> {
        let span = Arc::new(Span { from, bytes, _reserved: self.reserved.take() });
        self.with.drain(..).for_each(|seat| seat.tell(Answer::Come(span.clone())));
        span
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        // Nothing has arrived for them: an error is not passed on.
        self.with.drain(..).for_each(|seat| seat.tell(Answer::Alone));
        self.coalescer.ended(self.key);
    }
}

fn extent(at: &InObject) -> (usize, usize) {
    (at.offset, at.offset + at.length)
}

fn spanning(a: (usize, usize), b: (usize, usize)) -> (usize, usize) {
    (a.0.min(b.0), a.1.max(b.1))
}

impl Coalescer {
    /// `memory`: bytes that answers for several pages may take in total.
    pub fn new(sched: Arc<dyn Sched>, memory: usize) -> Coalescer {
        let room = Arc::new(AtomicUsize::new(memory));
        Coalescer { sched, busy: BUSY, patience: PATIENCE, room, state: Mutex::default() }
    }

    /// How to fetch the page at `at`. May wait.
    pub fn turn(&self, at: &InObject) -> FetchTurn<'_> {
        let seat = {
            let mut state = self.state.lock();
            let busy = state.requests >= self.busy;
            match state.objects.get_mut(&at.key) {
                Some(waiting) if busy => {
                    let seat = Seat { at: *at, answered: Event::new(), answer: Mutex::default() };
                    let seat = Arc::new(seat);
                    waiting.push(seat.clone());
                    seat
                }
                Some(_) => return self.go(&mut state, None),
                None => {
                    state.objects.insert(at.key, Vec::new());
                    return self.go(&mut state, Some(at.key));
                }
            }
        };
        let ticket = seat.answered.ticket();
        if seat.answer.lock().is_none() {
            self.sched.wait(&seat.answered, ticket, Some(self.patience));
        }
        let mut state = self.state.lock();
        let answer = seat.answer.lock().take();
        match answer {
            Some(Answer::Come(span)) => FetchTurn::Come(span),
            Some(Answer::Lead(with, reserved)) => {
                FetchTurn::Go(Flight { coalescer: self, key: Some(at.key), with, reserved })
            }
            Some(Answer::Alone) => self.go(&mut state, None),
            // the wait timed out
            None => {
                let waiting = state.objects.get_mut(&at.key);
                waiting.into_iter().for_each(|waiting| waiting.retain(|other| !Arc::ptr_eq(other, &seat)));
                self.go(&mut state, None)
            }
        }
    }

    /// Adds a request for one page.
    fn go(&self, state: &mut CoalescerState, key: Option<ObjectKey>) -> FetchTurn<'_> {
        state.requests += 1;
        FetchTurn::Go(Flight { coalescer: self, key, with: Vec::new(), reserved: None })
    }

    /// A request has ended: the first miss that waited for it sends the next one.
    fn ended(&self, key: Option<ObjectKey>) {
        let mut state = self.state.lock();
        state.requests -= 1;
        let Some(key) = key else { return };
        let Some(waiting) = state.objects.get_mut(&key).filter(|waiting| !waiting.is_empty()) else {
            state.objects.remove(&key);
            return;
        };
        let first = waiting.remove(0);
        let room = SPAN_MAX.min(self.room.load(Ordering::Relaxed));
        let mut range = extent(&first.at);
        let with: Vec<_> = waiting
            .extract_if(.., |seat| {
                let wider = spanning(range, extent(&seat.at));
                let fits = wider.1 - wider.0 <= room;
                range = if fits { wider } else { range };
                fits
            })
            .collect();
        let reserved = (!with.is_empty()).then(|| {
            let bytes = range.1 - range.0;
            self.room.fetch_sub(bytes, Ordering::Relaxed); // other threads only add to it, except under this lock
            Reserved { room: self.room.clone(), bytes }
        });
        state.requests += 1;
        first.tell(Answer::Lead(with, reserved));
    }
}

#[cfg(test)]
mod tests;
