//! Answering other nodes: the listener, and two threads for each connection.
//!
//! One reads requests, the other writes answers: bytes go from the arena to the socket, under lease, and are copied nowhere. A read is the catalogue's as any client's is, and its
//! answer comes when its flights have ended. Giving blocks of partitions that moved is done on the reading thread of a connection that is made for that.
//!
//! Limits: [`CONNECTIONS_MAX`] connections, others are refused; [`IN_FLIGHT_MAX`] reads of one without an answer, and a part of the arena under lease for all of them:
//! others are answered “busy”, and their nodes ask the store.

use super::frame::{self, Broken, fields, kind};
use super::give::Giving;
use super::greet;
use super::link::{FRAME_TIME, TURN};
use super::ring::Set;
use super::traffic::count;
use super::{Ask, Node, Peers};
use crate::catalogue::{Done, Fault, Leased, PEER, Read, Wants, block_len};
use crate::wire::{Fields, check_path};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Step, Worker, WorkerHandle};

const CONNECTIONS_MAX: usize = 256;
const IN_FLIGHT_MAX: usize = 256;
/// Bytes of a request.
const REQUEST_MAX: usize = 8 << 10;

struct Outgoing {
    request: u64,
    kind: u8,
    fields: Vec<u8>,
    leases: Vec<Leased>,
    owned: Vec<u8>,
}

pub(super) struct Conn {
    stream: TcpStream,
    out: Mutex<VecDeque<Outgoing>>,
    wake: Arc<Event>,
    in_flight: AtomicUsize,
    is_over: AtomicBool,
}

/// A read of another node that waits for its answer.
pub(super) struct Asked {
    conn: Arc<Conn>,
    request: u64,
    received: Nanos,
    /// Bytes that it has room for; only whole blocks are sent.
    max: u64,
    index: u32,
}

/// A connection with its threads.
pub(super) struct Served {
    conn: Arc<Conn>,
    _threads: Vec<Box<dyn WorkerHandle>>,
}

impl Conn {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = self.stream.shutdown(Shutdown::Both);
        self.wake.notify();
    }
    fn push(&self, outgoing: Outgoing) {
        self.out.lock().push_back(outgoing);
        self.wake.notify();
    }
    fn answer(&self, request: u64, kind: u8, fields: Vec<u8>) {
        self.push(Outgoing { request, kind, fields, leases: Vec::new(), owned: Vec::new() });
    }
    fn fault(&self, request: u64, why: &str) {
        self.answer(
            request,
            kind::FAULT,
            fields(|put| {
                put.text(why);
            }),
        );
    }
}

impl Served {
    pub fn end(&self) {
        self.conn.end();
    }
}

impl Peers {
    /// The catalogue's answer to another node's read.
    pub fn deliver(&self, done: Done) {
        let Some(node) = self.node() else { return };
        let Done { request, answer, checked, .. } = done;
        let Some(asked) = self.asked.lock().remove(&request) else {
            if let Ok((_, leases)) = answer {
                node.release(&leases);
            }
            return;
        };
        asked.conn.in_flight.fetch_sub(1, Ordering::SeqCst);
        let (meta, leases) = match answer {
            Ok(found) => found,
            Err(fault) => return asked.conn.fault(asked.request, &fault.to_string()),
        };
        let sum: u64 = leases.iter().map(|lease| lease.extent.len).sum();
        let is_whole = sum > 0 && sum == block_len(meta.length, asked.index) && sum <= asked.max;
        let leased = if is_whole { self.leased.fetch_add(sum, Ordering::SeqCst) + sum } else { 0 };
        let is_too_much = leased > self.leased_max;
        if !is_whole || is_too_much || asked.conn.is_over() {
            node.release(&leases);
            if is_whole {
                self.leased.fetch_sub(sum, Ordering::SeqCst);
            }
            if is_too_much {
                return asked.conn.fault(asked.request, "too much is being sent");
            }
        }
        let leases = if is_whole && !asked.conn.is_over() { leases } else { Vec::new() };
        let age = asked.received.saturating_sub(checked);
        let head = fields(|put| {
            put.text(&meta.version).u64(meta.length).u64(age);
        });
        count(&self.traffic.served, 1);
        count(&self.traffic.served_bytes, leases.iter().map(|lease| lease.extent.len).sum());
        asked.conn.push(Outgoing {
            request: asked.request,
            kind: kind::BYTES,
            fields: head,
            leases,
            owned: Vec::new(),
        });
    }

    /// The answer to a read that only what is cached may answer: a version that was current at a time, and bytes.
    pub fn cached(&self, request: u64, found: Cached) {
        let Some(asked) = self.asked.lock().remove(&request) else { return };
        asked.conn.in_flight.fetch_sub(1, Ordering::SeqCst);
        let (kind, head, owned) = match found {
            Cached::NotHere => (kind::NOT_HERE, Vec::new(), Vec::new()),
            Cached::Seems => (kind::SEEMS, Vec::new(), Vec::new()),
            Cached::Found { version, length, checked, bytes } => {
                let age = asked.received.saturating_sub(checked);
                count(&self.traffic.served, 1);
                count(&self.traffic.served_bytes, bytes.len() as u64);
                let head = fields(|put| {
                    put.text(&version).u64(length).u64(age);
                });
                (kind::BYTES, head, bytes)
            }
        };
        asked.conn.push(Outgoing { request: asked.request, kind, fields: head, leases: Vec::new(), owned });
    }

    pub(super) fn accept(self: &Arc<Peers>, stream: TcpStream) -> Result<(), Broken> {
        let io = |error: std::io::Error| Broken::Io(error.to_string());
        let mut served = self.served.lock();
        served.retain(|served| !served.conn.is_over());
        if served.len() >= CONNECTIONS_MAX || self.is_stopping() {
            return Err(Broken::Refused("too many connections".into()));
        }
        stream.set_nodelay(true).map_err(io)?;
        stream.set_read_timeout(Some(FRAME_TIME)).map_err(io)?;
        stream.set_write_timeout(Some(FRAME_TIME)).map_err(io)?;
        let conn = Arc::new(Conn {
            stream: stream.try_clone().map_err(io)?,
            out: Mutex::default(),
            wake: Arc::default(),
            in_flight: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let writes = stream.try_clone().map_err(io)?;
        let reader = Reader {
            peers: self.clone(),
            conn: conn.clone(),
            stream,
            name: None,
            giving: None,
            wake: Arc::default(),
        };
        let writer = Writer { peers: self.clone(), conn: conn.clone(), stream: writes };
        let spawn = |worker: Box<dyn Worker>| self.world.sched.try_spawn(worker).map_err(io);
        let threads = vec![spawn(Box::new(reader))?, spawn(Box::new(writer))?];
        served.push(Served { conn, _threads: threads });
        Ok(())
    }
}

/// What is cached of a file.
pub enum Cached {
    NotHere,
    Seems,
    Found { version: Arc<str>, length: u64, checked: Nanos, bytes: Vec<u8> },
}

struct Reader {
    peers: Arc<Peers>,
    conn: Arc<Conn>,
    stream: TcpStream,
    /// None: it has not greeted yet.
    name: Option<String>,
    giving: Option<(u64, Giving)>,
    wake: Arc<Event>,
}

impl Reader {
    fn turn(&mut self) -> Result<(), Broken> {
        let peers = self.peers.clone();
        let Some(name) = &self.name else {
            let settings = &peers.settings;
            let name =
                greet::welcome(&mut self.stream, &settings.secret, &*peers.world.random, &peers.store)?;
            self.stream.set_read_timeout(Some(TURN)).map_err(|error| Broken::Io(error.to_string()))?;
            peers.heard(&name, true);
            self.name = Some(name);
            return Ok(());
        };
        let Some(frame) = frame::receive(&mut self.stream, REQUEST_MAX)? else { return Ok(()) };
        let received = peers.world.clock.now();
        let node = peers.node().ok_or(Broken::Closed)?;
        let mut read = Fields(frame.fields());
        match frame.kind {
            kind::PING => {
                peers.heard(name, true);
                self.conn.answer(frame.request, kind::PONG, Vec::new());
            }
            kind::CHANGED => {
                let path = read.text()?;
                if check_path(path).is_ok() {
                    node.changed(&path.into());
                }
            }
            kind::READ => {
                let ask = Ask::decode(&mut read)?;
                if check_path(&ask.path).is_err() {
                    return Err(Broken::Malformed("it asks for what is no path"));
                }
                self.read(&*node, frame.request, received, ask);
            }
            kind::NEXT => {
                let (kept, set) = (read.u64()?, read.0);
                let set = Set::of_bytes(set).ok_or(Broken::Malformed("it asks for no partitions"))?;
                self.give(&*node, frame.request, kept, &set)?;
            }
            _ => return Err(Broken::Malformed("its kind is not known")),
        }
        Ok(())
    }

    fn read(&self, node: &dyn Node, request: u64, received: Nanos, ask: Ask) {
        if self.conn.in_flight.fetch_add(1, Ordering::SeqCst) >= IN_FLIGHT_MAX {
            self.conn.in_flight.fetch_sub(1, Ordering::SeqCst);
            return self.conn.fault(request, &Fault::Busy("too many requests wait".into()).to_string());
        }
        let id = self.peers.next_id();
        let asked = Asked { conn: self.conn.clone(), request, received, max: ask.max, index: ask.index };
        self.peers.asked.lock().insert(id, asked);
        if ask.is_cached {
            return node.cached(id, ask);
        }
        let since = if ask.age_max == Nanos::MAX { 0 } else { received.saturating_sub(ask.age_max) };
        node.begin(Read {
            client: PEER,
            request: id,
            item: 0,
            wants: if ask.max == 0 { Wants::Stat } else { Wants::Bytes },
            path: ask.path,
            offset: u64::from(ask.index) * crate::catalogue::BLOCK_BYTES,
            length: ask.max,
            expected: ask.expected,
            since,
        });
    }

    /// The next block of what moved.
    fn give(&mut self, node: &dyn Node, request: u64, kept: u64, set: &Set) -> Result<(), Broken> {
        let (last, mut giving) = self.giving.take().unwrap_or_default();
        let sent = std::mem::take(&mut giving.sent);
        if kept != 0 && kept == last {
            count(&self.peers.traffic.moved_files, (sent.smalls.len() + sent.larges.len()) as u64);
            node.moved(sent);
        }
        let given = node.give(&mut giving, set);
        let (head, parts) = given.encode();
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let wait = self.peers.pace.lock().take(bytes, self.peers.world.clock.now());
        if wait > 0 {
            let stop = &self.peers.stop;
            self.peers.world.sched.wait(stop, stop.ticket(), Some(wait));
        }
        let id = last + 1;
        count(&self.peers.traffic.given_files, (giving.sent.smalls.len() + giving.sent.larges.len()) as u64);
        count(&self.peers.traffic.given_bytes, bytes);
        let id_field = fields(|put| {
            put.u64(id).bytes(&head);
        });
        self.giving = Some((id, giving));
        // Nothing else is written on a connection that takes.
        frame::send(&mut self.stream, request, kind::GIVEN, &id_field, &parts)
    }
}

impl Worker for Reader {
    fn name(&self) -> &'static str {
        "files-peer-in"
    }
    fn step(&mut self) -> Step {
        if self.conn.is_over() {
            return Step::Idle;
        }
        if let Err(broken) = self.turn() {
            self.peers.broke(&broken);
            if let Broken::Refused(why) = broken {
                self.peers.refused("a peer that connected", why);
            }
            self.conn.end();
        }
        Step::Worked
    }
    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}

struct Writer {
    peers: Arc<Peers>,
    conn: Arc<Conn>,
    stream: TcpStream,
}

impl Worker for Writer {
    fn name(&self) -> &'static str {
        "files-peer-out"
    }
    fn step(&mut self) -> Step {
        let Some(next) = self.conn.out.lock().pop_front() else { return Step::Idle };
        let Some(node) = self.peers.node() else { return Step::Worked };
        let Outgoing { request, kind, fields, leases, owned } = next;
        if !self.conn.is_over() {
            let mut parts: Vec<&[u8]> = leases.iter().map(|lease| node.bytes(lease.extent)).collect();
            parts.push(&owned);
            if frame::send(&mut self.stream, request, kind, &fields, &parts).is_err() {
                self.conn.end();
            }
        }
        if !leases.is_empty() {
            let sum = leases.iter().map(|lease| lease.extent.len).sum();
            self.peers.leased.fetch_sub(sum, Ordering::SeqCst);
            node.release(&leases);
        }
        Step::Worked
    }
    fn wake_event(&self) -> Arc<Event> {
        self.conn.wake.clone()
    }
}

/// Accepts connections until the end.
pub(super) struct Listener {
    pub peers: Arc<Peers>,
    pub listener: TcpListener,
    pub wake: Arc<Event>,
}

impl Worker for Listener {
    fn name(&self) -> &'static str {
        "files-peers"
    }
    fn step(&mut self) -> Step {
        // At the end a connection of this node's own ends the wait.
        let accepted = self.listener.accept();
        if self.peers.is_stopping() {
            return Step::Idle;
        }
        match accepted {
            Ok((stream, _)) => {
                let _ = self.peers.accept(stream);
                Step::Worked
            }
            // Such as too many open files: others end.
            Err(_) => Step::IdleFor(50_000_000),
        }
    }
    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}
