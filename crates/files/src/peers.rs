//! Several daemons as one cache: each file has an owner among them, which the others ask before the store (Gopher §4.2).
//!
//! | module | holds |
//! | --- | --- |
//! | `ring` | which member owns which partition: pure |
//! | `view` | the members, which of them answer, and what is still to be fetched from which: pure |
//! | `frame`, `greet` | the protocol: frames with checksums; the proof of the shared secret |
//! | `link` | asking a peer |
//! | `serve` | answering peers |
//! | `give`, `take` | what moves when members come and go |
//! | `etcd` | members from etcd |
//!
//! What is promised. A peer is a shortcut, never an authority: whatever it does not answer, in time and intact, the store is asked for, and that is counted. It is asked
//! for a version that was current at most so long ago; the reader computes from what it knows how long that may be: by the freshness, by its own writes, and by what it
//! has read before. So a node never goes back to an older version than it has seen, and what it has written it reads.
//!
//! The owner's own flights never wait for flights of nodes that it asks: they are of other workers (`read`). So nodes that ask each other do not wait in a circle.
//!
//! Locks: each for memory work only; of two, `view` first. `line` of a link is held while a short frame is written, whose time is bounded.
//!
//! Not here: what is cached, and where bytes come from (`read::ask`, `read::moving`).

mod etcd;
pub mod frame;
pub mod give;
mod greet;
mod link;
pub mod ring;
mod serve;
mod take;
pub mod traffic;
mod view;

pub use greet::Secret;
pub use serve::Cached;
pub use view::Owner;

use crate::catalogue::{BLOCK_BYTES, Leased, Read};
use crate::memory::extents::Extent;
use crate::wire::Fields;
use frame::{Broken, Frame, fields, kind};
use give::{Given, Giving, Sent};
use link::{Link, LinkWorker, Missed};
use parking_lot::Mutex;
use ring::Set;
use serve::{Asked, Served};
use std::collections::HashMap;
use std::fmt::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use take::Taker;
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, WorkerHandle};
use traffic::{Traffic, count};
use view::View;

/// How long a peer is waited for, in nanoseconds.
pub const PATIENCE: Nanos = 500_000_000;
/// Bytes a second that are given of partitions that moved.
pub const RATE: u64 = 512 << 20;
/// Memory for one block that is being taken: as it came, decoded, and on its way to flash.
const TAKEN_BYTES: u64 = 24 << 20;

/// Where the list of members comes from.
#[derive(Clone, Debug)]
pub enum Members {
    Listed(Vec<String>),
    /// URLs of one etcd, and the prefix of the keys of this cache's members.
    Etcd {
        urls: Vec<String>,
        prefix: String,
    },
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub listen: SocketAddr,
    /// What others know this node by, and connect to.
    pub address: String,
    pub members: Members,
    pub secret: Secret,
    pub patience: Nanos,
    /// Bytes a second that are given of what moved; 0 is no limit.
    pub rate: u64,
}

/// Reads the file of the secret. It is refused if users other than its owner may read it.
pub fn read_secret(path: &Path) -> Result<Secret, String> {
    use std::os::unix::fs::PermissionsExt;
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    let mode = std::fs::metadata(path).map_err(named)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!("{}: others can read the secret: chmod 600", path.display()));
    }
    // Once, at the start: it is no file of the data path.
    #[allow(clippy::disallowed_methods)]
    let text = std::fs::read_to_string(path).map_err(named)?;
    Secret::new(text.trim().as_bytes())
        .ok_or_else(|| format!("{}: a secret has {} bytes or more", path.display(), greet::SECRET_MIN))
}

/// A read that a peer is asked for: a block of a file.
#[derive(Clone, Debug)]
pub struct Ask {
    pub path: Arc<str>,
    /// The version that it must be.
    pub expected: Option<Arc<str>>,
    pub index: u32,
    /// The longest block that there is room for; 0: only what is said of the file.
    pub max: u64,
    /// Nanoseconds since the version was current, at most.
    pub age_max: Nanos,
    /// Only if it is cached: the peer asks no other node.
    pub is_cached: bool,
}

impl Ask {
    fn encode(&self) -> Vec<u8> {
        fields(|put| {
            put.text(&self.path).text(self.expected.as_deref().unwrap_or_default()).u32(self.index);
            put.u64(self.max).u64(self.age_max).u8(u8::from(self.is_cached));
        })
    }

    fn decode(read: &mut Fields<'_>) -> Result<Ask, Broken> {
        let (path, expected, index) = (read.text()?.into(), read.some_text()?, read.u32()?);
        let (max, age_max, is_cached) = (read.u64()?.min(BLOCK_BYTES), read.u64()?, read.u8()? != 0);
        read.end()?;
        Ok(Ask { path, expected, index, max, age_max, is_cached })
    }
}

/// What a peer said.
pub struct Answer {
    pub version: Arc<str>,
    pub length: u64,
    /// Nanoseconds since the version was current, when the peer got the request.
    pub age: Nanos,
    frame: Frame,
    from: usize,
}

impl Answer {
    /// The block, whole; empty if it was not asked for or is longer than there is room for.
    pub fn bytes(&self) -> &[u8] {
        self.frame.fields().get(self.from..).unwrap_or_default()
    }
}

pub enum Reply {
    Found(Answer),
    NotHere,
    Seems,
}

/// What peers need of the daemon.
pub trait Node: Send + Sync {
    /// Begins a read, which is answered by [`Peers::deliver`].
    fn begin(&self, read: Read);
    /// Looks for what is cached, and answers by [`Peers::cached`].
    fn cached(&self, id: u64, ask: Ask);
    fn release(&self, leases: &[Leased]);
    /// Under a lease.
    fn bytes(&self, extent: Extent) -> &[u8];
    /// Another node has written the file.
    fn changed(&self, path: &Arc<str>);
    /// The next block of partitions that moved.
    fn give(&self, giving: &mut Giving, set: &Set) -> Given;
    /// The other node has kept it.
    fn moved(&self, sent: Sent);
    /// Keeps what was given, which was asked for at `began`; how many files.
    fn take(&self, given: Given, began: Nanos) -> Result<u64, Broken>;
}

pub struct Peers {
    pub(crate) world: World,
    settings: Settings,
    store: String,
    view: Mutex<View>,
    links: Mutex<HashMap<Arc<str>, (Arc<Link>, Box<dyn WorkerHandle>)>>,
    workers: Mutex<Vec<Box<dyn WorkerHandle>>>,
    served: Mutex<Vec<Served>>,
    node: OnceLock<Weak<dyn Node>>,
    asked: Mutex<HashMap<u64, Asked>>,
    next: AtomicU64,
    /// Bytes of the arena that are being sent, and the most of them.
    leased: AtomicU64,
    leased_max: u64,
    takers: usize,
    pace: Mutex<Pace>,
    /// Notified when something may be pending, and at the end.
    pending: Arc<Event>,
    stop: Event,
    is_stopping: AtomicBool,
    /// Why a peer refused this node, or was refused: the last time.
    refusal: Mutex<Option<String>>,
    etcd: Mutex<Option<String>>,
    pub traffic: Traffic,
}

/// Bytes a second: a schedule in which each block takes its time. Pure.
struct Pace {
    rate: u64,
    next: Nanos,
}

impl Pace {
    /// Nanoseconds after which the bytes may be sent.
    fn take(&mut self, bytes: u64, now: Nanos) -> Nanos {
        if self.rate == 0 {
            return 0;
        }
        let wait = self.next.saturating_sub(now);
        let takes = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate);
        self.next = self.next.max(now) + takes as Nanos;
        wait
    }
}

impl Peers {
    /// `arena` bytes are what blocks are sent from, `memory` is for blocks that are taken.
    pub fn new(world: World, settings: Settings, store: &str, arena: u64, memory: u64) -> Peers {
        let listed = match &settings.members {
            Members::Listed(list) => list.iter().map(|member| member.as_str().into()).collect(),
            Members::Etcd { .. } => Vec::new(),
        };
        Peers {
            view: Mutex::new(View::new(&settings.address, listed)),
            pace: Mutex::new(Pace { rate: settings.rate, next: 0 }),
            world,
            settings,
            store: store.to_string(),
            links: Mutex::default(),
            workers: Mutex::default(),
            served: Mutex::default(),
            node: OnceLock::new(),
            asked: Mutex::default(),
            next: AtomicU64::new(1),
            leased: AtomicU64::new(0),
            leased_max: (arena / 4).max(BLOCK_BYTES),
            takers: (memory / TAKEN_BYTES).clamp(1, take::TAKERS as u64) as usize,
            pending: Arc::default(),
            stop: Event::new(),
            is_stopping: AtomicBool::new(false),
            refusal: Mutex::default(),
            etcd: Mutex::default(),
            traffic: Traffic::default(),
        }
    }

    /// Listens, and speaks to the other members from now on.
    pub fn start(self: &Arc<Peers>, node: Weak<dyn Node>) -> Result<(), String> {
        let _ = self.node.set(node);
        let at = |error: std::io::Error| format!("{}: {error}", self.settings.listen);
        let listener = TcpListener::bind(self.settings.listen).map_err(at)?;
        let mut workers = self.workers.lock();
        let mut spawn = |worker| -> Result<(), String> {
            workers.push(self.world.sched.try_spawn(worker).map_err(at)?);
            Ok(())
        };
        spawn(Box::new(serve::Listener { peers: self.clone(), listener, wake: Arc::default() }))?;
        for _ in 0..self.takers {
            spawn(Box::new(Taker::new(self.clone())))?;
        }
        if let Members::Etcd { urls, prefix } = &self.settings.members {
            let members = etcd::Members::new(self.clone(), urls.clone(), prefix.clone());
            let watch = etcd::Watch::new(members.shared());
            spawn(Box::new(members))?;
            spawn(Box::new(watch))?;
        }
        drop(workers);
        self.connect_to_members();
        self.pending.notify();
        Ok(())
    }

    /// Ends all connections and threads. What waits for a peer asks the store.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        self.stop.notify();
        self.pending.notify();
        // Wakes the thread that accepts.
        let mut to = self.settings.listen;
        if to.ip().is_unspecified() {
            to.set_ip(match to {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let _ = TcpStream::connect_timeout(&to, Duration::from_secs(1));
        let links = std::mem::take(&mut *self.links.lock());
        links.values().for_each(|(link, worker)| {
            link.hang_up();
            worker.ask_to_stop();
        });
        let served = std::mem::take(&mut *self.served.lock());
        served.iter().for_each(Served::end);
        let workers = std::mem::take(&mut *self.workers.lock());
        workers.iter().for_each(|worker| worker.ask_to_stop());
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }
    fn node(&self) -> Option<Arc<dyn Node>> {
        self.node.get()?.upgrade()
    }
    fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The members are these now.
    fn list(&self, members: Vec<Arc<str>>) {
        if self.view.lock().list(members) {
            self.pending.notify();
        }
    }

    /// A link for each other member, and none for others. One thread calls it at a time.
    fn connect_to_members(self: &Arc<Peers>) {
        let others = self.view.lock().others();
        let gone: Vec<_> = {
            let mut links = self.links.lock();
            let gone: Vec<Arc<str>> = links.keys().filter(|name| !others.contains(name)).cloned().collect();
            for name in others {
                if links.contains_key(&name) || self.is_stopping() {
                    continue;
                }
                let link = Arc::new(Link::new(name.clone()));
                let worker = LinkWorker::new(self.clone(), link.clone());
                // Without a thread it is a peer that does not answer.
                if let Ok(worker) = self.world.sched.try_spawn(Box::new(worker)) {
                    links.insert(name, (link, worker));
                }
            }
            gone.iter().filter_map(|name| links.remove(name)).collect()
        };
        gone.iter().for_each(|(link, _)| link.hang_up());
    }

    fn heard(&self, member: &str, answers: bool) {
        if self.view.lock().heard(member, answers) {
            self.pending.notify();
        }
    }

    fn broke(&self, broken: &Broken) {
        count(&self.traffic.corrupt, u64::from(*broken == Broken::Corrupt));
    }

    fn refused(&self, whom: &str, why: String) {
        count(&self.traffic.refused, 1);
        *self.refusal.lock() = Some(format!("{whom}: {why}"));
    }

    pub fn owner(&self, path: &str) -> Owner {
        self.view.lock().owner(path)
    }
    pub fn is_mine(&self, path: &str) -> bool {
        matches!(self.owner(path), Owner::Me(_))
    }

    /// By the hash of a path, as `packing` knows paths.
    pub fn is_mine_by_mark(&self, mark: u64) -> bool {
        self.view.lock().is_mine(ring::partition_of_mark(mark))
    }

    fn link(&self, name: &str) -> Option<Arc<Link>> {
        self.links.lock().get(name).map(|(link, _)| link.clone())
    }

    /// None: there is no answer that is of use.
    pub fn ask(&self, name: &str, ask: &Ask) -> Option<Reply> {
        let traffic = &self.traffic;
        count(&traffic.asked, 1);
        let link = self.link(name);
        let asked = link
            .ok_or(Missed::Down)
            .and_then(|link| link.ask(&self.world, kind::READ, &ask.encode(), self.settings.patience));
        let missed = match asked {
            Err(Missed::Down) => &traffic.down,
            Err(Missed::Late) => &traffic.late,
            Ok(frame) => match frame.kind {
                kind::BYTES => match Peers::answer(frame) {
                    Ok(answer) if answer.age <= ask.age_max || ask.expected.is_some() => {
                        count(&traffic.got, 1);
                        count(&traffic.got_bytes, answer.bytes().len() as u64);
                        return Some(Reply::Found(answer));
                    }
                    Ok(_) => &traffic.stale,
                    Err(_) => &traffic.faults,
                },
                kind::NOT_HERE => {
                    count(&traffic.not_there, 1);
                    return Some(Reply::NotHere);
                }
                kind::SEEMS => return Some(Reply::Seems),
                _ => &traffic.faults,
            },
        };
        count(missed, 1);
        None
    }

    fn answer(frame: Frame) -> Result<Answer, Broken> {
        let mut read = Fields(frame.fields());
        let (version, length, age) = (Arc::from(read.text()?), read.u64()?, read.u64()?);
        let from = frame.fields().len() - read.0.len();
        Ok(Answer { version, length, age, frame, from })
    }

    /// This node has written the file: its owner is told, if it is there. Others find out by their own freshness.
    pub fn wrote(&self, path: &str) {
        if let Owner::Other(owner) = self.owner(path)
            && let Some(link) = self.link(&owner)
        {
            let told = fields(|put| {
                put.text(path);
            });
            link.tell(kind::CHANGED, &told);
        }
    }

    /// Figures, as JSON.
    pub fn status(&self) -> String {
        let (members, owned, pending) = self.view.lock().sizes();
        let text = |value: &str| value.replace(['"', '\\'], "'").replace(char::is_control, " ");
        let mut out =
            format!("{{\"peer_address\": \"{}\", \"peer_members\": [", text(&self.settings.address));
        for (at, (member, is_live)) in members.iter().enumerate() {
            let is_linked = self.link(member).is_some_and(|link| link.is_up());
            let comma = if at > 0 { ", " } else { "" };
            let _ = write!(
                out,
                "{comma}{{\"address\": \"{}\", \"live\": {is_live}, \"connected\": {is_linked}}}",
                text(member)
            );
        }
        let live = members.iter().filter(|(_, is_live)| *is_live).count();
        let _ = write!(
            out,
            "], \"peer_live\": {live}, \"peer_partitions\": {}, \"peer_partitions_owned\": {owned}, \"peer_partitions_pending\": {pending}, \
             \"peer_sending_bytes\": {}",
            ring::PARTITIONS,
            self.leased.load(Ordering::Relaxed)
        );
        for (name, problem) in [("peer_refusal", &self.refusal), ("peer_etcd_problem", &self.etcd)] {
            let problem = problem.lock().as_deref().map_or("null".into(), |why| format!("\"{}\"", text(why)));
            let _ = write!(out, ", \"{name}\": {problem}");
        }
        for (name, value) in self.traffic.figures() {
            let _ = write!(out, ", \"peer_{name}\": {value}");
        }
        out + "}"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_second_are_no_more_than_the_rate_and_the_first_waits_for_nothing() {
        let mut pace = Pace { rate: 1000, next: 0 };
        assert_eq!(pace.take(500, 5), 0);
        assert_eq!(pace.take(500, 5), 500_000_000);
        assert_eq!(pace.take(1, 5), 1_000_000_000);
        assert_eq!(pace.take(1, 10_000_000_000), 0, "what was not used is not kept");
        assert_eq!(Pace { rate: 0, next: 9 }.take(1 << 40, 0), 0);
    }
}
