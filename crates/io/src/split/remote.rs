//! A small block server over TCP, and its client. For the paper's experiments, not for production: it has no authentication.
//!
//! A request is an identifier, an offset and a length (16 bytes); an answer is the identifier, a status and the bytes. Requests of a
//! connection are answered as they become ready, in any order.
//!
//! The server shapes its own traffic ([`Shape`]): all connections share one link, on which a request takes as long as its bytes take at the
//! bandwidth, and each answer is delayed by the latency. Competing flows take their part of the bandwidth: each flow as much as it is
//! capped at, or an equal share. They are arithmetic, not traffic, so that two cores can stand in for a data centre.
//!
//! The client keeps a bounded number of requests in flight. A reader that runs out of patience leaves its request behind; the answer
//! is only reported ([`Source::on_late`]).
//!
//! Bounds: [`LENGTH_MAX`] a request, [`IN_FLIGHT_MAX`] requests a connection; a peer that exceeds them is disconnected.

use super::reader::{Answer, Late, Source};
use crate::clock::Nanos;
use crate::disk::{Class, File};
use parking_lot::{Condvar, Mutex};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of one request.
pub const LENGTH_MAX: u32 = 1 << 20;
/// Requests of one connection that are not answered yet.
pub const IN_FLIGHT_MAX: usize = 1024;
/// Connections of a server, over its life; others are refused.
pub const CONNECTIONS_MAX: usize = 256;
/// Idle time of the link that a burst may make up for.
const BURST: Duration = Duration::from_millis(1);

/// How the server's network behaves. Changed while it runs.
#[derive(Default)]
pub struct Shape {
    /// Bytes a second; 0: unlimited.
    pub bandwidth: AtomicU64,
    /// Nanoseconds that each answer is delayed.
    pub latency: AtomicU64,
    pub flows: AtomicU32,
    /// Bytes a second of each competing flow; 0: as much as it gets.
    pub flow_cap: AtomicU64,
    /// Requests are taken and not answered.
    pub hangs: AtomicBool,
}

impl Shape {
    /// Bytes a second that are left for requests.
    fn left(&self) -> f64 {
        let (all, flows) = (self.bandwidth.load(Relaxed) as f64, f64::from(self.flows.load(Relaxed)));
        let fair = all / (flows + 1.0);
        match self.flow_cap.load(Relaxed) {
            0 => fair,
            cap => (all - flows * cap as f64).max(fair),
        }
    }
}

struct Link(Mutex<Option<Instant>>);

impl Link {
    /// When a request of `bytes` has passed the link.
    fn pass(&self, shape: &Shape, bytes: u32) -> Instant {
        let now = Instant::now();
        if shape.bandwidth.load(Relaxed) == 0 {
            return now;
        }
        let takes = Duration::from_secs_f64(f64::from(bytes) / shape.left().max(1.0));
        let mut free_at = self.0.lock();
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let end = free_at.unwrap_or(earliest).max(earliest) + takes;
        *free_at = Some(end);
        end.max(now)
    }
}

pub struct Server {
    address: SocketAddr,
    shape: Arc<Shape>,
    stopping: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
    accepting: Option<JoinHandle<()>>,
}

type Ready = Reverse<(Instant, u64, u32, u32)>;

/// Requests of a connection that wait for their moment.
#[derive(Default)]
struct Outbox {
    ready: Mutex<(BinaryHeap<Ready>, bool)>,
    changed: Condvar,
}

impl Server {
    /// Serves a file on a free port of the loopback interface.
    pub fn start(file: Arc<dyn File>, shape: Arc<Shape>) -> std::io::Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, stopping) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let (connections, threads) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let link = Arc::new(Link(Mutex::new(None)));
        let accepting = {
            let (shape, stopping) = (shape.clone(), stopping.clone());
            let (connections, threads) = (connections.clone(), threads.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    if stopping.load(Relaxed) {
                        return;
                    }
                    let _ = stream.set_nodelay(true);
                    let (Ok(kept), Ok(reads)) = (stream.try_clone(), stream.try_clone()) else { continue };
                    if connections.lock().len() >= CONNECTIONS_MAX {
                        continue;
                    }
                    connections.lock().push(kept);
                    let outbox = Arc::new(Outbox::default());
                    let (taking, giving) = (outbox.clone(), outbox);
                    let (link, shape, file) = (link.clone(), shape.clone(), file.clone());
                    let mut threads = threads.lock();
                    threads.push(std::thread::spawn(move || take(reads, &taking, &link, &shape)));
                    threads.push(std::thread::spawn(move || give(stream, &giving, &*file)));
                }
            })
        };
        Ok(Server { address, shape, stopping, connections, threads, accepting: Some(accepting) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.connections.lock().iter().for_each(|stream| _ = stream.shutdown(Shutdown::Both));
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(|thread| _ = thread.join());
    }
}

/// Reads requests and gives each its moment.
fn take(mut stream: TcpStream, outbox: &Outbox, link: &Link, shape: &Shape) {
    let mut request = [0; 16];
    while stream.read_exact(&mut request).is_ok() {
        let (id, offset, length) = (word(&request, 0), word64(&request, 4), word(&request, 12));
        if length > LENGTH_MAX {
            break;
        }
        if shape.hangs.load(Relaxed) {
            continue;
        }
        let moment = link.pass(shape, length) + Duration::from_nanos(shape.latency.load(Relaxed));
        let mut ready = outbox.ready.lock();
        if ready.0.len() >= IN_FLIGHT_MAX {
            break;
        }
        ready.0.push(Reverse((moment, offset, length, id)));
        outbox.changed.notify_one();
    }
    outbox.ready.lock().1 = true;
    outbox.changed.notify_one();
    let _ = stream.shutdown(Shutdown::Both);
}

/// Answers requests whose moment has come.
fn give(mut stream: TcpStream, outbox: &Outbox, file: &dyn File) {
    let mut answer = Vec::new();
    loop {
        let (offset, length, id) = {
            let mut ready = outbox.ready.lock();
            loop {
                if ready.1 {
                    return;
                }
                let Some(Reverse((moment, offset, length, id))) = ready.0.peek().copied() else {
                    outbox.changed.wait(&mut ready);
                    continue;
                };
                if moment <= Instant::now() {
                    ready.0.pop();
                    break (offset, length, id);
                }
                outbox.changed.wait_until(&mut ready, moment);
            }
        };
        answer.resize(8 + length as usize, 0);
        let is_read = file.read(Class::PageRead, offset, &mut answer[8..]).is_ok();
        answer[..4].copy_from_slice(&id.to_le_bytes());
        answer[4..8].copy_from_slice(&u32::from(!is_read).to_le_bytes());
        let sent = if is_read { &answer[..] } else { &answer[..8] };
        if stream.write_all(sent).is_err() {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// A request of the client.
struct Waiting {
    started: Instant,
    length: u32,
    answer: Option<Result<Vec<u8>, String>>,
    is_abandoned: bool,
}

#[derive(Default)]
struct Inbox {
    waiting: Mutex<HashMap<u32, Waiting>>,
    arrived: Condvar,
    late: OnceLock<Late>,
    is_broken: AtomicBool,
}

/// A client: blocks of a server's file.
pub struct Remote {
    writes: Mutex<TcpStream>,
    inbox: Arc<Inbox>,
    next: AtomicU32,
    /// Where blocks are written: the server only reads.
    file: Arc<dyn File>,
    thread: Option<JoinHandle<()>>,
}

impl Remote {
    /// `file` is the server's, for writes.
    pub fn connect(address: SocketAddr, file: Arc<dyn File>) -> std::io::Result<Remote> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let (reads, inbox) = (stream.try_clone()?, Arc::new(Inbox::default()));
        let thread = {
            let inbox = inbox.clone();
            std::thread::spawn(move || receive(reads, &inbox))
        };
        Ok(Remote { writes: Mutex::new(stream), inbox, next: AtomicU32::new(0), file, thread: Some(thread) })
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.writes.lock().shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn receive(mut stream: TcpStream, inbox: &Inbox) {
    let cause = loop {
        let mut head = [0; 8];
        if let Err(error) = stream.read_exact(&mut head) {
            break match error.kind() {
                ErrorKind::UnexpectedEof => "the server closed the connection".to_string(),
                _ => error.to_string(),
            };
        }
        let (id, status) = (word(&head, 0), word(&head, 4));
        let Some(length) = inbox.waiting.lock().get(&id).map(|waiting| waiting.length) else {
            break format!("the server answered request {id}, which was not sent");
        };
        let answer = if status == 0 {
            let mut bytes = vec![0; length as usize];
            match stream.read_exact(&mut bytes) {
                Ok(()) => Ok(bytes),
                Err(error) => break error.to_string(),
            }
        } else {
            Err("the server could not read the block".to_string())
        };
        let mut all = inbox.waiting.lock();
        let Some(waiting) = all.get_mut(&id) else { continue };
        if waiting.is_abandoned {
            let (latency, is_answered) = (waiting.started.elapsed().as_nanos() as Nanos, answer.is_ok());
            all.remove(&id);
            drop(all);
            if let Some(late) = inbox.late.get() {
                late(latency, is_answered);
            }
            continue;
        }
        waiting.answer = Some(answer);
        drop(all);
        inbox.arrived.notify_all();
    };
    inbox.is_broken.store(true, Relaxed);
    let mut all = inbox.waiting.lock();
    let mut abandoned = 0;
    all.retain(|_, waiting| {
        waiting.answer.get_or_insert_with(|| Err(cause.clone()));
        abandoned += usize::from(waiting.is_abandoned);
        !waiting.is_abandoned
    });
    drop(all);
    inbox.arrived.notify_all();
    if let Some(late) = inbox.late.get() {
        (0..abandoned).for_each(|_| late(0, false));
    }
}

impl Source for Remote {
    fn read(&self, block: u64, buf: &mut [u8], patience: Option<Nanos>) -> Answer {
        if self.inbox.is_broken.load(Relaxed) {
            return Answer::Failed("the connection is lost".into());
        }
        let (id, length) = (self.next.fetch_add(1, Relaxed), buf.len() as u32);
        let started = Instant::now();
        {
            let mut all = self.inbox.waiting.lock();
            if all.len() >= IN_FLIGHT_MAX {
                return Answer::Failed(format!("{IN_FLIGHT_MAX} requests are in flight"));
            }
            all.insert(id, Waiting { started, length, answer: None, is_abandoned: false });
        }
        let mut request = [0; 16];
        request[..4].copy_from_slice(&id.to_le_bytes());
        request[4..12].copy_from_slice(&(block * u64::from(length)).to_le_bytes());
        request[12..].copy_from_slice(&length.to_le_bytes());
        if let Err(error) = self.writes.lock().write_all(&request) {
            self.inbox.waiting.lock().remove(&id);
            return Answer::Failed(error.to_string());
        }
        let until = patience.map(|patience| started + Duration::from_nanos(patience));
        let mut all = self.inbox.waiting.lock();
        loop {
            if self.inbox.is_broken.load(Relaxed)
                && all.get(&id).is_none_or(|waiting| waiting.answer.is_none())
            {
                all.remove(&id);
                return Answer::Failed("the connection is lost".into());
            }
            let Some(waiting) = all.get_mut(&id) else { return Answer::Failed("the answer is lost".into()) };
            if let Some(answer) = waiting.answer.take() {
                all.remove(&id);
                drop(all);
                return match answer {
                    Ok(bytes) => {
                        buf.copy_from_slice(&bytes);
                        Answer::Whole
                    }
                    Err(cause) => Answer::Failed(cause),
                };
            }
            match until {
                Some(until) if Instant::now() >= until => {
                    waiting.is_abandoned = true;
                    return Answer::Overdue;
                }
                Some(until) => _ = self.inbox.arrived.wait_until(&mut all, until),
                None => self.inbox.arrived.wait(&mut all),
            }
        }
    }

    fn write(&self, block: u64, bytes: &[u8]) -> Result<(), String> {
        self.file
            .write(Class::PageFlush, block * bytes.len() as u64, bytes)
            .map_err(|error| error.to_string())
    }

    fn on_late(&self, late: Late) {
        let _ = self.inbox.late.set(late);
    }
}
