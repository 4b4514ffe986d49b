//! The connections to the server below, and the thread that has them.
//!
//! There are two lanes, each a connection: reads do not wait behind the bytes of a large write. Commands of a lane are sent in the order in which they were submitted, without
//! waiting for replies (pipelining). One thread sends and receives for both; callers leave an [`Op`] in the inbox and wake it.
//!
//! | state | what an op that is submitted meets | what ends it |
//! | --- | --- | --- |
//! | up | it is sent | a lane that is closed, sends what is no reply, or answers nothing for the time-out: down |
//! | down | it is refused at once, with the reason | a new pair of connections, tried after a pause that doubles: up |
//! | stopped | the same | nothing |
//!
//! When a lane fails, both are closed and all ops without a reply end with a [`Failure`]: one whose last byte was not handed to the system has not run; of another it is not
//! known. Such a one may still be in the buffers of the server below, which stands still. So the first thing on a new pair of connections is to have the server close the old ones
//! (`hello`): after that they run nothing, and before that nothing is read or written. To those who ask through this link, the question is settled when it is reported.
//!
//! The lock of the inbox is held for no call.

use super::hello::{Greeting, Hello};
use super::reply::{Reply, parse, write_command};
use mio::{Events, Interest, Poll, Token};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Step, Worker, WorkerHandle};

/// The lanes.
pub const READS: usize = 0;
pub const WRITES: usize = 1;
pub const LANES: usize = 2;
const WAKE: Token = Token(LANES);

/// Ops that wait to be sent.
const INBOX_MAX: usize = 1 << 16;
/// The pause before a connection is tried again: it doubles up to the second.
const PAUSE_MIN: Nanos = 20_000_000;
const PAUSE_MAX: Nanos = 1_000_000_000;
const CHUNK_BYTES: usize = 64 << 10;
/// Buffers that are longer are not kept.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// Why an op has no replies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// It has not run and will not.
    NotRun(String),
    /// It has run or it has not.
    Unknown(String),
}

impl Failure {
    pub fn text(self) -> String {
        match self {
            Failure::NotRun(why) | Failure::Unknown(why) => why,
        }
    }
}

pub type Done = Box<dyn FnOnce(Result<Vec<Reply>, Failure>) + Send>;

/// Commands as bytes, and how many replies they have.
#[derive(Default)]
pub struct Commands {
    pub bytes: Vec<u8>,
    pub replies: usize,
}

impl Commands {
    pub fn add(&mut self, args: &[&[u8]]) {
        write_command(&mut self.bytes, args);
        self.replies += 1;
    }
}

/// Commands that are sent together.
pub struct Op {
    /// The database in which they run; `None`: they say so themselves.
    pub db: Option<u16>,
    /// Called by the thread of the link.
    pub commands: Box<dyn FnOnce() -> Commands + Send>,
    /// Called once, by the thread of the link, or before `submit` returns.
    pub done: Done,
}

#[derive(Default)]
struct Inbox {
    ops: [Vec<Op>; LANES],
    /// Why it is down.
    down: Option<String>,
    /// Why it stays down.
    stopped: Option<String>,
    /// Why the connections are to be given up.
    dropped: Option<String>,
    is_closing: bool,
}

struct Shared {
    inbox: Mutex<Inbox>,
    waker: mio::Waker,
    event: Arc<Event>,
}

impl Shared {
    fn wake(&self) {
        // The thread looks at the inbox from time to time anyway.
        let _ = self.waker.wake();
        self.event.notify();
    }
}

/// The caller's half. The thread ends when it is dropped.
pub struct Link {
    shared: Arc<Shared>,
    _worker: Box<dyn WorkerHandle>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.inbox.lock().is_closing = true;
        self.shared.wake();
    }
}

impl Link {
    /// Connects, and starts the thread. `greet` is told of each later pair of connections, before anything is sent on it.
    ///
    /// # Errors
    /// Why the server cannot be used.
    pub fn open(
        world: &World,
        hello: Hello,
        greet: Box<dyn Fn(&Greeting) + Send>,
    ) -> Result<(Link, Greeting), String> {
        let failed = |error: std::io::Error| error.to_string();
        let poll = Poll::new().map_err(failed)?;
        let waker = mio::Waker::new(poll.registry(), WAKE).map_err(failed)?;
        let mut greeting = hello.connect(true)?;
        let shared = Arc::new(Shared { inbox: Mutex::default(), waker, event: Arc::default() });
        let mut thread = Thread {
            world: world.clone(),
            shared: shared.clone(),
            timeout: hello.timeout.as_nanos() as Nanos,
            hello,
            greet,
            poll,
            events: Events::with_capacity(16),
            lanes: None,
            retry_at: 0,
            pause: PAUSE_MIN,
        };
        thread.adopt(&mut greeting).map_err(failed)?;
        let worker = world.sched.try_spawn(Box::new(thread)).map_err(failed)?;
        Ok((Link { shared, _worker: worker }, greeting))
    }

    pub fn submit(&self, lane: usize, op: Op) {
        let mut inbox = self.shared.inbox.lock();
        let why = inbox.stopped.clone().or_else(|| inbox.down.clone()).or_else(|| {
            (inbox.ops[lane].len() >= INBOX_MAX).then(|| "too many commands wait already".to_owned())
        });
        match why {
            Some(why) => {
                drop(inbox);
                (op.done)(Err(Failure::NotRun(why)));
            }
            None => {
                let was_empty = inbox.ops.iter().all(Vec::is_empty);
                inbox.ops[lane].push(op);
                drop(inbox);
                if was_empty {
                    let _ = self.shared.waker.wake();
                }
            }
        }
    }

    /// Submits and waits for the replies: not for a thread that must not wait.
    pub fn ask(&self, lane: usize, db: Option<u16>, commands: Commands) -> Result<Vec<Reply>, Failure> {
        let (told, heard) = std::sync::mpsc::channel();
        let done: Done = Box::new(move |replies| _ = told.send(replies));
        self.submit(lane, Op { db, commands: Box::new(move || commands), done });
        heard.recv().unwrap_or_else(|_| Err(Failure::Unknown("the link was closed".into())))
    }

    /// Why nothing is sent now, if that is so.
    pub fn down(&self) -> Option<String> {
        let inbox = self.shared.inbox.lock();
        inbox.stopped.clone().or_else(|| inbox.down.clone())
    }

    /// Gives the connections up, and connects again.
    pub fn reconnect(&self, why: &str) {
        self.shared.inbox.lock().dropped = Some(why.to_owned());
        self.shared.wake();
    }

    /// Sends nothing any more.
    pub fn stop(&self, why: String) {
        self.shared.inbox.lock().stopped = Some(why);
        self.reconnect("it is stopped");
    }
}

struct Pending {
    done: Done,
    replies: usize,
    /// A `SELECT` was sent before it, whose reply comes first.
    selects: bool,
    /// The lane's byte after its last one.
    end: u64,
    found: Vec<Reply>,
}

struct Lane {
    stream: mio::net::TcpStream,
    /// The database that is selected, if that is known.
    db: Option<u16>,
    output: Vec<u8>,
    output_at: usize,
    /// Bytes that were put into `output`, and those that were handed to the system.
    queued: u64,
    sent: u64,
    input: Vec<u8>,
    pending: VecDeque<Pending>,
    /// When something was sent or received, or the first op came.
    moved: Nanos,
}

type Ended = (Done, Vec<Reply>);

impl Lane {
    fn new(stream: std::net::TcpStream) -> std::io::Result<Lane> {
        stream.set_nonblocking(true)?;
        Ok(Lane {
            stream: mio::net::TcpStream::from_std(stream),
            db: None,
            output: Vec::new(),
            output_at: 0,
            queued: 0,
            sent: 0,
            input: Vec::new(),
            pending: VecDeque::new(),
            moved: 0,
        })
    }

    fn put(&mut self, op: Op, now: Nanos) {
        let before = self.output.len();
        let selects = op.db.is_some() && self.db != op.db;
        if let Some(db) = op.db.filter(|_| selects) {
            write_command(&mut self.output, &[b"SELECT", itoa::Buffer::new().format(db).as_bytes()]);
        }
        self.db = op.db;
        let Commands { mut bytes, replies } = (op.commands)();
        match self.output.is_empty() {
            true => self.output = bytes,
            false => self.output.append(&mut bytes),
        }
        self.queued += (self.output.len() - before) as u64;
        if self.pending.is_empty() {
            self.moved = now;
        }
        let found = Vec::with_capacity(replies);
        self.pending.push_back(Pending { done: op.done, replies, selects, end: self.queued, found });
    }

    fn send(&mut self, now: Nanos) -> Result<(), String> {
        while self.output_at < self.output.len() {
            match self.stream.write(&self.output[self.output_at..]) {
                Ok(0) => return Err("the connection takes nothing".into()),
                Ok(count) => {
                    self.output_at += count;
                    self.sent += count as u64;
                    self.moved = now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        self.output.clear();
        self.output_at = 0;
        self.output.shrink_to(BUFFER_BYTES_MAX);
        Ok(())
    }

    /// Takes what has come; adds the ops that have all their replies.
    fn receive(&mut self, now: Nanos, ended: &mut Vec<Ended>) -> Result<(), String> {
        let mut chunk = [0; CHUNK_BYTES];
        let closed = loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => break Some("the server has closed the connection".to_owned()),
                Ok(count) => {
                    self.input.extend_from_slice(&chunk[..count]);
                    self.moved = now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Some(error.to_string()),
            }
        };
        let mut at = 0;
        while let Some((reply, length)) = parse(&self.input[at..])? {
            at += length;
            self.take(reply, ended)?;
        }
        self.input.drain(..at);
        if self.input.is_empty() {
            self.input.shrink_to(BUFFER_BYTES_MAX);
        }
        closed.map_or(Ok(()), Err)
    }

    fn take(&mut self, reply: Reply, ended: &mut Vec<Ended>) -> Result<(), String> {
        let Some(first) = self.pending.front_mut() else {
            return Err(match reply {
                Reply::Error(text) => text,
                _ => "the server answers what was not asked".into(),
            });
        };
        if std::mem::take(&mut first.selects) {
            return match reply {
                Reply::Error(text) => Err(format!("SELECT: {text}")),
                _ => Ok(()),
            };
        }
        first.found.push(reply);
        if first.found.len() == first.replies
            && let Some(Pending { done, found, .. }) = self.pending.pop_front()
        {
            ended.push((done, found));
        }
        Ok(())
    }

    /// Ends all ops.
    fn fail(self, why: &str) {
        for Pending { done, end, .. } in self.pending {
            let why = why.to_owned();
            done(Err(if end > self.sent { Failure::NotRun(why) } else { Failure::Unknown(why) }));
        }
    }
}

/// The thread's half.
struct Thread {
    world: World,
    shared: Arc<Shared>,
    hello: Hello,
    timeout: Nanos,
    greet: Box<dyn Fn(&Greeting) + Send>,
    poll: Poll,
    events: Events,
    lanes: Option<[Lane; LANES]>,
    retry_at: Nanos,
    pause: Nanos,
}

impl Thread {
    /// Takes over a pair of connections.
    fn adopt(&mut self, greeting: &mut Greeting) -> std::io::Result<()> {
        let Some([reads, writes]) = greeting.streams.take() else { return Ok(()) };
        let mut lanes = [Lane::new(reads)?, Lane::new(writes)?];
        for (number, lane) in lanes.iter_mut().enumerate() {
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut lane.stream, Token(number), both)?;
        }
        self.lanes = Some(lanes);
        self.pause = PAUSE_MIN;
        Ok(())
    }

    fn connect(&mut self) {
        let connected = self.hello.connect(false).and_then(|mut greeting| {
            (self.greet)(&greeting);
            self.adopt(&mut greeting).map_err(|error| error.to_string())
        });
        let mut inbox = self.shared.inbox.lock();
        match connected {
            Ok(()) => (inbox.down, inbox.dropped) = (None, None),
            Err(why) => {
                inbox.down = Some(why);
                drop(inbox);
                self.rest();
            }
        }
    }

    /// Lets some time pass before the next try.
    fn rest(&mut self) {
        self.retry_at = self.world.clock.now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Closes the connections and ends all ops.
    fn fail(&mut self, why: &str) {
        let waiting = {
            let mut inbox = self.shared.inbox.lock();
            inbox.down = Some(why.to_owned());
            std::mem::take(&mut inbox.ops)
        };
        for mut lane in self.lanes.take().into_iter().flatten() {
            // It is closed either way.
            let _ = self.poll.registry().deregister(&mut lane.stream);
            lane.fail(why);
        }
        for op in waiting.into_iter().flatten() {
            (op.done)(Err(Failure::NotRun(why.to_owned())));
        }
        self.rest();
    }

    /// Sends what waits, waits for something to happen, and takes what has come.
    fn serve(&mut self, ops: [Vec<Op>; LANES]) -> Result<(), String> {
        let Some(lanes) = &mut self.lanes else { return Ok(()) };
        let now = self.world.clock.now();
        let mut wait = PAUSE_MAX;
        for (lane, ops) in lanes.iter_mut().zip(ops) {
            ops.into_iter().for_each(|op| lane.put(op, now));
        }
        for lane in lanes.iter_mut() {
            lane.send(now)?;
            if !lane.pending.is_empty() {
                wait = wait.min((lane.moved + self.timeout).saturating_sub(now));
            }
        }
        match self.poll.poll(&mut self.events, Some(Duration::from_nanos(wait))) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.to_string()),
            _ => {}
        }
        let now = self.world.clock.now();
        let mut ended = Vec::new();
        let mut result = Ok(());
        for event in &self.events {
            if let Some(lane) = lanes.get_mut(event.token().0)
                && (event.is_readable() || event.is_read_closed() || event.is_error())
            {
                result = result.and(lane.receive(now, &mut ended));
            }
        }
        for (done, replies) in ended {
            done(Ok(replies));
        }
        result?;
        let is_late = |lane: &Lane| !lane.pending.is_empty() && now >= lane.moved + self.timeout;
        match lanes.iter().any(is_late) {
            true => Err(format!("no answer for {} ms", self.timeout / 1_000_000)),
            false => Ok(()),
        }
    }
}

impl Worker for Thread {
    fn name(&self) -> &'static str {
        "kv-redis"
    }

    fn step(&mut self) -> Step {
        let mut inbox = self.shared.inbox.lock();
        let ops = std::mem::take(&mut inbox.ops);
        let dropped = match inbox.is_closing {
            true => Some("the storage was closed".to_owned()),
            false => inbox.dropped.take(),
        };
        let stays_down = inbox.is_closing || inbox.stopped.is_some();
        drop(inbox);
        if self.lanes.is_none() {
            // None was let in, or only just: the link is up when the inbox says so.
            for op in ops.into_iter().flatten() {
                (op.done)(Err(Failure::NotRun("the link is down".into())));
            }
            let now = self.world.clock.now();
            match self.retry_at.saturating_sub(now) {
                _ if stays_down => return Step::Idle,
                0 => self.connect(),
                wait => return Step::IdleFor(wait),
            }
            return Step::Worked;
        }
        let served = match dropped {
            Some(why) => {
                ops.into_iter().flatten().for_each(|op| (op.done)(Err(Failure::NotRun(why.clone()))));
                Err(why)
            }
            None => self.serve(ops),
        };
        if let Err(why) = served {
            self.fail(&why);
        }
        Step::Worked
    }

    fn wake_event(&self) -> Arc<Event> {
        self.shared.event.clone()
    }
}
