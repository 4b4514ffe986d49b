//! Misses that share a request: while a page of an object is being fetched and the store has much to do, others that miss
//! pages of the same object wait for the end of that request, and then go together, with one for the range that spans them.
//!
//! A store answers only so many requests a second, and each costs money, but bytes cost next to nothing. Where few
//! requests are under way nobody waits: then a miss is sent at once, and its latency is the store's.
//!
//! Nobody waits longer than [`PATIENCE`] for another's request, and an error is nobody else's: those who waited for it
//! ask by themselves. Bytes between the pages that are wanted take memory, which is bounded, and so is a range: whom
//! the next request has no room for waits for one of the later ones.
//!
//! Locks: `state`, for memory work only.

use crate::map::InObject;
use crate::object::key::ObjectKey;
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_io::AlignedBuf;
use terrace_io::clock::Nanos;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::{Event, Sched};

/// With fewer requests than this under way, each miss has its own. S3 answers 5,500 a second for a prefix; at 25 to 30
/// milliseconds each that is about 150 at a time.
const BUSY: usize = 128;
/// How long to wait for another's request, in nanoseconds.
const PATIENCE: Nanos = 200_000_000;
/// The most bytes of one request. A page alone takes about as long as three megabytes.
const SPAN_MAX: usize = 256 << 10;

/// Memory that a span has of what all spans may take.
struct Reserved {
    room: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.room.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes of an object that several pages are in.
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

/// What one who waits is told.
enum Answer {
    Come(Arc<Span>),
    /// It goes, for itself and for these.
    Lead(Vec<Arc<Seat>>, Option<Reserved>),
    Alone,
}

/// One who waits.
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
struct State {
    /// Under way.
    requests: usize,
    /// Objects of which one is under way that may be waited for, and who does.
    objects: HashMap<ObjectKey, Vec<Arc<Seat>>>,
}

pub struct Coalescer {
    sched: Arc<dyn Sched>,
    busy: usize,
    patience: Nanos,
    /// Bytes that spans may still take.
    room: Arc<AtomicUsize>,
    state: Mutex<State, { Mutexes::ObjectReads as u8 }>,
}

/// How a page is fetched.
pub enum Turn<'a> {
    /// By a request that the holder makes.
    Go(Flight<'a>),
    /// It has come with another's.
    Come(Arc<Span>),
}

/// A request under way. Once it is dropped, those who wait for its end go on.
pub struct Flight<'a> {
    coalescer: &'a Coalescer,
    /// None: nobody waits for its end.
    key: Option<ObjectKey>,
    with: Vec<Arc<Seat>>,
    reserved: Option<Reserved>,
}

impl Flight<'_> {
    /// The range of the object's body, from and to, that is to be got for the page at `at` and those of others; None if
    /// it is for that page alone.
    pub fn range(&self, at: &InObject) -> Option<(usize, usize)> {
        let with = self.with.iter().map(|seat| extent(&seat.at));
        (!self.with.is_empty()).then(|| with.fold(extent(at), spanning))
    }

    /// These bytes have come, from `from` on: the others take theirs.
    pub fn come(mut self, from: usize, bytes: AlignedBuf) -> Arc<Span> {
        let span = Arc::new(Span { from, bytes, _reserved: self.reserved.take() });
        self.with.drain(..).for_each(|seat| seat.tell(Answer::Come(span.clone())));
        span
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        // Nothing has come for them: an error is nobody else's.
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
    /// `memory`: bytes that the answers for several pages may take together.
    pub fn new(sched: Arc<dyn Sched>, memory: usize) -> Coalescer {
        let room = Arc::new(AtomicUsize::new(memory));
        Coalescer { sched, busy: BUSY, patience: PATIENCE, room, state: Mutex::default() }
    }

    /// The way to fetch the page at `at`. May wait.
    pub fn turn(&self, at: &InObject) -> Turn<'_> {
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
            Some(Answer::Come(span)) => Turn::Come(span),
            Some(Answer::Lead(with, reserved)) => {
                Turn::Go(Flight { coalescer: self, key: Some(at.key), with, reserved })
            }
            Some(Answer::Alone) => self.go(&mut state, None),
            // In vain.
            None => {
                let waiting = state.objects.get_mut(&at.key);
                waiting.into_iter().for_each(|waiting| waiting.retain(|other| !Arc::ptr_eq(other, &seat)));
                self.go(&mut state, None)
            }
        }
    }

    /// One more request, for one page.
    fn go(&self, state: &mut State, key: Option<ObjectKey>) -> Turn<'_> {
        state.requests += 1;
        Turn::Go(Flight { coalescer: self, key, with: Vec::new(), reserved: None })
    }

    /// A request is no longer under way: the first of those who waited for that makes the next one.
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
            self.room.fetch_sub(bytes, Ordering::Relaxed); // others only add to it, but under this lock
            Reserved { room: self.room.clone(), bytes }
        });
        state.requests += 1;
        first.tell(Answer::Lead(with, reserved));
    }
}

#[cfg(test)]
mod tests;
