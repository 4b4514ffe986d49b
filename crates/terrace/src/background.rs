//! A bounded pool of workers that wait in place of an event loop.
//!
//! A worker is started when a call finds all others at work, up to [`WORKERS_MAX`]; an idle one sleeps until it is needed. At most
//! [`QUEUE_MAX`] calls and [`BYTES_MAX`] bytes wait for a worker: beyond that a call is refused, and its caller is told.
//!
//! A call is run once, or told that the instance closes. It holds no handle of the instance, so that closing waits for none.
//!
//! [`callback`] marks the thread while code of the user's runs on it: the last handle may be dropped there, and closing joins the
//! thread that it would run on. Then another thread closes (`db`).

use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use terrace_io::World;
use terrace_io::observe::{Memory, TrackedBytes};
use terrace_io::sched::{Event, Step, Worker, WorkerHandle};

/// Most workers: how many requests to the object store an event loop has in flight.
pub(crate) const WORKERS_MAX: usize = 64;
/// Limits of the queue: calls that wait for a worker, and their bytes.
pub(crate) const QUEUE_MAX: usize = 4096;
const BYTES_MAX: usize = 64 << 20;

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Runs code of the user's on a thread that is not the user's.
pub(crate) fn callback(work: impl FnOnce()) {
    let before = IN_CALLBACK.replace(true);
    // A worker goes on after a panic; the panic's message was printed.
    let _ = catch_unwind(AssertUnwindSafe(work));
    IN_CALLBACK.set(before);
}

pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Why a call is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallReason {
    Run,
    /// It is not run: its caller is to be told.
    Closing,
}

type Call = Box<dyn FnOnce(CallReason) + Send>;

#[derive(Default)]
struct QueueState {
    queue: VecDeque<(usize, Call)>,
    bytes: usize,
    running: usize,
    workers: usize,
    closed: bool,
}

pub(crate) struct Background {
    world: World,
    state: Mutex<QueueState>,
    wanted: Arc<Event>,
    handles: Mutex<Vec<Box<dyn WorkerHandle>>>,
    held: TrackedBytes,
}

impl Background {
    pub fn new(world: World) -> Arc<Background> {
        let held = TrackedBytes::new(Memory::Buffers);
        Arc::new(Background {
            world,
            state: Mutex::default(),
            wanted: Arc::default(),
            handles: Mutex::default(),
            held,
        })
    }

    /// Has a worker run the call. False: too many wait, or the instance closes; the call is dropped.
    pub fn submit(
        self: &Arc<Background>,
        bytes: usize,
        call: impl FnOnce(CallReason) + Send + 'static,
    ) -> bool {
        let mut state = self.state.lock();
        let is_full =
            state.queue.len() >= QUEUE_MAX || (!state.queue.is_empty() && state.bytes + bytes > BYTES_MAX);
        if state.closed || is_full {
            return false;
        }
        let needs_one = state.running + state.queue.len() >= state.workers && state.workers < WORKERS_MAX;
        if needs_one && !self.start_worker(&mut state) && state.workers == 0 {
            return false;
        }
        state.bytes += bytes;
        state.queue.push_back((bytes, Box::new(call)));
        self.held.set(state.bytes as u64);
        drop(state);
        self.wanted.notify_one();
        true
    }

    fn start_worker(self: &Arc<Background>, state: &mut QueueState) -> bool {
        match self.world.sched.try_spawn(Box::new(Waiter(self.clone()))) {
            Ok(handle) => {
                self.handles.lock().push(handle);
                state.workers += 1;
                true
            }
            Err(_) => false,
        }
    }

    /// Calls that wait or run.
    pub fn under_way(&self) -> usize {
        let state = self.state.lock();
        state.queue.len() + state.running
    }

    fn take(&self) -> Option<(Call, CallReason)> {
        let mut state = self.state.lock();
        let (bytes, call) = state.queue.pop_front()?;
        state.bytes -= bytes;
        state.running += 1;
        self.held.set(state.bytes as u64);
        Some((call, if state.closed { CallReason::Closing } else { CallReason::Run }))
    }

    /// Takes no more calls, tells those that wait, and returns when none runs.
    pub fn stop(&self) {
        self.state.lock().closed = true;
        while let Some((call, turn)) = self.take() {
            callback(|| call(turn));
            self.state.lock().running -= 1;
        }
        let handles = std::mem::take(&mut *self.handles.lock());
        handles.iter().for_each(|handle| handle.ask_to_stop());
        drop(handles);
    }
}

struct Waiter(Arc<Background>);

impl Worker for Waiter {
    fn name(&self) -> &'static str {
        "waiter"
    }
    fn step(&mut self) -> Step {
        let Some((call, turn)) = self.0.take() else { return Step::Idle };
        callback(|| call(turn));
        self.0.state.lock().running -= 1;
        Step::Worked
    }
    fn wake_event(&self) -> Arc<Event> {
        self.0.wanted.clone()
    }
}
