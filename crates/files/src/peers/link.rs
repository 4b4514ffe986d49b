//! The connection to one peer: requests of many threads, answers in any order.
//!
//! One thread connects, greets, reads answers and asks now and then whether the peer is there. Those who ask write their request and wait, no longer than their patience:
//! whatever goes wrong is an outcome, after which they ask the store. A connection that breaks is made again at once; a peer is silent when it cannot be connected to, or
//! says nothing for [`SILENT`]. A peer that lets three requests in a row wait too long is not asked for a second.

use super::Peers;
use super::frame::{self, Broken, Frame, kind};
use super::greet;
use super::traffic::count;
use crate::stores::breaker::{Breaker, Gate};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Step, Woken, Worker};

/// A frame that has begun ends within this time, and a connection is made in it.
pub(super) const FRAME_TIME: Duration = Duration::from_secs(3);
const CONNECT: Duration = Duration::from_secs(1);
/// How long a read waits for a frame to begin.
pub(super) const TURN: Duration = Duration::from_millis(250);
const PING: Nanos = 500_000_000;
pub(super) const SILENT: Nanos = 3_000_000_000;
/// Between two attempts to connect to a peer that is silent.
const RETRY: Nanos = 500_000_000;
/// Requests of a connection that wait for their answers.
const WAITING_MAX: usize = 1024;

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missed {
    /// It does not answer, or did not lately.
    Down,
    /// It took too long.
    Late,
}

struct Waiting {
    answer: Mutex<Option<Option<Frame>>>,
    event: Event,
}

struct Line {
    stream: TcpStream,
    waiting: HashMap<u64, Arc<Waiting>>,
    next: u64,
}

pub struct Link {
    pub name: Arc<str>,
    line: Mutex<Option<Line>>,
    breaker: Mutex<Breaker>,
}

/// Connects and greets, for answers and for blocks.
pub(super) fn connect(peers: &Peers, name: &str) -> Result<TcpStream, Broken> {
    let io = |error: std::io::Error| Broken::Io(error.to_string());
    let found = name.to_socket_addrs().map_err(io)?.next();
    let address = found.ok_or_else(|| Broken::Io("its name has no address".into()))?;
    let mut stream = TcpStream::connect_timeout(&address, CONNECT).map_err(io)?;
    stream.set_nodelay(true).map_err(io)?;
    stream.set_write_timeout(Some(FRAME_TIME)).map_err(io)?;
    stream.set_read_timeout(Some(FRAME_TIME)).map_err(io)?;
    let settings = &peers.settings;
    greet::greet(&mut stream, &settings.secret, &*peers.world.random, &settings.address, &peers.store)?;
    Ok(stream)
}

impl Link {
    pub fn new(name: Arc<str>) -> Link {
        Link { name, line: Mutex::default(), breaker: Mutex::default() }
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&self, world: &World, kind: u8, fields: &[u8], patience: Nanos) -> Result<Frame, Missed> {
        let began = world.clock.now();
        if let Gate::Closed(_) = self.breaker.lock().enter(began) {
            return Err(Missed::Down);
        }
        let (id, waiting) = self.send(kind, fields)?;
        loop {
            let seen = waiting.event.ticket();
            if let Some(answer) = waiting.answer.lock().take() {
                self.breaker.lock().answered();
                return answer.ok_or(Missed::Down);
            }
            let left = patience.saturating_sub(world.clock.now().saturating_sub(began));
            if left == 0 {
                break;
            }
            let _: Woken = world.sched.wait(&waiting.event, seen, Some(left));
        }
        if let Some(line) = &mut *self.line.lock() {
            line.waiting.remove(&id);
        }
        self.breaker.lock().failed(world.clock.now(), String::new());
        Err(Missed::Late)
    }

    fn send(&self, kind: u8, fields: &[u8]) -> Result<(u64, Arc<Waiting>), Missed> {
        let waiting = Arc::new(Waiting { answer: Mutex::default(), event: Event::new() });
        let mut guard = self.line.lock();
        let line = guard.as_mut().filter(|line| line.waiting.len() < WAITING_MAX).ok_or(Missed::Down)?;
        line.next += 1;
        let id = line.next;
        line.waiting.insert(id, waiting.clone());
        if frame::send(&mut line.stream, id, kind, fields, &[]).is_err() {
            // The thread that reads finds it closed.
            let _ = line.stream.shutdown(Shutdown::Both);
            line.waiting.remove(&id);
            return Err(Missed::Down);
        }
        Ok((id, waiting))
    }

    /// A message without an answer; lost if the peer is not there.
    pub fn tell(&self, kind: u8, fields: &[u8]) {
        if let Some(line) = &mut *self.line.lock()
            && frame::send(&mut line.stream, 0, kind, fields, &[]).is_err()
        {
            let _ = line.stream.shutdown(Shutdown::Both);
        }
    }

    fn answered(&self, frame: Frame) {
        let waiting = self.line.lock().as_mut().and_then(|line| line.waiting.remove(&frame.request));
        // Without one it came too late.
        if let Some(waiting) = waiting {
            *waiting.answer.lock() = Some(Some(frame));
            waiting.event.notify();
        }
    }

    /// Those who wait on the connection find out at once.
    pub fn hang_up(&self) {
        let Some(line) = self.line.lock().take() else { return };
        let _ = line.stream.shutdown(Shutdown::Both);
        for waiting in line.waiting.into_values() {
            *waiting.answer.lock() = Some(None);
            waiting.event.notify();
        }
    }

    pub fn is_up(&self) -> bool {
        self.line.lock().is_some()
    }
}

/// The thread of a link.
pub(super) struct LinkWorker {
    peers: Arc<Peers>,
    link: Arc<Link>,
    reads: Option<TcpStream>,
    heard: Nanos,
    asked: Nanos,
    wake: Arc<Event>,
}

impl LinkWorker {
    pub fn new(peers: Arc<Peers>, link: Arc<Link>) -> LinkWorker {
        LinkWorker { peers, link, reads: None, heard: 0, asked: 0, wake: Arc::default() }
    }

    fn open(&mut self) -> Result<(), Broken> {
        let stream = connect(&self.peers, &self.link.name)?;
        let io = |error: std::io::Error| Broken::Io(error.to_string());
        let reads = stream.try_clone().map_err(io)?;
        reads.set_read_timeout(Some(TURN)).map_err(io)?;
        *self.link.line.lock() = Some(Line { stream, waiting: HashMap::new(), next: 0 });
        *self.link.breaker.lock() = Breaker::default();
        self.reads = Some(reads);
        self.heard = self.peers.world.clock.now();
        self.peers.heard(&self.link.name, true);
        Ok(())
    }

    fn turn(&mut self) -> Result<(), Broken> {
        let Some(reads) = &mut self.reads else { return Err(Broken::Closed) };
        let now = self.peers.world.clock.now();
        if now.saturating_sub(self.asked) >= PING {
            self.asked = now;
            self.link.tell(kind::PING, &[]);
        }
        match frame::receive(reads, frame::FRAME_MAX)? {
            Some(frame) => {
                self.heard = self.peers.world.clock.now();
                if frame.kind != kind::PONG {
                    self.link.answered(frame);
                }
                Ok(())
            }
            None if self.peers.world.clock.now().saturating_sub(self.heard) > SILENT => {
                self.peers.heard(&self.link.name, false);
                Err(Broken::Io("it is silent".into()))
            }
            None => Ok(()),
        }
    }
}

impl Worker for LinkWorker {
    fn name(&self) -> &'static str {
        "files-peer"
    }

    fn step(&mut self) -> Step {
        if self.peers.is_stopping() {
            return Step::Idle;
        }
        if self.reads.is_some() {
            if let Err(broken) = self.turn() {
                self.reads = None;
                self.link.hang_up();
                count(&self.peers.traffic.broken, 1);
                self.peers.broke(&broken);
            }
            return Step::Worked;
        }
        match self.open() {
            Ok(()) => Step::Worked,
            Err(broken) => {
                self.peers.broke(&broken);
                if let Broken::Refused(why) = broken {
                    self.peers.refused(&self.link.name, why);
                }
                self.peers.heard(&self.link.name, false);
                Step::IdleFor(RETRY)
            }
        }
    }

    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}
