//! Fetching what moved here: each thread takes the pending partitions of one former owner at a time, block by block, over a connection of its own.
//!
//! A block is kept before the next one is asked for, and with that request the giver learns that it may drop it. A connection that breaks, or a block that is not
//! what it says, ends the fetch; it is begun again a moment later, and gets what has not moved yet.

use super::Peers;
use super::frame::{self, Broken, fields, kind};
use super::give::Given;
use super::link::{self, FRAME_TIME};
use super::traffic::count;
use std::net::TcpStream;
use std::sync::Arc;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Step, Worker};

/// Between two attempts, in nanoseconds.
const RETRY: Nanos = 200_000_000;
/// Former owners that are asked at a time.
pub(super) const TAKERS: usize = 4;
/// A giver that has to wait for its rate says nothing meanwhile: turns of [`FRAME_TIME`].
const TURNS: usize = 10;

/// A fetch from a former owner.
struct Fetch {
    source: Arc<str>,
    stream: TcpStream,
    /// The last block that was kept.
    kept: u64,
}

pub(super) struct Taker {
    peers: Arc<Peers>,
    fetch: Option<Fetch>,
}

impl Taker {
    pub fn new(peers: Arc<Peers>) -> Taker {
        Taker { peers, fetch: None }
    }

    /// Begins a fetch. None: nothing is pending that no other thread fetches.
    fn begin(&self) -> Option<Result<Fetch, Arc<str>>> {
        let source = self.peers.view.lock().claim()?;
        let stream = link::connect(&self.peers, &source).ok();
        let stream = stream.filter(|stream| stream.set_read_timeout(Some(FRAME_TIME)).is_ok());
        Some(stream.map(|stream| Fetch { source: source.clone(), stream, kept: 0 }).ok_or(source))
    }

    /// Takes a block. True: there is no more.
    fn turn(&self, fetch: &mut Fetch) -> Result<bool, Broken> {
        let peers = &self.peers;
        let set = peers.view.lock().pending_from(&fetch.source);
        let node = peers.node().ok_or(Broken::Closed)?;
        let ask = fields(|put| {
            put.u64(fetch.kept).bytes(&set.to_bytes());
        });
        let began = peers.world.clock.now();
        frame::send(&mut fetch.stream, 1, kind::NEXT, &ask, &[])?;
        let silent = || Broken::Io("it does not answer".into());
        let mut turns = (0..TURNS).filter_map(|_| match peers.is_stopping() {
            true => Some(Err(Broken::Closed)),
            false => frame::receive(&mut fetch.stream, frame::FRAME_MAX).transpose(),
        });
        let frame = turns.next().ok_or_else(silent)??;
        if frame.kind != kind::GIVEN {
            return Err(Broken::Malformed("it is not what was asked for"));
        }
        let (id, body) = frame.fields().split_at_checked(8).ok_or(Broken::Malformed("it has no number"))?;
        let given = Given::decode(body)?;
        let ended = given.ended;
        let bytes = given.packed.len() + given.larges.iter().map(|large| large.bytes.len()).sum::<usize>();
        let files = node.take(given, began)?;
        count(&peers.traffic.taken_blocks, u64::from(bytes > 0));
        count(&peers.traffic.taken_files, files);
        count(&peers.traffic.taken_bytes, bytes as u64);
        fetch.kept = id.try_into().map_or(0, u64::from_le_bytes);
        if ended {
            let goes_on = peers.view.lock().given(&fetch.source, &set);
            if goes_on {
                peers.pending.notify();
            }
        }
        Ok(ended || set.is_empty())
    }
}

impl Worker for Taker {
    fn name(&self) -> &'static str {
        "files-peer-take"
    }

    fn step(&mut self) -> Step {
        if self.peers.is_stopping() {
            return Step::Idle;
        }
        let mut fetch = match self.fetch.take() {
            Some(fetch) => fetch,
            None => match self.begin() {
                None => return Step::Idle,
                Some(Ok(fetch)) => fetch,
                Some(Err(source)) => {
                    self.peers.view.lock().unclaim(&source);
                    count(&self.peers.traffic.take_failures, 1);
                    return Step::IdleFor(RETRY);
                }
            },
        };
        match self.turn(&mut fetch) {
            Ok(false) => {
                self.fetch = Some(fetch);
                Step::Worked
            }
            Ok(true) => {
                self.peers.view.lock().unclaim(&fetch.source);
                Step::Worked
            }
            Err(broken) => {
                self.peers.view.lock().unclaim(&fetch.source);
                count(&self.peers.traffic.take_failures, 1);
                self.peers.broke(&broken);
                Step::IdleFor(RETRY)
            }
        }
    }

    fn wake_event(&self) -> Arc<Event> {
        self.peers.pending.clone()
    }
}
